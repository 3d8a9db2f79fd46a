//! How often a server says that it is alive.

use super::disk::Disk;
use super::house::{manager, settings};
use kumo_cluster::{Message, Server, ServerEffect, ServerInput, ServerSettings};
use kumo_paxos::Time;

/// The longest time between two signs of life in half a minute, and in which the server was without a lease. A manager
/// answers each sign at once.
fn longest(keepalive_micros: u64, lease_micros: u64) -> (u64, u64) {
    let settings = ServerSettings { keepalive_micros, ..settings(0) };
    let mut server = Server::new(settings, Disk::default(), Time(0));
    let (mut pause, mut gap) = (0, 0);
    let (mut spoke, mut leased) = (Time(0), Time(0));
    let mut input = ServerInput::ManagerUp(manager());
    for now in (0..30_000_000).step_by(10_000).map(Time) {
        let mut effects = Vec::new();
        server.step(now, std::mem::replace(&mut input, ServerInput::Timeout), &mut effects);
        pause = pause.max(now.since(spoke));
        for effect in effects {
            let ServerEffect::Manager(_, Message::Alive(alive)) = effect else { continue };
            spoke = now;
            let lease = Message::Lease { sent: alive.sent, micros: lease_micros, unix_millis: 0 };
            server.step(now, ServerInput::Manager(manager(), lease), &mut Vec::new());
        }
        if server.has_lease(now) {
            leased = now;
        }
        gap = gap.max(now.since(leased));
    }
    (pause, gap)
}

#[test]
fn signs_are_never_rarer_than_leases_and_managers_need() {
    for keepalive in [2_000_000, 10_000_000, 60_000_000, 3_600_000_000] {
        let (pause, gap) = longest(keepalive, 1_500_000);
        assert!((300_000..=500_000).contains(&pause), "{keepalive}: {pause}");
        assert_eq!(gap, 0, "{keepalive}");
    }
}

#[test]
fn shorter_leases_are_asked_for_oftener() {
    assert_eq!(longest(2_000_000, 200_000).1, 0);
    assert!(longest(2_000_000, 60_000_000).0 <= 500_000, "a long lease does not make a server silent");
}

#[test]
fn a_shorter_interval_makes_signs_oftener() {
    assert!(longest(500_000, 1_500_000).0 <= 150_000);
}
