//! What clients have sent and what waits: of all together there is no more than there is room for, and nobody holds it for
//! ever.

use super::*;
use crate::store::room::{FREE_BYTES, Room};

const VALUE_BYTES: usize = 1_000_000;
const SECOND: u64 = 1_000_000;

fn desk(room_bytes: usize) -> Desk {
    let mut desk = Desk::new();
    desk.clients.room = Room::new(room_bytes);
    desk
}

impl Desk {
    /// A client that sends this, as far as it is read.
    fn sender(&mut self, sent: Vec<u8>) -> (ConnectionId, TcpStream) {
        let (id, stream) = self.client(b"");
        let mut writer = stream.try_clone().unwrap();
        // One that is cut off cannot send all of it.
        std::thread::spawn(move || drop(writer.write_all(&sent)));
        (id, stream)
    }

    fn waiting(&self) -> usize {
        self.clients.clients.iter().filter(|(_, client)| client.share.waits).count()
    }

    /// Bytes that have come and are not a request yet.
    fn arrived(&mut self) -> usize {
        let ids: Vec<ConnectionId> = self.clients.clients.iter().map(|(id, _)| id).collect();
        ids.into_iter().map(|id| self.hub.inbox(id).map_or(0, |inbox| inbox.len())).sum()
    }

    fn is_here(&self, id: ConnectionId) -> bool {
        self.clients.clients.get(id).is_some()
    }

    async fn second(&mut self) {
        self.now = self.now.plus_micros(SECOND);
        self.until(|_| true).await;
    }

    fn assert_nothing_held(&self) {
        assert!(self.clients.clients.iter().all(|(_, client)| client.share.taken == 0));
        assert!(self.clients.clients.iter().all(|(_, client)| client.share.counted() == 0));
        assert_eq!(self.waiting(), 0);
    }
}

/// A flush that fails frees the hub's place at once, and a newcomer can have it before its end is told.
#[test]
fn whose_place_a_newcomer_gets_holds_nothing_any_more() {
    run(async {
        let mut desk = desk(8 * VALUE_BYTES);
        let (first, _its) = desk.client(&set("key", VALUE_BYTES / 2));
        desk.until(|desk| desk.clients.room.bytes() > 0).await;
        desk.hub.forget(first);
        let (second, _its) = desk.client(b"");
        assert_eq!(second.0 as u32, first.0 as u32, "the same place");
        assert!(!desk.is_here(first) && desk.is_here(second));
        assert_eq!(desk.clients.room.bytes(), 0);
        desk.clients.down(first, &mut desk.inputs);
        assert!(desk.is_here(second), "its end is told late, and is nobody's");
    });
}

/// A request with so many bytes of its value.
fn set(key: &str, bytes: usize) -> Vec<u8> {
    let mut request = format!("set {key} 0 0 {VALUE_BYTES}\r\n").into_bytes();
    request.resize(request.len() + bytes, b'v');
    if bytes == VALUE_BYTES {
        request.extend(b"\r\n");
    }
    request
}

#[test]
fn half_sent_values_hold_no_more_than_there_is_room_for_and_not_for_ever() {
    run(async {
        let mut desk = desk(4 << 20);
        let half = VALUE_BYTES / 2;
        let crowd: Vec<_> = (0..40).map(|_| desk.sender(set("half", half))).collect();
        desk.until(|desk| desk.waiting() == 35 && desk.arrived() > 5 * half).await;
        let arrived = desk.arrived();
        // Of those in line what is free, and what one read may bring.
        assert!(arrived < 5 * half + 35 * (FREE_BYTES + (128 << 10)), "{arrived}");

        let (_, small) = desk.client(b"set mine 0 0 1\r\nv\r\nget mine\r\n");
        desk.answer_to("mine", Reply::Done { clock: 1 }).await;
        desk.answer_to("mine", one_byte()).await;
        expect(&mut desk, &small, "STORED\r\nVALUE mine 0 1\r\nv\r\nEND\r\n").await;

        let (id, large) = desk.sender(set("large", VALUE_BYTES));
        desk.until(|desk| desk.waiting() == 36).await;
        let mut seconds = 0;
        while desk.clients.clients.get(id).unwrap().share.waits {
            desk.second().await;
            seconds += 1;
            assert!(seconds < 40 * crowd.len(), "it has its turn");
        }
        desk.answer_to("large", Reply::Done { clock: 2 }).await;
        expect(&mut desk, &large, "STORED\r\n").await;
        assert!(!desk.is_here(crowd[0].0), "it is cut off");
    });
}

#[test]
fn keys_that_wait_are_no_more_than_there_is_room_for_and_all_are_served() {
    run(async {
        let mut desk = desk(16 << 20);
        let line = format!("get{}\r\n", " large".repeat(KEYS_MAX)).into_bytes();
        let data = Bytes::from_static(b"v");
        let bytes = KEYS_MAX * (answer_bytes(&data) - 5) + 5;
        let readers: Vec<_> = (0..8)
            .map(|_| {
                let (_, stream) = desk.sender(line.clone());
                std::thread::spawn(move || read_exactly(&stream, bytes))
            })
            .collect();
        // Half of the room each.
        desk.until(|desk| desk.waiting() == 6 && desk.asked() == 2).await;

        let (_, mut small) = desk.client(b"get mine\r\n");
        desk.answer_to("mine", one_byte()).await;
        expect(&mut desk, &small, "VALUE mine 0 1\r\nv\r\nEND\r\n").await;

        let mut answered = 0;
        while answered < readers.len() * KEYS_MAX {
            desk.until(|desk| !desk.inputs.is_empty()).await;
            assert!(desk.asked() <= 2);
            answered += desk.answer(&data);
        }
        desk.until(|desk| !desk.hub.has_output()).await;
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        desk.assert_nothing_held();
        assert!(!desk.hub.is_short());
        small.write_all(b"get mine\r\n").unwrap();
        desk.answer_to("mine", one_byte()).await;
    });
}

