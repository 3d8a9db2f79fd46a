//! One manager, step by step: who is let in, what it answers, and what it puts up.

use crate::bench::{Bench, addresses};
use crate::log::{CELL, Log, address, server};
use kumo_cluster::control::{ControlAnswer, ControlRequest};
use kumo_cluster::{
    Alive, CellView, Command, GatewayId, Incarnation, ManagerInput, MemberState, Message, Order, ServerId,
    SpaceNumber,
};
use kumo_paxos::{CellId, Time};
use kumo_session::ConnectionId;
use std::net::SocketAddr;

#[test]
fn a_lost_server_is_fault_when_its_lease_is_out_and_not_before() {
    let mut bench = Bench::with_servers(1..=3);
    let others = [(2, server(2, 1)), (3, server(3, 1))];
    bench.pass(3_000_000, &[(1, server(1, 1)), others[0], others[1]]);
    bench.down(1);
    bench.pass(1_800_000, &others);
    assert_eq!(bench.state(server(1, 1)), Some(MemberState::Active));
    bench.pass(200_000, &others);
    assert_eq!(bench.state(server(1, 1)), Some(MemberState::Fault { order: 1 }));
}

#[test]
fn a_silent_server_is_fault_after_six_seconds() {
    let mut bench = Bench::with_servers(1..=3);
    let others = [(2, server(2, 1)), (3, server(3, 1))];
    bench.pass(3_000_000, &[(1, server(1, 1)), others[0], others[1]]);
    bench.pass(5_900_000, &others);
    assert_eq!(bench.state(server(1, 1)), Some(MemberState::Active));
    bench.pass(300_000, &others);
    assert_eq!(bench.state(server(1, 1)), Some(MemberState::Fault { order: 1 }));
}

/// Microseconds of silence after which a server is fault.
fn silence_with(keepalive_micros: u64, connect_retry_limit: u32) -> u64 {
    let mut bench = Bench::with(|settings| {
        settings.keepalive_micros = keepalive_micros;
        settings.connect_retry_limit = connect_retry_limit;
    });
    bench = bench.attached(1..=3);
    let others = [(2, server(2, 1)), (3, server(3, 1))];
    bench.pass(3_000_000, &[(1, server(1, 1)), others[0], others[1]]);
    let since = bench.now;
    while bench.state(server(1, 1)) == Some(MemberState::Active) && bench.now < since + 60_000_000 {
        bench.pass(100_000, &others);
    }
    bench.now - since
}

#[test]
fn a_shorter_keepalive_interval_makes_silence_shorter() {
    assert!((6_000_000..6_300_000).contains(&silence_with(2_000_000, 4)));
    assert!((3_000_000..3_300_000).contains(&silence_with(1_000_000, 4)));
    assert!((1_800_000..2_100_000).contains(&silence_with(10_000, 4)), "a lease is waited for");
    assert!((6_000_000..6_300_000).contains(&silence_with(60_000_000, 4)), "as many tries as before");
    assert!((15_000_000..15_300_000).contains(&silence_with(2_000_000, 10)), "more tries are more patience");
}

#[test]
fn however_short_it_is_who_speaks_as_often_as_servers_do_is_not_lost() {
    let mut bench = Bench::with(|settings| {
        (settings.keepalive_micros, settings.lease_micros) = (10_000, 200_000);
    });
    bench = bench.attached(1..=1);
    for _ in 0..50 {
        bench.pass(400_000, &[]);
        bench.alive(1, bench.sign(server(1, 1)));
    }
    assert_eq!(bench.state(server(1, 1)), Some(MemberState::Active));
}

#[test]
fn a_master_that_did_not_run_blames_nobody_for_it() {
    let mut bench = Bench::with_servers(1..=3);
    let all = [1, 2, 3].map(|number| (u64::from(number), server(number, 1)));
    bench.pass(3_000_000, &all);
    bench.now += 30_000_000;
    bench.step(ManagerInput::Timeout);
    bench.pass(3_000_000, &all);
    assert!(bench.log.cluster.space().members.iter().all(|member| member.is_active()));
}

