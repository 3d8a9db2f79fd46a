//! The first ring is made without a copy: of stores that hold the same, whichever way it comes about.

use crate::bench::{Bench, addresses};
use crate::log::server;
use kumo_cluster::control::{ControlAnswer, ControlRequest};
use kumo_cluster::{Alive, ManagerInput, ManagerNote, SpaceNumber, Usage};
use kumo_paxos::CellId;
use kumo_session::ConnectionId;

const FULL: Usage = Usage { items: 10, tombstones: 1, live_bytes: 1000, file_bytes: 2000, unreadable: 0 };

/// What server `number` of three says: the first was restored, the others are new.
fn restored(bench: &Bench, number: u16) -> Alive {
    let sign = bench.sign(server(number, 1));
    match number {
        1 => Alive { usage: FULL, stamped: SpaceNumber(57), digest: 9, ..sign },
        _ => Alive { usage: Usage::default(), digest: 0, ..sign },
    }
}

/// A master with three servers connected, of which each says something.
fn connected(says: impl Fn(&Bench, u16) -> Alive) -> Bench {
    let mut bench = Bench::new();
    bench.lead();
    for number in 1..=3 {
        bench.step(ManagerInput::Up(ConnectionId(u64::from(number))));
        bench.alive(u64::from(number), says(&bench, number));
    }
    bench
}

/// They go on saying it.
fn pass(bench: &mut Bench, micros: u64, says: impl Fn(&Bench, u16) -> Alive) {
    for _ in 0..micros / 500_000 {
        for number in 1..=3 {
            bench.alive(u64::from(number), says(bench, number));
        }
        bench.pass(500_000, &[]);
    }
}

fn attach(numbers: impl IntoIterator<Item = u16>, replace: bool) -> ControlRequest {
    ControlRequest::Attach { servers: addresses(numbers), replace, accept_data_loss: false }
}

fn done(bench: &mut Bench, request: ControlRequest) {
    bench.ask(request);
    bench.pass(100_000, &[]);
    assert_eq!(bench.answers.pop(), Some(ControlAnswer::Done));
}

fn refused(bench: &mut Bench, request: ControlRequest) {
    bench.ask(request);
    bench.pass(100_000, &[]);
    let answer = bench.answers.pop();
    assert!(matches!(&answer, Some(ControlAnswer::Refused(said)) if said.contains("differ")), "{answer:?}");
    assert!(bench.log.cluster.space().rhs.is_empty());
}

fn attached(bench: &Bench) -> usize {
    bench.log.cluster.space().rhs.len()
}

#[test]
fn stores_that_differ_are_not_attached_together() {
    let mut bench = connected(restored);
    refused(&mut bench, attach([], true));
    let servers = addresses([1, 2]);
    refused(&mut bench, ControlRequest::Attach { servers, replace: true, accept_data_loss: true });
    done(&mut bench, attach([1], true));
    assert!(bench.log.cluster.space().number > SpaceNumber(57), "what it holds was stamped up to 57");
    done(&mut bench, attach([2, 3], true));
    assert!(bench.log.cluster.space().job.is_some(), "the others get a copy");
}

/// The managers have lost their memory, and two of three servers their disks.
fn of_a_lost_cell(bench: &Bench, number: u16) -> Alive {
    let sign = bench.sign(server(number, 1));
    match number {
        1 => Alive { cluster: Some(CellId(77)), space: SpaceNumber(9), usage: FULL, ..sign },
        _ => sign,
    }
}

