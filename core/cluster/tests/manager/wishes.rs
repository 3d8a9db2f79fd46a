//! What waits for an operator's next replace, and what auto-replace leaves alone for an operator's sake.

use crate::bench::{Bench, addresses};
use crate::log::{CANCEL, CELL, Log, address, server};
use kumo_cluster::control::{ControlAnswer, ControlRequest};
use kumo_cluster::{
    Alive, Author, Cluster, Command, Incarnation, ManagerInput, ManagerNote, MemberState, Objection, Order,
    ServerId,
};
use kumo_session::{Application, ConnectionId};
use kumo_wire::Malformed;
use std::net::SocketAddr;

fn auto(numbers: std::ops::RangeInclusive<u16>) -> Bench {
    Bench::with(|settings| settings.auto_replace = true).attached(numbers)
}

fn lives(numbers: &[u16]) -> Vec<(u64, ServerId)> {
    numbers.iter().map(|&number| (u64::from(number), server(number, 1))).collect()
}

fn attach(number: u16, replace: bool) -> ControlRequest {
    ControlRequest::Attach { servers: addresses([number]), replace, accept_data_loss: false }
}

fn detach(number: u16, replace: bool) -> ControlRequest {
    ControlRequest::Detach { servers: addresses([number]), replace }
}

fn want(attach: &[u16], detach: &[u16]) -> Order {
    let named = |numbers: &[u16]| numbers.iter().copied().map(address).collect();
    Order::Want { attach: named(attach), detach: named(detach) }
}

/// Who waits to be attached, and who to be detached.
fn wanted(cluster: &Cluster) -> (Vec<SocketAddr>, Vec<SocketAddr>) {
    (cluster.attach_wanted().iter().copied().collect(), cluster.detach_wanted().iter().copied().collect())
}

fn done(bench: &mut Bench, request: ControlRequest) {
    bench.ask(request);
    assert_eq!(bench.answers.pop(), Some(ControlAnswer::Done));
}

#[test]
fn auto_replace_does_not_carry_out_what_an_operator_left_for_later() {
    let mut bench = auto(1..=3);
    done(&mut bench, detach(1, false));
    bench.pass(2_000_000, &lives(&[1, 2, 3]));
    bench.down(2);
    bench.pass(20_000_000, &lives(&[1, 3]));
    assert_eq!(bench.log.rings()[0], [(1, 1), (3, 1)], "two copies are left, and not one");
    assert_eq!(
        wanted(&bench.log.cluster),
        (vec![], addresses([1])),
        "it waits for a replace of the operator's"
    );
    bench.connect(4, server(4, 1));
    bench.pass(20_000_000, &lives(&[1, 3, 4]));
    assert_eq!(bench.log.rings()[0], [(1, 1), (3, 1), (4, 1)]);
    done(&mut bench, ControlRequest::Replace);
    bench.pass(20_000_000, &lives(&[1, 3, 4]));
    assert_eq!(bench.log.rings()[0], [(3, 1), (4, 1)]);
    assert_eq!(wanted(&bench.log.cluster), (vec![], vec![]));
}

#[test]
fn what_auto_replace_names_is_not_wanted_any_more_and_nothing_else() {
    let mut log = Log::with_servers(1..=4);
    log.order(want(&[5, 6], &[1, 2])).unwrap();
    log.fault([server(2, 1)]).unwrap();
    log.replace_by(Author::AutoReplace, [server(5, 1)], [2]).unwrap();
    assert_eq!(log.rings()[1], [(1, 1), (3, 1), (4, 1), (5, 1)]);
    assert_eq!(wanted(&log.cluster), (addresses([6]), addresses([1])));
}

