//! [`Replies`]: what the requests of one gateway came to, by their numbers; of some nobody can say.

use crate::{KeyHash, Reply};
use std::collections::BTreeMap;
use std::fmt;

/// A gateway numbers its requests one by one, and closes them from below: so they lie in pages of neighbouring numbers,
/// where hardly anything is moved for another to come or go. With many servers each of them sees few of a gateway's
/// requests, and pages are short.
#[derive(Clone, Default)]
pub(crate) struct Replies {
    pages: BTreeMap<u64, Page>,
    /// Nothing below is remembered.
    closed: u64,
    /// The memory of a page that is done with, for the next one: while requests come, pages come and go.
    spare: Page,
    /// How many the pages have room for, and what the data of those that are remembered come to.
    room: usize,
    data_bytes: usize,
}

#[derive(Clone, Default)]
struct Page {
    /// Ascending by number.
    entries: Vec<(u64, (KeyHash, Option<Reply>))>,
    /// The first of them are closed, so many.
    closed: usize,
}

impl Replies {
    pub fn get(&self, seq: u64) -> Option<&(KeyHash, Option<Reply>)> {
        let page = self.pages.get(&(seq / PAGE)).filter(|_| seq >= self.closed)?;
        page.find(seq).ok().map(|at| &page.entries[at].1)
    }

    /// In place of what was there. Below what is closed nothing is remembered.
    pub fn insert(&mut self, seq: u64, hash: KeyHash, reply: Option<Reply>) {
        if seq < self.closed {
            return;
        }
        let (spare, room) = (&mut self.spare, &mut self.room);
        let page = self.pages.entry(seq / PAGE).or_insert_with(|| {
            *room += spare.entries.capacity();
            std::mem::take(spare)
        });
        self.data_bytes += data_bytes(&reply);
        match page.find(seq) {
            Ok(at) => {
                let (_, before) = std::mem::replace(&mut page.entries[at].1, (hash, reply));
                self.data_bytes -= data_bytes(&before);
            }
            Err(at) => {
                let before = page.entries.capacity();
                page.entries.insert(at, (seq, (hash, reply)));
                *room += page.entries.capacity() - before;
            }
        }
    }

    pub fn remove(&mut self, seq: u64) {
        let Some(page) = self.pages.get_mut(&(seq / PAGE)).filter(|_| seq >= self.closed) else { return };
        let Ok(at) = page.find(seq) else { return };
        let (_, (_, reply)) = page.entries.remove(at);
        self.data_bytes -= data_bytes(&reply);
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
        self.closed = upto;
        while let Some(mut entry) = self.pages.first_entry().filter(|entry| *entry.key() <= upto / PAGE) {
            let page = entry.get_mut();
            while let Some((_, (_, reply))) = page.entries.get_mut(page.closed).filter(|(seq, _)| *seq < upto)
            {
                self.data_bytes -= data_bytes(reply);
                // Its data go now, its place with the page.
                *reply = None;
                page.closed += 1;
            }
            if page.closed < page.entries.len() {
                break;
            }
            self.spare = entry.remove();
            self.room -= self.spare.entries.capacity();
            self.spare.entries.clear();
            self.spare.closed = 0;
        }
    }

    /// In order, from that one on.
    pub fn from(&self, first: u64) -> impl Iterator<Item = (u64, &(KeyHash, Option<Reply>))> {
        let first = first.max(self.closed);
        let entries = self.pages.range(first / PAGE..).flat_map(|(_, page)| &page.entries);
        entries.skip_while(move |(seq, _)| *seq < first).map(|(seq, one)| (*seq, one))
    }

    pub fn retain(&mut self, stays: impl Fn(KeyHash) -> bool) {
        let (closed, room, bytes) = (self.closed, &mut self.room, &mut self.data_bytes);
        self.pages.retain(|_, page| {
            page.entries.retain(|(seq, (hash, reply))| {
                let stays = *seq < closed || stays(*hash);
                if !stays {
                    *bytes -= data_bytes(reply);
                }
                stays
            });
            let stays = page.closed < page.entries.len();
            if !stays {
                *room -= page.entries.capacity();
            }
            stays
        });
    }

