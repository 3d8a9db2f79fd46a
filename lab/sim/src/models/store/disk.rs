//! [`Disk`]: a store that is copied with its server.

use kumo_cluster::{Fault, Head, KeyHash, Kind, Record, Store, StoreKey, Usage};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

/// Records in memory. Locked, never shared: a search needs states that any thread can look at.
#[derive(Debug, Default)]
pub struct Disk(Mutex<BTreeMap<StoreKey, Record>>);

impl Disk {
    pub fn records(&self) -> MutexGuard<'_, BTreeMap<StoreKey, Record>> {
        self.0.lock().expect("nobody panics with the lock")
    }
}

impl Clone for Disk {
    fn clone(&self) -> Disk {
        Disk(Mutex::new(self.records().clone()))
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

impl Store for Disk {
    fn head(&self, hash: KeyHash, key: &[u8]) -> Result<Option<Head>, Fault> {
        Ok(self.records().get(&name(hash, key)).map(head))
    }

    fn get(&self, hash: KeyHash, key: &[u8]) -> Result<Option<Record>, Fault> {
        Ok(self.records().get(&name(hash, key)).cloned())
    }

    fn put(&self, hash: KeyHash, key: &[u8], record: &Record) -> Result<(), Fault> {
        self.records().insert(name(hash, key), record.clone());
        Ok(())
    }

    fn remove(&self, hash: KeyHash, key: &[u8]) -> Result<(), Fault> {
        self.records().remove(&name(hash, key));
        Ok(())
    }

    fn scan(
        &self,
        first: KeyHash,
        last: KeyHash,
        after: Option<&StoreKey>,
        count: usize,
    ) -> Result<Vec<(StoreKey, Head)>, Fault> {
        let records = self.records();
        let inside = records.iter().filter(|(key, _)| first <= key.hash && key.hash <= last);
        let beyond = inside.filter(|(key, _)| after.is_none_or(|after| *key > after));
        Ok(beyond.take(count).map(|(key, record)| (key.clone(), head(record))).collect())
    }

    fn is_full(&self) -> bool {
        false
    }

    fn usage(&self) -> Usage {
        let items = self.records().values().filter(|record| record.kind == Kind::Value).count() as u64;
        Usage { items, ..Usage::default() }
    }
}