#[test]
fn who_was_detached_by_order_is_not_attached_by_itself() {
    let mut bench = auto(1..=4);
    done(&mut bench, detach(4, true));
    let all = lives(&[1, 2, 3, 4]);
    bench.pass(60_000_000, &all);
    assert_eq!(bench.log.rings()[0], [(1, 1), (2, 1), (3, 1)]);
    let said = |bench: &Bench| {
        let note = ManagerNote::TakenOut { server: server(4, 1) };
        bench.notes.iter().filter(|said| **said == note).count()
    };
    assert_eq!(said(&bench), 1);
    // It stays so beside others that come and go.
    bench.connect(5, server(5, 1));
    bench.pass(20_000_000, &[&all[..], &lives(&[5])].concat());
    assert_eq!(bench.log.rings()[0], [(1, 1), (2, 1), (3, 1), (5, 1)]);
    assert_eq!(said(&bench), 1);
    // A wish of the operator's is enough, and auto-replace does the rest.
    done(&mut bench, attach(4, false));
    bench.pass(20_000_000, &[&all[..], &lives(&[5])].concat());
    assert_eq!(bench.log.rings()[0].len(), 5);
    assert!(bench.log.cluster.taken_out().is_empty());
}

#[test]
fn an_attach_of_who_was_detached_counts() {
    let mut bench = auto(1..=4);
    let all = lives(&[1, 2, 3, 4]);
    for request in [
        attach(4, true),
        ControlRequest::Attach { servers: Vec::new(), replace: true, accept_data_loss: false },
    ] {
        done(&mut bench, detach(4, true));
        bench.pass(20_000_000, &all);
        assert_eq!(bench.log.cluster.taken_out(), [server(4, 1)]);
        done(&mut bench, request);
        bench.pass(20_000_000, &all);
        assert_eq!(bench.log.rings()[0].len(), 4);
        assert!(bench.log.cluster.taken_out().is_empty());
    }
}

/// What the second life of server 4 says, on the store of its first one.
fn reborn(bench: &Bench) -> Alive {
    Alive { previous: vec![Incarnation(1)], cluster: Some(CELL), ..bench.sign(server(4, 2)) }
}

/// Servers 1 to 3 speak, and server 4 in its second life, on connection 14.
fn pass_with_reborn(bench: &mut Bench, micros: u64) {
    let end = bench.now + micros;
    while bench.now < end {
        let sign = reborn(bench);
        bench.alive(14, sign);
        bench.pass(100_000, &lives(&[1, 2, 3]));
    }
}

fn said_of_the_reborn(bench: &Bench) -> usize {
    let note = ManagerNote::TakenOut { server: server(4, 2) };
    bench.notes.iter().filter(|said| **said == note).count()
}

/// It was silent for so long that it was given up, or was started again: on its store that is the same.
#[test]
fn who_was_detached_is_left_alone_in_the_next_life_of_its_store() {
    let mut bench = auto(1..=4);
    done(&mut bench, detach(4, true));
    bench.pass(20_000_000, &lives(&[1, 2, 3, 4]));
    bench.down(4);
    bench.step(ManagerInput::Up(ConnectionId(14)));
    pass_with_reborn(&mut bench, 60_000_000);
    assert_eq!(bench.log.rings()[0], [(1, 1), (2, 1), (3, 1)]);
    assert_eq!(bench.log.cluster.taken_out(), [server(4, 1)]);
    assert_eq!(said_of_the_reborn(&bench), 1);
    done(&mut bench, attach(4, true));
    pass_with_reborn(&mut bench, 1_000_000);
    assert_eq!(bench.state(server(4, 2)), Some(MemberState::Active));
    assert!(bench.log.cluster.taken_out().is_empty());
}

/// It is paused while its keys are copied, and goes on when it was given up.
#[test]
fn who_is_given_up_while_it_is_taken_out_is_left_alone_too() {
    let mut bench = auto(1..=4);
    done(&mut bench, detach(4, true));
    let end = bench.now + 12_000_000;
    while bench.now < end {
        bench.now += 100_000;
        for number in 1..=3 {
            let mut sign = bench.sign(server(number, 1));
            sign.progress.copies = 9;
            bench.alive(u64::from(number), sign);
        }
        bench.step(ManagerInput::Timeout);
    }
    assert!(matches!(bench.state(server(4, 1)), Some(MemberState::Fault { .. })));
    assert!(bench.log.cluster.space().job.is_some());
    bench.down(4);
    bench.step(ManagerInput::Up(ConnectionId(14)));
    pass_with_reborn(&mut bench, 60_000_000);
    let left = vec![(1, 1), (2, 1), (3, 1)];
    assert_eq!(bench.log.rings(), [left.clone(), left, vec![]]);
    assert_eq!(bench.log.cluster.taken_out(), [server(4, 1)]);
    assert_eq!(said_of_the_reborn(&bench), 1);
}

