//! Every command and its refusals, executed on the state alone.

use crate::log::{CANCEL, CELL, Log, address, server};
use kumo_cluster::{
    Author, Cluster, Command, GatewayId, Job, Lead, MemberState, Objection, Order, Query, Space, SpaceNumber,
    Table, stranded,
};
use kumo_paxos::CellId;
use kumo_session::{Application, SessionId, numbered};
use kumo_wire::Wire;

#[test]
fn a_term_follows_the_one_it_names() {
    let mut log = Log::new();
    let lead = Lead { after: 0, life: 7, cluster: CELL, lease_micros: 1_500_000, auto_replace: true };
    assert_eq!(log.apply(Command::Lead(lead)), Ok(()));
    assert_eq!((log.cluster.term(), log.cluster.leader()), (1, 7));
    assert_eq!(log.cluster.space().cluster, CELL);
    assert!(log.cluster.auto_replace());
    assert_eq!(log.apply(Command::Lead(lead)), Err(Objection::StaleTerm), "a repeated one begins nothing");

    let shorter = Lead { after: 1, life: 8, lease_micros: 1_000_000, auto_replace: false, ..lead };
    assert_eq!(log.apply(Command::Lead(shorter)), Ok(()));
    assert!(log.cluster.auto_replace(), "only the first master of all says");
    assert_eq!(log.cluster.lease_micros(), 1_500_000, "the first master's leases may last");
    let long = Lead { after: 2, lease_micros: u64::MAX, ..lead };
    assert_eq!(log.apply(Command::Lead(long)), Err(Objection::Malformed));
}

#[test]
fn a_command_of_an_earlier_term_is_void() {
    let mut log = Log::with_servers(1..=3);
    let (term, number) = (log.cluster.term(), log.number());
    log.lead(2);
    let order = Order::FullReplace { number };
    for command in [
        Command::Fault { term, number, servers: vec![server(1, 1)] },
        Command::Return { term, number, servers: Vec::new() },
        Command::Switch { term, number },
        Command::Cleared { term, number },
        Command::ExpireGateways { term, gateways: Vec::new() },
        Command::Order { term, ticket: 9, order },
    ] {
        assert_eq!(log.apply(command), Err(Objection::StaleTerm));
    }
}

#[test]
fn a_new_generation_goes_above_what_the_recovery_lost() {
    let mut log = Log::with_servers(1..=3);
    let before = log.number();
    log.lead(2);
    assert_eq!(log.number(), before, "a term alone changes no routing");
    log.generation = 2;
    log.lead(3);
    assert_eq!(log.number(), SpaceNumber(numbered(2, before.0 + 1)));
}

#[test]
fn the_first_attach_sets_the_ring_at_once() {
    let mut log = Log::new();
    log.lead(1);
    assert_eq!(log.replace([], []), Err(Objection::NoTaker));
    assert_eq!(log.replace([server(1, 1), server(1, 2)], []), Err(Objection::StillActing));
    assert_eq!(log.replace((1..=3).map(|one| server(one, 1)), []), Ok(()));
    let all = vec![(1, 1), (2, 1), (3, 1)];
    assert_eq!(log.rings(), [all.clone(), all, vec![]]);
    assert_eq!(log.cluster.space().job, None);
    assert_eq!(log.replace([], []), Err(Objection::Nothing));
    assert_eq!(log.replace([server(1, 1)], []), Err(Objection::AddressTwice));
    assert_eq!(log.replace([server(1, 2)], []), Err(Objection::StillActing));
    assert_eq!(log.replace([], [9]), Err(Objection::NoSuchServer));
    assert_eq!(log.replace([], [1, 2, 3]), Err(Objection::NoTaker));
}

