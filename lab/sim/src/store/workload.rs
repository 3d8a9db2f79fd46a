//! [`Caller`]: one application's connection to the store. It is asked for its next call, and told how each ended.

use super::check::clock_of;
use super::history::{Ending, token};
use bytes::Bytes;
use kumo_cluster::{Answer, Initial, KeyHash, Operation, key_hash};
use lot::Random;
use std::collections::BTreeMap;

/// What is done with a key. All callers share all keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Everything there is.
    Register,
    /// Counted up and read.
    Counter,
    /// Appended to and read.
    Log,
    /// Like a register, and its values expire.
    Fleeting,
}

/// A key of the run.
#[derive(Clone, Debug)]
pub struct Key {
    pub name: Bytes,
    pub hash: KeyHash,
    pub class: Class,
}

impl Key {
    pub fn new(index: usize, class: Class) -> Key {
        let name = Bytes::from(format!("key-{index}"));
        Key { hash: key_hash(&name), name, class }
    }
}

/// One program that calls.
#[derive(Debug)]
pub struct Caller {
    random: Random,
    /// The cas uniques last seen.
    uniques: BTreeMap<usize, u64>,
    /// Logs that it found missing.
    missing: Option<usize>,
    pause_micros: u64,
}

impl Caller {
    pub fn new(mut random: Random, pause_micros: u64) -> Caller {
        let pause_micros = random.between(pause_micros / 3, pause_micros * 2).max(1);
        Caller { random, uniques: BTreeMap::new(), missing: None, pause_micros }
    }

    /// Microseconds until the next call.
    pub fn pause(&mut self) -> u64 {
        match self.random.permille(200) {
            true => self.random.between(100, 1_000),
            false => self.random.between(1_000, self.pause_micros.max(1_001)),
        }
    }

    /// How long it waits for an answer before it hangs up, if it ever does.
    pub fn patience(&mut self) -> Option<u64> {
        self.random.permille(60).then(|| self.random.between(1_000, 4_000_000))
    }

    /// Which gateway it calls: any of so many.
    pub fn gateway(&mut self, count: usize) -> usize {
        self.random.below(count as u64) as usize
    }

    /// What it asks next: a key and what of it. `number` is the call's own, for values that nobody else writes;
    /// `soon` and `far` are times of expiry that may and cannot come.
    pub fn next_call(&mut self, keys: &[Key], number: u64, soon: i64, far: i64) -> (usize, Operation) {
        let missing = self.missing.take().filter(|_| self.random.permille(700));
        let index = missing.unwrap_or_else(|| self.random.below(keys.len() as u64) as usize);
        let operation = match keys[index].class {
            Class::Register => {
                let expiry = if self.random.permille(150) { far } else { 0 };
                self.register(index, number, expiry)
            }
            Class::Fleeting => {
                let expiry = if self.random.permille(400) { soon } else { far };
                self.register(index, number, expiry)
            }
            Class::Counter => self.count(),
            Class::Log if missing.is_some() => Operation::Add { flags: 0, expiry: 0, data: Bytes::new() },
            Class::Log => match self.random.permille(300) {
                true => Operation::Get,
                false => Operation::Append { unique: None, data: token(number) },
            },
        };
        (index, operation)
    }

    /// How a call ended.
    pub fn ended(&mut self, key: usize, class: Class, ending: &Ending) {
        match ending {
            Ending::Answer(Answer::Reply(reply)) => {
                self.uniques.insert(key, clock_of(reply));
            }
            Ending::Answer(Answer::NotStored | Answer::Missing) if class == Class::Log => {
                self.missing = Some(key);
            }
            Ending::Answer(_) | Ending::Nothing(_) | Ending::Unknown(_) => {}
        }
    }

    fn count(&mut self) -> Operation {
        if self.random.permille(300) {
            return Operation::Get;
        }
        // Few different steps: who judges must try which of the unknown ones happened.
        let delta = self.random.between(1, 2);
        // A missing counter counts as zero.
        let initial = Some(Initial { value: delta, expiry: 0 });
        Operation::Add64 { unique: None, delta, down: false, initial, touch: None }
    }

    fn register(&mut self, key: usize, number: u64, expiry: i64) -> Operation {
        let data = token(number);
        let flags = number as u32;
        let unique = self.uniques.get(&key).copied();
        match self.random.below(100) {
            0..34 => Operation::Get,
            34..50 => Operation::Set { flags, expiry, data },
            50..58 => Operation::Add { flags, expiry, data },
            58..64 => Operation::Replace { flags, expiry, data },
            64..70 => Operation::Append { unique: None, data },
            70..72 => Operation::Prepend { unique: None, data },
            72..74 => Operation::Append { unique: Some(unique.unwrap_or(1)), data },
            74..84 => Operation::Cas { unique: unique.unwrap_or(1), flags, expiry, data },
            84..92 => Operation::Delete { unique: None },
            92..94 => Operation::Delete { unique: Some(unique.unwrap_or(1)) },
            94..97 => Operation::Touch { expiry },
            97..99 => Operation::GetAndTouch { expiry },
            _ => Operation::Add64 { unique: None, delta: 1, down: false, initial: None, touch: None },
        }
    }
}
