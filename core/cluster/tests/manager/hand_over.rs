//! Operators' requests when another manager begins to lead, or when the cluster is not what it was when they were said.

use crate::bench::{Bench, addresses};
use crate::log::{CELL, address, server};
use kumo_cluster::control::{ControlAnswer, ControlRequest};
use kumo_cluster::{CellView, Command, ManagerInput, Order};

fn attach(numbers: impl IntoIterator<Item = u16>, accept_data_loss: bool) -> ControlRequest {
    ControlRequest::Attach { servers: addresses(numbers), replace: true, accept_data_loss }
}

/// A master with three servers, and a fourth that it is asked to attach; that is put up and not decided.
fn put_up() -> (Bench, Command) {
    let mut bench = Bench::with_servers(1..=3);
    bench.connect(4, server(4, 1));
    bench.deciding = false;
    bench.proposed.clear();
    bench.ask(attach([4], false));
    let order = bench.proposed.iter().find(|command| matches!(command, Command::Order { .. }));
    let order = order.expect("it is put up").clone();
    (bench, order)
}

fn follow(bench: &mut Bench) -> ControlAnswer {
    let view = CellView { cluster: CELL, master: Some(address(901)), ..CellView::default() };
    bench.step(ManagerInput::Cell(view));
    bench.answers.pop().expect("whoever asked is answered")
}

#[test]
fn what_was_done_is_said_to_be() {
    let (mut bench, order) = put_up();
    bench.log.apply(order).unwrap();
    assert_eq!(follow(&mut bench), ControlAnswer::Done);
}

#[test]
fn what_may_be_done_still_is_not_asked_for_again() {
    let (mut bench, _) = put_up();
    let answer = follow(&mut bench);
    assert!(
        matches!(&answer, ControlAnswer::Refused(why) if why.contains("may be done still")),
        "{answer:?}"
    );
}

#[test]
fn what_was_not_put_up_is_asked_of_who_leads() {
    let mut bench = Bench::with_servers(1..=3);
    // An earlier life of it is not declared fault yet.
    bench.down(3);
    bench.connect(9, server(3, 2));
    bench.deciding = false;
    bench.ask(attach([3], false));
    assert_eq!(bench.answers, []);
    assert_eq!(follow(&mut bench), ControlAnswer::Master(Some(address(901))));
}

#[test]
fn a_backup_may_be_there() {
    let mut bench = Bench::with_servers(1..=3);
    bench.ask(ControlRequest::Backup { suffix: "x".to_owned() });
    let answer = follow(&mut bench);
    assert!(matches!(&answer, ControlAnswer::Refused(why) if why.contains("copies")), "{answer:?}");
}

/// Three of six are lost, and while that is accepted a fourth is.
#[test]
fn a_loss_that_nobody_saw_is_not_accepted() {
    let mut bench = Bench::with_servers(1..=6);
    let there: Vec<_> = (1..=3).map(|number| (u64::from(number), server(number, 1))).collect();
    (4..=6).for_each(|number| bench.down(number));
    bench.pass(9_000_000, &there);
    bench.connect(7, server(7, 1));
    bench.deciding = false;
    bench.proposed.clear();
    bench.ask(attach([7], true));
    let order = bench.proposed.iter().find(|command| matches!(command, Command::Order { .. }));
    let order = order.expect("it is put up").clone();
    bench.log.fault([server(3, 1)]).unwrap();
    assert!(bench.log.apply(order).is_err(), "the space is another one");
    bench.deciding = true;
    bench.proposed.clear();
    bench.step(ManagerInput::Timeout);
    let accepts = |command: &Command| {
        matches!(command, Command::Order { order: Order::Replace { accept_loss: true, .. }, .. })
    };
    assert!(!bench.proposed.iter().any(accepts), "{:?}", bench.proposed);
    let answer = bench.answers.pop();
    assert!(matches!(&answer, Some(ControlAnswer::Refused(why)) if why.contains("lost too")), "{answer:?}");
    // Now it was seen.
    bench.ask(attach([7], true));
    assert_eq!(bench.answers.pop(), Some(ControlAnswer::Done));
}

#[test]
fn a_loss_that_was_accepted_is_looked_at_again_where_another_leads() {
    let mut bench = Bench::with_servers(1..=3);
    bench.down(3);
    bench.connect(9, server(3, 2));
    bench.deciding = false;
    bench.ask(attach([3], true));
    assert_eq!(bench.answers, []);
    let answer = follow(&mut bench);
    assert!(matches!(&answer, ControlAnswer::Refused(why) if why.contains("look again")), "{answer:?}");
}

/// No other server is at hand: those that are left go on.
#[test]
fn a_loss_is_accepted_without_a_new_server() {
    let mut bench = Bench::with_servers(1..=5);
    let there: Vec<_> = (1..=2).map(|number| (u64::from(number), server(number, 1))).collect();
    (3..=5).for_each(|number| bench.down(number));
    bench.pass(9_000_000, &there);
    bench.ask(attach([], false));
    assert!(matches!(bench.answers.pop(), Some(ControlAnswer::Refused(_))), "nothing to attach");
    bench.ask(ControlRequest::Detach { servers: addresses(3..=5), replace: true });
    let answer = bench.answers.pop();
    let names = |why: &str| why.contains("attach --accept-data-loss");
    assert!(matches!(&answer, Some(ControlAnswer::Refused(why)) if names(why)), "{answer:?}");
    bench.ask(attach([], true));
    assert_eq!(bench.answers.pop(), Some(ControlAnswer::Done));
    let space = bench.log.cluster.space();
    assert_eq!((bench.log.ring(&space.whs), bench.log.cluster.loss_accepted()), (vec![(1, 1), (2, 1)], true));
}
