//! [`Trouble`]: what fails at a server's disk for a while, and how often. A disk that is simply full has none.

use kumo_cluster::{Fault, StoreKey};
use lot::Random;
use std::collections::BTreeSet;
use std::fmt;

/// Something is wrong with a disk. It draws from a stream of its own: whoever has no trouble draws nothing.
#[derive(Clone, Debug)]
pub struct Trouble {
    random: Random,
    /// Writes that find no room, while others do: smaller ones, or what somebody else has freed in between.
    full_permille: u64,
    /// Writes for which no room can be reserved. The server is told, and goes on.
    write_permille: u64,
    /// Turns whose writes the system does not take, syncs that fail, and notes. The server ends.
    end_permille: u64,
    /// Reads that fail and may not the next time.
    read_permille: u64,
    /// Records that cannot be read until they are written anew.
    damaged: BTreeSet<StoreKey>,
}

impl Trouble {
    /// The disk is nearly full.
    pub fn scarce(mut random: Random) -> Trouble {
        let full_permille = random.between(100, 900);
        Trouble { full_permille, ..Trouble::none(random) }
    }

    /// The disk does not write, now and then.
    pub fn failing(mut random: Random) -> Trouble {
        let write_permille = [0, 100, 500][random.below(3) as usize];
        let end_permille = [20, 200, 800][random.below(3) as usize];
        Trouble { write_permille, end_permille, ..Trouble::none(random) }
    }

    /// The disk does not read: some of what is there, or now and then anything.
    pub fn unreadable(mut random: Random, keys: Vec<StoreKey>) -> Trouble {
        let share = random.between(100, 700);
        if random.permille(500) {
            return Trouble { read_permille: share, ..Trouble::none(random) };
        }
        let damaged = keys.into_iter().filter(|_| random.permille(share)).collect();
        Trouble { damaged, ..Trouble::none(random) }
    }

    fn none(random: Random) -> Trouble {
        Trouble {
            random,
            full_permille: 0,
            write_permille: 0,
            end_permille: 0,
            read_permille: 0,
            damaged: BTreeSet::new(),
        }
    }

    pub fn denies_room(&mut self) -> bool {
        self.random.permille(self.full_permille)
    }

    pub fn denies_write(&mut self) -> Option<Fault> {
        if self.denies_room() {
            return Some(Fault::Full);
        }
        self.random.permille(self.write_permille).then(|| Fault::Io("reserve space: broken".to_owned()))
    }

    pub fn denies_read(&mut self, key: &StoreKey) -> Option<Fault> {
        if self.damaged.contains(key) {
            return Some(Fault::Damaged("a record is damaged".to_owned()));
        }
        self.random.permille(self.read_permille).then(|| Fault::Io("read: broken".to_owned()))
    }

    /// It stands elsewhere now.
    pub fn written(&mut self, key: &StoreKey) {
        self.damaged.remove(key);
    }

    /// Something fails that a server does not survive.
    pub fn ends(&mut self) -> bool {
        self.random.permille(self.end_permille)
    }

    /// How many of so many steps were done before the one that failed, or with it: who is told of a failure does not know.
    pub fn done_of(&mut self, steps: usize) -> usize {
        self.random.below(steps as u64 + 1) as usize
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let Trouble { random: _, full_permille, write_permille, end_permille, read_permille, damaged } = self;
        write!(out, "of 1000 writes {full_permille} find no room and {write_permille} fail, ")?;
        write!(out, "of 1000 turns {end_permille}, of 1000 reads {read_permille}; damaged: {damaged:?}")
    }
}
