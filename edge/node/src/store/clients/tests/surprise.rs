//! Clients that have read small values and ask for large ones.

use super::*;

const MEBIBYTE: usize = 1 << 20;

/// A client whose values were small until now.
async fn warm(desk: &mut Desk) -> (ConnectionId, TcpStream) {
    let (id, stream) = desk.client("get small\r\n".repeat(64).as_bytes());
    let mut answered = 0;
    while answered < 64 {
        desk.until(|desk| !desk.inputs.is_empty()).await;
        answered += desk.answer(&Bytes::from_static(b"v"));
    }
    expect(desk, &stream, &"VALUE small 0 1\r\nv\r\nEND\r\n".repeat(64)).await;
    (id, stream)
}

fn gets(keys: std::ops::Range<usize>) -> String {
    keys.map(|key| format!("get k{key}\r\n")).collect()
}

fn value(bytes: usize) -> Reply {
    Reply::Value { clock: 1, flags: 0, ttl: None, data: Bytes::from(vec![b'v'; bytes]) }
}

/// Reads values of that size, of these keys in this order.
fn read_in_order(stream: TcpStream, count: usize, bytes: usize) {
    let mut stream = std::io::BufReader::new(stream);
    for key in 0..count {
        let mut said = vec![0; format!("VALUE k{key} 0 {bytes}\r\n").len() + bytes + "\r\nEND\r\n".len()];
        stream.read_exact(&mut said).unwrap();
        assert!(said.starts_with(format!("VALUE k{key} 0 {bytes}\r\n").as_bytes()), "k{key} in its turn");
        assert!(said.ends_with(b"v\r\nEND\r\n"));
    }
}

/// Answers that clients have not taken.
fn held(desk: &Desk) -> usize {
    let backlog: usize = desk.clients.clients.iter().map(|(id, _)| desk.hub.backlog(id)).sum();
    backlog + desk.unwritten()
}

#[test]
fn large_values_for_who_read_small_ones_do_not_fill_the_memory_and_all_are_told() {
    const CLIENTS: usize = 20;
    const KEYS: usize = 85;
    run(async {
        let mut desk = Desk::new();
        let mut streams = Vec::new();
        for _ in 0..CLIENTS {
            streams.push(warm(&mut desk).await.1);
        }
        for stream in &mut streams {
            stream.write_all(gets(0..KEYS).as_bytes()).unwrap();
        }
        desk.until(|desk| desk.asked() == CLIENTS * KEYS).await;
        assert!(desk.inputs.len() > 1000, "taken for small ones: {}", desk.inputs.len());
        let data = Bytes::from(vec![b'v'; MEBIBYTE]);
        while !desk.inputs.is_empty() {
            desk.answer(&data);
            let bound = UNKNOWN_BYTES_MAX + CLIENTS * (BACKLOG_BYTES_MAX + 2 * MEBIBYTE);
            assert!(held(&desk) <= bound, "{} MiB", held(&desk) >> 20);
            desk.until(|_| true).await;
        }
        let readers: Vec<_> = streams
            .into_iter()
            .map(|stream| std::thread::spawn(move || read_in_order(stream, KEYS, MEBIBYTE)))
            .collect();
        while desk.asked() > 0 {
            desk.until(|desk| !desk.inputs.is_empty()).await;
            desk.answer(&data);
        }
        desk.until(|desk| !desk.hub.has_output()).await;
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        assert_eq!((desk.clients.budget.bytes, desk.clients.stalled.len()), (0, 0));
    });
}