#[test]
fn leases_are_for_members_and_only_under_the_masters_own() {
    let mut bench = Bench::with_servers(1..=1);
    bench.sent.clear();
    bench.alive(1, bench.sign(server(1, 1)));
    assert_eq!(bench.leases_to(1), 1);
    bench.connect(2, server(2, 1));
    assert_eq!(bench.leases_to(2), 0, "not attached");
    let view =
        CellView { cluster: CELL, leads: true, lease_end: Some(Time(bench.now)), ..CellView::default() };
    bench.step(ManagerInput::Cell(view));
    bench.alive(1, bench.sign(server(1, 1)));
    assert_eq!(bench.leases_to(1), 1, "a master without its own lease grants none");
    bench.step(ManagerInput::Cell(CellView { cluster: CELL, ..CellView::default() }));
    bench.alive(1, bench.sign(server(1, 1)));
    assert_eq!(bench.leases_to(1), 1);
}

#[test]
fn who_is_condemned_gets_no_lease_though_it_is_back() {
    let mut bench = Bench::with_servers(1..=3);
    let others = [(2, server(2, 1)), (3, server(3, 1))];
    bench.pass(3_000_000, &[(1, server(1, 1)), others[0], others[1]]);
    bench.down(1);
    bench.deciding = false;
    bench.pass(2_000_000, &others);
    assert!(matches!(bench.proposed.last(), Some(Command::Fault { .. })));
    bench.connect(11, server(1, 1));
    assert_eq!(bench.leases_to(11), 0, "the command may be executed at any time");
    bench.deciding = true;
    bench.pass(1_500_000, &others);
    assert_eq!(bench.state(server(1, 1)), Some(MemberState::Fault { order: 1 }));
}

/// It was attached and cut off before it heard of that: so it has nothing to give up, and no reason for a new life.
#[test]
fn who_was_lost_before_it_knew_is_a_member_anew_in_the_same_life() {
    let mut bench = Bench::with_servers(1..=4);
    let others = [2, 3, 4].map(|number| (u64::from(number), server(number, 1)));
    bench.down(1);
    bench.pass(3_000_000, &others);
    assert_eq!(bench.state(server(1, 1)), Some(MemberState::Fault { order: 1 }));
    bench.ask(ControlRequest::Detach { servers: vec![address(1)], replace: true });
    bench.pass(1_000_000, &others);
    assert_eq!(bench.state(server(1, 1)), None);
    bench.connect(11, server(1, 1));
    bench.ask(ControlRequest::Attach { servers: vec![address(1)], replace: true, accept_data_loss: false });
    let all = [(11, server(1, 1)), others[0], others[1], others[2]];
    bench.pass(3_000_000, &all);
    assert_eq!(bench.state(server(1, 1)), Some(MemberState::Active));
    assert!(bench.leases_to(11) > 0, "without a lease nothing of it is served");
}

#[test]
fn each_time_a_whole_cluster_is_away_it_is_waited_for_anew() {
    let mut bench = Bench::with_servers(1..=1);
    for connection in [1, 2] {
        bench.pass(3_000_000, &[(connection, server(1, 1))]);
        bench.down(connection);
        bench.pass(4_000_000, &[]);
        assert_eq!(bench.state(server(1, 1)), Some(MemberState::Active), "it may come back");
        bench.connect(connection + 1, server(1, 1));
    }
}

#[test]
fn a_whole_cluster_that_restarts_goes_on_from_who_is_back() {
    let mut bench = Bench::with_servers(1..=3);
    let all = [1, 2, 3].map(|number| (u64::from(number), server(number, 1)));
    bench.pass(3_000_000, &all);
    (1..=3).for_each(|connection| bench.down(connection));
    // Server 1 is back at once; the others stay away.
    bench.step(ManagerInput::Up(ConnectionId(11)));
    let back = |bench: &mut Bench, micros: u64| {
        let end = bench.now + micros;
        while bench.now < end {
            let sign = Alive { previous: vec![Incarnation(1)], ..bench.sign(server(1, 2)) };
            bench.alive(11, sign);
            bench.pass(100_000, &[]);
        }
    };
    back(&mut bench, 4_000_000);
    assert!(
        bench.log.cluster.space().members.iter().all(|member| member.is_active()),
        "others may come back"
    );
    back(&mut bench, 3_000_000);
    assert_eq!(bench.state(server(1, 2)), Some(MemberState::Returned { order: 3 }));
    assert!(bench.leases_to(11) > 0);
}

