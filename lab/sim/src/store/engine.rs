//! [`Engine`]: the storage engine of a simulated server, and what outlives its process.

use kumo_cluster::{
    Fault, Head, Incarnation, KeyHash, Kind, Record, ServerId, Space, Store, StoreKey, Usage,
};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// A handle on one disk: the server has one, the world keeps another for the next life.
#[derive(Clone, Debug, Default)]
pub struct Engine(Rc<RefCell<Disk>>);

#[derive(Debug, Default)]
struct Disk {
    records: BTreeMap<StoreKey, Record>,
    /// The newest space that its server had adopted.
    space: Option<Space>,
    /// The last life here that was a member of a space it adopted, and those since. They have changed nothing, and do
    /// not stand between that life and the next: restarts in a row lose no claim.
    lives: Vec<Incarnation>,
    full: bool,
    /// Writes refused since it is full.
    refused: u64,
    /// Changes ever made.
    written: u64,
    /// What stood where something was written or removed since it was last made safe, in the order of the changes.
    before: Vec<(StoreKey, Option<Record>)>,
}

impl Engine {
    /// The disk is another one, empty.
    pub fn lose(&self) {
        *self.0.borrow_mut() = Disk::default();
    }

    pub fn set_full(&self, full: bool) {
        let mut disk = self.0.borrow_mut();
        (disk.full, disk.refused) = (full, 0);
    }

    /// All that was written is safe from now on.
    pub fn sync(&self) {
        self.0.borrow_mut().before.clear();
    }

    /// The power is gone, and with it what is not safe. What was kept of spaces and lives was made safe at once.
    pub fn lose_power(&self) -> usize {
        let mut disk = self.0.borrow_mut();
        let before = std::mem::take(&mut disk.before);
        let lost = before.len();
        disk.written -= lost as u64;
        for (key, record) in before.into_iter().rev() {
            match record {
                Some(record) => disk.records.insert(key, record),
                None => disk.records.remove(&key),
            };
        }
        lost
    }

    /// The server adopted a space.
    pub fn keep_space(&self, space: Space, server: ServerId) {
        let mut disk = self.0.borrow_mut();
        if space.index_of(server).is_some() {
            disk.lives = vec![server.incarnation];
        }
        disk.space = Some(space);
    }

    pub fn space(&self) -> Option<Space> {
        self.0.borrow().space.clone()
    }

    pub fn lives(&self) -> Vec<Incarnation> {
        self.0.borrow().lives.clone()
    }

    /// Another life begins here.
    pub fn born(&self, life: Incarnation) {
        self.0.borrow_mut().lives.push(life);
    }

    /// The live version of a key: a tombstone is as good as nothing.
    pub fn live(&self, hash: KeyHash, key: &[u8]) -> Option<Record> {
        self.get(hash, key).ok().flatten().filter(|record| record.kind == Kind::Value)
    }
}

impl Disk {
    fn changed(&mut self, key: StoreKey, before: Option<Record>) {
        self.written += 1;
        self.before.push((key, before));
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
        Ok(self.0.borrow().records.get(&name(hash, key)).cloned())
    }

    fn put(&self, hash: KeyHash, key: &[u8], record: &Record) -> Result<(), Fault> {
        let mut disk = self.0.borrow_mut();
        if disk.full {
            disk.refused += 1;
            return Err(Fault::Full);
        }
        let key = name(hash, key);
        let before = disk.records.insert(key.clone(), record.clone());
        disk.changed(key, before);
        Ok(())
    }

    fn remove(&self, hash: KeyHash, key: &[u8]) -> Result<(), Fault> {
        let mut disk = self.0.borrow_mut();
        if disk.full {
            disk.refused += 1;
            return Err(Fault::Full);
        }
        let key = name(hash, key);
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
        Usage { items, tombstones: disk.records.len() as u64 - items, live_bytes, file_bytes: live_bytes }
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
        engine.keep_space(space.clone(), server(1));
        engine.keep_space(space.clone(), server(2));
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
        engine.sync();
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
}