#[test]
fn what_was_let_go_is_not_held_up_by_what_is_held_behind_it() {
    run(async {
        let mut desk = Desk::new();
        desk.clients.budget = Budget::new(6 * MEBIBYTE);
        let (_, mut stream) = warm(&mut desk).await;
        stream.write_all(gets(0..20).as_bytes()).unwrap();
        desk.until(|desk| desk.calls_of("k19") == 1).await;
        for key in (1..6).rev() {
            desk.answer_to(&format!("k{key}"), value(MEBIBYTE)).await;
        }
        assert!(desk.unwritten() > UNWRITTEN_BYTES_MAX);
        desk.answer_to("k0", value(2 * MEBIBYTE)).await;
        assert_eq!(desk.calls_of("k0"), 0, "there is no memory for it, and many calls are under way");
        for key in 6..20 {
            desk.answer_to(&format!("k{key}"), value(MEBIBYTE)).await;
        }
        let reading = std::thread::spawn(move || read_in_order(stream, 20, MEBIBYTE));
        desk.until(|desk| desk.calls_of("k0") == 1).await;
        while desk.asked() > 0 {
            desk.until(|desk| !desk.inputs.is_empty()).await;
            desk.answer(&Bytes::from(vec![b'v'; MEBIBYTE]));
        }
        desk.until(|desk| !desk.hub.has_output()).await;
        reading.join().unwrap();
    });
}

#[test]
fn a_touch_is_never_done_twice() {
    run(async {
        for (ask, is_held) in [("gat 0", true), ("get", false)] {
            let mut desk = Desk::new();
            desk.clients.budget = Budget::new(8 * MEBIBYTE);
            let (_, mut stream) = warm(&mut desk).await;
            let keys = ["one", "two", "three"];
            let asked: String = keys.iter().map(|key| format!("{ask} {key}\r\n")).collect();
            stream.write_all(format!("get stopped\r\n{asked}").as_bytes()).unwrap();
            desk.until(|desk| desk.asked() == 4).await;
            for key in keys {
                desk.answer_to(key, value(3 * MEBIBYTE)).await;
            }
            desk.until(|_| true).await;
            assert_eq!(desk.unwritten(), if is_held { 9 } else { 6 } * MEBIBYTE, "{ask}");
            let again = desk.clients.clients.iter().map(|(_, client)| client.uncalled.len()).sum::<usize>();
            assert_eq!(again + desk.calls_of("three"), usize::from(!is_held), "{ask}");
        }
    });
}

#[test]
fn what_turns_out_large_counts_for_all_that_its_client_asked() {
    run(async {
        let mut desk = Desk::new();
        let (id, mut stream) = warm(&mut desk).await;
        let (_, mut other) = warm(&mut desk).await;
        stream.write_all(gets(0..80).as_bytes()).unwrap();
        desk.until(|desk| desk.calls_of("k79") == 1).await;
        assert!(desk.clients.budget.bytes < UNKNOWN_BYTES_MAX / 8);
        for key in 0..6 {
            desk.answer_to(&format!("k{key}"), value(MEBIBYTE)).await;
        }
        assert!(desk.clients.budget.bytes > UNKNOWN_BYTES_MAX, "{}", desk.clients.budget.bytes);
        other.write_all("get mine\r\n".repeat(2).as_bytes()).unwrap();
        for _ in 0..2 {
            desk.until(|desk| desk.calls_of("mine") > 0).await;
            assert_eq!(desk.calls_of("mine"), 1, "one at a time, and served");
            desk.answer_to("mine", one_byte()).await;
        }
        desk.hub.forget(id);
        desk.clients.down(id, &mut desk.inputs);
        assert!(desk.clients.budget.bytes < UNKNOWN_BYTES_MAX / 8, "nobody will hold them");
        let data = Bytes::from(vec![b'v'; MEBIBYTE]);
        assert_eq!(desk.answer(&data), 74);
        assert_eq!(desk.clients.budget.bytes, 0);
    });
}

#[test]
fn sixteen_small_values_for_each_of_sixty_clients_are_under_way_at_once() {
    run(async {
        let mut desk = Desk::new();
        let mut streams = Vec::new();
        for _ in 0..60 {
            streams.push(warm(&mut desk).await.1);
        }
        for stream in &mut streams {
            stream.write_all("get small\r\n".repeat(16).as_bytes()).unwrap();
        }
        desk.until(|desk| desk.calls_of("small") == 60 * 16).await;
        assert_eq!(desk.answer(&Bytes::from_static(b"v")), 60 * 16);
        desk.until(|desk| desk.asked() == 0).await;
        assert_eq!(desk.clients.budget.bytes, 0);
    });
}