    /// The memory that they take: pages may have room for more than is in them, however a gateway numbers its requests.
    pub fn bytes(&self) -> usize {
        self.room * ENTRY_BYTES + self.pages.len() * PAGE_BYTES + self.data_bytes
    }
}

impl Page {
    /// Where that one is, or belongs. Most come in order.
    fn find(&self, seq: u64) -> Result<usize, usize> {
        match self.entries.last() {
            Some((last, _)) if *last >= seq => self.entries.binary_search_by_key(&seq, |(seq, _)| *seq),
            _none_so_high => Err(self.entries.len()),
        }
    }
}

/// What is remembered, and not where: two that remember the same are the same to a model.
impl fmt::Debug for Replies {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        write!(out, "{} ", self.closed)?;
        out.debug_map().entries(self.from(0)).finish()
    }
}

fn data_bytes(reply: &Option<Reply>) -> usize {
    match reply {
        None | Some(Reply::Done { .. } | Reply::Number { .. } | Reply::Touched { .. }) => 0,
        Some(Reply::Value { data, .. }) => data.len(),
    }
}

/// Numbers of a page.
const PAGE: u64 = 64;

/// One of them without its data.
const ENTRY_BYTES: usize = size_of::<(u64, (KeyHash, Option<Reply>))>();

/// A page without its entries, in its map.
const PAGE_BYTES: usize = 96;

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn value(seq: u64) -> Option<Reply> {
        let data = Bytes::from(vec![1; seq as usize % 7]);
        (!seq.is_multiple_of(5)).then_some(Reply::Value { clock: seq, flags: 0, ttl: None, data })
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
                    model.retain(|_, (hash, _): &mut (KeyHash, Option<Reply>)| hash.0 % 3 > 0);
                }
                3 => {
                    let below = closed - 1 - draw(100);
                    replies.insert(below, KeyHash(1), value(1));
                    replies.remove(below);
                    assert_eq!(replies.get(below), None);
                }
                _ => {
                    replies.insert(seq, KeyHash(seq * 31), value(seq));
                    model.insert(seq, (KeyHash(seq * 31), value(seq)));
                    continue;
                }
            }
            assert_eq!(replies.get(seq), model.get(&seq));
            let first = closed - 100 + draw(300);
            let listed: Vec<_> = replies.from(first).map(|(seq, one)| (seq, one.clone())).collect();
            let expected: Vec<_> = model.range(first..).map(|(seq, one)| (*seq, one.clone())).collect();
            assert_eq!(listed, expected);
            let data: usize = model.values().map(|(_, reply)| data_bytes(reply)).sum();
            let room: usize = replies.pages.values().map(|page| page.entries.capacity()).sum();
            assert_eq!(replies.bytes(), room * ENTRY_BYTES + replies.pages.len() * PAGE_BYTES + data);
        }
    }

    #[test]
    fn a_page_that_holds_little_of_what_it_could_is_counted_whole() {
        let mut replies = Replies::default();
        for round in 0..100 {
            for seq in 64 * round..64 * (round + 1) {
                replies.insert(seq, KeyHash(1), value(0));
            }
            replies.close(64 * (round + 1));
            // It gets the memory of a full one.
            replies.insert((1 << 40) + 64 * round, KeyHash(1), value(0));
        }
        assert!(replies.bytes() >= 100 * PAGE as usize * ENTRY_BYTES, "{}", replies.bytes());
    }

    #[test]
    fn the_last_numbers_are_numbers_like_others() {
        for upto in [u64::MAX - 63, u64::MAX - 10, u64::MAX] {
            let mut replies = Replies::default();
            for seq in [u64::MAX - 70, u64::MAX - 5, u64::MAX] {
                replies.insert(seq, KeyHash(1), value(1));
            }
            replies.close(upto);
            let left: Vec<u64> = replies.from(0).map(|(seq, _)| seq).collect();
            let expected = [u64::MAX - 5, u64::MAX].into_iter().filter(|seq| *seq >= upto);
            assert_eq!(left, expected.collect::<Vec<_>>());
            replies.close(5);
            assert_eq!(replies.closed(), upto);
        }
    }
}
