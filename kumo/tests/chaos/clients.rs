//! Clients that are killed while they wait or hold: after their sessions' expiry others go on.

use crate::load::Load;
use crate::process::{Cell, Running, bounded, ended, signal, until};
use pfs::{Error, QueueInfo, Refusal, Session};
use rustix::process::Signal;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::time::Instant;

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_client_loses_no_message_to_others() {
    bounded(async {
        let cell = Cell::start(&SHORT_SESSIONS).await;
        let load = Load::start(&cell).await;
        let session = cell.session().await;

        // It dies while it waits on an empty queue. What is posted after its session's end goes to the next one.
        let mut first = start(&cell, &["queue", "wait", "jobs"]);
        queue_has(&session, "jobs", |queue| queue.waiting == 1).await;
        let expired = kill(&mut first);
        queue_has(&session, "jobs", |queue| queue.waiting == 0).await;
        let expired = expired.elapsed();
        let mut second = start(&cell, &["queue", "wait", "jobs"]);
        queue_has(&session, "jobs", |queue| queue.waiting == 1).await;
        session.post("jobs", "later").await.unwrap();
        assert_eq!(output(&mut second).await, "later");

        // A worker dies while it waits. Even what is given to the dead session comes back.
        let mut worker = start(&cell, &["queue", "work", "mail", "--", "cat"]);
        queue_has(&session, "mail", |queue| queue.waiting == 1).await;
        let killed = kill(&mut worker);
        session.post("mail", "letter").await.unwrap();
        let gone_to_the_dead = queue(&session, "mail").await.is_some_and(|queue| queue.hidden == 1);
        let mut next = start(&cell, &["queue", "work", "--once", "mail", "--", "cat"]);
        assert_eq!(output(&mut next).await, "letter");
        let redelivered = killed.elapsed();
        assert!(gone_to_the_dead || redelivered.as_secs() >= 1, "the dead worker was not asked");
        assert!(queue(&session, "mail").await.is_none_or(|queue| queue.ready + queue.hidden == 0));

        let tally = load.finish(&cell).await;
        println!(
            "clients killed at a queue: 2 of 2 took effect (expired after {} ms, redelivered after {} ms), {tally}",
            expired.as_millis(),
            redelivered.as_millis()
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_client_loses_its_lock_to_the_next_waiter() {
    bounded(async {
        let cell = Cell::start(&SHORT_SESSIONS).await;
        let load = Load::start(&cell).await;
        let session = cell.session().await;
        let waiters = async |count: usize| {
            until("that many wait for the lock", async || {
                let locks = session.locks().await.unwrap();
                locks.iter().any(|lock| lock.waiters.len() == count).then_some(())
            })
            .await;
        };

        // The command of a killed `kumo lock` lives on; this one ends with our end of its standard input.
        let mut holder =
            start(&cell, &["lock", "deploy", "--", "sh", "-c", "echo $KUMO_LOCK_NUMBER; exec cat"]);
        let mut line = String::new();
        BufReader::new(holder.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let held: u64 = line.trim().parse().expect("the holder's number");
        session.fenced_put("/fenced", "deploy", held, "by the holder").await.unwrap();

        // A waiter dies in the queue, the next one behind it lives.
        let mut dead = start(&cell, &["lock", "deploy", "--", "true"]);
        waiters(1).await;
        let mut next = start(&cell, &["lock", "deploy", "--", "sh", "-c", "echo $KUMO_LOCK_NUMBER"]);
        waiters(2).await;
        kill(&mut dead);
        waiters(1).await;
        assert_eq!(next.0.try_wait().unwrap(), None, "the lock is still held");

        let killed = kill(&mut holder);
        let number: u64 = output(&mut next).await.trim().parse().expect("the next holder's number");
        let granted = killed.elapsed();
        assert!(number > held, "{number} after {held}");
        let stale = session.fenced_put("/fenced", "deploy", held, "by a ghost").await;
        assert_eq!(stale, Err(Error::Refused(Refusal::Fenced)));
        assert_eq!(session.read("/fenced").await.unwrap().bytes, "by the holder");

        let tally = load.finish(&cell).await;
        println!(
            "clients killed at a lock: 2 of 2 took effect (granted on after {} ms), {tally}",
            granted.as_millis()
        );
    })
    .await;
}

fn start(cell: &Cell, arguments: &[&str]) -> Running {
    Running(cell.command(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap())
}

/// Killed, and gone.
fn kill(client: &mut Running) -> Instant {
    // Not `Child::wait`: that would close its standard input too, which the command under a lock still reads.
    let stdin = client.0.stdin.take();
    signal(&client.0, Signal::KILL);
    let killed = Instant::now();
    client.0.wait().unwrap();
    client.0.stdin = stdin;
    killed
}

/// What a command printed; it must end well.
async fn output(client: &mut Running) -> String {
    let child: &mut Child = &mut client.0;
    let status = ended(child).await;
    assert!(status.success(), "{status}");
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    text
}

async fn queue(session: &Session, name: &str) -> Option<QueueInfo> {
    session.queues().await.unwrap().into_iter().find(|queue| queue.name == name)
}

/// A queue of which there is nothing to say is not listed: it has nothing and nobody.
async fn queue_has(session: &Session, name: &str, holds: impl Fn(&QueueInfo) -> bool) {
    let none = QueueInfo { name: name.to_owned(), ready: 0, hidden: 0, waiting: 0 };
    until("the queue is as it should be", async || {
        let now = queue(session, name).await.unwrap_or(none.clone());
        holds(&now).then_some(())
    })
    .await;
}

const SHORT_SESSIONS: [&str; 2] = ["--session-timeout", "2"];
