//! [`Engine`]: the storage engine of a simulated server, and what outlives its process.

use super::trouble::Trouble;
use kumo_cluster::{
    Fault, Head, Incarnation, KeyHash, Kind, Record, ServerId, Space, Store, StoreKey, Usage,
};
use kumo_paxos::CellId;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// A handle on one disk: the server has one, the world keeps another for the next life.
#[derive(Clone, Debug, Default)]
pub struct Engine(Rc<RefCell<Disk>>);

#[derive(Debug, Default)]
struct Disk {
    records: BTreeMap<StoreKey, Record>,
    cluster: Option<CellId>,
    /// The newest space that its server had adopted.
    space: Option<Space>,
    /// The last life here that was a member of a space it adopted, and those since. They have changed nothing, and do
    /// not stand between that life and the next: restarts in a row lose no claim.
    lives: Vec<Incarnation>,
    full: bool,
    /// Writes refused since the last one found room.
    refused: u64,
    trouble: Option<Trouble>,
    /// A sync failed: until a restart nothing is taken any more.
    broken: bool,
    /// What it ever failed to do.
    denied: u64,
    /// Changes ever made.
    written: u64,
    /// What stood where something was written or removed since it was last made safe, in the order of the changes.
    before: Vec<(StoreKey, Option<Record>)>,
    /// So many of them, the last ones, were not yet handed to the system.
    unflushed: usize,
}

impl Engine {
    /// The disk is another one, empty.
    pub fn lose(&self) {
        let mut disk = self.0.borrow_mut();
        *disk = Disk { denied: disk.denied, ..Disk::default() };
    }

    pub fn set_full(&self, full: bool) {
        let mut disk = self.0.borrow_mut();
        (disk.full, disk.refused) = (full, 0);
    }

    pub fn set_trouble(&self, trouble: Option<Trouble>) {
        self.0.borrow_mut().trouble = trouble;
    }

    pub fn has_trouble(&self) -> bool {
        self.0.borrow().trouble.is_some()
    }

    pub fn denied(&self) -> u64 {
        self.0.borrow().denied
    }

    /// Another process looks at what is there.
    pub fn open(&self) {
        let mut disk = self.0.borrow_mut();
        (disk.broken, disk.refused) = (false, 0);
    }

    /// A turn's writes are handed to the system, and made safe if they must be. Refused: they may be there or not, from
    /// some of them on, and the server must end.
    pub fn flush(&self, safe: bool) -> Result<(), Fault> {
        let mut disk = self.0.borrow_mut();
        let unflushed = std::mem::take(&mut disk.unflushed);
        if disk.broken {
            disk.undo(unflushed);
            return Err(disk.deny());
        }
        if unflushed > 0 && disk.ends() {
            let kept = disk.trouble.as_mut().map_or(0, |trouble| trouble.done_of(unflushed));
            disk.undo(unflushed - kept);
            return Err(disk.deny());
        }
        if safe {
            disk.before.clear();
        }
        Ok(())
    }

    /// What the engine's own threads do now and then: all that was written is safe from now on, and a disk that was full
    /// is tried again.
    pub fn attend(&self) {
        let mut disk = self.0.borrow_mut();
        if disk.refused > 0 && !disk.full && !disk.trouble.as_mut().is_some_and(Trouble::denies_room) {
            disk.refused = 0;
        }
        if disk.broken || (!disk.before.is_empty() && disk.ends()) {
            disk.broken = true;
            return;
        }
        disk.before.clear();
        disk.unflushed = 0;
    }

    /// The process is gone, and with it what it had not handed to the system.
    pub fn lose_unflushed(&self) {
        let mut disk = self.0.borrow_mut();
        let unflushed = std::mem::take(&mut disk.unflushed);
        disk.undo(unflushed);
    }

    /// The power is gone, and with it what is not safe. What was kept of spaces and lives was made safe at once.
    pub fn lose_power(&self) -> usize {
        let mut disk = self.0.borrow_mut();
        disk.unflushed = 0;
        let lost = disk.before.len();
        disk.undo(lost);
        lost
    }

