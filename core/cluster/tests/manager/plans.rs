//! Plans: of an order that would be refused there is none, but the reason.

use crate::bench::{Bench, addresses};
use crate::log::server;
use kumo_cluster::control::{ControlAnswer, ControlRequest};

/// Asks for the plan of an order and then gives the order; why each was refused.
fn refused(bench: &mut Bench, attach: &[u16], detach: &[u16]) -> (Option<String>, Option<String>) {
    let [attach, detach] = [attach, detach].map(|numbers| addresses(numbers.iter().copied()));
    let order = match detach.is_empty() {
        true => ControlRequest::Attach { servers: attach.clone(), replace: true, accept_data_loss: false },
        false => ControlRequest::Detach { servers: detach.clone(), replace: true },
    };
    let mut asked = |request| {
        bench.ask(request);
        match bench.answers.pop() {
            Some(ControlAnswer::Refused(why)) => Some(why),
            Some(ControlAnswer::Plan(_) | ControlAnswer::Done) => None,
            other => panic!("{other:?}"),
        }
    };
    (asked(ControlRequest::Plan { attach, detach }), asked(order))
}

#[track_caller]
fn both_refused(bench: &mut Bench, attach: &[u16], detach: &[u16], reason: &str) {
    let (plan, order) = refused(bench, attach, detach);
    let order = order.expect("the order is refused");
    assert!(order.contains(reason), "{order}");
    assert_eq!(plan, Some(format!("the order would be refused: {order}")));
}

#[test]
fn a_plan_is_refused_as_its_order_would_be() {
    let mut bench = Bench::with_servers(1..=3);
    both_refused(&mut bench, &[], &[], "nothing to attach");
    both_refused(&mut bench, &[1], &[], "attached already");
    both_refused(&mut bench, &[], &[9], "is not attached");
    both_refused(&mut bench, &[], &[1, 2, 3], "no acting server");
}

#[test]
fn no_plan_goes_on_without_servers_that_had_it_all() {
    let mut bench = Bench::with_servers(1..=3);
    bench.pass(30_000_000, &[]);
    bench.connect(4, server(4, 1));
    for (attach, detach) in [(&[][..], &[][..]), (&[4], &[]), (&[], &[1])] {
        both_refused(&mut bench, attach, detach, "all servers of part of the ring are lost: start 10.0.0.1");
    }
}

#[test]
fn servers_that_are_not_there_can_be_planned_with() {
    let mut bench = Bench::with_servers(1..=3);
    let (plan, order) = refused(&mut bench, &[4, 5], &[]);
    assert!(plan.is_none() && order.is_some_and(|why| why.contains("no server is connected")));
    // And what waits for the next replace, which needs nobody who comes.
    bench.ask(ControlRequest::Detach { servers: addresses([1]), replace: false });
    assert_eq!(bench.answers.pop(), Some(ControlAnswer::Done));
    bench.ask(ControlRequest::Plan { attach: vec![], detach: vec![] });
    assert!(matches!(bench.answers.pop(), Some(ControlAnswer::Plan(_))));
}
