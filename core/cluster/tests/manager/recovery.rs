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
    recovered_from(Bench::with_servers(1..=3).log)
}

fn recovered_from(log: Log) -> (Bench, SpaceNumber) {
    let knew = log.number();
    let mut bench = Bench { log, ..Bench::new() };
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

/// These say all the time what they have, in their first lives.
fn hear(bench: &mut Bench, micros: u64, numbers: &[u16], space: SpaceNumber) {
    let until = bench.now + micros;
    while bench.now < until {
        numbers.iter().for_each(|&number| says(bench, number, 1, space));
        bench.pass(100_000, &[]);
    }
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
fn a_recovered_cell_goes_on_when_nobody_is_heard_that_knows_more() {
    let (mut bench, knew) = recovered();
    hear(&mut bench, 6_000_000, &[1, 2, 3], knew);
    assert!(bench.log.cluster.doubt().is_some(), "all members have said it, and a stranger may know more");
    assert_eq!(spaces_and_leases(&bench), 0);
    hear(&mut bench, 500_000, &[1, 2, 3], knew);
    assert_eq!(bench.log.cluster.doubt(), None);
    let told = bench.sent.iter().filter(|(_, message)| matches!(message, Message::NewSpace { .. }));
    assert_eq!(told.count(), 3);
    let number = bench.log.number();
    says(&mut bench, 1, 1, number);
    assert!(bench.leases_to(1) > 0);
    assert_eq!(forgotten(&bench).len(), 0);
}

/// The survivor knows both as lost; it has forgotten that one of them came back, and a third one was attached.
#[test]
fn where_nobody_acts_a_later_space_is_waited_for() {
    let mut log = Log::with_servers(1..=2);
    log.fault([server(1, 1), server(2, 1)]).unwrap();
    let (mut bench, knew) = recovered_from(log);
    bench.pass(1_000_000, &[]);
    assert!(bench.log.cluster.doubt().is_some(), "nobody has said anything");
    says(&mut bench, 1, 1, knew);
    bench.pass(3_000_000, &[]);
    let later = SpaceNumber(knew.0 + 3);
    says(&mut bench, 3, 1, later);
    bench.pass(100_000, &[]);
    let note = ManagerNote::Forgotten { server: address(3), knows: later, number: knew };
    assert_eq!(forgotten(&bench), [&note]);
    assert_eq!(spaces_and_leases(&bench), 0, "who is told the older one begins a new life");
}

/// The survivor knows 1 as the only server; it has forgotten its loss, and that 2 was attached in its place.
#[test]
fn who_was_given_up_does_not_speak_for_who_took_its_place() {
    let (mut bench, knew) = recovered_from(Log::with_servers(1..=1));
    hear(&mut bench, 100_000, &[1], knew);
    says(&mut bench, 2, 1, SpaceNumber(knew.0 + 2));
    bench.pass(100_000, &[]);
    assert_eq!(forgotten(&bench).len(), 1);
    assert_eq!(spaces_and_leases(&bench), 0);
}

/// All were restarted in memory, or have new disks: what they have forgotten nobody can say.
#[test]
fn servers_that_have_forgotten_everything_are_not_waited_for_longer() {
    let (mut bench, _) = recovered();
    let reborn: Vec<_> = (1..=3).map(|number| (u64::from(number), server(number, 2))).collect();
    for &(connection, server) in &reborn {
        bench.step(ManagerInput::Up(ConnectionId(connection)));
        let sign = Alive { space: SpaceNumber(0), ..bench.sign(server) };
        bench.alive(connection, sign);
    }
    bench.pass(5_900_000, &[]);
    assert!(bench.log.cluster.doubt().is_some());
    bench.pass(400_000, &[]);
    assert_eq!(bench.log.cluster.doubt(), None);
    bench.pass(20_000_000, &reborn);
    assert!(matches!(bench.state(server(1, 1)), Some(MemberState::Fault { .. })), "faults are found again");
    bench.ask(ControlRequest::Attach { servers: vec![], replace: true, accept_data_loss: true });
    bench.pass(1_000_000, &reborn);
    assert_eq!(bench.answers, [ControlAnswer::Done]);
}

#[test]
fn servers_that_come_and_go_do_not_put_it_off_and_a_time_without_any_does() {
    let (mut bench, knew) = recovered();
    says(&mut bench, 1, 1, knew);
    bench.pass(4_000_000, &[]);
    bench.down(1);
    bench.pass(100_000, &[]);
    says(&mut bench, 2, 1, knew);
    bench.pass(4_000_000, &[]);
    assert!(bench.log.cluster.doubt().is_some(), "whoever came first was not there for long");
    says(&mut bench, 3, 1, knew);
    bench.down(2);
    bench.pass(2_200_000, &[]);
    assert_eq!(bench.log.cluster.doubt(), None);
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
    hear(&mut bench, 6_000_000, &[1, 2, 3], knew);
    assert!(bench.answers.is_empty());
    hear(&mut bench, 300_000, &[1, 2, 3], knew);
    assert_eq!(bench.log.cluster.doubt(), None);
    assert!(bench.answers.is_empty(), "not all have the new space");
    let number = bench.log.number();
    hear(&mut bench, 300_000, &[1, 2, 3], number);
    assert_eq!(bench.answers, [ControlAnswer::Done]);
}

#[test]
fn an_order_that_waited_in_vain_is_told_what_for() {
    let refused = |bench: &mut Bench| match bench.answers.pop() {
        Some(ControlAnswer::Refused(said)) => said,
        other => panic!("not refused: {other:?}"),
    };
    let (mut bench, knew) = recovered();
    bench.ask(ControlRequest::Replace);
    bench.pass(16_000_000, &[]);
    assert_eq!(
        refused(&mut bench),
        "the cell was recovered, and no server is connected that could say which hash space it has: start the servers"
    );
    // Where servers have so long to be silent.
    let slow = Bench::with(|settings| settings.connect_retry_limit = 40);
    let mut bench = Bench { log: bench.log, ..slow };
    bench.lead();
    bench.ask(ControlRequest::Replace);
    hear(&mut bench, 16_000_000, &[1], knew);
    assert_eq!(
        refused(&mut bench),
        "the cell was recovered, and waits a while for servers that may have a newer hash space"
    );
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