#[test]
fn a_server_of_another_cluster_is_unwelcome() {
    let mut bench = Bench::with_servers(1..=3);
    bench.step(ManagerInput::Up(ConnectionId(9)));
    let sign = Alive { cluster: Some(CellId(5)), ..bench.sign(server(9, 1)) };
    bench.alive(9, sign);
    assert!(bench.unwelcome(9).unwrap().contains("belongs to cluster"));
    assert_eq!(bench.hung_up, [9]);
}

#[test]
fn of_two_processes_with_one_address_the_first_stays_if_it_is_there() {
    let mut bench = Bench::with_servers(1..=3);
    bench.connect(9, server(1, 2));
    assert_eq!(bench.unwelcome(9), None, "the first may be gone already");
    assert_eq!(bench.probes_to(1), [9]);
    bench.probed(1, 8);
    bench.probed(2, 9);
    bench.probed(9, 9);
    assert_eq!(bench.unwelcome(9), None, "none of these was asked that");
    bench.probed(1, 9);
    assert!(bench.unwelcome(9).unwrap().contains("another server process"));
    assert_eq!(bench.unwelcome(1), None);
    // A successor, on the other hand, takes the place of who is gone.
    bench.connect(10, server(1, 3));
    bench.down(1);
    bench.pass(3_000_000, &[(10, server(1, 3)), (2, server(2, 1)), (3, server(3, 1))]);
    assert_eq!(bench.unwelcome(10), None);
    assert_eq!(bench.state(server(1, 1)), Some(MemberState::Fault { order: 1 }));
}

#[test]
fn who_was_there_first_is_asked_again_on_its_next_connection() {
    let mut bench = Bench::with_servers(1..=3);
    bench.connect(9, server(1, 2));
    bench.connect(11, server(1, 1));
    bench.pass(100_000, &[(9, server(1, 2))]);
    assert_eq!((bench.probes_to(1), bench.probes_to(11)), (vec![9], vec![9]));
    bench.probed(11, 9);
    assert!(bench.unwelcome(9).is_some());
}

#[test]
fn what_a_process_said_before_it_ended_does_not_turn_the_next_away() {
    let mut bench = Bench::with_servers(1..=3);
    let others = [(2, server(2, 1)), (3, server(3, 1))];
    bench.connect(9, server(1, 2));
    bench.pass(3_000_000, &[(1, server(1, 1)), (9, server(1, 2)), others[0], others[1]]);
    assert_eq!(bench.probes_to(1), [9], "it is asked once");
    bench.pass(8_000_000, &[(9, server(1, 2)), others[0], others[1]]);
    assert_eq!(bench.unwelcome(9), None);
    assert_eq!(bench.hung_up, [1]);
}

#[test]
fn who_does_not_lead_names_who_does() {
    let mut bench = Bench::new();
    let view = CellView { cluster: CELL, master: Some(address(901)), ..CellView::default() };
    bench.step(ManagerInput::Cell(view));
    bench.ask(ControlRequest::Stat);
    assert_eq!(bench.answers, [ControlAnswer::Master(Some(address(901)))]);
}

#[test]
fn requests_are_refused_with_the_reason() {
    let mut bench = Bench::with_servers(1..=3);
    let attach = |servers| ControlRequest::Attach { servers, replace: true, accept_data_loss: false };
    let detach = |servers| ControlRequest::Detach { servers, replace: true };
    let cases = [
        (attach(vec![]), "nothing to attach"),
        (attach(addresses([9])), "no server is connected"),
        (attach(addresses([1])), "attached already"),
        (detach(vec![]), "nothing to detach"),
        (detach(addresses([9])), "is not attached"),
        (detach(addresses([1, 2, 3])), "no acting server"),
        (ControlRequest::Replace, "nothing to do"),
        (ControlRequest::Pause, "no replace"),
        (ControlRequest::Rate { bytes: 19 }, "at least 20 bytes"),
        (ControlRequest::Rate { bytes: 20 }, "no replace"),
        (ControlRequest::Rate { bytes: 0 }, "no replace"),
        (ControlRequest::Rebuild { accept_data_loss: false }, "nothing to rebuild"),
        (ControlRequest::Backup { suffix: "../x".to_owned() }, "suffix"),
        (ControlRequest::Plan { attach: vec![], detach: addresses([9]) }, "is not attached"),
        (ControlRequest::Plan { attach: vec![], detach: addresses([1, 2, 3]) }, "no acting server"),
    ];
    for (request, reason) in cases {
        bench.ask(request.clone());
        match bench.answers.pop() {
            Some(ControlAnswer::Refused(said)) => assert!(said.contains(reason), "{request:?}: {said}"),
            other => panic!("{request:?}: {other:?}"),
        }
    }
    bench.deciding = false;
    bench.ask(ControlRequest::AutoReplace { on: true });
    let all = [1, 2, 3].map(|number| (u64::from(number), server(number, 1)));
    bench.pass(16_000_000, &all);
    assert!(matches!(&bench.answers[..], [ControlAnswer::Refused(said)] if said.contains("in time")));
}