#[test]
fn a_replace_copies_switches_and_is_confirmed() {
    let mut log = Log::with_servers(1..=3);
    log.replace([server(4, 1)], [1]).unwrap();
    let begun = log.number();
    let (rhs, whs) = (vec![(1, 1), (2, 1), (3, 1)], vec![(2, 1), (3, 1), (4, 1)]);
    assert_eq!(log.rings(), [rhs.clone(), whs.clone(), vec![]]);
    assert_eq!(log.cluster.space().whs_since, begun);
    assert_eq!(log.replace([server(5, 1)], []), Err(Objection::JobRuns), "one job at a time");
    assert_eq!(log.order(Order::FullReplace { number: begun }), Err(Objection::JobRuns));
    assert_eq!(log.cleared(), Err(Objection::Nothing));

    log.switch().unwrap();
    assert_eq!(log.rings(), [whs.clone(), whs.clone(), rhs]);
    assert_eq!(log.switch(), Err(Objection::NoJob));
    assert_eq!(log.replace([server(5, 1)], []), Err(Objection::Unsettled));
    assert_eq!(log.order(CANCEL), Err(Objection::NoJob));

    log.cleared().unwrap();
    assert_eq!(log.rings(), [whs.clone(), whs, vec![]]);
    assert_eq!(log.state(server(1, 1)), None, "who is in no ring is dropped");
    assert!(log.cluster.space().settled());
}

#[test]
fn a_switch_of_another_space_is_void() {
    let mut log = Log::with_servers(1..=3);
    log.replace([server(4, 1)], []).unwrap();
    let (term, number) = (log.cluster.term(), log.number());
    log.fault([server(2, 1)]).unwrap();
    assert_eq!(log.apply(Command::Switch { term, number }), Err(Objection::StaleSpace));
    assert_eq!(log.switch(), Ok(()));
    let number = SpaceNumber(log.number().0 - 1);
    assert_eq!(log.apply(Command::Cleared { term, number }), Err(Objection::StaleSpace));
}

#[test]
fn a_lost_old_member_need_not_confirm() {
    let mut log = Log::with_servers(1..=3);
    log.replace([server(4, 1)], [1]).unwrap();
    log.switch().unwrap();
    log.fault([server(1, 1)]).unwrap();
    assert_eq!(log.rings()[2], [(2, 1), (3, 1)]);
    log.fault([server(2, 1), server(3, 1)]).unwrap();
    assert!(log.cluster.space().settled());
    assert!(log.cluster.space().earlier.is_empty());
    assert_eq!(log.state(server(1, 1)), None);
}

#[test]
fn pause_resume_rate_and_cancel_are_about_a_job() {
    let mut log = Log::with_servers(1..=3);
    for order in [Order::Pause, Order::Resume, Order::Rate { bytes: 5 }, CANCEL] {
        assert_eq!(log.order(order), Err(Objection::NoJob));
    }
    log.replace([server(4, 1)], []).unwrap();
    let begun = log.cluster.space().whs_since;
    log.order(Order::Pause).unwrap();
    assert_eq!(log.order(Order::Pause), Err(Objection::Nothing));
    log.order(Order::Rate { bytes: 5 }).unwrap();
    assert_eq!(log.cluster.space().job, Some(Job { full: false, paused: true, rate: 5 }));
    assert_eq!(log.switch(), Err(Objection::Paused));
    log.order(Order::Resume).unwrap();
    assert_eq!(log.cluster.space().whs_since, begun, "the job goes on");
    log.order(CANCEL).unwrap();
    assert_eq!(log.cluster.space().whs_since, log.number(), "a ring given up is another one when set again");
    let all = vec![(1, 1), (2, 1), (3, 1)];
    assert_eq!(log.rings(), [all.clone(), all, vec![]]);
    assert_eq!(log.state(server(4, 1)), None);
}

#[test]
fn a_full_replace_changes_no_ring() {
    let mut log = Log::new();
    log.lead(1);
    let number = log.number();
    assert_eq!(log.order(Order::FullReplace { number }), Err(Objection::Nothing));
    let mut log = Log::with_servers(1..=3);
    let number = log.number();
    log.order(Order::FullReplace { number }).unwrap();
    assert_eq!(log.cluster.space().whs_since, log.number());
    assert_eq!(log.order(Order::FullReplace { number }), Err(Objection::StaleSpace));
    log.switch().unwrap();
    assert_eq!(log.cluster.space().job, None);
    assert!(log.cluster.space().settled());
}

