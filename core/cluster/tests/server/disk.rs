//! [`Disk`]: a store in memory that can be told to fail, and counts what it is asked for.

use kumo_cluster::{Fault, Head, KeyHash, Kind, Record, Store, StoreKey, Usage};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// A handle: the server has one, the test another.
#[derive(Clone, Default)]
pub struct Disk(Rc<Inside>);

#[derive(Default)]
struct Inside {
    records: RefCell<BTreeMap<StoreKey, Record>>,
    /// This key cannot be written or removed.
    broken: RefCell<Option<StoreKey>>,
    /// This key cannot be read.
    damaged: RefCell<Option<StoreKey>>,
    /// Nothing can be written: there is no room, or it fails.
    full: Cell<bool>,
    failing: Cell<bool>,
    /// Changes ever made, and how many of them a loss of power would not take; none: all.
    written: Cell<u64>,
    safe: Cell<Option<u64>>,
    work: Cell<usize>,
}

impl Disk {
    pub fn break_key(&self, key: Option<StoreKey>) {
        *self.0.broken.borrow_mut() = key;
    }

    pub fn damage_key(&self, key: Option<StoreKey>) {
        *self.0.damaged.borrow_mut() = key;
    }

    /// Loses the key, unnoticed.
    pub fn forget(&self, key: &StoreKey) {
        self.0.records.borrow_mut().remove(key);
    }

    pub fn fill(&self, full: bool) {
        self.0.full.set(full);
    }

    pub fn fail(&self, failing: bool) {
        self.0.failing.set(failing);
    }

    /// What is written from now on is not safe, or all is.
    pub fn buffer(&self, on: bool) {
        self.0.safe.set(on.then_some(self.0.written.get()));
    }

    /// What is stored under the key.
    pub fn kind_of(&self, key: &StoreKey) -> Option<Kind> {
        self.0.records.borrow().get(key).map(|record| record.kind)
    }

    /// Records that were listed, written or removed since this was last asked.
    pub fn work(&self) -> usize {
        self.0.work.take()
    }

    pub fn len(&self) -> usize {
        self.0.records.borrow().len()
    }

    fn writable(&self, key: &StoreKey) -> Result<(), Fault> {
        if self.0.full.get() {
            return Err(Fault::Full);
        }
        let broken = self.0.broken.borrow().as_ref() == Some(key) || self.0.failing.get();
        self.0.written.set(self.0.written.get() + 1);
        if broken { Err(Fault::Io("told to fail".to_owned())) } else { Ok(()) }
    }

    fn worked(&self, count: usize) {
        self.0.work.set(self.0.work.get() + count);
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
        Ok(self.0.records.borrow().get(&name(hash, key)).map(head))
    }

    fn get(&self, hash: KeyHash, key: &[u8]) -> Result<Option<Record>, Fault> {
        let key = name(hash, key);
        if self.0.damaged.borrow().as_ref() == Some(&key) {
            return Err(Fault::Damaged("told to be damaged".to_owned()));
        }
        Ok(self.0.records.borrow().get(&key).cloned())
    }

    fn put(&self, hash: KeyHash, key: &[u8], record: &Record) -> Result<(), Fault> {
        let key = name(hash, key);
        self.writable(&key)?;
        self.worked(1);
        // It is written somewhere else.
        self.0.damaged.borrow_mut().take_if(|damaged| *damaged == key);
        self.0.records.borrow_mut().insert(key, record.clone());
        Ok(())
    }

    fn remove(&self, hash: KeyHash, key: &[u8]) -> Result<(), Fault> {
        let key = name(hash, key);
        self.writable(&key)?;
        self.worked(1);
        self.0.records.borrow_mut().remove(&key);
        Ok(())
    }

    fn scan(
        &self,
        first: KeyHash,
        last: KeyHash,
        after: Option<&StoreKey>,
        count: usize,
    ) -> Result<Vec<(StoreKey, Head)>, Fault> {
        let records = self.0.records.borrow();
        let from = after.cloned().unwrap_or(StoreKey { hash: first, key: bytes::Bytes::new() });
        let range = records.range(from..).take_while(|(key, _)| key.hash <= last);
        let beyond = range.filter(|(key, _)| after.is_none_or(|after| *key > after));
        let found: Vec<_> = beyond.take(count).map(|(key, record)| (key.clone(), head(record))).collect();
        self.worked(found.len());
        Ok(found)
    }

    fn written(&self) -> u64 {
        self.0.written.get()
    }

    fn safe_upto(&self) -> u64 {
        self.0.safe.get().unwrap_or(u64::MAX)
    }

    fn is_full(&self) -> bool {
        self.0.full.get()
    }

    fn usage(&self) -> Usage {
        let records = self.0.records.borrow();
        let items = records.values().filter(|record| record.kind == Kind::Value).count() as u64;
        Usage { items, ..Usage::default() }
    }
}
