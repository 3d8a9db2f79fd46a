//! [`Log`]: what is decided. Executed entries stay for catch-up, within limits.

use crate::identity::Instance;
use crate::value::{DataName, Value};
use std::collections::{BTreeMap, VecDeque};

/// Decided entries: a run of executed ones, and those decided ahead of a hole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Log {
    /// The next instance to execute; everything below is executed. 0: not even the genesis is known.
    next: Instance,
    /// Executed entries still here, the last one at `next - 1`.
    kept: VecDeque<Value>,
    kept_bytes: usize,
    /// Decided, not executed.
    ahead: BTreeMap<Instance, Value>,
}

impl Log {
    pub fn next(&self) -> Instance {
        self.next
    }

    /// The last executed instance; 0 also when nothing is.
    pub fn executed(&self) -> Instance {
        Instance(self.next.0.saturating_sub(1))
    }

    /// The oldest entry still here for catch-up.
    pub fn first(&self) -> Instance {
        Instance(self.next.0 - self.kept.len() as u64)
    }

    /// Everything up to here is decided, executed or not.
    pub fn decided_upto(&self) -> Instance {
        let mut upto = self.next;
        while self.ahead.contains_key(&upto) {
            upto = upto.next();
        }
        Instance(upto.0.saturating_sub(1))
    }

    pub fn is_decided(&self, instance: Instance) -> bool {
        instance < self.next || self.ahead.contains_key(&instance)
    }

    /// Notes a decision. What is known stays, whatever is told.
    pub fn decide(&mut self, instance: Instance, value: Value) -> Noted {
        match self.get(instance) {
            Some(known) if *known != value => Noted::Conflict,
            Some(_) => Noted::Known,
            None if instance < self.next => Noted::Known,
            None => {
                self.ahead.insert(instance, value);
                Noted::New
            }
        }
    }

    /// The next entry, if it is decided.
    pub fn executable(&self) -> Option<&Value> {
        self.ahead.get(&self.next)
    }

    /// Moves the next entry from decided to executed.
    pub fn execute(&mut self) -> Option<Value> {
        let value = self.ahead.remove(&self.next)?;
        self.kept_bytes += value.weight();
        self.kept.push_back(value.clone());
        self.next = self.next.next();
        Some(value)
    }

    fn kept(&self, instance: Instance) -> Option<&Value> {
        let offset = instance.0.checked_sub(self.first().0)?;
        self.kept.get(offset as usize)
    }

    /// A decided entry, executed or not, if it is still here.
    pub fn get(&self, instance: Instance) -> Option<&Value> {
        if instance < self.next { self.kept(instance) } else { self.ahead.get(&instance) }
    }

    pub fn ahead_from(&self, from: Instance) -> impl Iterator<Item = (Instance, &Value)> {
        self.ahead.range(from..).map(|(instance, value)| (*instance, value))
    }

    pub fn ahead_count(&self) -> usize {
        self.ahead.len()
    }

    /// Drops executed entries: those every member has (`needed` is the oldest one still wanted), but never
    /// fewer than `KEEP_MIN`; and, wanted or not, those beyond the limits, which are wider for what follows the
    /// `pinned` position.
    /// Returns the large values among them.
    pub fn trim(&mut self, needed: Instance, pinned: Option<Instance>) -> Vec<DataName> {
        let mut dropped = Vec::new();
        while let Some(oldest) = self.kept.front() {
            let pinned = pinned.is_some_and(|pinned| self.first() > pinned);
            let times = if pinned { PINNED_TIMES } else { 1 };
            let wanted = pinned || self.first() >= needed || self.kept.len() <= KEEP_MIN;
            let within = self.kept_bytes <= KEEP_BYTES_MAX * times && self.kept.len() <= KEEP_MAX * times;
            if wanted && within || self.kept.len() <= 1 {
                break;
            }
            self.kept_bytes -= oldest.weight();
            if let Value::Large { name, .. } = oldest {
                dropped.push(*name);
            }
            self.kept.pop_front();
        }
        dropped
    }

    /// More is kept than the limits allow: trim now, not at the next occasion.
    pub fn is_over(&self) -> bool {
        self.kept_bytes > KEEP_BYTES_MAX
    }

    /// Gives up what is decided from `from` on: only a recovered generation may.
    pub fn forget_ahead(&mut self, from: Instance) {
        self.ahead.split_off(&from);
    }

    /// A snapshot took the place of everything up to `executed`.
    pub fn install(&mut self, executed: Instance) {
        self.next = executed.next();
        self.kept.clear();
        self.kept_bytes = 0;
        self.ahead = self.ahead.split_off(&self.next);
    }
}

/// What a decision was to the log that was told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noted {
    New,
    Known,
    /// Another value is known as decided: what must never be.
    Conflict,
}

/// Executed entries kept for catch-up, and their bytes: the seed's PaxosCacheTimeout, counted instead of timed.
/// Beyond, a snapshot.
pub const KEEP_MAX: usize = 100_000;
pub const KEEP_BYTES_MAX: usize = 64 * 1024 * 1024;
/// So much more is kept of what follows a snapshot on its way to a member: what is written meanwhile would else be gone
/// when it arrives, and the next snapshot be no better.
const PINNED_TIMES: usize = 4;
/// Kept even when every connected member has them: a member that reconnects a moment later needs them.
const KEEP_MIN: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn command(text: &'static str) -> Value {
        Value::Command(Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn execution_waits_for_a_hole() {
        let mut log = Log::default();
        assert_eq!(log.decide(Instance(1), command("b")), Noted::New);
        assert_eq!(log.execute(), None);
        assert_eq!(log.decide(Instance(0), command("a")), Noted::New);
        assert_eq!(log.decided_upto(), Instance(1));
        assert_eq!(log.execute(), Some(command("a")));
        assert_eq!(log.execute(), Some(command("b")));
        assert_eq!(log.executed(), Instance(1));
        assert_eq!(log.decide(Instance(1), command("b")), Noted::Known);
    }

    #[test]
    fn a_second_value_is_a_conflict_and_changes_nothing() {
        let mut log = Log::default();
        log.decide(Instance(0), command("a"));
        assert_eq!(log.decide(Instance(0), command("b")), Noted::Conflict);
        assert_eq!(log.execute(), Some(command("a")));
        assert_eq!(log.decide(Instance(0), command("b")), Noted::Conflict);
        assert_eq!(log.get(Instance(0)), Some(&command("a")));
    }

    #[test]
    fn what_follows_a_snapshot_on_its_way_is_kept_longer() {
        let large = |count: u64| {
            let name = DataName::of(&count.to_le_bytes());
            Value::Large { name, length: (KEEP_BYTES_MAX / 4) as u32 }
        };
        let mut log = Log::default();
        let execute = |log: &mut Log, count: u64| {
            for _ in 0..count {
                log.decide(log.next(), large(log.next().0));
                log.execute();
            }
        };
        execute(&mut log, 3);
        let pinned = Some(log.executed());
        execute(&mut log, 9);
        log.trim(log.next(), pinned);
        assert_eq!(log.first(), Instance(3), "all that follows it");
        execute(&mut log, 20);
        log.trim(log.next(), pinned);
        assert!(
            log.kept_bytes <= PINNED_TIMES * KEEP_BYTES_MAX && log.first() > Instance(3),
            "within limits"
        );
        assert!(log.kept_bytes > KEEP_BYTES_MAX);
        log.trim(log.next(), None);
        assert!(log.kept_bytes <= KEEP_BYTES_MAX);
    }
}
