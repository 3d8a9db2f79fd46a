//! What arrives late, from connections that were given up.

use super::house::{House, manager, server, set};
use bytes::Bytes;
#[cfg(feature = "mutants")]
use kumo_cluster::Mutation;
use kumo_cluster::{
    Answer, Broken, Clock, Committed, Kind, MemberState, Message, Operation, Record, Refusal, Reply,
    ServerEffect, ServerInput, Space, Stamp, StoreKey, Table, key_hash,
};
use kumo_session::ConnectionId;

fn value(answer: Option<Answer>) -> String {
    match answer {
        Some(Answer::Reply(Reply::Value { data, .. })) => String::from_utf8_lossy(&data).into_owned(),
        Some(Answer::Missing) => "missing".to_owned(),
        other => panic!("no value: {other:?}"),
    }
}

fn replace(data: &'static str) -> Operation {
    Operation::Replace { flags: 0, expiry: 0, data: Bytes::from_static(data.as_bytes()) }
}

#[test]
fn a_try_from_before_a_server_led_is_not_executed() {
    let (mut house, told) = late_try(Broken::default());
    let newest = house.space.number;
    assert_eq!(told, Some(Answer::WrongSpace { newest }));
    let key = house.keys_of(&[0, 1], 1).remove(0);
    assert_eq!(value(house.ask(0, 3, 1, &key, Operation::Get)), "kept");
}

#[cfg(feature = "mutants")]
#[test]
fn a_late_try_that_is_executed_undoes_what_was_kept() {
    let (mut house, _) = late_try(Broken(Some(Mutation::LateTryExecuted)));
    let key = house.keys_of(&[0, 1], 1).remove(0);
    assert_eq!(value(house.ask(0, 3, 1, &key, Operation::Get)), "late");
}

/// The first server leads, then the second, then the first again. What the second answered without writing anything
/// only it remembers.
fn late_try(broken: Broken) -> (House, Option<Answer>) {
    let mut house = House::with_broken(2, 2, 1, broken);
    let key = house.keys_of(&[0, 1], 1).remove(0);
    let late = house.request(1, 1, &key, replace("late"));
    house.publish(|space| {
        (space.rhs, space.whs) = (vec![1], vec![1]);
        (space.earlier, space.old) = (vec![0, 1], vec![0]);
    });
    assert_eq!(house.ask(1, 1, 1, &key, replace("late")), Some(Answer::NotStored));
    assert!(matches!(house.ask(1, 2, 1, &key, set("kept")), Some(Answer::Reply(_))));
    house.publish(|space| {
        (space.rhs, space.whs) = (vec![0, 1], vec![0, 1]);
        (space.earlier, space.old) = (Vec::new(), Vec::new());
    });
    house.wait(100_000);
    house.send_request(0, late);
    house.settle();
    let told = house.answers.get(&1).cloned();
    (house, told)
}

/// A server that goes on leading takes what was sent before a change that does not concern it.
#[test]
fn a_try_from_an_earlier_space_of_the_same_reign_is_executed() {
    let mut house = House::new(3, 3, 1);
    let key = house.keys_of(&[0, 1, 2], 1).remove(0);
    let early = house.request(1, 1, &key, set("early"));
    house.publish(|space| space.members[2].state = MemberState::Fault { order: 1 });
    house.send_request(0, early);
    house.settle();
    assert!(matches!(house.answers.get(&1), Some(Answer::Reply(_))), "{:?}", house.answers.get(&1));
}

#[test]
fn a_frame_that_is_committed_is_not_stored_again() {
    assert_eq!(shown_after_a_late_frame(Broken::default()), ["missing"; 3]);
}

#[cfg(feature = "mutants")]
#[test]
fn a_committed_frame_that_is_stored_again_brings_back_what_was_deleted() {
    let shown = shown_after_a_late_frame(Broken(Some(Mutation::CommittedTakenAgain)));
    assert_eq!(shown, ["missing", "gone", "missing"]);
}