#[test]
fn what_is_wanted_is_done_by_the_next_replace() {
    let mut log = Log::with_servers(1..=3);
    let want = |attach: &[u16], detach: &[u16]| Order::Want {
        attach: attach.iter().copied().map(address).collect(),
        detach: detach.iter().copied().map(address).collect(),
    };
    let number = log.number();
    log.order(want(&[4], &[1])).unwrap();
    assert_eq!(log.order(want(&[4], &[1])), Err(Objection::Nothing));
    assert_eq!(log.order(want(&[], &[9])), Err(Objection::Nothing), "a stranger cannot be detached");
    assert_eq!(log.number(), number, "routing follows at the next replace");
    log.replace([server(4, 1)], []).unwrap();
    assert_eq!(log.rings()[1], [(2, 1), (3, 1), (4, 1)]);
    assert!(log.cluster.attach_wanted().is_empty() && log.cluster.detach_wanted().is_empty());
    log.order(want(&[1], &[])).unwrap();
    log.order(want(&[], &[1])).unwrap();
    assert!(log.cluster.attach_wanted().is_empty());
    assert_eq!(log.cluster.detach_wanted().len(), 1);
    // Of one that stays it is taken back.
    log.order(want(&[], &[2])).unwrap();
    log.order(want(&[2], &[])).unwrap();
    assert!(log.cluster.attach_wanted().is_empty());
    assert_eq!(log.cluster.detach_wanted().len(), 1);
    assert_eq!(log.order(want(&[2], &[])), Err(Objection::Nothing));
}

#[test]
fn a_fault_keeps_its_place_and_its_order() {
    let mut log = Log::with_servers(1..=4);
    assert_eq!(log.fault([server(9, 1)]), Err(Objection::Nothing));
    log.fault([server(2, 1), server(1, 1)]).unwrap();
    assert_eq!(log.state(server(2, 1)), Some(MemberState::Fault { order: 1 }));
    assert_eq!(log.state(server(1, 1)), Some(MemberState::Fault { order: 2 }));
    assert_eq!(log.fault([server(1, 1)]), Err(Objection::Nothing), "once is enough");
    assert_eq!(log.rings()[0].len(), 4);
    // A new life takes the place of the lost one; who is not back keeps its place.
    log.replace([server(2, 2)], []).unwrap();
    assert_eq!(log.rings()[1], [(1, 1), (2, 2), (3, 1), (4, 1)]);
}

#[test]
fn only_the_last_owner_comes_back_by_itself() {
    let mut log = Log::with_servers(1..=3);
    log.fault([server(1, 1)]).unwrap();
    assert_eq!(log.bring_back(1, 1), Err(Objection::Nothing), "others have what it had, and more");
    log.fault([server(2, 1), server(3, 1)]).unwrap();
    assert_eq!(log.bring_back(2, 1), Err(Objection::Nothing));
    assert_eq!(log.bring_back(3, 9), Err(Objection::NoSuchServer));
    assert_eq!(log.bring_back(3, 1), Ok(()));
    assert_eq!(log.state(server(3, 2)), Some(MemberState::Returned { order: 3 }));
    assert_eq!(log.state(server(3, 1)), None);
    assert_eq!(log.cluster.space().id_floor, log.number());
    let table = Table::new(log.cluster.space());
    assert!(table.arcs().iter().all(|arc| arc.readers.len() == 1));

    // It is lost again, and stays the authority.
    log.fault([server(3, 2)]).unwrap();
    assert_eq!(log.bring_back(3, 2), Ok(()));
    // The others catch up, and all are alike.
    log.replace([server(1, 2), server(2, 2)], []).unwrap();
    log.switch().unwrap();
    assert!(log.cluster.space().members.iter().all(|member| member.is_active() || member.incarnation.0 == 1));
    assert_eq!(log.state(server(3, 3)), Some(MemberState::Active));
    log.cleared().unwrap();
    assert_eq!(log.rings()[0], [(1, 2), (2, 2), (3, 3)]);
}

