//! What one connection may take of a turn.

use super::*;
use kumo_cluster::{KeyHash, Kind, Range, Record, Stamp, StoreKey};
use std::future::poll_fn;
use std::io::Write;
use std::task::Poll;
use std::time::Duration;

fn server(last: u8) -> ServerId {
    ServerId { address: SocketAddr::from(([127, 0, 0, last], 1)), incarnation: Incarnation(1) }
}

fn post(me: ServerId) -> Post {
    let hub = Hub::new(Duration::from_secs(60));
    Post::new(hub, Me { side: Side::Server, id: Some(me), cell: CellId(1) }, 0)
}

/// A megabyte that packs well.
fn copied(number: u64) -> Message {
    let data = Bytes::from(vec![0; 1 << 20]);
    let record = Record { stamp: Stamp::default(), kind: Kind::Value, flags: 0, expiry: 0, data };
    let key = StoreKey { hash: KeyHash(number), key: Bytes::from_static(b"key") };
    let range = Range { first: KeyHash(0), last: KeyHash(9) };
    let (job, space) = Default::default();
    Message::CopyRecords { job, space, range, records: vec![(key, record)], pending: Vec::new() }
}

#[test]
fn what_is_packed_is_taken_over_several_turns_and_in_order() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let test = async {
        let mut here = post(server(1));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut there = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        here.hub.listen(listener, 10);
        let mut sent = BytesMut::new();
        frame::append(&Greeting::Hello(post(server(2)).hello()), &mut sent);
        (0..20).for_each(|number| packed::append(&copied(number), &mut sent));
        assert!(sent.len() < 128 << 10, "one read takes it all");
        let writing = std::thread::spawn(move || there.write_all(&sent).map(|()| there));
        let mut numbers = Vec::new();
        poll_fn(|context| {
            here.poll(Time(0), context);
            let before = numbers.len();
            while let Some(one) = here.next(Time(0)) {
                match one {
                    Arrived::Server(_, Message::CopyRecords { records, .. }) => {
                        numbers.push(records[0].0.hash.0);
                    }
                    Arrived::ServerUp(_) => {}
                    other => panic!("not sent: {other:?}"),
                }
            }
            here.flush();
            if here.has_left() {
                context.waker().wake_by_ref();
            }
            assert!(numbers.len() - before <= 4, "in one turn: {}", numbers.len() - before);
            if numbers.len() == 20 { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        writing.join().unwrap().unwrap();
        assert_eq!(numbers, (0..20).collect::<Vec<u64>>());
    };
    // Far beyond what a busy machine needs.
    let ended = runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), test).await });
    ended.expect("nobody waits for ever");
}
