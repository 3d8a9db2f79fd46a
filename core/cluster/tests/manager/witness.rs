//! A new generation of numbers is told to who might lose it only when those who act keep it.

use crate::bench::Bench;
use crate::log::{Log, address, server};
use kumo_cluster::control::{ControlAnswer, ControlRequest};
use kumo_cluster::{
    Alive, Command, GatewayId, Incarnation, ManagerInput, MemberState, Message, Objection, Order, Space,
    SpaceNumber,
};
use kumo_paxos::CellId;
use kumo_session::{ConnectionId, GENERATION_SHIFT};

/// A new cell that has taken the ring of two servers, which are connected and have not said that they have it.
fn rebuilt() -> (Bench, SpaceNumber) {
    rebuilt_from(&Log::with_servers(1..=2))
}

fn rebuilt_from(log: &Log) -> (Bench, SpaceNumber) {
    let before = Space { cluster: CellId(5), ..log.cluster.space().clone() };
    let mut bench = Bench::new();
    bench.lead();
    for number in before.members.iter().map(|member| member.address.port() - address(0).port()) {
        bench.step(ManagerInput::Up(ConnectionId(u64::from(number))));
        says(&mut bench, number, before.number);
    }
    bench.step(ManagerInput::Up(ConnectionId(GATEWAY)));
    bench.step(ManagerInput::From(ConnectionId(GATEWAY), Message::Register { nonce: 5 }));
    bench.sent.clear();
    bench.ask(ControlRequest::Rebuild { accept_data_loss: false });
    bench.step(ManagerInput::From(ConnectionId(1), Message::new_space(before.clone())));
    bench.pass(100_000, &[]);
    assert_eq!(bench.answers, [ControlAnswer::Done]);
    assert!(bench.log.number() > before.number);
    (bench, before.number)
}

fn says(bench: &mut Bench, number: u16, space: SpaceNumber) {
    let sign = Alive { cluster: Some(CellId(5)), space, ..bench.sign(server(number, 1)) };
    bench.alive(u64::from(number), sign);
}

fn told(bench: &Bench, connection: u64) -> Vec<SpaceNumber> {
    let space = |(to, message): &(u64, Message)| match message {
        Message::NewSpace { space } if *to == connection => Some(space.number),
        _ => None,
    };
    bench.sent.iter().filter_map(space).collect()
}

fn issued(bench: &Bench) -> Option<GatewayId> {
    bench.sent.iter().find_map(|(_, message)| match message {
        Message::Registered { gateway, .. } => Some(*gateway),
        _ => None,
    })
}

#[test]
fn gateways_and_strangers_hear_of_a_rebuilt_ring_when_all_who_act_keep_it() {
    let (mut bench, before) = rebuilt();
    let risen = bench.log.number();
    bench.connect(9, server(9, 1));
    for _ in 0..3 {
        bench.step(ManagerInput::From(ConnectionId(GATEWAY), Message::Register { nonce: 5 }));
        for follower in [9, GATEWAY] {
            bench.step(ManagerInput::From(ConnectionId(follower), Message::WantSpace { above: before }));
        }
        says(&mut bench, 1, risen);
        says(&mut bench, 2, before);
        bench.pass(300_000, &[]);
    }
    assert_eq!((told(&bench, 9), told(&bench, GATEWAY), issued(&bench)), (vec![], vec![], None));
    assert!(told(&bench, 1).contains(&risen) && told(&bench, 2).contains(&risen));
    assert!(bench.leases_to(1) > 0, "those who act go on");
    says(&mut bench, 2, risen);
    bench.pass(100_000, &[]);
    assert_eq!(bench.log.cluster.risen(), None);
    assert_eq!(told(&bench, GATEWAY), [risen]);
    assert!(told(&bench, 9).contains(&risen));
    assert!(issued(&bench).is_some_and(|id| id.0 > risen.0 >> 32 << 32), "{:?}", issued(&bench));
}

#[test]
fn who_acts_and_does_not_come_is_lost_and_then_waited_for_no_longer() {
    let (mut bench, _) = rebuilt();
    bench.down(2);
    while bench.state(server(2, 1)) == Some(MemberState::Active) {
        let risen = bench.log.number();
        says(&mut bench, 1, risen);
        bench.pass(100_000, &[]);
        assert!(issued(&bench).is_none() || bench.state(server(2, 1)) != Some(MemberState::Active));
    }
    let number = bench.log.number();
    says(&mut bench, 1, number);
    bench.pass(100_000, &[]);
    assert!(issued(&bench).is_some());
    assert!(told(&bench, GATEWAY).contains(&number));
}

