//! How much clients may ask for, and that nobody waits for ever: clients on real sockets, with a test in the place of the
//! gateway's core.

use super::*;
use crate::hub::Happening;
use crate::store::gateway::GatewayConfig;
use kumo_cluster::{Early, Operation};
use std::future::poll_fn;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::task::Poll;
use std::time::Duration;

mod room;
mod said;
mod surprise;

/// A worker's clients and sockets, and the calls that nobody answered yet.
struct Desk {
    clients: Clients,
    hub: Hub,
    door: TcpListener,
    happened: VecDeque<Happening>,
    inputs: Vec<GatewayInput>,
    now: Time,
    /// The most that was answered on the spot in one turn.
    said_max: usize,
}

impl Desk {
    fn new() -> Desk {
        let shared = Arc::new(Shared::new(config()));
        let metrics = shared.metrics.workers()[0].clone();
        Desk {
            clients: Clients::new(shared, metrics),
            hub: Hub::new(Duration::from_secs(60)),
            door: TcpListener::bind("127.0.0.1:0").unwrap(),
            happened: VecDeque::new(),
            inputs: Vec::new(),
            now: Time(0),
            said_max: 0,
        }
    }

    /// A client that sent this.
    fn client(&mut self, sent: &[u8]) -> (ConnectionId, TcpStream) {
        let mut stream = TcpStream::connect(self.door.local_addr().unwrap()).unwrap();
        let (guest, _) = self.door.accept().unwrap();
        guest.set_nonblocking(true).unwrap();
        let id = self.hub.take_in(guest).unwrap();
        self.clients.up(id, &mut self.inputs);
        stream.write_all(sent).unwrap();
        (id, stream)
    }

    /// Turns as those of a worker, until it wants no more of them and this holds.
    async fn until(&mut self, mut holds: impl FnMut(&mut Desk) -> bool) {
        poll_fn(|context| {
            self.hub.poll(context, &mut self.happened);
            for happening in std::mem::take(&mut self.happened) {
                match happening {
                    Happening::Readable(id) => {
                        self.clients.read(self.now, id, &mut self.hub, &mut self.inputs);
                    }
                    Happening::Ended(id) => self.clients.ended(id, &mut self.hub),
                    Happening::Closed { id, .. } => self.clients.down(id, &mut self.inputs),
                    Happening::Accepted { .. } | Happening::Dialled(_) => {}
                }
            }
            self.said_max = self.said_max.max(self.clients.said);
            self.clients.timeout(self.now, &mut self.hub, &mut self.inputs);
            self.hub.flush(&mut self.happened);
            if self.clients.has_more(&self.hub) || !self.happened.is_empty() {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            if holds(self) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await
    }

    /// Answers all calls that are under way with that value. Returns how many there were.
    fn answer(&mut self, data: &Bytes) -> usize {
        let calls = std::mem::take(&mut self.inputs);
        for call in &calls {
            let GatewayInput::Call { ticket, .. } = call else { panic!("only calls here") };
            let value = Reply::Value { clock: 1, flags: 0, ttl: None, data: data.clone() };
            self.clients.done(self.now, *ticket, Ok(Answer::Reply(value)), &mut self.hub, &mut self.inputs);
        }
        calls.len()
    }

    /// Requests that were read and are not answered.
    fn asked(&self) -> usize {
        self.clients.clients.iter().map(|(_, client)| client.entries.len()).sum()
    }

    /// The calls of that key that are under way.
    fn calls_of(&self, key: &str) -> usize {
        let is_it = |call: &&GatewayInput| matches!(call, GatewayInput::Call { key: its, .. } if its == key);
        self.inputs.iter().filter(is_it).count()
    }

    /// Answers the first call of that key once it is under way, and no other.
    async fn answer_to(&mut self, key: &str, reply: Reply) {
        self.end(key, Ok(Answer::Reply(reply))).await;
    }

    /// As [`answer_to`](Desk::answer_to), however it ends.
    async fn end(&mut self, key: &str, result: Result<Answer, GatewayError>) {
        self.until(|desk| desk.calls_of(key) > 0).await;
        let is_it = |call: &GatewayInput| matches!(call, GatewayInput::Call { key: its, .. } if its == key);
        let at = self.inputs.iter().position(is_it).unwrap();
        let GatewayInput::Call { ticket, .. } = self.inputs.remove(at) else { unreachable!() };
        self.clients.done(self.now, ticket, result, &mut self.hub, &mut self.inputs);
    }

    /// Values that were answered and not told, of all clients.
    fn unwritten(&self) -> usize {
        self.clients.clients.iter().map(|(_, client)| client.unwritten).sum()
    }
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // Far beyond what a busy machine needs: who waits so long waits for a turn that never comes.
    let ended = runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), test).await });
    ended.expect("nobody waits for ever");
}

