//! The Rust client against real replicas.

mod support;

use pfs::{EntryChange, Error, Event, Options, Patience, Refusal, Resource, Session, SessionState};
use rustix::process::Signal;
use std::future::Future;
use std::io::SeekFrom;
use std::time::Duration;
use support::{Cell, signal};

fn run(work: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), work).await.unwrap() });
}

async fn open(cell: &Cell) -> Session {
    let mut options = Options::new(cell.addresses());
    options.sync = true;
    Session::open(&options).await.unwrap()
}

#[test]
fn a_file_keeps_its_offset() {
    let cell = Cell::up();
    run(async {
        let session = open(&cell).await;
        let mut file = session.file("/f");
        assert!(matches!(file.read(1).await, Err(Error::Refused(Refusal::NotFound(_)))));
        file.write("hello ").await.unwrap();
        file.write("world").await.unwrap();
        assert_eq!(file.seek(SeekFrom::End(-5)).await, Ok(6));
        assert_eq!(file.read(100).await.unwrap(), "world");
        assert_eq!(file.read(100).await.unwrap(), "");
        assert!(file.seek(SeekFrom::Current(-100)).await.is_err());
        assert_eq!(file.append("!").await.unwrap().length, 12);
        file.truncate(5).await.unwrap();
        assert_eq!(session.read("/f").await.unwrap().bytes, "hello");
        assert_eq!(file.replace("x").await.unwrap().length, 1);
        file.delete().await.unwrap();
        assert!(session.stat("/f").await.is_err());
        let large = vec![0u8; pfs::WRITE_BYTES_MAX as usize + 1];
        assert!(matches!(session.put("/f", large).await, Err(Error::Refused(Refusal::Limit(..)))));
    });
}

#[test]
fn ephemerals_and_locks_go_with_their_session() {
    let cell = Cell::up();
    run(async {
        let (one, two) = (open(&cell).await, open(&cell).await);
        one.ephemeral("/here").write("me").await.unwrap();
        let guard = one.lock_exclusive("l").await.unwrap();
        assert!(matches!(one.lock_exclusive("l").await, Err(Error::LockInUse(_))));
        assert_eq!(two.stat("/here").await.unwrap().ephemeral, one.id());
        assert!(matches!(two.try_lock_shared("l").await, Err(Error::Refused(Refusal::Locked(_)))));
        two.kill(one.id().unwrap()).await.unwrap();
        guard.lost().await;
        assert!(guard.is_lost());
        assert_eq!(*one.state().borrow(), SessionState::Lost);
        assert!(matches!(one.put("/x", "").await, Err(Error::Ended(_) | Error::Lost)));
        let next = two.lock_exclusive("l").await.unwrap();
        assert!(next.number() > guard.number());
        assert!(two.stat("/here").await.is_err());
        assert_eq!(two.kill(one.id().unwrap()).await, Err(Error::NoSession));

        // The last handle gone is an orderly close.
        drop(next);
        let id = two.id().unwrap();
        drop(two);
        let three = open(&cell).await;
        while three.cell().sessions().await.unwrap().iter().any(|info| info.session == id) {}
    });
}

#[test]
fn a_wait_given_up_holds_nothing() {
    let cell = Cell::up();
    run(async {
        let (one, two) = (open(&cell).await, open(&cell).await);
        let guard = one.lock_exclusive("l").await.unwrap();
        let refused = two.lock_exclusive_within("l", Duration::from_millis(50)).await;
        assert!(matches!(refused, Err(Error::TimedOut)));
        // Dropped while it waits: the request is taken back, and the name may be asked for again.
        let dropped = tokio::time::timeout(Duration::from_millis(50), two.lock_exclusive("l")).await;
        assert!(dropped.is_err());
        guard.unlock().await.unwrap();
        let three = open(&cell).await;
        drop(three.lock_exclusive("l").await.unwrap());
        while let Err(error) = two.try_lock_exclusive("l").await {
            assert!(matches!(error, Error::LockInUse(_) | Error::Refused(Refusal::Locked(_))), "{error}");
            tokio::task::yield_now().await;
        }

        assert_eq!(one.wait_within("q", Duration::from_millis(50)).await, Err(Error::TimedOut));
        two.post("q", "m").await.unwrap();
        let message = one.receive("q", Patience::Forever).await.unwrap();
        assert!(matches!(two.try_wait("q").await, Err(Error::Refused(Refusal::Empty(_)))));
        one.acknowledge("q", message.id).await.unwrap();
        assert!(matches!(two.peek("q").await, Err(Error::Refused(Refusal::Empty(_)))));
    });
}

#[test]
fn events_have_consecutive_numbers_and_survive_the_master() {
    let cell = Cell::up();
    run(async {
        let (watcher, writer) = (open(&cell).await, open(&cell).await);
        watcher.watch(Resource::Directory("/d".to_owned())).await.unwrap();
        let mut events = watcher.events().unwrap();
        assert_eq!(watcher.events().err(), Some(Error::EventsInUse));
        // A dropped call loses nothing.
        assert!(tokio::time::timeout(Duration::from_millis(20), events.next()).await.is_err());
        let mut before = None;
        for round in 0..4 {
            if round == 2 {
                kill_master(&cell, &writer).await;
            }
            writer.put(&format!("/d/{round}"), "x").await.unwrap();
            let notice = events.next().await.unwrap();
            assert_eq!(notice.omitted, 0);
            let Event::Directory { name, change, .. } = notice.event else { panic!("another event") };
            assert_eq!((name, change), (round.to_string(), EntryChange::Created));
            assert!(before.is_none_or(|number: u64| notice.number == number + 1));
            before = Some(notice.number);
        }
    });
}

#[test]
fn a_change_of_master_is_latency_alone() {
    let cell = Cell::up();
    // On several threads, where a call and its driver may run at once.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let session = open(&cell).await;
        let lock = session.lock_exclusive("held").await.unwrap();
        let counter = session.clone();
        let appends = tokio::spawn(async move {
            for _ in 0..2000 {
                counter.append("/count", "x").await.unwrap();
            }
        });
        while session.stat("/count").await.map_or(0, |stat| stat.length) < 100 {}
        kill_master(&cell, &session).await;
        appends.await.unwrap();
        // Each request was executed once, however often it had to be sent.
        assert_eq!(session.stat("/count").await.unwrap().length, 2000);
        assert!(!lock.is_lost());
        session.fenced_put("/fenced", lock.name(), lock.number(), "still mine").await.unwrap();
        lock.unlock().await.unwrap();
        session.close().await.unwrap();
    });
}

async fn kill_master(cell: &Cell, session: &Session) {
    let master = session.cell().status().await.unwrap().status.master.unwrap();
    let index = cell.addresses().iter().position(|address| *address == master).unwrap();
    signal(cell.pids[index], Signal::KILL);
}