#[test]
fn where_nobody_acts_nobody_keeps_it() {
    let (mut bench, before) = rebuilt();
    bench.log.fault([server(1, 1), server(2, 1)]).unwrap();
    for _ in 0..50 {
        says(&mut bench, 1, before);
        bench.pass(100_000, &[]);
    }
    assert_eq!((told(&bench, GATEWAY), issued(&bench)), (vec![], None));
    let number = bench.log.number();
    assert!(told(&bench, 1).contains(&number), "in its new life it comes back");
    // It does: the last owner, in another life.
    bench.down(1);
    bench.down(2);
    bench.step(ManagerInput::Up(ConnectionId(3)));
    for _ in 0..30 {
        let space = bench.log.number();
        let previous = vec![Incarnation(1)];
        let sign = Alive { cluster: Some(CellId(5)), space, previous, ..bench.sign(server(2, 2)) };
        bench.alive(3, sign);
        bench.pass(100_000, &[]);
    }
    assert!(issued(&bench).is_some());
}

/// It does not keep what the ring that the next rebuild begins from may not name.
#[test]
fn no_replace_begins_before_unless_what_is_lost_is_given_up() {
    let (mut bench, before) = rebuilt();
    bench.connect(9, server(9, 1));
    bench.ask(ControlRequest::AutoReplace { on: true });
    assert_eq!(bench.answers.pop(), Some(ControlAnswer::Done));
    let attach =
        |accept_data_loss| ControlRequest::Attach { servers: vec![], replace: true, accept_data_loss };
    bench.ask(attach(false));
    for _ in 0..100 {
        let risen = bench.log.number();
        says(&mut bench, 1, risen);
        says(&mut bench, 2, before);
        bench.connect(9, server(9, 1));
        bench.pass(160_000, &[]);
    }
    let refused = bench.answers.pop();
    assert!(
        matches!(&refused, Some(ControlAnswer::Refused(said)) if said.contains("not all servers")),
        "{refused:?}"
    );
    assert!(bench.log.cluster.space().job.is_none());
    let number = bench.log.number();
    let full = Order::FullReplace { number };
    assert_eq!(bench.log.cluster.rehearse(full), Err(Objection::Unwitnessed));
    bench.ask(attach(true));
    bench.pass(100_000, &[]);
    assert_eq!(bench.answers.pop(), Some(ControlAnswer::Done));
    assert!(bench.log.cluster.space().job.is_some());
    // Those who are given up may be what a rebuild begins from, and do not know this generation.
    assert!(bench.log.number().0 >> GENERATION_SHIFT >= (number.0 >> GENERATION_SHIFT) + 16);
}

#[test]
fn where_all_owners_are_lost_meanwhile_the_refusal_says_who_is_to_be_started() {
    let (mut bench, _) = rebuilt();
    bench.step(ManagerInput::Down(ConnectionId(1)));
    bench.step(ManagerInput::Down(ConnectionId(2)));
    let lost = |bench: &Bench| {
        let members = &bench.log.cluster.space().members;
        members.iter().all(|member| matches!(member.state, MemberState::Fault { .. }))
    };
    for _ in 0..200 {
        if !lost(&bench) {
            bench.pass(160_000, &[]);
        }
    }
    assert!(lost(&bench));
    bench.connect(9, server(9, 1));
    bench.ask(ControlRequest::Attach { servers: vec![], replace: true, accept_data_loss: false });
    for _ in 0..100 {
        bench.connect(9, server(9, 1));
        bench.pass(160_000, &[]);
    }
    let Some(ControlAnswer::Refused(said)) = bench.answers.pop() else { panic!("it is refused") };
    assert!(said.contains("are lost: start") && said.contains("--accept-data-loss"), "{said}");
}

/// The ring that the next rebuild begins from may not name who only comes.
#[test]
fn owners_are_told_before_those_who_come() {
    let mut log = Log::with_servers(1..=2);
    log.replace([server(9, 1)], []).unwrap();
    let (mut bench, before) = rebuilt_from(&log);
    let risen = bench.log.number();
    for _ in 0..3 {
        says(&mut bench, 1, risen);
        says(&mut bench, 2, before);
        says(&mut bench, 9, before);
        bench.pass(300_000, &[]);
    }
    assert!(told(&bench, 2).contains(&risen));
    assert_eq!(told(&bench, 9), []);
    for _ in 0..2 {
        says(&mut bench, 2, risen);
        says(&mut bench, 9, before);
        bench.pass(300_000, &[]);
    }
    assert!(told(&bench, 9).contains(&risen));
    assert_eq!(issued(&bench), None, "who comes acts, too");
    says(&mut bench, 9, risen);
    bench.pass(100_000, &[]);
    assert!(issued(&bench).is_some());
}