    /// The server adopted a space. Refused: some of it is kept.
    pub fn keep_space(&self, space: Space, server: ServerId) -> Result<(), Fault> {
        let mut disk = self.0.borrow_mut();
        let failed = disk.ends();
        // Its life, its cluster and the space are three notes.
        let done = match &mut disk.trouble {
            Some(trouble) if failed => trouble.done_of(3),
            Some(_) | None => 3,
        };
        if done >= 1 && space.index_of(server).is_some() {
            disk.lives = vec![server.incarnation];
        }
        if done >= 2 {
            disk.cluster = Some(space.cluster);
        }
        if done >= 3 {
            disk.space = Some(space);
        }
        if failed { Err(disk.deny()) } else { Ok(()) }
    }

    pub fn cluster(&self) -> Option<CellId> {
        self.0.borrow().cluster
    }

    pub fn space(&self) -> Option<Space> {
        self.0.borrow().space.clone()
    }

    pub fn lives(&self) -> Vec<Incarnation> {
        self.0.borrow().lives.clone()
    }

    /// Another life begins here. Refused: it may be on record, and must not begin.
    pub fn born(&self, life: Incarnation) -> Result<(), Fault> {
        let mut disk = self.0.borrow_mut();
        let failed = disk.ends();
        let done = match &mut disk.trouble {
            Some(trouble) if failed => trouble.done_of(1),
            Some(_) | None => 1,
        };
        if done == 1 {
            disk.lives.push(life);
        }
        if failed { Err(disk.deny()) } else { Ok(()) }
    }

    /// All keys that have a record.
    pub fn keys(&self) -> Vec<StoreKey> {
        self.0.borrow().records.keys().cloned().collect()
    }

    /// What is there, whether a server could read it or not.
    pub fn record(&self, hash: KeyHash, key: &[u8]) -> Option<Record> {
        self.0.borrow().records.get(&name(hash, key)).cloned()
    }

    /// The live version of a key: a tombstone is as good as nothing.
    pub fn live(&self, hash: KeyHash, key: &[u8]) -> Option<Record> {
        self.record(hash, key).filter(|record| record.kind == Kind::Value)
    }
}

impl Disk {
    fn changed(&mut self, key: StoreKey, before: Option<Record>) {
        self.written += 1;
        self.unflushed += 1;
        self.before.push((key, before));
    }

    /// The last so many changes were never made.
    fn undo(&mut self, count: usize) {
        self.written -= count as u64;
        for (key, record) in self.before.split_off(self.before.len() - count).into_iter().rev() {
            match record {
                Some(record) => self.records.insert(key, record),
                None => self.records.remove(&key),
            };
        }
    }

    /// Room for a write, and a disk that takes it.
    fn accept(&mut self, key: &StoreKey) -> Result<(), Fault> {
        if self.broken {
            return Err(self.deny());
        }
        let trouble = self.trouble.as_mut().and_then(Trouble::denies_write);
        let Some(fault) = self.full.then_some(Fault::Full).or(trouble) else {
            self.refused = 0;
            self.trouble.iter_mut().for_each(|trouble| trouble.written(key));
            return Ok(());
        };
        self.denied += 1;
        self.refused += u64::from(fault == Fault::Full);
        Err(fault)
    }

    fn ends(&mut self) -> bool {
        self.trouble.as_mut().is_some_and(Trouble::ends)
    }

    fn deny(&mut self) -> Fault {
        self.denied += 1;
        Fault::Io("write: broken".to_owned())
    }
}

fn name(hash: KeyHash, key: &[u8]) -> StoreKey {
    StoreKey { hash, key: bytes::Bytes::copy_from_slice(key) }
}

fn head(record: &Record) -> Head {
    Head {
        stamp: record.stamp,
        kind: record.kind,
        expiry: record.expiry,
        data_bytes: record.data.len() as u32,
    }
}

impl Store for Engine {
    fn head(&self, hash: KeyHash, key: &[u8]) -> Result<Option<Head>, Fault> {
        Ok(self.0.borrow().records.get(&name(hash, key)).map(head))
    }

    fn get(&self, hash: KeyHash, key: &[u8]) -> Result<Option<Record>, Fault> {
        let mut disk = self.0.borrow_mut();
        let key = name(hash, key);
        let found = disk.records.get(&key).cloned();
        if found.is_some()
            && let Some(fault) = disk.trouble.as_mut().and_then(|trouble| trouble.denies_read(&key))
        {
            disk.denied += 1;
            return Err(fault);
        }
        Ok(found)
    }