#[test]
fn a_replace_goes_its_way_when_the_servers_report() {
    let mut bench = Bench::with_servers(1..=3);
    bench.connect(4, server(4, 1));
    bench.ask(ControlRequest::Plan { attach: vec![], detach: vec![] });
    let Some(ControlAnswer::Plan(plan)) = bench.answers.pop() else { panic!("no plan") };
    let comer = plan.shares.iter().find(|share| share.server == address(4)).unwrap();
    assert_eq!((comer.before, comer.after), (0, comer.gained));
    let parts: u64 = plan.shares.iter().map(|share| share.after >> 20).sum();
    assert!((3 * 4096 - 8..=3 * 4096).contains(&parts), "three copies of the ring: {parts}");
    assert!(plan.records.abs_diff((comer.gained * 1000) >> 32) < 20, "{plan:?}");

    // What was to wait for the next replace is a part of any.
    bench.ask(ControlRequest::Detach { servers: addresses([1]), replace: false });
    bench.ask(ControlRequest::Plan { attach: vec![], detach: vec![] });
    let Some(ControlAnswer::Plan(plan)) = bench.answers.pop() else { panic!("no plan") };
    let leaver = plan.shares.iter().find(|share| share.server == address(1)).unwrap();
    assert_eq!(leaver.after, 0);
    bench.ask(ControlRequest::Attach { servers: addresses([1]), replace: false, accept_data_loss: false });
    assert_eq!(bench.answers.pop(), Some(ControlAnswer::Done));
    assert!(bench.log.cluster.detach_wanted().is_empty() && bench.log.cluster.attach_wanted().is_empty());
    bench.ask(ControlRequest::Attach { servers: addresses([4]), replace: false, accept_data_loss: false });
    assert_eq!(bench.log.cluster.attach_wanted().len(), 1);
    bench.ask(ControlRequest::Detach { servers: addresses([4]), replace: false });
    assert_eq!(bench.answers.pop(), Some(ControlAnswer::Done));
    assert!(bench.log.cluster.attach_wanted().is_empty());

    bench.ask(ControlRequest::Attach { servers: vec![], replace: true, accept_data_loss: false });
    assert_eq!(bench.answers.pop(), Some(ControlAnswer::Done));
    assert!(bench.log.cluster.space().job.is_some());
    for (request, reason) in [
        (ControlRequest::Plan { attach: vec![], detach: vec![] }, "a replace is under way"),
        (ControlRequest::Detach { servers: addresses([4]), replace: true }, "is being attached"),
    ] {
        bench.ask(request);
        let Some(ControlAnswer::Refused(said)) = bench.answers.pop() else { panic!("not refused: {reason}") };
        assert!(said.contains(reason), "{said}");
    }
    let all = [1, 2, 3, 4].map(|number| (u64::from(number), server(number, 1)));
    bench.pass(1_000_000, &all);
    assert!(bench.log.cluster.space().settled() && bench.log.cluster.space().job.is_none());
    assert_eq!(bench.log.cluster.space().rhs.len(), 4);
}

