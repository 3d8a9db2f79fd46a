//! What a replace takes from the clients: little while they ask, and it ends all the same.

use super::house::House;
use bytes::Bytes;
use kumo_cluster::{
    Clock, Kind, Operation, Record, ServerInput, SpaceNumber, Stamp, Store, StoreKey, key_hash,
};
use kumo_paxos::Time;

const RECORDS: u64 = 40_000;
const DATA_BYTES: usize = 2_048;

/// What a server that catches up is brought in a second while clients ask.
const BYTES_PER_SECOND: u64 = 40_000_000;

/// Three servers that hold all records, and a fourth.
fn filled() -> House {
    let house = House::new(4, 3, 1);
    let stamp = Stamp { space: SpaceNumber(0), clock: Clock(9) };
    let data = Bytes::from(vec![b'v'; DATA_BYTES]);
    let record = Record { stamp, kind: Kind::Value, flags: 0, expiry: 0, data };
    for number in 0..RECORDS {
        let key = format!("record-{number}");
        for disk in &house.disks[..3] {
            disk.put(key_hash(key.as_bytes()), key.as_bytes(), &record).expect("nothing fails here");
        }
    }
    house
}

fn sent(house: &House) -> u64 {
    house.servers.iter().map(|server| server.progress().bytes_sent).sum()
}

fn is_done(house: &House) -> bool {
    house.servers.iter().all(|server| server.progress().copies_done == server.progress().copies)
}

/// Every server is asked once in a millisecond, and steps when it wants to, until then or until the copies are done.
fn ask_until(house: &mut House, key: &StoreKey, until: Time) {
    while house.now < until && !is_done(house) {
        for to in 0..3 {
            house.send(to, 1, 1, key, Operation::Get);
        }
        house.settle();
        let asked_again = house.now.plus_micros(1_000);
        while let Some(due) = (0..4).filter_map(|at| house.servers[at].deadline()).min() {
            if due >= asked_again {
                break;
            }
            house.now = house.now.max(due);
            for at in 0..4 {
                if house.servers[at].deadline().is_some_and(|deadline| deadline <= house.now) {
                    house.step(at, ServerInput::Timeout);
                }
            }
            house.settle();
        }
        house.now = asked_again;
    }
}

#[test]
fn a_replace_leaves_the_clients_most_of_the_time_and_ends() {
    let mut house = filled();
    let key = house.keys_of(&[], 1).remove(0);
    for to in 0..3 {
        house.send(to, 1, 1, &key, Operation::Get);
    }
    house.work_max = 0;
    house.attach_all();
    let began = house.now;
    for half in 1..=3 {
        ask_until(&mut house, &key, began.plus_micros(half * 500_000));
        let (most, bytes) = (half * BYTES_PER_SECOND / 2, sent(&house));
        assert!(bytes <= most + most / 20, "{bytes} bytes in {half} half seconds");
        assert!(bytes >= most * 3 / 5, "{bytes} bytes in {half} half seconds: too slow");
    }
    ask_until(&mut house, &key, began.plus_micros(4_000_000));
    assert!(is_done(&house), "{:?}", house.servers[0].progress());
    assert!(house.disks[3].len() as u64 > RECORDS / 2, "{}", house.disks[3].len());
    assert!(house.work_max <= 1_500, "one step worked on {} records", house.work_max);
}

#[test]
fn a_replace_that_nobody_is_kept_waiting_by_does_not_wait() {
    let mut house = filled();
    let before = house.now;
    house.attach_all();
    assert!(is_done(&house), "{:?}", house.servers[0].progress());
    assert_eq!(house.now, before);
    assert!(sent(&house) > RECORDS / 2 * DATA_BYTES as u64);
}
