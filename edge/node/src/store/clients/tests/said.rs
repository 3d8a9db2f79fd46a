//! What is answered on the spot costs no more memory and time than anything else.

use super::*;
use crate::store::clients::asking::SAID_BYTES_PER_TURN;
use std::net::Shutdown;

const STATS_COUNT: usize = 30_000;

/// Reads all that it is told until it is closed. Returns how many answers that are.
fn reads_to_the_end(mut stream: TcpStream) -> usize {
    let mut told = String::new();
    stream.read_to_string(&mut told).unwrap();
    told.lines().filter(|line| matches!(*line, "END" | "MN" | "ERROR")).count()
}

/// It has ended before it reads: nothing comes from its socket that would lead to another turn.
#[test]
fn who_does_not_read_is_told_little_and_all_of_it_when_it_reads() {
    run(async {
        let mut desk = Desk::new();
        let (id, stream) = desk.client(b"");
        let mut writer = stream.try_clone().unwrap();
        let writing = std::thread::spawn(move || {
            writer.write_all("stats\r\n".repeat(STATS_COUNT).as_bytes()).unwrap();
            writer.write_all(b"mn\r\nno such thing\r\n").unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        });
        desk.until(|desk| desk.hub.left(id) > 0).await;
        let backlog = desk.hub.backlog(id);
        assert!(backlog < 128 << 10, "{backlog} bytes that nobody reads");

        let reading = std::thread::spawn(move || reads_to_the_end(stream));
        desk.until(|desk| desk.clients.is_empty() && desk.hub.clients() == 0).await;
        writing.join().unwrap();
        assert_eq!(reading.join().unwrap(), STATS_COUNT + 2);
    });
}

#[test]
fn of_many_that_are_answered_on_the_spot_a_turn_answers_few() {
    run(async {
        let mut desk = Desk::new();
        let crowd: Vec<_> = (0..40)
            .map(|_| {
                let (_, stream) = desk.client("stats\r\n".repeat(1000).as_bytes());
                stream.shutdown(Shutdown::Write).unwrap();
                std::thread::spawn(move || reads_to_the_end(stream))
            })
            .collect();
        desk.until(|desk| desk.clients.is_empty() && desk.hub.clients() == 0).await;
        for reading in crowd {
            assert_eq!(reading.join().unwrap(), 1000, "each has its turns");
        }
        // The last one had its share when there was some left, and one answer for each that came after it.
        let most = SAID_BYTES_PER_TURN + (64 << 10) + 41 * 2048;
        assert!(desk.said_max <= most, "{}", desk.said_max);
    });
}

#[test]
fn what_is_answered_on_the_spot_behind_a_call_holds_up_nothing_after_it() {
    run(async {
        let mut desk = Desk::new();
        let (_, stream) =
            desk.client(format!("get one\r\n{}get two\r\n", "stats\r\n".repeat(600)).as_bytes());
        stream.shutdown(Shutdown::Write).unwrap();
        let reading = std::thread::spawn(move || reads_to_the_end(stream));
        desk.answer_to("one", one_byte()).await;
        desk.answer_to("two", one_byte()).await;
        desk.until(|desk| desk.clients.is_empty() && desk.hub.clients() == 0).await;
        assert_eq!(reading.join().unwrap(), 602);
    });
}

#[test]
fn where_too_much_is_unread_who_leaves_some_is_told_nothing_more() {
    run(async {
        let mut desk = Desk::new();
        let (id, mut stream) = desk.client(b"");
        while desk.hub.left(id) == 0 {
            stream.write_all(b"get large\r\n").unwrap();
            desk.answer_to("large", Reply::Value { clock: 1, flags: 0, ttl: None, data: part() }).await;
            desk.until(|_| true).await;
        }
        let (backlog, (other, said)) = (desk.hub.backlog(id), desk.client(b"mn\r\n"));
        assert!(backlog < BACKLOG_BYTES_MAX);
        desk.hub.bound_left(1, u32::MAX);
        stream.write_all("mn\r\n".repeat(2000).as_bytes()).unwrap();
        desk.until(|desk| desk.hub.inbox(id).is_some_and(|inbox| inbox.len() >= 8000)).await;
        assert_eq!(desk.hub.backlog(id), backlog);
        desk.until(|desk| desk.hub.backlog(other) == 0).await;
        expect_from(&said, "MN\r\n");
    });
}

fn part() -> Bytes {
    Bytes::from(vec![b'v'; 100 << 10])
}

fn expect_from(mut stream: &TcpStream, expected: &str) {
    let mut said = vec![0; expected.len()];
    stream.read_exact(&mut said).unwrap();
    assert_eq!(String::from_utf8(said).unwrap(), expected);
}
