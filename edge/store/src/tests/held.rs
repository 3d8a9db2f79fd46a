//! [`Content`]: what a file of a disk in memory holds, and what of it would survive the power.

use super::faulty::Random;
use std::collections::BTreeSet;

#[derive(Clone, Default)]
pub struct Content {
    pub bytes: Vec<u8>,
    pub durable: Vec<u8>,
    pub allocated: u64,
    /// Sectors that a sync failed to write and the system holds for written all the same: read from its memory, and not
    /// on the disk before they are written again.
    pub dropped: BTreeSet<usize>,
}

impl Content {
    pub fn space(&self) -> u64 {
        self.allocated.max(self.bytes.len() as u64)
    }

    /// Keeps any of the sectors that were not synced, and any length.
    pub fn mix(&mut self, random: &mut Random) {
        self.allocated = 0;
        let (old, new) = (self.durable.len() as u64, self.bytes.len() as u64);
        let length = old.min(new) + random.below(old.abs_diff(new) + 1);
        let mut mixed = self.durable.clone();
        mixed.resize(length as usize, 0);
        for start in (0..mixed.len()).step_by(SECTOR_BYTES) {
            let end = (start + SECTOR_BYTES).min(mixed.len());
            let dropped = self.dropped.contains(&(start / SECTOR_BYTES));
            if random.below(3) > 0 && self.bytes.len() > start && !dropped {
                let there = end.min(self.bytes.len());
                mixed[start..there].copy_from_slice(&self.bytes[start..there]);
            }
        }
        self.bytes = mixed;
        self.dropped.clear();
    }

    /// What was not on the disk is dropped if the sync fails, else it is there.
    pub fn sync(&mut self, fails: bool) {
        let sectors = self.bytes.chunks(SECTOR_BYTES).enumerate();
        let mut synced = self.bytes.clone();
        for (number, sector) in sectors {
            let start = number * SECTOR_BYTES;
            let on_disk = self.durable.get(start..start + sector.len());
            if on_disk != Some(sector) && fails {
                self.dropped.insert(number);
            }
            if self.dropped.contains(&number) {
                let old = self.durable.iter().skip(start).copied().chain(std::iter::repeat(0));
                synced[start..start + sector.len()].iter_mut().zip(old).for_each(|(byte, old)| *byte = old);
            }
        }
        if !fails {
            self.durable = synced;
        }
    }
}

/// What a disk writes at once.
pub const SECTOR_BYTES: usize = 512;