    fn put(&self, hash: KeyHash, key: &[u8], record: &Record) -> Result<(), Fault> {
        let mut disk = self.0.borrow_mut();
        let key = name(hash, key);
        disk.accept(&key)?;
        let before = disk.records.insert(key.clone(), record.clone());
        disk.changed(key, before);
        Ok(())
    }

    fn remove(&self, hash: KeyHash, key: &[u8]) -> Result<(), Fault> {
        let mut disk = self.0.borrow_mut();
        let key = name(hash, key);
        if !disk.records.contains_key(&key) {
            return Ok(());
        }
        disk.accept(&key)?;
        let before = disk.records.remove(&key);
        disk.changed(key, before);
        Ok(())
    }

    fn scan(
        &self,
        first: KeyHash,
        last: KeyHash,
        after: Option<&StoreKey>,
        count: usize,
    ) -> Result<Vec<(StoreKey, Head)>, Fault> {
        let disk = self.0.borrow();
        let from = StoreKey { hash: first, key: bytes::Bytes::new() };
        let range = disk
            .records
            .range(from..)
            .take_while(|(key, _)| key.hash <= last)
            .filter(|(key, _)| after.is_none_or(|after| *key > after));
        Ok(range.take(count).map(|(key, record)| (key.clone(), head(record))).collect())
    }

    fn written(&self) -> u64 {
        self.0.borrow().written
    }

    fn safe_upto(&self) -> u64 {
        let disk = self.0.borrow();
        disk.written - disk.before.len() as u64
    }

    fn is_full(&self) -> bool {
        // As a real one, it finds out by a write.
        self.0.borrow().refused > 0
    }