#[test]
fn who_came_back_for_one_arc_does_not_outrank_the_last_owner_of_another() {
    // Six servers: 4, 5 and 6 are lost, and 6 comes back for the arcs that those three had alone.
    let mut log = Log::with_servers(1..=6);
    log.fault([server(4, 1), server(5, 1), server(6, 1)]).unwrap();
    log.bring_back(6, 1).unwrap();
    // The others are lost too, then 6 again: of their common arcs 6 has only what came since it was back.
    log.fault([server(1, 1), server(2, 1), server(3, 1)]).unwrap();
    log.fault([server(6, 2)]).unwrap();
    let last =
        |order| log.cluster.space().members.iter().position(|one| one.state == MemberState::Fault { order });
    let (six, three) = (last(3).unwrap() as u16, last(6).unwrap() as u16);
    log.bring_back(6, 2).unwrap();
    let space = log.cluster.space();
    let table = Table::new(space);
    let common = table.arcs().iter().filter(|arc| arc.owners.contains(&three) && arc.owners.contains(&six));
    assert!(common.clone().count() > 0);
    assert!(common.into_iter().all(|arc| arc.readers.is_empty()), "3 has what 6 missed");
}

#[test]
fn a_returned_server_alone_is_a_reason_to_replace() {
    let mut log = Log::with_servers(1..=1);
    log.fault([server(1, 1)]).unwrap();
    assert_eq!(log.replace([server(2, 1)], []), Err(Objection::OwnersLost));
    log.bring_back(1, 1).unwrap();
    log.replace([], []).unwrap();
    log.switch().unwrap();
    assert_eq!(log.state(server(1, 2)), Some(MemberState::Active));
}

#[test]
fn who_returns_was_not_meant_by_the_wish_to_take_out_the_lost() {
    let out = |servers: &[u16]| Order::Want {
        attach: Vec::new(),
        detach: servers.iter().copied().map(address).collect(),
    };
    let mut log = Log::with_servers(1..=2);
    log.fault([server(1, 1)]).unwrap();
    log.fault([server(2, 1)]).unwrap();
    log.order(out(&[1, 2])).unwrap();
    log.bring_back(2, 1).unwrap();
    log.replace([], []).unwrap();
    assert_eq!(log.rings()[1], [(2, 2)], "who is not back is taken out");
    // Nor is the only one there is left out, whom nobody could follow.
    let mut log = Log::with_servers(1..=1);
    log.fault([server(1, 1)]).unwrap();
    log.order(out(&[1])).unwrap();
    log.bring_back(1, 1).unwrap();
    assert_eq!(log.replace([], []), Ok(()));
    // Said of one that is back, it counts.
    let mut log = Log::with_servers(1..=2);
    log.fault([server(1, 1)]).unwrap();
    log.fault([server(2, 1)]).unwrap();
    log.bring_back(2, 1).unwrap();
    log.order(out(&[2])).unwrap();
    log.replace([server(1, 2)], []).unwrap();
    assert_eq!(log.rings()[1], [(1, 2)]);
}

#[test]
fn nobody_without_the_data_takes_an_arc_unless_the_loss_is_accepted() {
    let mut log = Log::with_servers(1..=3);
    log.fault([server(1, 1), server(2, 1), server(3, 1)]).unwrap();
    assert_eq!(log.replace([server(4, 1)], []), Err(Objection::OwnersLost));
    assert_eq!(log.replace([], [1]), Err(Objection::OwnersLost));
    let number = log.number();
    let detach = (1..=3).map(address).collect();
    log.order(Order::Replace {
        number,
        above: SpaceNumber(0),
        attach: vec![server(4, 1)],
        detach,
        accept_loss: true,
        author: Author::Operator,
    })
    .unwrap();
    log.switch().unwrap();
    assert_eq!(log.rings(), [vec![(4, 1)], vec![(4, 1)], vec![]]);
    assert_eq!(log.cluster.space().id_floor, log.number());
}