#[test]
fn while_one_holds_another_ring_none_is_begun_unasked() {
    let mut bench = connected(of_a_lost_cell);
    bench.ask(attach([], true));
    bench.pass(100_000, &[]);
    let answer = bench.answers.pop();
    assert!(matches!(&answer, Some(ControlAnswer::Refused(said)) if said.contains("rebuild")), "{answer:?}");
    done(&mut bench, ControlRequest::AutoReplace { on: true });
    pass(&mut bench, 20_000_000, of_a_lost_cell);
    assert_eq!(attached(&bench), 0);
    done(&mut bench, ControlRequest::AutoReplace { on: false });
    done(&mut bench, attach([2, 3], true));
    assert_eq!(attached(&bench), 2);
    bench.ask(attach([], true));
    bench.pass(100_000, &[]);
    let answer = bench.answers.pop();
    assert!(
        matches!(&answer, Some(ControlAnswer::Refused(said)) if said.contains("stores of another")),
        "{answer:?}"
    );
}

#[test]
fn whatever_they_differ_in_tells() {
    let same = |bench: &Bench, number| Alive { usage: FULL, ..bench.sign(server(number, 1)) };
    done(&mut connected(same), attach([], true));
    let items = |bench: &Bench, number| Alive {
        usage: Usage { items: u64::from(number), ..FULL },
        ..same(bench, number)
    };
    refused(&mut connected(items), attach([], true));
    let bytes = |bench: &Bench, number| Alive {
        usage: Usage { live_bytes: u64::from(number), ..FULL },
        ..same(bench, number)
    };
    refused(&mut connected(bytes), attach([], true));
    // As many records of the same size, with other values.
    let digest = |bench: &Bench, number| Alive { digest: u64::from(number), ..same(bench, number) };
    refused(&mut connected(digest), attach([], true));
}

#[test]
fn a_replace_does_not_join_what_was_only_wanted_before() {
    let mut bench = connected(restored);
    done(&mut bench, attach([], false));
    refused(&mut bench, ControlRequest::Replace);
}

#[test]
fn an_attach_of_one_does_not_bring_the_wanted_with_it() {
    let mut bench = connected(restored);
    done(&mut bench, attach([], false));
    done(&mut bench, attach([1], true));
    assert_eq!(attached(&bench), 1);
    done(&mut bench, ControlRequest::Replace);
    assert_eq!(bench.log.cluster.space().whs.len(), 3, "they are wanted still, and get a copy");
    assert!(bench.log.cluster.space().job.is_some());
}

#[test]
fn auto_replace_waits_for_an_operator_and_says_so_once() {
    let mut bench = connected(restored);
    done(&mut bench, ControlRequest::AutoReplace { on: true });
    pass(&mut bench, 20_000_000, restored);
    assert_eq!(attached(&bench), 0);
    let said = |bench: &Bench| bench.notes.iter().filter(|note| **note == ManagerNote::StoresDiffer).count();
    assert_eq!(said(&bench), 1);
    done(&mut bench, attach([1], true));
    assert_eq!(attached(&bench), 1);
    pass(&mut bench, 5_000_000, restored);
    assert_eq!(bench.log.cluster.space().whs.len(), 3, "it goes on from there, with a copy");
    assert_eq!(said(&bench), 1);
}

#[test]
fn auto_replace_joins_stores_that_hold_the_same() {
    let same = |bench: &Bench, number| Alive { usage: FULL, ..bench.sign(server(number, 1)) };
    let mut bench = connected(same);
    done(&mut bench, ControlRequest::AutoReplace { on: true });
    pass(&mut bench, 6_000_000, same);
    assert_eq!(attached(&bench), 3);
    assert!(!bench.notes.contains(&ManagerNote::StoresDiffer));
}

#[test]
fn auto_replace_leaves_a_restored_store_that_comes_late_to_an_operator() {
    let mut bench = connected(restored);
    done(&mut bench, attach([2], true));
    done(&mut bench, ControlRequest::AutoReplace { on: true });
    pass(&mut bench, 20_000_000, restored);
    assert_eq!(bench.log.cluster.space().whs.len(), 2, "the new one is taken in, the restored one is not");
    let said = |server| bench.notes.iter().filter(|note| **note == ManagerNote::Restored { server }).count();
    assert_eq!((said(server(1, 1)), said(server(3, 1))), (1, 0));
}