/// Nobody answers: what is under way stays so.
#[test]
fn of_many_clients_that_ask_for_large_values_few_calls_are_under_way() {
    run(async {
        let mut desk = Desk::new();
        let guests: Vec<_> = (0..100).map(|_| desk.client("get large\r\n".repeat(4).as_bytes())).collect();
        desk.until(|desk| desk.asked() == 4 * guests.len()).await;
        let calls = desk.inputs.len();
        assert!((1..=48).contains(&calls), "each taken for a megabyte: {calls}");
        assert!(desk.clients.budget.bytes <= UNKNOWN_BYTES_MAX);
    });
}

#[test]
fn all_have_their_turn_when_memory_is_short() {
    run(async {
        let mut desk = Desk::new();
        let data = Bytes::from(vec![b'v'; 300 << 10]);
        let bytes = 4 * answer_bytes(&data);
        let readers: Vec<_> = (0..100)
            .map(|_| {
                let (_, stream) = desk.client("get large\r\n".repeat(4).as_bytes());
                std::thread::spawn(move || read_exactly(&stream, bytes))
            })
            .collect();
        let mut answered = 0;
        while answered < 4 * readers.len() {
            desk.until(|desk| !desk.inputs.is_empty()).await;
            assert!(desk.clients.budget.bytes <= UNKNOWN_BYTES_MAX);
            answered += desk.answer(&data);
        }
        desk.until(|desk| !desk.hub.has_output()).await;
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        assert_eq!((desk.clients.budget.bytes, desk.clients.stalled.len()), (0, 0));
    });
}

/// Its answers may be taken in one go, and nothing else happens that would lead to another turn.
#[test]
fn a_client_that_reads_again_is_served_again() {
    run(async {
        let mut desk = Desk::new();
        let (id, stream) = desk.client("get large\r\n".repeat(30).as_bytes());
        let large = Bytes::from(vec![b'v'; 1 << 20]);
        desk.until(|desk| !desk.inputs.is_empty()).await;
        let (mut answered, mut read) = (0, 0);
        while answered < 30 {
            answered += desk.answer(&large);
            desk.until(|_| true).await;
            if answered < 30 && desk.inputs.is_empty() {
                assert!(desk.hub.backlog(id) > BACKLOG_BYTES_MAX, "it waits because it does not read");
                read += drain(&stream);
                let (reader, rest) = (stream.try_clone().unwrap(), answered * answer_bytes(&large) - read);
                let reading = std::thread::spawn(move || read_exactly(&reader, rest));
                desk.until(|desk| !desk.inputs.is_empty()).await;
                desk.until(|desk| !desk.hub.has_output()).await;
                reading.join().unwrap();
                read += rest;
            }
        }
    });
}

const LARGE_COUNT: usize = 200;

/// A client that reads nothing of large answers, until no more is fetched for it.
async fn deaf(desk: &mut Desk) -> (ConnectionId, TcpStream) {
    // More than any kernel takes for it.
    let (id, stream) = desk.client("get large\r\n".repeat(LARGE_COUNT).as_bytes());
    desk.until(|desk| !desk.inputs.is_empty()).await;
    while !desk.inputs.is_empty() {
        desk.answer(&Bytes::from(vec![b'v'; 1 << 20]));
        desk.until(|_| true).await;
    }
    (id, stream)
}

#[test]
fn where_too_much_is_unread_those_who_read_have_a_value_at_a_time() {
    run(async {
        let mut desk = Desk::new();
        desk.hub.bound_left(1, u32::MAX);
        let (id, _deaf) = deaf(&mut desk).await;
        assert!(desk.hub.is_crowded() && desk.hub.left(id) > 0);
        let (reader, stream) = desk.client("get large\r\n".repeat(8).as_bytes());
        let data = Bytes::from(vec![b'v'; 300 << 10]);
        let bytes = 8 * answer_bytes(&data);
        let reading = std::thread::spawn(move || read_exactly(&stream, bytes));
        for _ in 0..8 {
            desk.until(|desk| !desk.inputs.is_empty()).await;
            assert_eq!(desk.answer(&data), 1);
        }
        desk.until(|desk| desk.hub.backlog(reader) == 0).await;
        reading.join().unwrap();
        assert!(desk.clients.clients.get(id).is_some(), "it is waited for");
    });
}