#[test]
fn what_is_lost_after_a_loss_was_accepted_is_not_given_up_with_it() {
    // Of six servers three are lost, and with them the keys that they had alone.
    let mut log = Log::with_servers(1..=6);
    log.fault([server(4, 1), server(5, 1), server(6, 1)]).unwrap();
    let accept = |log: &mut Log| {
        let number = log.number();
        let lost = log.cluster.space().members.iter().filter(|one| !one.is_active());
        let detach = lost.map(|one| one.address).collect();
        let (above, attach) = (SpaceNumber(0), vec![server(7, 1)]);
        log.order(Order::Replace {
            number,
            above,
            attach,
            detach,
            accept_loss: true,
            author: Author::Operator,
        })
    };
    accept(&mut log).unwrap();
    // Now 3, which has keys that 1 and 2 do not have.
    log.fault([server(3, 1)]).unwrap();
    assert_eq!(log.switch(), Err(Objection::OwnersLost));
    log.order(CANCEL).unwrap();
    accept(&mut log).unwrap();
    assert_eq!(log.switch(), Ok(()));
    // Without such keys the acceptance stands.
    let mut log = Log::with_servers(1..=6);
    log.fault([server(4, 1), server(5, 1), server(6, 1)]).unwrap();
    accept(&mut log).unwrap();
    log.fault([server(7, 1)]).unwrap();
    assert_eq!(log.switch(), Ok(()));
}

#[test]
fn a_ring_whose_new_owners_are_lost_is_not_switched_to() {
    let mut log = Log::with_servers(1..=1);
    log.replace([server(2, 1)], [1]).unwrap();
    log.fault([server(2, 1)]).unwrap();
    assert_eq!(log.switch(), Err(Objection::NoTaker));
    assert!(log.cluster.is_hopeless() && stranded(log.cluster.space()).contains(&address(2)));
    log.order(CANCEL).unwrap();
    assert!(!log.cluster.is_hopeless());
    // Nor when what is to be copied has no one to copy it.
    let mut log = Log::with_servers(1..=1);
    log.replace([server(2, 1)], [1]).unwrap();
    log.fault([server(1, 1)]).unwrap();
    assert_eq!(log.switch(), Err(Objection::OwnersLost));
    assert!(!log.cluster.is_hopeless(), "it may come back");
    log.bring_back(1, 1).unwrap();
    assert_eq!(log.switch(), Ok(()));
}

#[test]
fn a_replace_does_not_leave_one_copy_of_what_has_more() {
    let mut log = Log::with_servers(1..=3);
    log.replace((4..=6).map(|one| server(one, 1)), [1, 2, 3]).unwrap();
    log.fault([server(4, 1)]).unwrap();
    assert_eq!(log.cluster.may_switch(), Ok(()), "one that is lost on the way is worked around");
    log.fault([server(5, 1)]).unwrap();
    assert_eq!(log.switch(), Err(Objection::FewCopies));
    assert!(log.cluster.is_hopeless());
    assert_eq!(stranded(log.cluster.space()), [4, 5].map(address).into());
    log.order(CANCEL).unwrap();
    // Nor does one begin that would.
    log.fault([server(3, 1)]).unwrap();
    assert_eq!(log.replace([], [1]), Err(Objection::FewCopies));
    assert_eq!(log.replace([], [1, 3]), Ok(()), "one server is all that is wanted");
    // What has one copy goes to one, and so does what comes to have one.
    let mut log = Log::with_servers(1..=1);
    log.replace([server(2, 1), server(3, 1)], [1]).unwrap();
    log.fault([server(3, 1)]).unwrap();
    assert_eq!(log.switch(), Ok(()));
    let mut log = Log::with_servers(1..=2);
    log.replace([server(3, 1), server(4, 1)], [1, 2]).unwrap();
    log.fault([server(3, 1)]).unwrap();
    assert_eq!(log.switch(), Err(Objection::FewCopies));
    log.fault([server(1, 1)]).unwrap();
    assert_eq!(log.switch(), Ok(()));
}

/// Who comes adds to the copies, whoever is lost: to attach is never refused for their number.
#[test]
fn an_attach_beside_lost_servers_begins() {
    for lost in 1..=3 {
        let mut log = Log::with_servers(1..=6);
        log.fault((1..=lost).map(|one| server(one, 1))).unwrap();
        let led = Table::new(log.cluster.space()).arcs().iter().all(|arc| arc.primary().is_some());
        let begun = if led { Ok(()) } else { Err(Objection::OwnersLost) };
        assert_eq!(log.replace([server(7, 1)], []), begun, "{lost} lost");
    }
}

