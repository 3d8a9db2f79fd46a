//! [`Disk`]: what a durable node's files hold, what is really on the platter, and what a crash leaves of it.

use bytes::Bytes;
use kumo_paxos::{Incarnation, Position, Record};
use kumo_wire::Wire;
use lot::Random;

/// One node's disk: a log of records, and the newest snapshot.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    /// Records as their bytes, oldest first; `first` is the number of the first one here.
    log: Vec<Bytes>,
    first: u64,
    /// Records below this number survive anything but the loss of the disk.
    synced: u64,
    /// What is left of the record that was being written when the power failed.
    torn: Bytes,
    snapshot: Option<(Position, Vec<Bytes>)>,
    /// Whose memory this is, if it is anybody's: what the last record of that kind says.
    life: Option<Incarnation>,
    /// Writing fails.
    pub full: bool,
}

/// What a crash does to a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// All that was written is there: only the process died.
    None,
    /// What was not synced is gone, from some point on, which may be inside a record.
    Unsynced,
    /// Another disk, empty.
    Lost,
}

impl Disk {
    /// Appends a record, given with its bytes; the number up to which must be synced for it to count.
    /// `None`: the disk is full.
    pub fn write(&mut self, record: &Record, bytes: Bytes) -> Option<u64> {
        if self.full {
            return None;
        }
        if let Record::Life { incarnation, .. } = record {
            self.life = Some(*incarnation);
        }
        // Who writes has cut off what was torn.
        self.torn.clear();
        self.log.push(bytes);
        Some(self.written())
    }

    /// Records written so far.
    pub fn written(&self) -> u64 {
        self.first + self.log.len() as u64
    }

    pub fn synced(&self) -> u64 {
        self.synced
    }

    pub fn sync(&mut self, upto: u64) {
        self.synced = self.synced.max(upto);
    }

    /// Puts a snapshot in place. `memory` is what the node must remember beside it, `upto` how much of the log was
    /// written when it was taken: that much the two replace.
    pub fn install(&mut self, position: Position, memory: &[Record], parts: Vec<Bytes>, upto: u64) {
        let later = self.log.split_off((upto - self.first) as usize);
        let written = upto + later.len() as u64;
        self.log = memory.iter().map(Wire::to_bytes).chain(later).collect();
        // Numbers stay what they were at the end of the log, where syncs are still awaited.
        self.first = written - self.log.len() as u64;
        self.synced = self.synced.max(upto);
        self.snapshot = Some((position, parts));
    }

    /// The node is gone; what is left of its disk.
    /// `tears` says where a record is torn.
    pub fn crash(&mut self, damage: Damage, random: &mut Random, tears: &mut Random) {
        match damage {
            Damage::None => {}
            Damage::Unsynced => {
                let floor = self.synced.max(self.first);
                let kept = random.between(floor, self.written().max(floor));
                let whole = (kept - self.first) as usize;
                self.torn = match self.log.get(whole) {
                    Some(record) => record.slice(..tears.below(record.len() as u64) as usize),
                    None => Bytes::new(),
                };
                self.log.truncate(whole);
                self.life = self.records().into_iter().rev().find_map(|record| match record {
                    Record::Life { incarnation, .. } => Some(incarnation),
                    Record::Promised(_)
                    | Record::Accepted { .. }
                    | Record::Decided { .. }
                    | Record::Data { .. } => None,
                });
            }
            Damage::Lost => *self = Disk::default(),
        }
        self.synced = self.written();
    }

    /// Whose memory this is, if it is anybody's.
    pub fn life(&self) -> Option<Incarnation> {
        self.life
    }

    pub fn snapshot(&self) -> Option<(Position, Vec<Bytes>)> {
        self.snapshot.clone()
    }

    /// The log as a process finds it that starts, without what is torn.
    pub fn records(&self) -> Vec<Record> {
        // A checksum shows it before anything is decoded; but no part of a record may pass for a record either.
        let torn = Record::from_bytes(self.torn.clone());
        assert!(torn.is_err(), "a torn record is read as a whole one: {torn:?}");
        let read =
            |bytes: &Bytes| Record::from_bytes(bytes.clone()).expect("a record is read as it was written");
        self.log.iter().map(read).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kumo_paxos::{Instance, Round, Value};

    fn write(disk: &mut Disk, record: &Record) -> Option<u64> {
        disk.write(record, record.to_bytes())
    }

    fn decided(instance: u64) -> Record {
        Record::Decided { instance: Instance(instance), value: Value::Noop }
    }

    #[test]
    fn what_was_synced_survives_a_crash_and_the_rest_is_a_prefix() {
        let mut torn = 0;
        for seed in 0..50 {
            let mut disk = Disk::default();
            for instance in 0..10 {
                write(&mut disk, &decided(instance)).unwrap();
            }
            disk.sync(4);
            disk.crash(Damage::Unsynced, &mut Random::new(seed, "disk"), &mut Random::new(seed, "tears"));
            torn += usize::from(!disk.torn.is_empty());
            let left = disk.records();
            assert!((4..=10).contains(&left.len()));
            assert!(left.iter().enumerate().all(|(index, record)| *record == decided(index as u64)));
        }
        assert!(torn > 10, "a record was torn only {torn} times");
    }

    #[test]
    fn a_snapshot_and_a_memory_replace_what_was_written_before() {
        let mut disk = Disk::default();
        let promised = Record::Promised(Round { sequence: 3, ..Round::default() });
        let life = |kept| Record::Life { incarnation: Incarnation(7), grant_micros: 5, kept };
        write(&mut disk, &life(0)).unwrap();
        write(&mut disk, &Record::Promised(Round::default())).unwrap();
        write(&mut disk, &promised).unwrap();
        for instance in 1..6 {
            write(&mut disk, &decided(instance)).unwrap();
        }
        let upto = disk.written();
        write(&mut disk, &decided(6)).unwrap();
        let genesis = kumo_paxos::Genesis {
            cell: kumo_paxos::CellId(1),
            generation: 1,
            window: 4,
            configuration: kumo_paxos::Configuration {
                version: 1,
                next_id: kumo_paxos::ReplicaId(1),
                members: Vec::new(),
            },
        };
        let position = Position {
            cell: genesis.cell,
            generation: 1,
            executed: Instance(4),
            schedule: kumo_paxos::Schedule::new(Instance(0), &genesis),
            digest: 0,
        };
        disk.install(position, &[life(1), promised.clone(), decided(5)], Vec::new(), upto);
        assert_eq!(disk.written(), 9);
        assert_eq!(disk.records(), [life(1), promised, decided(5), decided(6)]);
        assert_eq!(disk.life(), Some(Incarnation(7)));
    }

    #[test]
    fn a_full_disk_takes_nothing() {
        let mut disk = Disk { full: true, ..Disk::default() };
        assert_eq!(write(&mut disk, &decided(1)), None);
        assert_eq!(disk.written(), 0);
    }
}