#[test]
fn where_too_much_is_unread_who_has_read_nothing_for_long_is_cut_off() {
    run(async {
        let mut desk = Desk::new();
        desk.hub.bound_left(1, 0);
        let (id, mut stream) = deaf(&mut desk).await;
        desk.until(|desk| desk.clients.clients.get(id).is_none()).await;
        assert!(!desk.hub.is_crowded());
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        assert!(rest.len() < LARGE_COUNT << 20, "it is closed");
    });
}

#[test]
fn what_was_read_and_not_called_is_bounded() {
    run(async {
        let mut desk = Desk::new();
        let line = format!("get{}\r\n", " large".repeat(KEYS_MAX));
        let data = Bytes::from_static(b"v");
        let bytes = 3 * (KEYS_MAX * (answer_bytes(&data) - 5) + 5);
        let (id, stream) = desk.client(b"");
        let mut writer = stream.try_clone().unwrap();
        let writing = std::thread::spawn(move || writer.write_all(line.repeat(3).as_bytes()).unwrap());
        let reading = std::thread::spawn(move || read_exactly(&stream, bytes));
        let mut answered = 0;
        while answered < 3 * KEYS_MAX {
            desk.until(|desk| !desk.inputs.is_empty()).await;
            let waiting = desk.clients.clients.get(id).unwrap().uncalled.len();
            assert!(waiting < KEYS_MAX + 4096, "{waiting}");
            answered += desk.answer(&data);
        }
        desk.until(|desk| !desk.hub.has_output()).await;
        writing.join().unwrap();
        reading.join().unwrap();
    });
}

/// Flushes that are under way by now.
fn flushes(desk: &Desk) -> usize {
    desk.inputs.iter().filter(|input| matches!(input, GatewayInput::Flush { .. })).count()
}

#[test]
fn of_flushes_that_are_put_off_the_last_counts() {
    run(async {
        let mut desk = Desk::new();
        let second = |seconds: u64| Time(seconds * 1_000_000);
        let (_, mut stream) = desk.client(b"flush_all 10\r\nflush_all 20\r\n");
        desk.until(|desk| desk.clients.deadline() == Some(second(20))).await;
        expect(&mut desk, &stream, "OK\r\nOK\r\n").await;
        desk.now = second(19);
        desk.until(|_| true).await;
        assert_eq!(flushes(&desk), 0);
        desk.now = second(20);
        desk.until(|desk| flushes(desk) == 1).await;
        assert_eq!(desk.clients.deadline(), None);
        // One at once takes the place of what was put off, too.
        stream.write_all(b"flush_all 5\r\nflush_all\r\n").unwrap();
        desk.until(|desk| flushes(desk) == 2).await;
        assert_eq!(desk.clients.deadline(), None);
    });
}

#[test]
fn a_line_of_too_many_keys_is_refused_and_the_next_is_served() {
    run(async {
        let mut desk = Desk::new();
        let sent = format!("get{}\r\nget one\r\n", " k".repeat(KEYS_MAX + 1));
        let (_, stream) = desk.client(sent.as_bytes());
        desk.until(|desk| !desk.inputs.is_empty()).await;
        assert_eq!(desk.inputs.len(), 1, "none of the many is called");
        assert!(
            matches!(&desk.inputs[0], GatewayInput::Call { operation: Operation::Get, key, .. } if key == "one")
        );
        desk.answer(&Bytes::from_static(b"v"));
        desk.until(|desk| !desk.hub.has_output()).await;
        let expected =
            "CLIENT_ERROR too many keys in one line, at most 16384\r\nVALUE one 0 1\r\nv\r\nEND\r\n";
        let mut said = vec![0; expected.len()];
        (&stream).read_exact(&mut said).unwrap();
        assert_eq!(String::from_utf8(said).unwrap(), expected);
    });
}

/// It had small values, so that many of its requests may be under way; then those of a server that does not answer.
#[test]
fn a_client_that_is_not_answered_holds_up_nobody() {
    run(async {
        let mut desk = Desk::new();
        let (id, mut stuck) = desk.client("get small\r\n".repeat(64).as_bytes());
        let mut answered = 0;
        while answered < 64 {
            desk.until(|desk| !desk.inputs.is_empty()).await;
            answered += desk.answer(&Bytes::from_static(b"v"));
        }
        stuck.write_all("get stopped\r\n".repeat(1024).as_bytes()).unwrap();
        desk.until(|desk| desk.clients.clients.get(id).unwrap().entries.len() == 1024).await;
        let calls = desk.calls_of("stopped");
        assert!((4..=85).contains(&calls), "no more than 4 MiB for one client: {calls}");

        let (_, other) = desk.client(b"set mine 0 0 1\r\nv\r\nget mine\r\n");
        desk.answer_to("mine", Reply::Done { clock: 1 }).await;
        desk.answer_to("mine", one_byte()).await;
        expect(&mut desk, &other, "STORED\r\nVALUE mine 0 1\r\nv\r\nEND\r\n").await;
    });
}