#[test]
fn a_gateway_has_one_id_while_it_lives() {
    let mut log = Log::with_servers(1..=3);
    for nonce in [7, 8, 9, 7] {
        log.apply(Command::Register { nonce }).unwrap();
    }
    let ids: Vec<GatewayId> = [7, 8, 9].map(|nonce| log.cluster.gateway_for(nonce).unwrap()).into();
    assert_eq!(ids, [GatewayId(1), GatewayId(2), GatewayId(3)]);
    let number = log.number();
    let expire = |log: &mut Log, gateways| {
        let term = log.cluster.term();
        log.apply(Command::ExpireGateways { term, gateways })
    };
    assert_eq!(expire(&mut log, vec![GatewayId(2)]), Ok(()));
    assert_eq!(expire(&mut log, vec![GatewayId(2)]), Err(Objection::Nothing));
    let space = log.cluster.space();
    assert!(space.number > number);
    assert_eq!([1, 2, 3, 4].map(|id| space.expired(GatewayId(id))), [false, true, false, false]);
    log.apply(Command::Register { nonce: 8 }).unwrap();
    assert_eq!(log.cluster.gateway_for(8), Some(GatewayId(4)), "an id is never used again");
    log.generation = 3;
    log.apply(Command::Register { nonce: 10 }).unwrap();
    assert_eq!(log.cluster.gateway_for(10), Some(GatewayId(numbered(3, 5))), "also in what a recovery lost");
}

#[test]
fn a_ticket_counts_once() {
    let mut log = Log::with_servers(1..=3);
    let term = log.cluster.term();
    let order = |ticket, on| Command::Order { term, ticket, order: Order::AutoReplace { on } };
    assert_eq!(log.apply(order(50, true)), Ok(()));
    assert_eq!(log.apply(order(50, false)), Err(Objection::Repeated));
    assert!(log.cluster.auto_replace());
    for ticket in 51..400 {
        log.apply(order(ticket, true)).unwrap();
    }
    assert_eq!(log.cluster.answer(50), None, "answers are bounded");
    assert_eq!(log.apply(order(50, false)), Err(Objection::Repeated), "and still count once");
    log.lead(2);
    assert_eq!(log.cluster.answer(399), None);
}

#[test]
fn a_new_cell_goes_on_where_the_servers_are() {
    let mut old = Log::with_servers(1..=3);
    old.generation = 4;
    old.apply(Command::Register { nonce: 1 }).unwrap();
    old.lead(2);
    old.remembered().unwrap();
    old.fault([server(2, 1)]).unwrap();
    let space = old.cluster.space().clone();

    let mut log = Log::new();
    log.lead(9);
    log.apply(Command::Register { nonce: 5 }).unwrap();
    assert_eq!(log.order(Order::Rebuild { space: space.clone() }), Ok(()));
    let rebuilt = log.cluster.space();
    assert!(rebuilt.number > space.number);
    assert_eq!(rebuilt.members, space.members);
    assert!(rebuilt.expired(GatewayId(1)) && rebuilt.expired(GatewayId(numbered(4, 77))));
    assert_eq!(log.order(Order::Rebuild { space }), Err(Objection::NotEmpty));
    log.apply(Command::Register { nonce: 5 }).unwrap();
    let gateway = log.cluster.gateway_for(5).unwrap();
    assert!(!log.cluster.space().expired(gateway));
    log.fault([server(3, 1)]).unwrap();
    assert_eq!(log.state(server(3, 1)), Some(MemberState::Fault { order: 2 }));
}

#[test]
fn a_recovery_after_a_rebuild_goes_above_what_it_lost() {
    let mut old = Log::with_servers(1..=3);
    old.generation = 4;
    old.lead(2);
    let mut log = Log::new();
    log.generation = 1;
    log.lead(9);
    log.order(Order::Rebuild { space: old.cluster.space().clone() }).unwrap();
    log.apply(Command::Register { nonce: 5 }).unwrap();
    let (kept, generation) = (log.cluster.clone(), log.generation);
    // What the recovery loses.
    log.apply(Command::Register { nonce: 6 }).unwrap();
    log.fault([server(1, 1)]).unwrap();
    let lost = (log.number(), log.cluster.gateway_for(6).unwrap());
    (log.cluster, log.generation) = (kept, generation + 1);
    // A gateway may be first.
    log.apply(Command::Register { nonce: 7 }).unwrap();
    log.lead(10);
    assert!(log.number() > lost.0, "{} follows {}", log.number(), lost.0);
    assert!(log.cluster.gateway_for(7).unwrap() > lost.1);
    assert!(log.cluster.is_live(log.cluster.gateway_for(5).unwrap()));
}

