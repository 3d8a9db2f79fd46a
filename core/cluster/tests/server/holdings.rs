//! What a server says of a store that belongs to no cluster.

use super::disk::Disk;
use super::house::{manager, settings};
use bytes::Bytes;
use kumo_cluster::{
    Alive, Clock, Kind, Message, Record, Server, ServerEffect, ServerInput, SpaceNumber, Stamp, Store,
    key_hash,
};
use kumo_paxos::Time;

/// A store with so many records, whose versions have this clock.
fn store(records: u64, clock: u64) -> Disk {
    let disk = Disk::default();
    for number in 0..records {
        let key = number.to_string();
        let stamp = Stamp { space: SpaceNumber(3), clock: Clock(clock) };
        let data = Bytes::from_static(b"data");
        let record = Record { stamp, kind: Kind::Value, flags: 0, expiry: 0, data };
        disk.put(key_hash(key.as_bytes()), key.as_bytes(), &record).expect("nothing fails");
    }
    disk
}

fn said(disk: Disk) -> Alive {
    let mut server = Server::new(settings(0), disk, Time(0));
    let mut effects = Vec::new();
    server.step(Time(0), ServerInput::ManagerUp(manager()), &mut effects);
    let sign = effects.into_iter().find_map(|effect| match effect {
        ServerEffect::Manager(_, Message::Alive(alive)) => Some(*alive),
        _other => None,
    });
    sign.expect("it says that it is alive")
}

#[test]
fn the_same_records_have_the_same_digest_and_others_another() {
    // More than are looked at at once.
    let (one, same, other) = (said(store(5000, 7)), said(store(5000, 7)), said(store(5000, 8)));
    assert_eq!((one.stamped, one.digest), (same.stamped, same.digest));
    assert_eq!((one.stamped, one.usage), (other.stamped, other.usage), "of the same size");
    assert_ne!(one.digest, other.digest);
    let first = |disk: Disk| {
        let key = key_hash(b"0");
        let record = disk.get(key, b"0").expect("nothing fails").expect("it is there");
        let stamp = Stamp { clock: Clock(9), ..record.stamp };
        disk.put(key, b"0", &Record { stamp, ..record }).expect("nothing fails");
        disk
    };
    assert_ne!(said(first(store(5000, 7))).digest, one.digest, "one record of them");
    assert_eq!(said(Disk::default()).digest, 0);
}