#[test]
fn an_empty_store_at_the_address_of_who_was_detached_is_like_any_other() {
    let mut bench = auto(1..=4);
    done(&mut bench, detach(4, true));
    bench.pass(20_000_000, &lives(&[1, 2, 3, 4]));
    bench.down(4);
    bench.connect(14, server(4, 2));
    bench.pass(20_000_000, &[&lives(&[1, 2, 3])[..], &[(14, server(4, 2))]].concat());
    assert_eq!(bench.state(server(4, 2)), Some(MemberState::Active));
    assert!(bench.log.cluster.taken_out().is_empty(), "what is over is forgotten");
}

#[test]
fn only_who_acted_and_left_by_an_operators_order_was_taken_out() {
    // Lost when it was ordered; lost on the way; by a wish; and by name. Who is lost may be back.
    let mut log = Log::with_servers(1..=6);
    log.fault([server(1, 1)]).unwrap();
    log.order(want(&[], &[3])).unwrap();
    log.replace([], [1, 2, 4]).unwrap();
    log.fault([server(2, 1)]).unwrap();
    log.switch().unwrap();
    assert_eq!(log.cluster.taken_out(), [server(2, 1), server(3, 1), server(4, 1)]);
    // Auto-replace takes out who is lost, though it is back before it is done.
    let mut log = Log::with_servers(1..=1);
    log.replace([server(2, 1), server(3, 1)], []).unwrap();
    log.switch().unwrap();
    log.cleared().unwrap();
    log.fault([server(3, 1)]).unwrap();
    log.replace_by(Author::AutoReplace, [], [3]).unwrap();
    log.fault([server(1, 1)]).unwrap();
    log.fault([server(2, 1)]).unwrap();
    assert!(log.cluster.taken_out().is_empty());
}

#[test]
fn those_taken_out_are_as_many_as_there_can_be_members() {
    let mut log = Log::with_servers(1..=2);
    for life in 1..=kumo_cluster::MEMBERS_MAX as u128 + 3 {
        let number = 10 + u16::try_from(life).unwrap();
        log.replace([server(number, 1)], []).unwrap();
        log.switch().unwrap();
        log.cleared().unwrap();
        log.replace([], [number]).unwrap();
        log.switch().unwrap();
        log.cleared().unwrap();
    }
    let taken_out = log.cluster.taken_out();
    assert_eq!(taken_out.len(), kumo_cluster::MEMBERS_MAX);
    assert_eq!(taken_out[0], server(14, 1), "the first ones are forgotten");
}

#[test]
fn a_cancel_gives_the_wishes_back() {
    let mut log = Log::with_servers(1..=3);
    log.order(want(&[4], &[1])).unwrap();
    log.replace([server(4, 1), server(5, 1)], [2]).unwrap();
    assert_eq!(wanted(&log.cluster), (vec![], vec![]));
    log.order(CANCEL).unwrap();
    assert_eq!(wanted(&log.cluster), (addresses([4]), addresses([1])), "who was only named is no wish");
    assert!(log.cluster.taken_out().is_empty());
    assert_eq!(log.replace([server(4, 1)], []), Ok(()));
    assert_eq!(log.rings()[1], [(2, 1), (3, 1), (4, 1)]);
    log.switch().unwrap();
    log.cleared().unwrap();
    assert_eq!(wanted(&log.cluster), (vec![], vec![]));
    assert_eq!(log.replace([], []), Err(Objection::Nothing));
}