#[test]
fn a_space_that_breaks_the_rules_is_not_rebuilt_from() {
    let good = Log::with_servers(1..=3).cluster.space().clone();
    let spoil: [fn(&mut Space); 7] = [
        |space| space.rhs = vec![7],
        |space| space.number = SpaceNumber(u64::MAX),
        |space| space.members[0].state = MemberState::Fault { order: u64::MAX },
        |space| space.whs.clear(),
        |space| space.whs_since = SpaceNumber(1 << 60),
        |space| space.old = vec![0],
        // One that is in no ring.
        |space| (space.rhs, space.whs, space.old) = (vec![0], vec![0], vec![2]),
    ];
    for spoil in spoil {
        let mut space = good.clone();
        spoil(&mut space);
        let mut log = Log::new();
        log.lead(1);
        let before = log.cluster.space().clone();
        assert_eq!(log.order(Order::Rebuild { space }), Err(Objection::BadSpace));
        assert_eq!(before, *log.cluster.space());
    }
    let mut log = Log::new();
    log.lead(1);
    let empty = Space::empty(CellId(1), SpaceNumber(5));
    assert_eq!(log.order(Order::Rebuild { space: empty }), Err(Objection::NotEmpty));
}

#[test]
fn a_fault_executed_late_does_not_hit_who_is_a_member_anew() {
    let mut log = Log::with_servers(1..=3);
    let fault =
        Command::Fault { term: log.cluster.term(), number: log.number(), servers: vec![server(1, 1)] };
    assert_eq!(log.apply(fault.clone()), Ok(()));
    assert_eq!(log.replace([], [1]), Ok(()));
    assert_eq!((log.switch(), log.cleared()), (Ok(()), Ok(())));
    assert_eq!(log.replace([server(1, 1)], []), Ok(()));
    assert_eq!(log.apply(fault), Err(Objection::StaleSpace));
    assert_eq!(log.state(server(1, 1)), Some(MemberState::Active));
}

#[test]
fn bytes_that_mean_nothing_change_nothing() {
    let mut log = Log::with_servers(1..=3);
    assert_eq!(log.apply_bytes(bytes::Bytes::from_static(&[99, 1, 2])), Err(Objection::Malformed));
    let (term, number) = (log.cluster.term(), log.number());
    let command = Command::Fault { term, number, servers: vec![server(1, 1)] }.to_bytes();
    for length in 0..command.len() {
        assert_eq!(log.apply_bytes(command.slice(..length)), Err(Objection::Malformed));
    }
    assert!(log.cluster.space().members.iter().all(|member| member.is_active()));
}

#[test]
fn the_space_can_be_read_anywhere() {
    let log = Log::with_servers(1..=3);
    let read = |query| Option::<Space>::from_bytes(log.cluster.read(SessionId(0), query)).unwrap();
    assert_eq!(read(Query::Space.to_bytes()).as_ref(), Some(log.cluster.space()));
    assert_eq!(read(bytes::Bytes::from_static(b"?")), None);
}

#[test]
fn a_damaged_snapshot_is_refused() {
    let mut log = Log::with_servers(1..=3);
    log.replace([server(4, 1)], [1]).unwrap();
    log.switch().unwrap();
    let whole: bytes::Bytes = log.cluster.snapshot().collect::<Vec<_>>().concat().into();
    for length in 0..whole.len() {
        assert!(Cluster::restore(vec![whole.slice(..length)]).is_err(), "length {length}");
    }
    // One byte changed gives an error or a state that keeps all rules, and never a panic.
    for at in 0..whole.len() {
        for flip in [1, 0x80, 0xff] {
            let mut bytes = whole.to_vec();
            bytes[at] ^= flip;
            let _ = Cluster::restore(vec![bytes.into()]);
        }
    }
}