#[test]
fn a_request_that_is_larger_than_all_the_room_goes_alone() {
    run(async {
        let mut desk = desk(1);
        let (_, one) = desk.sender(set("one", VALUE_BYTES));
        desk.until(|desk| desk.calls_of("one") == 1).await;
        let (_, two) = desk.sender(set("two", VALUE_BYTES));
        desk.until(|desk| desk.waiting() == 1).await;
        desk.answer_to("one", Reply::Done { clock: 1 }).await;
        expect(&mut desk, &one, "STORED\r\n").await;
        desk.answer_to("two", Reply::Done { clock: 2 }).await;
        expect(&mut desk, &two, "STORED\r\n").await;
        desk.assert_nothing_held();
    });
}

#[test]
fn while_others_wait_a_value_must_come_steadily() {
    for (piece, comes) in [(VALUE_BYTES / 20, true), (1, false)] {
        run(async {
            let mut desk = desk(1);
            let (id, mut stream) = desk.client(&set("slow", 0));
            desk.until(|desk| desk.clients.clients.get(id).unwrap().share.promised > 0).await;
            let _next = desk.sender(set("next", VALUE_BYTES));
            desk.until(|desk| desk.waiting() == 1).await;
            let value = [vec![b'v'; VALUE_BYTES], b"\r\n".to_vec()].concat();
            let mut sent = 0;
            while sent < value.len() && desk.is_here(id) {
                let before = desk.hub.inbox(id).unwrap().len();
                let next = (sent + piece).min(value.len());
                stream.write_all(&value[sent..next]).unwrap();
                sent = next;
                desk.until(|desk| desk.hub.inbox(id).is_none_or(|inbox| inbox.len() != before)).await;
                desk.second().await;
            }
            assert_eq!((sent == value.len(), desk.is_here(id)), (comes, comes), "{sent}");
            if comes {
                desk.answer_to("slow", Reply::Done { clock: 1 }).await;
            }
            desk.answer_to("next", Reply::Done { clock: 2 }).await;
        });
    }
}

#[test]
fn who_waits_for_answers_is_not_cut_off() {
    run(async {
        let mut desk = desk(1);
        let line = format!("get{}\r\n", " stopped".repeat(1000));
        let (id, _stream) = desk.client(line.as_bytes());
        let (other, _other_stream) = desk.sender(set("large", VALUE_BYTES));
        desk.until(|desk| desk.calls_of("stopped") > 0 && desk.waiting() == 1).await;
        for _ in 0..100 {
            desk.second().await;
        }
        assert!(desk.is_here(id) && desk.is_here(other));
    });
}

#[test]
fn who_does_not_read_does_not_keep_its_requests_for_ever() {
    run(async {
        let mut desk = desk(1);
        desk.hub.bound_left(usize::MAX, 0);
        let line = format!("get{}\r\n", " large".repeat(1000));
        let (id, _deaf) = desk.client(line.as_bytes());
        let large = Bytes::from(vec![b'v'; 1 << 20]);
        desk.until(|desk| !desk.inputs.is_empty()).await;
        while !desk.inputs.is_empty() {
            desk.answer(&large);
            desk.until(|_| true).await;
        }
        let (_, stream) = desk.sender(set("next", VALUE_BYTES));
        let cut = async {
            while desk.is_here(id) {
                desk.second().await;
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        // A kernel does it, too, but only after half a minute.
        tokio::time::timeout(Duration::from_secs(15), cut).await.expect("it is cut off");
        desk.answer_to("next", Reply::Done { clock: 1 }).await;
        expect(&mut desk, &stream, "STORED\r\n").await;
    });
}

/// Values of later keys come before that of the first.
#[test]
fn where_room_is_short_no_more_values_are_held_behind_one_that_is_not_answered() {
    run(async {
        let mut desk = desk(1 << 20);
        let line = format!("get stopped{}\r\n", " large".repeat(100));
        let crowd: Vec<_> = (0..10).map(|_| desk.client(line.as_bytes())).collect();
        desk.until(|desk| desk.calls_of("stopped") == crowd.len()).await;
        let data = Bytes::from(vec![b'v'; 1 << 20]);
        while desk.calls_of("large") > 0 {
            let value = Reply::Value { clock: 1, flags: 0, ttl: None, data: data.clone() };
            desk.answer_to("large", value).await;
        }
        let unwritten = desk.unwritten();
        assert!(unwritten <= 34 << 20, "what was under way, and one or two: {unwritten}");
        let readers: Vec<_> = crowd
            .into_iter()
            .map(|(_, mut stream)| {
                std::thread::spawn(move || std::io::copy(&mut stream, &mut std::io::sink()))
            })
            .collect();
        while desk.calls_of("stopped") > 0 {
            desk.answer_to("stopped", one_byte()).await;
        }
        desk.until(|desk| desk.calls_of("large") > 0).await;
        assert_eq!(desk.unwritten(), 0);
        drop(desk);
        readers.into_iter().for_each(|reader| drop(reader.join().unwrap()));
    });
}