#[test]
fn a_backup_is_what_every_server_says() {
    let mut bench = Bench::with_servers(1..=3);
    bench.ask(ControlRequest::Backup { suffix: "20260101".to_owned() });
    let asked = bench.sent.iter().filter(|(_, message)| matches!(message, Message::Backup { .. }));
    assert_eq!(asked.count(), 3);
    bench.ask(ControlRequest::Backup { suffix: "other".to_owned() });
    assert!(matches!(bench.answers.pop(), Some(ControlAnswer::Refused(_))));
    for connection in 1..=2 {
        let done =
            Message::BackedUp { suffix: "20260101".to_owned(), path: Some("p".to_owned()), error: None };
        bench.step(ManagerInput::From(ConnectionId(connection), done));
    }
    bench.down(3);
    bench.pass(100_000, &[]);
    let Some(ControlAnswer::Backup(results)) = bench.answers.pop() else { panic!("no answer") };
    assert_eq!(results.len(), 3);
    assert!(results[2].error.is_some() && results[0].path.is_some());
}

/// What is backed up without it may not be all.
#[test]
fn a_backup_names_who_is_fault() {
    let mut bench = Bench::with_servers(1..=3);
    let there = [(1, server(1, 1)), (2, server(2, 1))];
    bench.down(3);
    bench.pass(9_000_000, &there);
    bench.ask(ControlRequest::Backup { suffix: "x".to_owned() });
    for connection in 1..=2 {
        let done = Message::BackedUp { suffix: "x".to_owned(), path: Some("p".to_owned()), error: None };
        bench.step(ManagerInput::From(ConnectionId(connection), done));
    }
    bench.pass(100_000, &there);
    let Some(ControlAnswer::Backup(results)) = bench.answers.pop() else { panic!("no answer") };
    assert_eq!((results.len(), results[2].error.as_deref()), (3, Some("the server is fault")));
}

/// Its host is gone without a word, and it is there again in another life.
#[test]
fn a_backup_does_not_wait_for_a_life_that_is_over() {
    let mut bench = Bench::with_servers(1..=3);
    bench.ask(ControlRequest::Backup { suffix: "x".to_owned() });
    bench.step(ManagerInput::Up(ConnectionId(9)));
    bench.alive(9, Alive { previous: vec![Incarnation(1)], ..bench.sign(server(3, 2)) });
    for connection in 1..=2 {
        let done = Message::BackedUp { suffix: "x".to_owned(), path: Some("p".to_owned()), error: None };
        bench.step(ManagerInput::From(ConnectionId(connection), done));
    }
    bench.pass(6_500_000, &[(1, server(1, 1)), (2, server(2, 1)), (9, server(3, 2))]);
    let Some(ControlAnswer::Backup(results)) = bench.answers.pop() else { panic!("no answer") };
    assert_eq!(results.iter().filter(|result| result.error.is_some()).count(), 1);
}

/// One is being attached, and one that is attached has lost its connection a moment ago.
#[test]
fn a_backup_is_of_those_whose_records_are_read() {
    let mut bench = Bench::with_servers(1..=3);
    bench.connect(4, server(4, 1));
    bench.ask(ControlRequest::Attach { servers: vec![], replace: true, accept_data_loss: false });
    assert_eq!(bench.answers.pop(), Some(ControlAnswer::Done));
    bench.down(2);
    bench.ask(ControlRequest::Backup { suffix: "x".to_owned() });
    let asked = bench.sent.iter().filter(|(_, message)| matches!(message, Message::Backup { .. }));
    assert_eq!(asked.map(|&(to, _)| to).collect::<Vec<_>>(), [1, 3]);
    for connection in [1, 3] {
        let done = Message::BackedUp { suffix: "x".to_owned(), path: Some("p".to_owned()), error: None };
        bench.step(ManagerInput::From(ConnectionId(connection), done));
    }
    bench.pass(100_000, &[]);
    let Some(ControlAnswer::Backup(results)) = bench.answers.pop() else { panic!("no answer") };
    let told: Vec<(SocketAddr, bool)> =
        results.iter().map(|result| (result.server, result.error.is_some())).collect();
    assert_eq!(told, [(address(1), false), (address(2), true), (address(3), false)]);
}