#[test]
fn a_cancel_gives_back_nothing_that_was_changed_or_lost_meanwhile() {
    // 4 is lost on the way; 1 is wanted in again, and 5 not any more.
    let mut log = Log::with_servers(1..=3);
    log.order(want(&[4, 5], &[1])).unwrap();
    log.replace([server(4, 1), server(5, 1)], []).unwrap();
    log.fault([server(4, 1)]).unwrap();
    log.order(want(&[1], &[])).unwrap();
    log.order(CANCEL).unwrap();
    assert_eq!(wanted(&log.cluster), (addresses([1, 5]), vec![]));
    // Who came back as the last owner was not meant.
    let mut log = Log::with_servers(1..=2);
    log.fault([server(1, 1)]).unwrap();
    log.order(want(&[], &[1])).unwrap();
    log.replace([], []).unwrap();
    log.fault([server(2, 1)]).unwrap();
    log.order(CANCEL).unwrap();
    assert_eq!(wanted(&log.cluster), (vec![], addresses([1])));
}

#[test]
fn wishes_are_limited_with_those_that_may_come_back() {
    let mut log = Log::with_servers(1..=3);
    let all: Vec<u16> = (100..100 + kumo_cluster::MEMBERS_MAX as u16).collect();
    log.order(want(&all, &[])).unwrap();
    log.replace([server(100, 1)], []).unwrap();
    assert_eq!(log.order(want(&[4], &[])), Err(Objection::TooManyServers));
    log.order(CANCEL).unwrap();
    assert_eq!(log.cluster.attach_wanted().len(), kumo_cluster::MEMBERS_MAX);
}

/// An operator takes out 1 of four; while it is copied, 2 and 3 are lost: of what three had, one copy would be left.
#[test]
fn what_an_operator_ordered_and_the_managers_give_up_waits_for_the_operator() {
    let mut bench = auto(1..=4);
    done(&mut bench, detach(1, true));
    let copying = |bench: &mut Bench, numbers: &[u16], micros: u64| {
        let end = bench.now + micros;
        while bench.now < end {
            bench.now += 100_000;
            for &number in numbers {
                let mut sign = bench.sign(server(number, 1));
                sign.progress.copies = 9;
                bench.alive(u64::from(number), sign);
            }
            bench.step(ManagerInput::Timeout);
        }
    };
    copying(&mut bench, &[1, 2, 3, 4], 1_000_000);
    bench.down(2);
    bench.down(3);
    copying(&mut bench, &[1, 4], 4_000_000);
    assert!(bench.notes.iter().any(|note| matches!(note, ManagerNote::Hopeless { .. })));
    assert_eq!(wanted(&bench.log.cluster), (vec![], addresses([1])));
    // What auto-replace does next leaves it there.
    bench.pass(20_000_000, &lives(&[1, 4]));
    assert_eq!(bench.log.rings()[0], [(1, 1), (4, 1)]);
    assert_eq!(wanted(&bench.log.cluster), (vec![], addresses([1])));
}

#[test]
fn why_auto_replace_was_refused_is_said_once() {
    let mut bench = auto(1..=3);
    bench.pass(2_000_000, &lives(&[1, 2, 3]));
    (1..=3).for_each(|connection| bench.down(connection));
    bench.pass(10_000_000, &[]);
    bench.connect(4, server(4, 1));
    bench.pass(60_000_000, &lives(&[4]));
    let orders = bench
        .proposed
        .iter()
        .filter(|command| matches!(command, Command::Order { order: Order::Replace { .. }, .. }));
    assert!(orders.count() > 2, "it goes on trying");
    let refused = |note: &&ManagerNote| matches!(note, ManagerNote::AutoRefused { .. });
    let notes: Vec<_> = bench.notes.iter().filter(refused).collect();
    let said =
        [Objection::NoTaker, Objection::OwnersLost].map(|objection| ManagerNote::AutoRefused { objection });
    assert_eq!(notes, said.each_ref(), "each once, first without anybody to go to, then with somebody new");
}

#[test]
fn a_snapshot_of_another_version_is_refused_as_such() {
    let log = Log::with_servers(1..=3);
    let mut bytes = log.cluster.snapshot().collect::<Vec<_>>().concat();
    bytes[0] -= 1;
    bytes.truncate(40);
    let refused = Cluster::restore(vec![bytes.into()]);
    assert_eq!(refused.err(), Some(Malformed::Rule("the snapshot's version is known")));
}