#[test]
fn a_crowd_that_is_not_answered_holds_up_no_writes_and_reads_not_for_long() {
    run(async {
        let mut desk = Desk::new();
        let crowd: Vec<_> = (0..30).map(|_| desk.client("get stopped\r\n".repeat(4).as_bytes())).collect();
        desk.until(|desk| desk.asked() == 4 * crowd.len()).await;
        let calls = desk.calls_of("stopped");
        assert_eq!(calls, 48, "each taken for a megabyte");

        let (_, other) =
            desk.client(b"set mine 0 0 1\r\nv\r\nget mine\r\nget mine\r\nset last 0 0 1\r\nv\r\n");
        desk.answer_to("mine", Reply::Done { clock: 1 }).await;
        expect(&mut desk, &other, "STORED\r\n").await;
        assert_eq!(
            (desk.calls_of("mine"), desk.calls_of("last")),
            (0, 0),
            "in order, and there is no memory"
        );
        for _ in 0..2 {
            desk.now = desk.clients.deadline().expect("who waits for memory is looked at again");
            desk.until(|_| true).await;
        }
        let spared = desk.calls_of("stopped") - calls;
        assert!(spared < crowd.len(), "one for each that had none: {spared}");
        for _ in 0..2 {
            desk.answer_to("mine", one_byte()).await;
            assert_eq!(desk.calls_of("mine"), 0, "one at a time");
        }
        desk.answer_to("last", Reply::Done { clock: 2 }).await;
        let value = "VALUE mine 0 1\r\nv\r\nEND\r\n";
        expect(&mut desk, &other, &format!("{value}{value}STORED\r\n")).await;
    });
}

#[test]
fn small_values_do_not_stand_in_line_with_large_ones() {
    run(async {
        let mut desk = Desk::new();
        let (_, mut light) = desk.client("get small\r\n".repeat(64).as_bytes());
        let mut answered = 0;
        while answered < 64 {
            desk.until(|desk| !desk.inputs.is_empty()).await;
            answered += desk.answer(&Bytes::from_static(b"v"));
        }
        expect(&mut desk, &light, &"VALUE small 0 1\r\nv\r\nEND\r\n".repeat(64)).await;
        let crowd: Vec<_> = (0..30).map(|_| desk.client("get large\r\n".repeat(4).as_bytes())).collect();
        desk.until(|desk| desk.asked() == 4 * crowd.len()).await;
        assert_eq!(desk.calls_of("large"), 48, "as many as there is memory for");
        for _ in 0..10 {
            light.write_all(b"get mine\r\n").unwrap();
            desk.answer_to("mine", one_byte()).await;
            expect(&mut desk, &light, "VALUE mine 0 1\r\nv\r\nEND\r\n").await;
        }
        assert_eq!(desk.calls_of("large"), 48);
    });
}

/// The first of many keys is on a server that does not answer.
#[test]
fn values_behind_one_that_is_not_answered_are_bounded() {
    run(async {
        let mut desk = Desk::new();
        let (_, mut stream) = desk.client(format!("get stopped{}\r\n", " large".repeat(100)).as_bytes());
        desk.until(|desk| desk.calls_of("stopped") == 1 && desk.calls_of("large") > 0).await;
        let data = Bytes::from(vec![b'v'; 1 << 20]);
        let mut answered = 0;
        while desk.calls_of("large") > 0 {
            let value = Reply::Value { clock: 1, flags: 0, ttl: None, data: data.clone() };
            desk.answer_to("large", value).await;
            answered += 1;
        }
        assert!(answered <= 10, "more than it is worth to hold: {answered}");
        let reading = std::thread::spawn(move || std::io::copy(&mut stream, &mut std::io::sink()));
        desk.answer_to("stopped", one_byte()).await;
        desk.until(|desk| desk.calls_of("large") > 0).await;
        drop(desk);
        let _ = reading.join().unwrap();
    });
}

