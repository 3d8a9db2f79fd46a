//! A cell that was recovered from a replica that had forgotten something: what servers know counts.

use crate::bench::Bench;
use crate::log::{CELL, Log, address, server};
use kumo_cluster::control::{ControlAnswer, ControlRequest};
use kumo_cluster::{
    Alive, CellView, Command, GatewayId, Incarnation, ManagerInput, ManagerNote, MemberState, Message,
    Objection, Order, SpaceNumber,
};
use kumo_session::{ConnectionId, numbered};

/// Another manager of the cell, recovered from what it knew when three servers were attached.
fn recovered() -> (Bench, SpaceNumber) {
    let before = Bench::with_servers(1..=3);
    let knew = before.log.number();
    let mut bench = Bench { log: before.log, ..Bench::new() };
    bench.log.generation = 2;
    bench.lead();
    assert!(bench.log.cluster.doubt().is_some());
    (bench, knew)
}

/// What a server says that has that space, in that life.
fn sign(bench: &Bench, number: u16, life: u128, space: SpaceNumber) -> Alive {
    let previous = (1..life).map(Incarnation).collect();
    Alive { previous, cluster: Some(CELL), space, ..bench.sign(server(number, life)) }
}

fn says(bench: &mut Bench, number: u16, life: u128, space: SpaceNumber) {
    let connection = u64::from(number);
    if !bench
        .sent
        .iter()
        .any(|(to, message)| *to == connection && matches!(message, Message::Managers { .. }))
    {
        bench.step(ManagerInput::Up(ConnectionId(connection)));
    }
    let sign = sign(bench, number, life, space);
    bench.alive(connection, sign);
}

fn spaces_and_leases(bench: &Bench) -> usize {
    let told =
        |(_, message): &&(u64, Message)| matches!(message, Message::NewSpace { .. } | Message::Lease { .. });
    bench.sent.iter().filter(told).count()
}

fn forgotten(bench: &Bench) -> Vec<&ManagerNote> {
    bench.notes.iter().filter(|note| matches!(note, ManagerNote::Forgotten { .. })).collect()
}

#[test]
fn a_space_that_was_forgotten_stops_the_recovered_cell() {
    let (mut bench, knew) = recovered();
    let later = SpaceNumber(knew.0 + 2);
    says(&mut bench, 1, 1, knew);
    says(&mut bench, 2, 1, knew);
    // It is a server that the survivor never heard of.
    says(&mut bench, 5, 1, later);
    for _ in 0..300 {
        bench.pass(100_000, &[]);
        says(&mut bench, 1, 1, knew);
        says(&mut bench, 2, 1, knew);
        says(&mut bench, 3, 1, knew);
        says(&mut bench, 5, 1, later);
    }
    assert_eq!(spaces_and_leases(&bench), 0, "who is led from here drops what it has");
    let note = ManagerNote::Forgotten { server: address(5), knows: later, number: knew };
    assert_eq!(forgotten(&bench), [&note]);
    bench.ask(ControlRequest::Detach { servers: vec![address(1)], replace: true });
    let Some(ControlAnswer::Refused(said)) = bench.answers.pop() else { panic!("not refused") };
    assert!(said.contains("10.0.0.1:19805") && said.contains("rebuild"), "{said}");
    bench.ask(ControlRequest::Stat);
    assert!(matches!(bench.answers.pop(), Some(ControlAnswer::Stat(_))));
    // Nor does it go on when that server leaves, or under another master.
    bench.down(5);
    bench.step(ManagerInput::Cell(CellView { cluster: CELL, ..CellView::default() }));
    bench.lead();
    bench.step(ManagerInput::From(ConnectionId(1), Message::WantSpace { above: SpaceNumber(0) }));
    bench.pass(30_000_000, &[(1, server(1, 1)), (2, server(2, 1)), (3, server(3, 1))]);
    assert_eq!(spaces_and_leases(&bench), 0);
    assert_eq!(forgotten(&bench).len(), 1);
}

