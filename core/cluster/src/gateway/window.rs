//! [`Window`]: which slot holds the call of a seq, and the lowest seq that is open.

use super::slots::NONE;
use std::collections::VecDeque;

/// Seqs are handed out one after the other, so those from the lowest open one on are a queue of slots: finding
/// one is an index, and closing the lowest moves the front.
pub(super) struct Window {
    /// [`NONE`]: that seq is closed. The front never is. [`RESERVED`]: it is open, and of no slot.
    slots: VecDeque<u32>,
    lowest: u64,
}

impl Window {
    pub fn new() -> Window {
        Window { slots: VecDeque::new(), lowest: 1 }
    }

    /// The next seq, for that slot.
    pub fn open(&mut self, slot: u32) -> u64 {
        let seq = self.lowest + self.slots.len() as u64;
        self.slots.push_back(slot);
        seq
    }

    /// The next seq, for something that is no call.
    pub fn reserve(&mut self) -> u64 {
        self.open(RESERVED)
    }

    pub fn close(&mut self, seq: u64) {
        if let Some(slot) = seq.checked_sub(self.lowest).and_then(|at| self.slots.get_mut(at as usize)) {
            *slot = NONE;
        }
        while self.slots.front() == Some(&NONE) {
            self.slots.pop_front();
            self.lowest += 1;
        }
    }

    pub fn find(&self, seq: u64) -> Option<u32> {
        let at = usize::try_from(seq.checked_sub(self.lowest)?).ok()?;
        self.slots.get(at).copied().filter(is_slot)
    }

    /// Every seq below is closed; when all are, it is the next one.
    pub fn lowest_open(&self) -> u64 {
        self.lowest
    }

    /// Seqs from the lowest open one to the last.
    pub fn span(&self) -> usize {
        self.slots.len()
    }

    /// The slots of the open seqs, in the order of these.
    pub fn slots(&self) -> Vec<u32> {
        self.slots.iter().copied().filter(is_slot).collect()
    }
}

fn is_slot(slot: &u32) -> bool {
    *slot != NONE && *slot != RESERVED
}

/// In the place of a slot. There are never so many.
const RESERVED: u32 = NONE - 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_open_seq_follows_what_is_closed() {
        let mut window = Window::new();
        assert_eq!(window.lowest_open(), 1);
        assert_eq!([7, 8, 9].map(|slot| window.open(slot)), [1, 2, 3]);
        window.close(2);
        assert_eq!((window.lowest_open(), window.span(), window.find(2)), (1, 3, None));
        window.close(1);
        assert_eq!((window.lowest_open(), window.find(3), window.slots()), (3, Some(9), vec![9]));
        window.close(1);
        window.close(u64::MAX);
        window.close(3);
        assert_eq!((window.lowest_open(), window.span(), window.open(5)), (4, 0, 4));
        assert_eq!([0, 3, 5, u64::MAX].map(|seq| window.find(seq)), [None; 4]);
        assert_eq!((window.reserve(), window.find(5), window.slots()), (5, None, vec![5]));
        window.close(4);
        assert_eq!(window.lowest_open(), 5, "what is reserved is open");
        window.close(5);
        assert_eq!(window.lowest_open(), 6);
    }
}
