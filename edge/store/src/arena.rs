//! [`Arena`]: the memory of a shard's entries, in slabs of one size.

use crate::entry::{ENTRY_BYTES_MAX, Entry};
use crate::layout::KEY_BYTES_MAX;
use crate::shard::INLINE_BYTES_MAX;

/// Entries one after the other, as they came. What is discarded leaves a gap; slabs with many gaps are emptied into
/// the newest one and given back. Equal slabs and no allocation per entry: no allocator could be as close.
#[derive(Debug, Default)]
pub struct Arena {
    slabs: Vec<Slab>,
    /// Numbers of slabs that were given back.
    unused: Vec<u32>,
    /// The slab that entries are added to.
    newest: Option<u32>,
    used_bytes: usize,
    gap_bytes: usize,
    /// Where the search for a slab with many gaps goes on.
    cursor: usize,
}

#[derive(Debug, Default)]
struct Slab {
    bytes: Vec<u8>,
    gap_bytes: usize,
}

/// Where an entry is: the number of the slab above, the offset in it below.
pub type Handle = u32;

impl Arena {
    /// The bytes from the entry's first on.
    pub fn at(&self, handle: Handle) -> &[u8] {
        &self.slabs[(handle >> SLAB_BITS) as usize].bytes[(handle & SLAB_MASK) as usize..]
    }

    pub fn entry(&self, handle: Handle) -> Entry<'_> {
        Entry::decode(self.at(handle)).0
    }

    /// Puts an entry there in the place of one of the same length.
    pub fn overwrite(&mut self, handle: Handle, packed: &[u8]) {
        let start = (handle & SLAB_MASK) as usize;
        let slab = &mut self.slabs[(handle >> SLAB_BITS) as usize];
        slab.bytes[start..start + packed.len()].copy_from_slice(packed);
    }

    pub fn add(&mut self, packed: &[u8]) -> Handle {
        let fits = |slab: &Slab| slab.bytes.len() + packed.len() <= SLAB_BYTES;
        let number = match self.newest.filter(|newest| fits(&self.slabs[*newest as usize])) {
            Some(newest) => newest,
            None => self.add_slab(),
        };
        let slab = &mut self.slabs[number as usize];
        let handle = number << SLAB_BITS | slab.bytes.len() as u32;
        slab.bytes.extend_from_slice(packed);
        self.used_bytes += packed.len();
        handle
    }

    pub fn discard(&mut self, handle: Handle) {
        let slab = &mut self.slabs[(handle >> SLAB_BITS) as usize];
        let bytes = &mut slab.bytes[(handle & SLAB_MASK) as usize..];
        let length = Entry::decode(bytes).1;
        Entry::discard(bytes);
        slab.gap_bytes += length;
        self.gap_bytes += length;
    }

    /// A slab worth emptying, if gaps have become many: its number.
    pub fn sparse_slab(&mut self) -> Option<u32> {
        if self.gap_bytes * GAPS_DIVISOR < self.used_bytes || self.gap_bytes < SLAB_BYTES {
            return None;
        }
        for _ in 0..self.slabs.len() {
            self.cursor = (self.cursor + 1) % self.slabs.len();
            let slab = &self.slabs[self.cursor];
            let sparse = slab.gap_bytes > 0 && slab.gap_bytes * GAPS_DIVISOR >= slab.bytes.len();
            if sparse && self.newest != Some(self.cursor as u32) {
                return Some(self.cursor as u32);
            }
        }
        None
    }

    pub fn slab(&self, number: u32) -> &[u8] {
        &self.slabs[number as usize].bytes
    }

    /// Gives a slab back. The entries in it that are in use have been added again.
    pub fn release(&mut self, number: u32) {
        let slab = std::mem::take(&mut self.slabs[number as usize]);
        self.used_bytes -= slab.bytes.len();
        self.gap_bytes -= slab.gap_bytes;
        self.unused.push(number);
    }

    fn add_slab(&mut self) -> u32 {
        let number = self.unused.pop().unwrap_or_else(|| {
            self.slabs.push(Slab::default());
            (self.slabs.len() - 1) as u32
        });
        assert!(number < SLABS_MAX, "a shard of the index has less than 4 GiB");
        self.slabs[number as usize].bytes.reserve_exact(SLAB_BYTES);
        self.newest = Some(number);
        number
    }
}

const SLAB_BITS: u32 = 14;
const SLAB_MASK: u32 = (1 << SLAB_BITS) - 1;

/// Small beside a shard, large beside an entry.
const SLAB_BYTES: usize = 1 << SLAB_BITS;

/// What handles can name: 4 GiB in each of the shards.
const SLABS_MAX: u32 = 1 << (u32::BITS - SLAB_BITS);

/// Slabs are emptied when this part of all is gaps.
const GAPS_DIVISOR: usize = 4;

const _: () =
    assert!(ENTRY_BYTES_MAX + KEY_BYTES_MAX + INLINE_BYTES_MAX < SLAB_BYTES, "an entry fits into a slab");
