//! A session on a slow line: what is large takes its time, and the session lives on.

mod common;

use bytes::BytesMut;
use common::{Running, members};
use kumo_session::{CLIENT_FRAME_BYTES_MAX, CellMessage};
use kumo_wire::{Wire, frame};
use pfs::{Options, Patience, Session, SessionState};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn a_session_lives_while_a_large_request_takes_its_time() {
    let line = Line::new();
    let session = line.session().await;
    let lock = session.lock_exclusive("held").await.unwrap();
    line.slow_down();
    session.put("/large", vec![7; LARGE_BYTES]).await.expect("it arrives in the end");
    assert!(line.renewed_beside(), "a renewal went beside it");
    assert_eq!(*session.state().borrow(), SessionState::Safe);
    assert_eq!(session.stat("/large").await.unwrap().length, LARGE_BYTES as u64);
    session.fenced_put("/fenced", lock.name(), lock.number(), "still mine").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_lives_while_a_large_reply_takes_its_time() {
    let line = Line::new();
    let session = line.session().await;
    let lock = session.lock_exclusive("held").await.unwrap();
    session.post("queue", vec![7; LARGE_BYTES]).await.unwrap();
    line.slow_down();
    let message = session.receive("queue", Patience::Forever).await.expect("it arrives in the end");
    assert!(line.renewed_beside(), "a renewal went beside it");
    assert_eq!(message.data.len(), LARGE_BYTES);
    assert_eq!(*session.state().borrow(), SessionState::Safe);
    session.acknowledge("queue", message.id).await.unwrap();
    session.fenced_put("/fenced", lock.name(), lock.number(), "still mine").await.unwrap();
}

/// A cell of one, and a line to it that can be slow. The cell knows itself by the near end of the line.
struct Line {
    near: SocketAddr,
    pace: Arc<Pace>,
    _node: Running,
}

/// How fast bytes pass: once slow, nothing large passes before a renewal has.
#[derive(Default)]
struct Pace {
    slow: AtomicBool,
    /// Something large is on its way.
    held: AtomicBool,
    renewed: AtomicBool,
}

impl Line {
    fn new() -> Line {
        let near = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = near.local_addr().unwrap();
        let (mut config, listener) = members(1, None).remove(0);
        let far = config.listen;
        config.listen = address;
        let node = Running::start(config, listener);
        let pace = Arc::new(Pace::default());
        let of_thread = pace.clone();
        // It ends with the process: nobody waits for it.
        std::thread::spawn(move || {
            for stream in near.incoming() {
                let (client, cell) = (stream.unwrap(), TcpStream::connect(far).unwrap());
                let (to_cell, to_client) = (cell.try_clone().unwrap(), client.try_clone().unwrap());
                let paces = [of_thread.clone(), of_thread.clone()];
                let [there, back] = paces;
                std::thread::spawn(move || there.carry(client, to_cell, None));
                std::thread::spawn(move || back.carry(cell, to_client, Some(BytesMut::new())));
            }
        });
        Line { near: address, pace, _node: node }
    }

    async fn session(&self) -> Session {
        let options = Options { sync: true, patience: Duration::from_secs(60), ..Options::new([self.near]) };
        Session::open(&options).await.unwrap()
    }

    fn slow_down(&self) {
        self.pace.slow.store(true, Ordering::SeqCst);
    }

    fn renewed_beside(&self) -> bool {
        self.pace.renewed.load(Ordering::SeqCst)
    }
}

impl Pace {
    /// One direction of a connection. `answers`: what of the cell's messages is not whole yet.
    fn carry(&self, mut from: TcpStream, mut to: TcpStream, mut answers: Option<BytesMut>) {
        let mut bytes = vec![0; PIECE_BYTES];
        let mut carried = 0;
        let greeted = OnceLock::new();
        while let Ok(count) = from.read(&mut bytes)
            && count > 0
        {
            if let Some(answers) = &mut answers {
                answers.extend_from_slice(&bytes[..count]);
                self.look(answers, &greeted);
            }
            if self.slow.load(Ordering::SeqCst) && !self.renewed.load(Ordering::SeqCst) {
                carried += count;
                if carried > FREE_BYTES {
                    self.held.store(true, Ordering::SeqCst);
                    std::thread::sleep(PIECE_PAUSE);
                }
            }
            if to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
        let _ = from.shutdown(Shutdown::Both);
    }

    /// Looks for a renewal's answer that passes what is held.
    fn look(&self, answers: &mut BytesMut, greeted: &OnceLock<()>) {
        while let Some(body) = frame::take(answers, CLIENT_FRAME_BYTES_MAX).unwrap() {
            // The first frame is the greeting.
            if greeted.set(()).is_err()
                && self.held.load(Ordering::SeqCst)
                && let Ok(CellMessage::Renewed { .. }) = CellMessage::from_bytes(body)
            {
                self.renewed.store(true, Ordering::SeqCst);
            }
        }
    }
}

/// More than passes in a session's time-out at the slow pace.
const LARGE_BYTES: usize = 16 * 1024 * 1024;

/// Passes at once also when the line is slow.
const FREE_BYTES: usize = 256 * 1024;

/// The slow pace: 640 KB a second.
const PIECE_BYTES: usize = 64 * 1024;
const PIECE_PAUSE: Duration = Duration::from_millis(100);