/// What each of three owners shows of a deleted key.
fn shown_after_a_late_frame(broken: Broken) -> [String; 3] {
    let mut house = House::with_broken(3, 3, 1, broken);
    let key = house.keys_of(&[0, 1, 2], 1).remove(0);
    assert!(matches!(house.ask(0, 1, 1, &key, set("gone")), Some(Answer::Reply(_))));
    assert!(matches!(house.ask(0, 2, 1, &key, Operation::Delete { unique: None }), Some(Answer::Reply(_))));
    house.wait(1_000_000);
    assert_eq!(house.disks[1].kind_of(&key), None, "the tombstone is collected");
    let epoch = house.space.number;
    let stamp = Stamp { space: epoch, clock: Clock(1) };
    let record = Record { stamp, kind: Kind::Value, flags: 0, expiry: 0, data: Bytes::from_static(b"gone") };
    let late = Message::Replicate {
        epoch,
        seq: 1,
        watermark: 0,
        origin: None,
        over: None,
        key: key.clone(),
        record,
    };
    house.step(1, ServerInput::Server(server(0), late));
    house.settle();
    [0, 1, 2].map(|reader| value(house.ask(reader, 3, 1, &key, Operation::Get)))
}

/// A replica asks about a tombstone that no watermark cleared. The primary has collected it; then it orders another, whose
/// frame overtakes the answer on another connection.
#[test]
fn a_late_word_of_the_primary_says_nothing_about_a_mark_of_this_space() {
    for overtaken in [false, true] {
        let mut house = House::new(3, 3, 1);
        let key = house.keys_of(&[0, 1, 2], 1).remove(0);
        house.step(1, ServerInput::Server(server(0), tombstone(&house, &key, 5)));
        house.space.number.0 += 1;
        let space = house.space.number;
        house.step(1, ServerInput::Manager(manager(), Message::new_space(house.space.clone())));
        let ticket = ticket_of(&mut house, 1).expect("it asks about the mark");
        if overtaken {
            house.step(1, ServerInput::Server(server(0), tombstone(&house, &key, 9)));
        }
        let found = Some(Committed { record: None, settled: true });
        let says = Message::PrimarySays { space, ticket, found, unreadable: None };
        house.step(1, ServerInput::Server(server(0), says));
        let shown = Some(Answer::Missing).filter(|_| !overtaken);
        assert_eq!(house.servers[1].under_way().1, u64::from(overtaken));
        house.send(1, 1, 1, &key, Operation::Get);
        assert_eq!(house.answers.get(&1).cloned(), shown, "an unconfirmed version was shown");
        let watermark = Message::Watermark { epoch: space, upto: 1 };
        house.step(1, ServerInput::Server(server(0), watermark));
        assert_eq!(house.servers[1].under_way().1, 0);
    }
}

/// The first frame of the first server in the space there is.
fn tombstone(house: &House, key: &StoreKey, clock: u64) -> Message {
    let epoch = house.space.number;
    let stamp = Stamp { space: epoch, clock: Clock(clock) };
    let record = Record { stamp, kind: Kind::Tombstone, flags: 0, expiry: 0, data: Bytes::new() };
    Message::Replicate { epoch, seq: 1, watermark: 0, origin: None, over: None, key: key.clone(), record }
}

/// That of the question that a server asks a primary by itself. Nobody gets it.
fn ticket_of(house: &mut House, at: usize) -> Option<u64> {
    let mut effects = Vec::new();
    for _ in 0..4 {
        house.now = house.now.plus_micros(50_000);
        house.servers[at].step(house.now, ServerInput::Timeout, &mut effects);
    }
    effects.into_iter().rev().find_map(|effect| match effect {
        ServerEffect::Server(_, Message::AskPrimary { ticket, .. }) => Some(ticket),
        _other => None,
    })
}