#[test]
fn a_gateway_is_registered_once_and_expires_in_silence() {
    let mut bench = Bench::with_servers(1..=1);
    bench.step(ManagerInput::Up(ConnectionId(50)));
    for _ in 0..2 {
        bench.step(ManagerInput::From(ConnectionId(50), Message::Register { nonce: 5 }));
    }
    let registered = Message::Registered { nonce: 5, gateway: GatewayId(1), cluster: CELL };
    assert_eq!(bench.sent.iter().filter(|(_, message)| *message == registered).count(), 2);
    let one = [(1, server(1, 1))];
    for _ in 0..10 {
        bench.pass(10_000_000, &one);
        let alive = Message::GatewayAlive { gateway: GatewayId(1), space: SpaceNumber(0) };
        bench.step(ManagerInput::From(ConnectionId(50), alive));
    }
    assert!(!bench.log.cluster.space().expired(GatewayId(1)));
    bench.pass(61_000_000, &one);
    assert!(bench.log.cluster.space().expired(GatewayId(1)));
}

#[test]
fn a_new_cell_takes_the_newest_space_of_the_servers() {
    let earlier = Log::with_servers(1..=2);
    let space = earlier.cluster.space().clone();
    let mut bench = Bench::new();
    bench.lead();
    bench.step(ManagerInput::Up(ConnectionId(1)));
    let sign = Alive { cluster: Some(CellId(5)), space: space.number, ..bench.sign(server(1, 1)) };
    bench.alive(1, sign);
    assert_eq!(bench.unwelcome(1), None, "an empty cluster may be rebuilt");
    bench.ask(ControlRequest::Attach { servers: addresses([1]), replace: true, accept_data_loss: false });
    assert!(
        matches!(bench.answers.pop(), Some(ControlAnswer::Refused(said)) if said.contains("another cluster"))
    );
    bench.ask(ControlRequest::Rebuild { accept_data_loss: false });
    assert!(bench.sent.iter().any(|(to, message)| *to == 1 && matches!(message, Message::WantSpace { .. })));
    bench.step(ManagerInput::From(ConnectionId(1), Message::new_space(space.clone())));
    bench.pass(100_000, &[]);
    assert_eq!(bench.answers.pop(), None, "the other one may know of a newer space");
    bench.step(ManagerInput::Up(ConnectionId(2)));
    let back = Alive { previous: vec![Incarnation(1)], space: SpaceNumber(0), ..bench.sign(server(2, 7)) };
    bench.alive(2, Alive { cluster: Some(CellId(5)), ..back });
    bench.pass(100_000, &[]);
    assert_eq!(bench.answers.pop(), Some(ControlAnswer::Done));
    assert_eq!(bench.log.cluster.space().members, space.members);
    assert!(bench.log.cluster.space().number > space.number);
}

#[test]
fn a_space_is_not_rebuilt_without_who_acts_in_it_unless_the_loss_is_accepted() {
    let space = Log::with_servers(1..=2).cluster.space().clone();
    let mut bench = Bench::new();
    bench.lead();
    bench.step(ManagerInput::Up(ConnectionId(1)));
    let sign = Alive { cluster: Some(CellId(5)), space: space.number, ..bench.sign(server(1, 1)) };
    bench.alive(1, sign);
    bench.ask(ControlRequest::Rebuild { accept_data_loss: false });
    bench.step(ManagerInput::From(ConnectionId(1), Message::new_space(space.clone())));
    bench.pass(16_000_000, &[]);
    let missing = space.members[1].address.to_string();
    assert!(matches!(bench.answers.pop(), Some(ControlAnswer::Refused(said)) if said.contains(&missing)));
    assert!(bench.log.cluster.space().members.is_empty());
    bench.ask(ControlRequest::Rebuild { accept_data_loss: true });
    bench.step(ManagerInput::From(ConnectionId(1), Message::new_space(space.clone())));
    bench.pass(100_000, &[]);
    assert_eq!(bench.answers.pop(), Some(ControlAnswer::Done));
}

#[test]
fn servers_that_another_cell_leads_are_not_rebuilt_from() {
    let space = Log::with_servers(1..=2).cluster.space().clone();
    let mut bench = Bench::new();
    bench.lead();
    bench.step(ManagerInput::Up(ConnectionId(1)));
    let led =
        Alive { cluster: Some(CellId(5)), space: space.number, leased: true, ..bench.sign(server(1, 1)) };
    bench.alive(1, led.clone());
    bench.ask(ControlRequest::Rebuild { accept_data_loss: false });
    bench.step(ManagerInput::From(ConnectionId(1), Message::new_space(space)));
    bench.pass(16_000_000, &[]);
    assert!(
        matches!(bench.answers.pop(), Some(ControlAnswer::Refused(said)) if said.contains("still leads it"))
    );
    assert!(bench.log.cluster.space().members.is_empty());
    bench.alive(1, Alive { leased: false, ..led });
    bench.ask(ControlRequest::Rebuild { accept_data_loss: false });
    assert!(bench.sent.iter().any(|(to, message)| *to == 1 && matches!(message, Message::WantSpace { .. })));
}