    fn usage(&self) -> Usage {
        let disk = self.0.borrow();
        let items = disk.records.values().filter(|record| record.kind == Kind::Value).count() as u64;
        let live_bytes =
            disk.records.iter().map(|(key, record)| (key.key.len() + record.data.len()) as u64).sum();
        let tombstones = disk.records.len() as u64 - items;
        Usage { items, tombstones, live_bytes, file_bytes: live_bytes, ..Usage::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use kumo_cluster::{Stamp, key_hash};

    fn record(data: &'static str) -> Record {
        Record {
            stamp: Stamp::default(),
            kind: Kind::Value,
            flags: 0,
            expiry: 0,
            data: Bytes::from_static(data.as_bytes()),
        }
    }

    #[test]
    fn a_kill_keeps_everything_and_a_lost_disk_nothing() {
        let engine = Engine::default();
        let hash = key_hash(b"k");
        engine.put(hash, b"k", &record("v")).unwrap();
        let mut space = Space::empty(kumo_paxos::CellId(1), kumo_cluster::SpaceNumber(1));
        let address = std::net::SocketAddr::from(([10, 0, 1, 1], 1));
        let server = |life| ServerId { address, incarnation: Incarnation(life) };
        let state = kumo_cluster::MemberState::Active;
        space.members.push(kumo_cluster::Member { address, incarnation: Incarnation(1), state });
        engine.keep_space(space.clone(), server(1)).unwrap();
        engine.keep_space(space.clone(), server(2)).unwrap();
        assert_eq!((engine.lives(), engine.space()), (vec![Incarnation(1)], Some(space)));
        assert_eq!(engine.clone().live(hash, b"k"), Some(record("v")));
        engine.lose();
        assert_eq!(engine.live(hash, b"k"), None);
        assert_eq!(engine.lives(), []);
    }

    #[test]
    fn without_power_what_was_not_made_safe_is_gone() {
        let engine = Engine::default();
        let [a, b] = [b"a", b"b"].map(|key| key_hash(key));
        engine.put(a, b"a", &record("old")).unwrap();
        engine.attend();
        engine.put(a, b"a", &record("new")).unwrap();
        engine.remove(a, b"a").unwrap();
        engine.put(b, b"b", &record("new")).unwrap();
        assert_eq!(engine.lose_power(), 3);
        assert_eq!((engine.live(a, b"a"), engine.live(b, b"b")), (Some(record("old")), None));
        assert_eq!(engine.lose_power(), 0);
    }

    #[test]
    fn a_full_disk_refuses_and_keeps_the_old_version() {
        let engine = Engine::default();
        let hash = key_hash(b"k");
        engine.put(hash, b"k", &record("old")).unwrap();
        engine.set_full(true);
        assert_eq!(engine.put(hash, b"k", &record("new")), Err(Fault::Full));
        assert_eq!(engine.live(hash, b"k"), Some(record("old")));
        assert!(engine.is_full());
        engine.set_full(false);
        assert!(!engine.is_full());
    }

    #[test]
    fn a_scan_goes_on_after_a_key() {
        let engine = Engine::default();
        for key in [b"a", b"b", b"c", b"d"] {
            engine.put(key_hash(key), key, &record("v")).unwrap();
        }
        let all = engine.scan(KeyHash(0), KeyHash(u64::MAX), None, 10).unwrap();
        assert_eq!(all.len(), 4);
        let rest = engine.scan(KeyHash(0), KeyHash(u64::MAX), Some(&all[1].0), 1).unwrap();
        assert_eq!(rest, all[2..3]);
    }

    /// A disk that mostly fails in the ways of which a server ends.
    fn failing(seed: u64) -> Engine {
        let engine = Engine::default();
        let mut troubles = (0..).map(|nth| Trouble::failing(lot::Random::new(seed, &format!("test {nth}"))));
        engine.set_trouble(troubles.find(|trouble| trouble.to_string().contains("of 1000 turns 800")));
        engine
    }

    #[test]
    fn of_a_turn_that_is_not_stored_the_first_changes_may_be_there() {
        let mut kept = std::collections::BTreeSet::new();
        let all = [b"a", b"b", b"c"];
        for engine in (0..200).map(failing) {
            let taken = all.iter().all(|key| engine.put(key_hash(*key), *key, &record("v")).is_ok());
            if !taken || engine.flush(false).is_ok() {
                continue;
            }
            let there = all.map(|key| engine.record(key_hash(key), key).is_some());
            assert!(there.is_sorted_by(|before, after| before >= after), "{there:?}");
            kept.insert(there);
        }
        assert_eq!(kept.len(), 4, "{kept:?}");
    }

    #[test]
    fn after_a_failed_sync_nothing_is_taken_until_a_restart() {
        let engine = failing(1);
        let hash = key_hash(b"k");
        while !engine.0.borrow().broken {
            let _ = engine.put(hash, b"k", &record("v"));
            engine.attend();
        }
        engine.set_trouble(None);
        assert!(engine.put(hash, b"k", &record("w")).is_err());
        assert!(engine.flush(false).is_err());
        engine.open();
        assert_eq!(engine.put(hash, b"k", &record("w")), Ok(()));
        assert_eq!(engine.flush(false), Ok(()));
    }

    #[test]
    fn a_life_that_cannot_be_noted_does_not_begin() {
        let engine = failing(1);
        assert!((0..100).any(|_| engine.born(Incarnation(1)).is_err()));
        engine.set_trouble(None);
        assert_eq!(engine.born(Incarnation(2)), Ok(()));
        assert_eq!(engine.lives().last(), Some(&Incarnation(2)));
    }

    #[test]
    fn a_scarce_disk_is_full_when_the_last_write_found_no_room() {
        let engine = Engine::default();
        engine.set_trouble(Some(Trouble::scarce(lot::Random::new(1, "test"))));
        let hash = key_hash(b"k");
        for _ in 0..100 {
            let full = engine.put(hash, b"k", &record("v")) == Err(Fault::Full);
            assert_eq!(engine.is_full(), full);
        }
        assert!(engine.denied() > 0 && engine.denied() < 100);
        while engine.put(hash, b"k", &record("v")).is_ok() {}
        engine.set_trouble(None);
        assert!(engine.is_full(), "nobody has looked yet");
        engine.attend();
        assert!(!engine.is_full());
    }

    #[test]
    fn what_a_process_had_not_handed_on_is_lost_with_it() {
        let engine = Engine::default();
        let hash = key_hash(b"k");
        engine.put(hash, b"k", &record("old")).unwrap();
        engine.flush(false).unwrap();
        engine.put(hash, b"k", &record("new")).unwrap();
        engine.lose_unflushed();
        assert_eq!(engine.live(hash, b"k"), Some(record("old")));
    }
}
