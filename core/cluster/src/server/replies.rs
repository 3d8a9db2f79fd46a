//! [`Replies`]: what the requests of one gateway came to, by their numbers.

use crate::{KeyHash, Reply};
use std::collections::BTreeMap;
use std::fmt;

/// A gateway numbers its requests one by one, and closes them from below: so they lie in pages of neighbouring numbers,
/// where nothing is moved for another to come or go.
#[derive(Clone, Default)]
pub(crate) struct Replies {
    pages: BTreeMap<u64, Page>,
    /// Nothing below is remembered.
    closed: u64,
    /// An empty page, for the next one: while requests come, pages come and go.
    spare: Option<Page>,
    /// What the replies' data come to.
    data_bytes: usize,
}

#[derive(Clone)]
struct Page {
    slots: Vec<Option<(KeyHash, Reply)>>,
    /// Slots in use.
    count: usize,
}

impl Replies {
    pub fn get(&self, seq: u64) -> Option<&(KeyHash, Reply)> {
        self.pages.get(&(seq / PAGE))?.slots[place(seq)].as_ref()
    }

    /// In place of what was there. Below what is closed nothing is remembered.
    pub fn insert(&mut self, seq: u64, hash: KeyHash, reply: Reply) {
        if seq < self.closed {
            return;
        }
        let spare = &mut self.spare;
        let page = self.pages.entry(seq / PAGE).or_insert_with(|| spare.take().unwrap_or_else(Page::new));
        self.data_bytes += data_bytes(&reply);
        match page.slots[place(seq)].replace((hash, reply)) {
            None => page.count += 1,
            Some((_, before)) => self.data_bytes -= data_bytes(&before),
        }
    }

    pub fn remove(&mut self, seq: u64) {
        let Some(page) = self.pages.get_mut(&(seq / PAGE)) else { return };
        self.data_bytes -= page.clear(place(seq));
        if page.count == 0 {
            self.spare = self.pages.remove(&(seq / PAGE));
        }
    }

    /// All below are closed.
    pub fn closed(&self) -> u64 {
        self.closed
    }

    /// Forgets all that are below.
    pub fn close(&mut self, upto: u64) {
        if upto <= self.closed {
            return;
        }
        let before = std::mem::replace(&mut self.closed, upto);
        while let Some(mut entry) = self.pages.first_entry().filter(|entry| entry.key() * PAGE < upto) {
            let first = entry.key() * PAGE;
            let seqs = before.max(first)..upto.min(first + PAGE);
            let page = entry.get_mut();
            self.data_bytes -= seqs.map(|seq| page.clear(place(seq))).sum::<usize>();
            if first + PAGE > upto && page.count > 0 {
                break;
            }
            self.spare = Some(entry.remove());
        }
    }

    /// In order, from that one on.
    pub fn from(&self, first: u64) -> impl Iterator<Item = (u64, &(KeyHash, Reply))> {
        let numbered = self.pages.range(first / PAGE..).flat_map(|(number, page)| {
            page.slots.iter().zip(number * PAGE..).filter_map(|(slot, seq)| Some((seq, slot.as_ref()?)))
        });
        numbered.skip_while(move |(seq, _)| *seq < first)
    }

    pub fn retain(&mut self, stays: impl Fn(KeyHash) -> bool) {
        let mut gone = 0;
        self.pages.retain(|_, page| {
            for at in 0..page.slots.len() {
                if page.slots[at].as_ref().is_some_and(|(hash, _)| !stays(*hash)) {
                    gone += page.clear(at);
                }
            }
            page.count > 0
        });
        self.data_bytes -= gone;
    }

    /// The memory that they take.
    pub fn bytes(&self) -> usize {
        self.pages.len() * PAGE_BYTES + self.data_bytes
    }
}

impl Page {
    fn new() -> Page {
        Page { slots: (0..PAGE).map(|_| None).collect(), count: 0 }
    }

    /// Forgets one; how much data it had.
    fn clear(&mut self, at: usize) -> usize {
        let Some((_, reply)) = self.slots[at].take() else { return 0 };
        self.count -= 1;
        data_bytes(&reply)
    }
}

/// What is remembered, and not where: two that remember the same are the same to a model.
impl fmt::Debug for Replies {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        write!(out, "{} ", self.closed)?;
        out.debug_map().entries(self.from(0)).finish()
    }
}

fn place(seq: u64) -> usize {
    (seq % PAGE) as usize
}

fn data_bytes(reply: &Reply) -> usize {
    match reply {
        Reply::Done { .. } | Reply::Number { .. } | Reply::Touched { .. } => 0,
        Reply::Value { data, .. } => data.len(),
    }
}

/// Requests of a page. With many servers each of them sees few of a gateway's requests, and fills few slots of a page.
const PAGE: u64 = 64;

const PAGE_BYTES: usize = PAGE as usize * size_of::<Option<(KeyHash, Reply)>>();

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn value(seq: u64) -> Reply {
        Reply::Value { clock: seq, flags: 0, ttl: None, data: Bytes::from(vec![1; seq as usize % 7]) }
    }

    #[test]
    fn it_is_an_ordered_map_that_is_closed_from_below() {
        let mut state = 3u64;
        let mut draw = move |below: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        let (mut replies, mut model) = (Replies::default(), BTreeMap::new());
        let mut closed = 1000;
        replies.close(closed);
        for round in 0..20_000 {
            let seq = closed + draw(300);
            match draw(20) {
                0 => {
                    replies.remove(seq);
                    model.remove(&seq);
                }
                1 => {
                    closed += draw(if round % 10 == 0 { 500 } else { 40 });
                    replies.close(closed);
                    model = model.split_off(&closed);
                }
                2 if round % 50 == 0 => {
                    replies.retain(|hash| hash.0 % 3 > 0);
                    model.retain(|_, (hash, _): &mut (KeyHash, Reply)| hash.0 % 3 > 0);
                }
                3 => replies.insert(closed - 1 - draw(100), KeyHash(1), value(1)),
                _ => {
                    replies.insert(seq, KeyHash(seq * 31), value(seq));
                    model.insert(seq, (KeyHash(seq * 31), value(seq)));
                    continue;
                }
            }
            assert_eq!(replies.get(seq), model.get(&seq));
            let first = closed + draw(200);
            let listed: Vec<_> = replies.from(first).map(|(seq, one)| (seq, one.clone())).collect();
            let expected: Vec<_> = model.range(first..).map(|(seq, one)| (*seq, one.clone())).collect();
            assert_eq!(listed, expected);
            let data: usize = model.values().map(|(_, reply)| data_bytes(reply)).sum();
            assert_eq!(replies.bytes() - replies.pages.len() * PAGE_BYTES, data);
        }
    }
}