/// The first of many keys is on a server that does not answer in time.
#[test]
fn values_behind_one_that_failed_hold_up_nobody() {
    run(async {
        let mut desk = Desk::new();
        let line = format!("get stopped{}\r\n", " large".repeat(20));
        let (_, mut stream) = desk.client(line.as_bytes());
        desk.until(|desk| desk.calls_of("stopped") == 1).await;
        let data = Bytes::from(vec![b'v'; 1 << 20]);
        let value = || Reply::Value { clock: 1, flags: 0, ttl: None, data: data.clone() };
        while desk.calls_of("large") > 0 {
            desk.answer_to("large", value()).await;
        }
        assert!(desk.unwritten() > UNWRITTEN_BYTES_MAX);
        desk.end("stopped", Err(GatewayError::TimedOut)).await;
        assert_eq!(desk.unwritten(), 0, "nobody will be told of them");
        while desk.asked() > 0 {
            desk.answer_to("large", value()).await;
            assert_eq!(desk.unwritten(), 0);
        }
        let failed = format!("SERVER_ERROR {}\r\n", GatewayError::TimedOut);
        expect(&mut desk, &stream, &failed).await;
        stream.write_all(b"get mine\r\n").unwrap();
        desk.answer_to("mine", one_byte()).await;
        expect(&mut desk, &stream, "VALUE mine 0 1\r\nv\r\nEND\r\n").await;
    });
}

/// What stands before the first failure is told, whatever order the answers came in.
#[test]
fn of_several_failures_the_first_key_is_told() {
    run(async {
        let mut desk = Desk::new();
        let (_, stream) = desk.client(b"get one two three four\r\n");
        desk.answer_to("four", one_byte()).await;
        desk.end("three", Err(GatewayError::NoServers)).await;
        desk.end("two", Err(GatewayError::TimedOut)).await;
        assert_eq!(desk.unwritten(), 0);
        desk.answer_to("one", one_byte()).await;
        let told = format!("VALUE one 0 1\r\nv\r\nSERVER_ERROR {}\r\n", GatewayError::TimedOut);
        expect(&mut desk, &stream, &told).await;
        assert_eq!(desk.unwritten(), 0);
    });
}

#[test]
fn who_asks_about_values_without_reading_them_is_served_on() {
    run(async {
        let mut desk = Desk::new();
        let (_, mut stream) = desk.client(b"");
        let data = Bytes::from(vec![b'v'; 1 << 20]);
        for _ in 0..10 {
            for (ask, told) in [("mg k\r\n", "HD\r\n"), ("me k\r\n", "ME k exp=-1 cas=1 size=1048576\r\n")] {
                stream.write_all(ask.as_bytes()).unwrap();
                desk.until(|desk| !desk.inputs.is_empty()).await;
                desk.answer(&data);
                expect(&mut desk, &stream, told).await;
                assert_eq!(desk.unwritten(), 0);
            }
        }
    });
}

fn one_byte() -> Reply {
    Reply::Value { clock: 1, flags: 0, ttl: None, data: Bytes::from_static(b"v") }
}

/// The client is told this next.
async fn expect(desk: &mut Desk, mut stream: &TcpStream, expected: &str) {
    desk.until(|desk| !desk.hub.has_output()).await;
    let mut said = vec![0; expected.len()];
    stream.read_exact(&mut said).unwrap();
    assert_eq!(String::from_utf8(said).unwrap(), expected);
}

/// Of the answer to `get large` with that value.
fn answer_bytes(data: &Bytes) -> usize {
    format!("VALUE large 0 {}\r\n\r\nEND\r\n", data.len()).len() + data.len()
}

/// Reads what is there now.
fn drain(mut stream: &TcpStream) -> usize {
    stream.set_nonblocking(true).unwrap();
    let mut piece = vec![0; 1 << 20];
    let mut count = 0;
    while let Ok(read @ 1..) = stream.read(&mut piece) {
        count += read;
    }
    stream.set_nonblocking(false).unwrap();
    count
}

fn read_exactly(stream: &TcpStream, bytes: usize) {
    let read = std::io::copy(&mut stream.take(bytes as u64), &mut std::io::sink()).unwrap();
    assert_eq!(read, bytes as u64);
}

fn config() -> GatewayConfig {
    let second = Duration::from_secs(1);
    GatewayConfig {
        managers: Vec::new(),
        get_retry_max: 1,
        set_retry_max: 1,
        delete_retry_max: 1,
        renew_threshold: 1,
        try_for: second,
        request_for: second,
        early: Early::default(),
        spread_reads: false,
        keepalive: second,
        dial_for: second,
        key_prefix: Vec::new(),
        value_bytes_max: 1 << 20,
        connections_max: 1000,
        allow_flush: true,
        credentials: None,
        workers: 1,
        linger: kumo_link::LINGER,
        http: None,
    }
}