#[test]
fn a_recovered_cell_goes_on_when_all_members_know_no_more_than_it() {
    let (mut bench, knew) = recovered();
    for number in 1..=2 {
        says(&mut bench, number, 1, knew);
        bench.pass(200_000, &[]);
        assert_eq!(spaces_and_leases(&bench), 0, "the third one may know more");
    }
    // One that was started anew keeps its space.
    says(&mut bench, 3, 2, knew);
    bench.pass(200_000, &[]);
    assert_eq!(bench.log.cluster.doubt(), None);
    let told = bench.sent.iter().filter(|(_, message)| matches!(message, Message::NewSpace { .. }));
    assert_eq!(told.count(), 3);
    let number = bench.log.number();
    says(&mut bench, 1, 1, number);
    assert_eq!(bench.leases_to(1), 1);
    assert_eq!(forgotten(&bench).len(), 0);
}

#[test]
fn who_is_away_is_waited_for_as_long_as_for_a_silent_server() {
    let (mut bench, knew) = recovered();
    bench.pass(60_000_000, &[]);
    assert!(bench.log.cluster.doubt().is_some(), "nobody has said anything");
    let until = bench.now + 6_000_000;
    while bench.now < until {
        says(&mut bench, 1, 1, knew);
        bench.pass(100_000, &[]);
        assert!(bench.log.cluster.doubt().is_some());
    }
    for _ in 0..5 {
        says(&mut bench, 1, 1, knew);
        bench.pass(100_000, &[]);
    }
    assert_eq!(bench.log.cluster.doubt(), None);
    bench.pass(3_000_000, &[(1, server(1, 1))]);
    assert!(matches!(bench.state(server(2, 1)), Some(MemberState::Fault { .. })));
}

#[test]
fn an_order_waits_until_nothing_is_in_doubt() {
    let (mut bench, knew) = recovered();
    bench.ask(ControlRequest::Detach { servers: vec![address(3)], replace: true });
    bench.pass(1_000_000, &[]);
    assert!(bench.answers.is_empty());
    (1..=3).for_each(|number| says(&mut bench, number, 1, knew));
    bench.pass(200_000, &[]);
    assert_eq!(bench.answers, [ControlAnswer::Done]);
}

#[test]
fn no_space_follows_one_in_doubt() {
    let mut log = Log::with_servers(1..=3);
    log.replace([server(4, 1)], []).unwrap();
    log.apply(Command::Register { nonce: 1 }).unwrap();
    let knew = log.number();
    log.generation = 2;
    log.lead(2);
    let (term, number) = (log.cluster.term(), log.number());
    assert_eq!(log.switch(), Err(Objection::InDoubt));
    assert_eq!(log.fault([server(1, 1)]), Err(Objection::InDoubt));
    assert_eq!(log.bring_back(1, 1), Err(Objection::InDoubt));
    assert_eq!(log.order(Order::Pause), Err(Objection::InDoubt));
    assert_eq!(log.order(Order::AutoReplace { on: false }), Ok(()));
    let expire = Command::ExpireGateways { term, gateways: vec![GatewayId(1)] };
    assert_eq!(log.apply(expire.clone()), Err(Objection::InDoubt));
    let known = |knows| Command::Forgotten { term, number, server: address(9), knows };
    assert_eq!(log.apply(known(knew)), Err(Objection::Nothing), "the survivor has it");
    assert_eq!(log.apply(known(number)), Err(Objection::Nothing), "it is this one");
    // Recovered once more, from the same: what was lost by the first one is in doubt still.
    log.generation = 3;
    log.lead(3);
    let doubt = *log.cluster.doubt().unwrap();
    assert_eq!((doubt.from, doubt.upto), (knew, log.number()));
    assert!(doubt.upto.0 > numbered(3, 0));
    assert_eq!(log.remembered(), Ok(()));
    assert_eq!(log.remembered(), Err(Objection::Nothing));
    assert_eq!(log.switch(), Ok(()));
    // A cell without members has nothing to forget.
    let mut log = Log::new();
    log.lead(1);
    log.generation = 2;
    log.lead(2);
    assert_eq!(log.cluster.doubt(), None);
}
