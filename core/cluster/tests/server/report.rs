//! What goes wrong is told.

use super::house::{House, server, set};
use kumo_cluster::{Answer, Job, MemberState, Operation, Refusal, ServerNote, StoreKey, Table};

fn stored(house: &mut House, key: &StoreKey) {
    let answer = house.ask(house.primary(key.hash), 1, 1, key, set("v"));
    assert!(matches!(answer, Some(Answer::Reply(_))), "{answer:?}");
}

fn faults(house: &House) -> usize {
    house.notes.iter().filter(|(_, note)| matches!(note, ServerNote::StoreFault { .. })).count()
}

#[test]
fn a_read_tells_of_a_record_that_cannot_be_read() {
    let mut house = House::new(3, 3, 1);
    let key = house.keys_of(&[0, 1, 2], 1).remove(0);
    stored(&mut house, &key);
    let damaged = Some(Answer::Refused { reason: Refusal::Damaged });
    for (told, reader) in [(1, 0), (2, 1)] {
        house.disks[reader].damage_key(Some(key.clone()));
        assert_eq!(house.ask(reader, 2, 2, &key, Operation::Get), damaged);
        assert_eq!(faults(&house), told);
    }
}

#[test]
fn a_replace_tells_of_a_record_that_cannot_be_read_and_waits_for_it() {
    let mut house = House::new(4, 3, 1);
    let mut wanted = house.space.clone();
    wanted.whs = vec![0, 1, 2, 3];
    let table = Table::new(&wanted);
    let moves = |key: &StoreKey| table.arc(key.hash).comers.contains(&3);
    let key = house.keys_of(&[0], 1000).into_iter().find(moves).expect("the newcomer gets some of them");
    stored(&mut house, &key);
    house.disks[0].damage_key(Some(key.clone()));
    house.attach_all();
    house.wait(10_000_000);
    let progress = house.servers[0].progress();
    assert_eq!((progress.unreadable, progress.copies_done < progress.copies), (1, true));
    assert_eq!(faults(&house), 1, "told once");
    house.disks[0].damage_key(None);
    house.wait(3_000_000);
    let progress = house.servers[0].progress();
    assert_eq!((progress.unreadable, progress.copies_done), (0, progress.copies));
}

#[test]
fn a_full_replace_does_not_pass_over_what_it_cannot_read() {
    let mut house = House::new(3, 3, 1);
    let key = house.keys_of(&[0, 1, 2], 1).remove(0);
    stored(&mut house, &key);
    house.wait(100_000);
    house.disks[1].forget(&key);
    house.disks[0].damage_key(Some(key.clone()));
    house.publish(|space| {
        space.whs_since = space.number;
        space.job = Some(Job { full: true, paused: false, rate: 0 });
    });
    house.wait(10_000_000);
    let progress = house.servers[0].progress();
    assert_eq!((progress.unreadable, progress.copies_done < progress.copies), (1, true));
    assert_eq!(faults(&house), 1, "told once");
    house.disks[0].damage_key(None);
    house.wait(3_000_000);
    let progress = house.servers[0].progress();
    assert_eq!((progress.unreadable, progress.copies_done), (0, progress.copies));
    assert!(house.disks[1].kind_of(&key).is_some(), "it is repaired");
}

#[test]
fn a_write_that_a_lost_server_has_not_acknowledged_is_told_of() {
    let mut house = House::new(3, 3, 1);
    let key = house.keys_of(&[0, 1, 2], 1).remove(0);
    house.cut_off = Some(2);
    assert_eq!(house.ask(0, 1, 1, &key, set("v")), None, "one has not acknowledged");
    house.publish(|_| {});
    let told = |house: &House| {
        let notes = house.notes.iter().filter_map(|(at, note)| match note {
            ServerNote::Unreplicated { to, key, record } => {
                Some((*at, *to, key.clone(), record.data.clone()))
            }
            _other => None,
        });
        notes.collect::<Vec<_>>()
    };
    assert_eq!(told(&house), [], "it may still answer");
    house.publish(|space| space.members[2].state = MemberState::Fault { order: 1 });
    assert_eq!(told(&house), [(0, server(2).address, key.key, "v".into())]);
    assert!(matches!(house.answers.get(&1), Some(Answer::Reply(_))));
}

#[test]
fn of_very_many_such_writes_the_rest_is_counted() {
    let mut house = House::new(3, 3, 1);
    house.cut_off = Some(2);
    let keys = house.keys_of(&[0, 1, 2], 300);
    for (seq, key) in (1..).zip(&keys) {
        assert_eq!(house.ask(0, seq, 1, key, set("v")), None, "one has not acknowledged");
    }
    house.publish(|space| space.members[2].state = MemberState::Fault { order: 1 });
    let named =
        house.notes.iter().filter(|(_, note)| matches!(note, ServerNote::Unreplicated { .. })).count();
    let more: Vec<u64> = house
        .notes
        .iter()
        .filter_map(|(_, note)| match note {
            ServerNote::UnreplicatedMore { writes } => Some(*writes),
            _other => None,
        })
        .collect();
    assert_eq!((named, more), (256, vec![44]));
}