/// Answered or not: the next primary cannot know, and whoever reads the key must not wait for a server to return.
#[test]
fn a_write_that_a_settlement_took_over_is_committed_by_those_who_are_left() {
    let mut house = House::new(3, 3, 3);
    let key = house.keys_of(&[0, 1, 2], 1).remove(0);
    house.cut_off = Some(2);
    assert_eq!(house.ask(0, 1, 1, &key, set("v")), None, "one has not acknowledged");
    house.cut_off = None;
    house.publish(|space| space.members[0].state = MemberState::Fault { order: 1 });
    house.wait(100_000);
    assert_eq!(value(house.ask(1, 2, 1, &key, Operation::Get)), "v");
    let few = house.ask(1, 3, 1, &key, set("w"));
    assert_eq!(few, Some(Answer::Refused { reason: Refusal::FewCopies }));
}

#[test]
fn a_key_that_no_store_takes_is_refused_before_it_is_ordered() {
    let mut house = House::new(3, 3, 1);
    for (length, taken) in [(4096, true), (4097, false)] {
        let name = Bytes::from(vec![b'k'; length]);
        let key = StoreKey { hash: key_hash(&name), key: name };
        let answer = house.ask(house.primary(key.hash), 1, 1, &key, set("v"));
        let refused = Some(Answer::Refused { reason: Refusal::KeyTooLong });
        assert_eq!(answer == refused, !taken, "{length}: {answer:?}");
    }
}

/// Between two spaces that its primary has seen a comer may have left, and dropped what it acknowledged.
#[test]
fn an_acknowledgement_does_not_outlive_its_space() {
    let mut house = House::new(4, 3, 1);
    let keys = house.keys_of(&[0, 1, 2], 50);
    house.attach_all();
    let to_comer = |house: &House, key: &StoreKey| Table::new(&house.space).arc(key.hash).comers.contains(&3);
    let key = keys.iter().find(|key| to_comer(&house, key)).expect("some go to the comer").clone();
    house.cut_off = Some(1);
    assert_eq!(house.ask(0, 1, 1, &key, set("v")), None, "one has not acknowledged");
    // The comer is told that it is none any more, and the others hear only that it is one again.
    house.space.number.0 += 1;
    let (number, rhs) = (house.space.number, house.space.rhs.clone());
    let gone = Space { whs: rhs, whs_since: number, job: None, ..house.space.clone() };
    house.step(3, ServerInput::Manager(manager(), Message::new_space(gone)));
    house.cut_off = Some(3);
    house.attach_all();
    assert_eq!(house.answers.get(&1), None, "the comer has not acknowledged it in this job");
    house.cut_off = None;
    let space = house.space.clone();
    house.step(3, ServerInput::Manager(manager(), Message::new_space(space)));
    house.step(0, ServerInput::ServerUp(server(3)));
    house.settle();
    assert!(matches!(house.answers.get(&1), Some(Answer::Reply(_))), "{:?}", house.answers.get(&1));
    assert_eq!(house.disks[3].kind_of(&key), Some(Kind::Value));
}

/// A connection that a gateway gave up still had a try in it, which comes after the one on the next connection.
#[test]
fn a_late_try_does_not_take_the_answer_of_the_one_that_is_waited_for() {
    let mut house = House::new(3, 3, 1);
    let key = house.keys_of(&[0, 1, 2], 1).remove(0);
    house.cut_off = Some(2);
    let mut told = Vec::new();
    for seq in [1, 2] {
        // The second stands behind the first.
        let request = house.request(seq, 1, &key, set("a"));
        for connection in [ConnectionId(9), ConnectionId(8)] {
            let mut effects = Vec::new();
            let input = ServerInput::Gateway(connection, Message::Request(request.clone()));
            house.servers[0].step(house.now, input, &mut effects);
            told.extend(effects.into_iter().filter_map(|effect| match effect {
                ServerEffect::Gateway(to, Message::Answer { seq, answer }) => Some((to, seq, answer)),
                _other => None,
            }));
        }
    }
    let asks_again = |seq| (ConnectionId(9), seq, Answer::Wait);
    assert_eq!(told, [asks_again(1), asks_again(2)]);
}