#[test]
fn a_cell_without_members_issues_no_ids() {
    let mut bench = Bench::new();
    bench.lead();
    bench.step(ManagerInput::Up(ConnectionId(GATEWAY)));
    for _ in 0..20 {
        bench.step(ManagerInput::From(ConnectionId(GATEWAY), Message::Register { nonce: 5 }));
        bench.pass(100_000, &[]);
    }
    assert_eq!(issued(&bench), None);
    assert!(!told(&bench, GATEWAY).is_empty(), "it is told that there is no server");
    let mut bench = bench.attached(1..=2);
    bench.pass(100_000, &[]);
    assert!(issued(&bench).is_some(), "who waited gets one");
}

/// A ring of which all are lost, the second one last; the first is there, and may have missed that the other came back.
#[test]
fn a_rebuild_waits_for_the_last_that_was_lost() {
    let mut log = Log::with_servers(1..=2);
    log.fault([server(1, 1)]).unwrap();
    log.fault([server(2, 1)]).unwrap();
    let before = Space { cluster: CellId(5), ..log.cluster.space().clone() };
    for (accept_data_loss, back) in [(false, true), (true, false)] {
        let mut bench = Bench::new();
        bench.lead();
        bench.step(ManagerInput::Up(ConnectionId(1)));
        let previous = vec![Incarnation(1)];
        let sign = |bench: &Bench, number| {
            let space = before.number;
            let previous = previous.clone();
            Alive { cluster: Some(CellId(5)), space, previous, ..bench.sign(server(number, 2)) }
        };
        let first = sign(&bench, 1);
        bench.alive(1, first);
        bench.ask(ControlRequest::Rebuild { accept_data_loss: false });
        bench.step(ManagerInput::From(ConnectionId(1), Message::new_space(before.clone())));
        bench.pass(16_000_000, &[]);
        let refused = bench.answers.pop();
        let missing = address(2).to_string();
        assert!(
            matches!(&refused, Some(ControlAnswer::Refused(said)) if said.contains(&missing)),
            "{refused:?}"
        );
        if back {
            bench.step(ManagerInput::Up(ConnectionId(2)));
            let last = sign(&bench, 2);
            bench.alive(2, last);
        }
        bench.ask(ControlRequest::Rebuild { accept_data_loss });
        bench.step(ManagerInput::From(ConnectionId(1), Message::new_space(before.clone())));
        bench.pass(100_000, &[]);
        assert_eq!(bench.answers.pop(), Some(ControlAnswer::Done));
        let generations = (bench.log.number().0 >> GENERATION_SHIFT) - (before.number.0 >> GENERATION_SHIFT);
        assert_eq!(generations > 16, accept_data_loss, "what is missing may be ahead by {generations}");
    }
}

#[test]
fn what_was_said_of_another_space_witnesses_nothing() {
    let (mut bench, _) = rebuilt();
    let (term, risen) = (bench.log.cluster.term(), bench.log.number());
    bench.log.fault([server(1, 1)]).unwrap();
    assert!(bench.log.apply(Command::Witnessed { term, number: risen }).is_err());
    let number = bench.log.number();
    assert!(bench.log.apply(Command::Witnessed { term: term - 1, number }).is_err());
    assert_eq!(bench.log.cluster.risen(), Some(risen));
    assert_eq!(bench.log.apply(Command::Witnessed { term, number }), Ok(()));
    assert!(bench.log.apply(Command::Witnessed { term, number }).is_err(), "once is enough");
}

#[test]
fn a_recovery_begins_such_a_generation_too() {
    let mut log = Log::with_servers(1..=2);
    assert_eq!(log.cluster.risen(), None, "a first ring has no numbers before it");
    log.generation = 2;
    log.lead(2);
    assert_eq!(log.cluster.risen(), Some(log.number()));
    log.remembered().unwrap();
    assert_eq!(log.cluster.risen(), Some(log.number()), "servers have not said that they keep it");
}

const GATEWAY: u64 = 50;