#[test]
fn auto_replace_attaches_and_detaches_after_some_quiet() {
    let mut bench = Bench::with_servers(1..=3);
    bench.ask(ControlRequest::AutoReplace { on: true });
    assert_eq!(bench.answers.pop(), Some(ControlAnswer::Done));
    let mut all = vec![(1, server(1, 1)), (2, server(2, 1)), (3, server(3, 1)), (4, server(4, 1))];
    bench.connect(4, server(4, 1));
    bench.pass(3_800_000, &all);
    assert_eq!(bench.log.cluster.space().whs.len(), 3);
    bench.pass(2_000_000, &all);
    assert_eq!(bench.log.cluster.space().rhs.len(), 4);
    bench.down(1);
    all.remove(0);
    bench.pass(10_000_000, &all);
    assert_eq!(bench.log.cluster.space().rhs.len(), 3);
    assert_eq!(bench.state(server(1, 1)), None);
}

#[test]
fn who_must_be_started_is_named() {
    let mut bench = Bench::with_servers(1..=3);
    bench.pass(30_000_000, &[]);
    let lost = |bench: &Bench| {
        let members = &bench.log.cluster.space().members;
        members.iter().filter(|member| matches!(member.state, MemberState::Fault { .. })).count()
    };
    assert_eq!(lost(&bench), 3);
    bench.connect(4, server(4, 1));
    bench.ask(ControlRequest::Attach { servers: vec![], replace: true, accept_data_loss: false });
    let answer = bench.answers.pop();
    let Some(ControlAnswer::Refused(said)) = &answer else { panic!("{answer:?}") };
    let named = (1..=3).filter(|number| said.contains(&server(*number, 1).address.to_string())).count();
    assert_eq!(named, 1, "the one that was lost last: {said}");
}

#[test]
fn auto_replace_is_not_put_off_by_gateways_that_end() {
    let mut bench = Bench::with_servers(1..=3);
    bench.ask(ControlRequest::AutoReplace { on: true });
    bench.connect(4, server(4, 1));
    let all = [1, 2, 3, 4].map(|number| (u64::from(number), server(number, 1)));
    for nonce in 0..6 {
        bench.log.apply(Command::Register { nonce }).unwrap();
        let gateways = vec![bench.log.cluster.gateway_for(nonce).unwrap()];
        let term = bench.log.cluster.term();
        bench.log.apply(Command::ExpireGateways { term, gateways }).unwrap();
        bench.pass(1_000_000, &all);
    }
    assert_eq!(bench.log.cluster.space().rhs.len(), 4);
}

#[test]
fn no_loss_is_accepted_of_what_is_back() {
    let mut bench = Bench::with_servers(1..=3);
    bench.pass(30_000_000, &[]);
    let members = &bench.log.cluster.space().members;
    let last = members.iter().max_by_key(|member| format!("{:?}", member.state)).unwrap().id();
    // It connects with its disk, and what it leads again is put up, but not decided yet.
    bench.deciding = false;
    let back = ServerId { address: last.address, incarnation: Incarnation(2) };
    bench.step(ManagerInput::Up(ConnectionId(9)));
    bench.alive(9, Alive { previous: vec![last.incarnation], ..bench.sign(back) });
    bench.connect(4, server(4, 1));
    bench.proposed.clear();
    let attach = ControlRequest::Attach { servers: addresses([4]), replace: true, accept_data_loss: true };
    bench.ask(attach);
    bench.pass(100_000, &[(4, server(4, 1))]);
    let accepts = |command: &Command| {
        matches!(command, Command::Order { order: Order::Replace { accept_loss: true, .. }, .. })
    };
    assert!(!bench.proposed.iter().any(accepts), "{:?}", bench.proposed);
    assert!(bench.proposed.iter().any(|command| matches!(command, Command::Return { .. })));
}
