//! Connections on real sockets, at times that the test chooses.

use super::*;
use kumo_paxos::{CellId, Hello, Incarnation, MAGIC, Settings, Side, VERSION};
use kumo_pfs::Pfs;
use kumo_session::{CellSettings, ClientMessage, Greeting};
use kumo_wire::{Wire, Writer, frame};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

#[tokio::test]
async fn a_client_that_stops_inside_a_message_is_cut_off() {
    let mut door = Door::open().await;
    let mut message = framed(&ClientMessage::Status { tag: 7 });
    message.pop().expect("the last byte does not come");
    let next_to_last = message.pop().expect("it has more");
    door.client.write_all(&message).await.unwrap();
    door.read(START, |arrival, _| arrival.is_inside_frame()).await;
    // As long as it goes on, however slowly, it is waited for.
    door.client.write_all(&[next_to_last]).await.unwrap();
    let moved = START.plus_micros(FRAME_PAUSE_MICROS / 2);
    door.read(moved, |arrival, _| !arrival.is_silent_since(START)).await;
    door.pass(START.plus_micros(FRAME_PAUSE_MICROS));
    assert_eq!(door.stage(), Some(Stage::Client));
    door.pass(START.plus_micros(2 * FRAME_PAUSE_MICROS));
    assert_eq!(door.stage(), Some(Stage::Leaving));
    assert!(matches!(door.inputs[..], [Input::ClientUp(up), Input::ClientDown(down)] if up == down));
}

#[tokio::test]
async fn a_client_between_messages_may_be_silent() {
    let mut door = Door::open().await;
    door.client.write_all(&framed(&ClientMessage::Status { tag: 7 })).await.unwrap();
    door.read(START, |_, inputs| inputs.len() == 2).await;
    for minutes in 1..10 {
        door.pass(START.plus_micros(minutes * FRAME_PAUSE_MICROS));
    }
    assert_eq!(door.stage(), Some(Stage::Client));
}

#[tokio::test]
async fn clients_leave_room_for_the_others() {
    let mut door = Door::open().await;
    door.arrivals.clients_max = 2;
    let (second, _second) = door.come(Side::Client).await;
    let (third, _third) = door.come(Side::Client).await;
    let (replica, _replica) = door.come(Side::Replica).await;
    let stage = |door: &Door, id| door.arrivals.get(id).map(|arrival| arrival.stage);
    assert_eq!(stage(&door, second), Some(Stage::Client));
    assert_eq!(stage(&door, third), Some(Stage::Leaving));
    assert!(matches!(stage(&door, replica), Some(Stage::Replica { .. })));
    // Who leaves makes room.
    door.arrivals.hang_up(START, second, &mut door.inputs);
    let (fourth, _fourth) = door.come(Side::Client).await;
    assert_eq!(stage(&door, fourth), Some(Stage::Client));
}

/// One client at a node's door, greeted.
struct Door {
    listener: TcpListener,
    client: TcpStream,
    arrivals: Arrivals,
    ready: Arc<ReadyList>,
    cell: Cell<Pfs>,
    id: ConnectionId,
    inputs: Vec<Input>,
}

impl Door {
    async fn open() -> Door {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut client = TcpStream::connect(address).await.unwrap();
        let (stream, from) = listener.accept().await.unwrap();
        let ready = Arc::new(ReadyList::default());
        let mut arrivals = Arrivals::new(ready.clone(), false);
        arrivals.accept(START, stream, from);
        client.write_all(&framed(&Greeting::Hello(hello(from, Side::Client)))).await.unwrap();
        let id = ConnectionId(1 << 32);
        let cell = cell(address);
        let mut door = Door { listener, client, arrivals, ready, cell, id, inputs: Vec::new() };
        door.read(START, |arrival, _| arrival.stage == Stage::Client).await;
        door
    }

    /// Another one connects, and says what it is.
    async fn come(&mut self, side: Side) -> (ConnectionId, TcpStream) {
        let mut client = TcpStream::connect(self.listener.local_addr().unwrap()).await.unwrap();
        let (stream, from) = self.listener.accept().await.unwrap();
        self.arrivals.accept(START, stream, from);
        client.write_all(&framed(&Greeting::Hello(hello(from, side)))).await.unwrap();
        let newest = self.arrivals.slots.len() as u64 - 1;
        let (before, id) = (self.id, ConnectionId(1 << 32 | newest));
        self.id = id;
        self.read(START, |arrival, _| arrival.stage != Stage::Greeting).await;
        self.id = before;
        (id, client)
    }

    /// Reads what comes until it is so.
    async fn read(&mut self, now: Time, until: impl Fn(&Arrival, &[Input]) -> bool) {
        let mut tokens = Vec::new();
        loop {
            self.ready.take(&mut tokens);
            for token in tokens.drain(..) {
                let Token::Arrival(id) = token else { continue };
                self.arrivals.wake(now, id, &self.cell, &mut self.inputs);
            }
            if self.arrivals.get(self.id).is_some_and(|arrival| until(arrival, &self.inputs)) {
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    fn pass(&mut self, now: Time) {
        self.arrivals.expire(now, &mut self.inputs);
    }

    fn stage(&self) -> Option<Stage> {
        self.arrivals.get(self.id).map(|arrival| arrival.stage)
    }
}

fn cell(address: SocketAddr) -> Cell<Pfs> {
    let paxos = Settings {
        address,
        peers: Vec::new(),
        extension: false,
        incarnation: Incarnation(1),
        unit_micros: 100_000,
        entropy: 1,
        durable: false,
        forms_after_micros: 0,
    };
    let settings = CellSettings { session_timeout_micros: 10_000_000, sessions_max: 10 };
    Cell::new(paxos, settings, Pfs::default(), START)
}

fn hello(address: SocketAddr, side: Side) -> Hello {
    Hello {
        magic: MAGIC,
        version: VERSION,
        cell: CellId::default(),
        generation: 0,
        side,
        address,
        incarnation: Incarnation::default(),
    }
}

fn framed(value: &impl Wire) -> Vec<u8> {
    let mut out = Writer::default();
    frame::put(value, &mut out);
    out.into_bytes().to_vec()
}

const START: Time = Time(1_000_000_000);
