//! [`Data`]: large values, which travel beside the log in chunks (the seed's outbound data).
//!
//! A master offers a large value to all agents at once; they fetch it in chunks, a few at a time, and say when they
//! hold it. Only then does the value get an instance, so small writes pass it on the way. Agents accept its name
//! only when they hold its bytes, so a decided value is held by a majority and can be fetched from any of it.

use crate::identity::{Incarnation, Time};
use crate::message::FRAME_BYTES_MAX;
use crate::value::{DataName, Naming, OUT_OF_BAND_MAX, Value};
use bytes::{Buf, Bytes, BytesMut};
use kumo_wire::Writer;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

/// The large values here, on their way here, and on offer from here.
#[derive(Clone, Debug, Default)]
pub struct Data {
    held: BTreeMap<DataName, Held>,
    partial: BTreeMap<DataName, Partial>,
    /// To be put on offer, the first one under way.
    assembling: VecDeque<Assembly>,
    offers: BTreeMap<DataName, Offer>,
}

#[derive(Clone, Debug)]
struct Held {
    bytes: Bytes,
    /// When it came: what no entry ever names is dropped after a while.
    since: Time,
    /// Executed entries in the log that name it: it goes with the last of them. `None`: none ever did.
    named: Option<u32>,
    /// Its bytes are on disk and stay there when a snapshot takes the place of the records. Once an entry that names it
    /// is executed they need not, and before it is accepted again they must be written again.
    recorded: bool,
}

/// A value being fetched.
#[derive(Clone, Debug)]
struct Partial {
    length: u32,
    bytes: BytesMut,
    /// Of the bytes that are here.
    naming: Naming,
    /// Everything below was asked for.
    asked: u32,
    from: SocketAddr,
    progress: Time,
    /// When it was asked for last.
    tried: Time,
    /// Who wants to hear that it is held.
    offered_by: Option<SocketAddr>,
    want: Want,
}

/// Why a value is fetched, the weakest reason first. Where there is room for no more, the stronger one has it: the
/// weaker ones are asked for again, by who offered or began them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Want {
    /// A master would begin it once enough hold it.
    Offered,
    /// It is begun, and to be accepted.
    Begun,
    /// It is decided, and execution waits for it.
    Needed,
}

/// A value on its way into one piece, which has its name when it is.
#[derive(Clone, Debug)]
struct Assembly {
    rest: Writer,
    bytes: BytesMut,
    naming: Naming,
}

/// A value that waits for a majority to hold it before it is proposed.
#[derive(Clone, Debug)]
struct Offer {
    length: u32,
    holders: BTreeSet<Incarnation>,
}

/// What an arriving chunk led to.
pub enum Arrival {
    /// Ask for more, at these offsets.
    More(Vec<u32>),
    /// Complete, and the bytes match the name. Tell the offerer, if one waits.
    Complete(Bytes, Option<SocketAddr>),
    /// Not wanted, or the bytes did not match the name.
    Dropped,
}

impl Data {
    pub fn holds(&self, value: &Value) -> bool {
        match value {
            Value::Large { name, .. } => self.held.contains_key(name),
            Value::Noop | Value::Command(_) | Value::Config(_) | Value::Genesis(_) => true,
        }
    }

    pub fn get(&self, name: &DataName) -> Option<Bytes> {
        self.held.get(name).map(|held| held.bytes.clone())
    }

    pub fn insert(&mut self, now: Time, name: DataName, bytes: Bytes) {
        self.partial.remove(&name);
        // Bytes that are here already keep their entries.
        let held = self.held.entry(name).or_insert(Held { bytes, since: now, named: None, recorded: true });
        (held.since, held.recorded) = (now, true);
    }

    /// An entry that names it was executed: from now on it goes when the entry goes.
    pub fn executed(&mut self, name: &DataName) {
        if let Some(held) = self.held.get_mut(name) {
            held.named = Some(held.named.unwrap_or(0) + 1);
            held.recorded = false;
        }
    }

    /// It is accepted: the bytes to write, unless they are on disk.
    pub fn record(&mut self, name: &DataName) -> Option<Bytes> {
        let held = self.held.get_mut(name).filter(|held| !held.recorded)?;
        held.recorded = true;
        Some(held.bytes.clone())
    }

    /// The values whose bytes a snapshot on disk must have beside it, as they may be accepted without being written
    /// again; those of `pending` entries, too.
    pub fn recorded(&self, pending: &BTreeSet<DataName>) -> impl Iterator<Item = (DataName, Bytes)> {
        let held = self.held.iter().filter(|(name, held)| held.recorded || pending.contains(name));
        held.map(|(name, held)| (*name, held.bytes.clone()))
    }

    /// An executed entry that names it is gone from the log. True: it was the last one.
    pub fn dropped(&mut self, name: &DataName) -> bool {
        let Some(held) = self.held.get_mut(name) else { return false };
        held.named = held.named.map(|named| named.saturating_sub(1));
        held.named == Some(0)
    }

    pub fn remove(&mut self, name: &DataName) {
        if !self.offers.contains_key(name) {
            self.held.remove(name);
        }
    }

    /// A snapshot took the log's place: nothing here is named by an executed entry any more.
    pub fn unname(&mut self, now: Time) {
        for held in self.held.values_mut() {
            (held.named, held.since) = (None, now);
        }
    }

    /// Takes a value in that is to be put on offer. The host bounds the bytes that it has proposed.
    pub fn take_in(&mut self, rest: Writer) {
        let bytes = BytesMut::with_capacity(rest.len());
        self.assembling.push_back(Assembly { rest, bytes, naming: Naming::default() });
    }

    pub fn is_assembling(&self) -> bool {
        !self.assembling.is_empty()
    }

    /// Works on the first value that was taken in, for a bounded time: to name a large one at once would hold up
    /// all the others. When it is done it is on offer.
    pub fn assemble(&mut self, now: Time, me: Incarnation) -> Option<(DataName, Bytes)> {
        let assembly = self.assembling.front_mut()?;
        for _ in 0..ASSEMBLE_PIECES {
            assembly.take_piece();
        }
        if assembly.rest.has_remaining() {
            return None;
        }
        let Assembly { bytes, naming, .. } = self.assembling.pop_front()?;
        let (name, bytes) = (naming.name(), bytes.freeze());
        let length = bytes.len() as u32;
        self.insert(now, name, bytes.clone());
        self.offers.insert(name, Offer { length, holders: BTreeSet::from([me]) });
        Some((name, bytes))
    }

    pub fn offers(&self) -> impl Iterator<Item = (DataName, u32, &BTreeSet<Incarnation>)> {
        self.offers.iter().map(|(name, offer)| (*name, offer.length, &offer.holders))
    }

    pub fn held_by(&mut self, name: DataName, holder: Incarnation) {
        if let Some(offer) = self.offers.get_mut(&name) {
            offer.holders.insert(holder);
        }
    }

    /// Takes the offers that enough hold: they are to be proposed.
    pub fn ready(&mut self, enough: impl Fn(&BTreeSet<Incarnation>) -> bool) -> Vec<Value> {
        let names: Vec<DataName> =
            self.offers.iter().filter(|(_, offer)| enough(&offer.holders)).map(|(name, _)| *name).collect();
        names
            .into_iter()
            .filter_map(|name| {
                self.offers.remove(&name).map(|offer| Value::Large { name, length: offer.length })
            })
            .collect()
    }

    /// Mastership is gone: its offers are not proposed here any more. The clients ask again.
    pub fn withdraw(&mut self) {
        self.offers.clear();
        self.assembling.clear();
    }

    /// Starts fetching. Returns the offsets to ask for at once.
    pub fn fetch(
        &mut self,
        now: Time,
        name: DataName,
        length: u32,
        from: SocketAddr,
        want: Want,
    ) -> Vec<u32> {
        let offered_by = (want == Want::Offered).then_some(from);
        if let Some(partial) = self.partial.get_mut(&name) {
            partial.offered_by = offered_by.or(partial.offered_by);
            partial.want = partial.want.max(want);
            return Vec::new();
        }
        if self.held.contains_key(&name) || length as usize > OUT_OF_BAND_MAX || !self.makes_room(want) {
            return Vec::new();
        }
        let (bytes, naming) = (BytesMut::new(), Naming::default());
        let partial =
            Partial { length, bytes, naming, asked: 0, from, progress: now, tried: now, offered_by, want };
        let partial = self.partial.entry(name).or_insert(partial);
        partial.ask()
    }

    /// Whether one more value can be fetched; of those that are wanted less, the one of which least is here gives way.
    fn makes_room(&mut self, want: Want) -> bool {
        if self.partial.len() < PARTIAL_MAX {
            return true;
        }
        let weakest = self.partial.iter().min_by_key(|(_, partial)| (partial.want, partial.bytes.len()));
        let weaker = weakest.filter(|(_, partial)| partial.want < want).map(|(name, _)| *name);
        weaker.is_some_and(|name| self.partial.remove(&name).is_some())
    }

    pub fn chunk(&mut self, now: Time, name: DataName, length: u32, offset: u32, bytes: Bytes) -> Arrival {
        let Some(partial) = self.partial.get_mut(&name) else { return Arrival::Dropped };
        let expected = partial.bytes.len() as u32;
        if length != partial.length || offset != expected || bytes.len() > (length - expected) as usize {
            return Arrival::Dropped;
        }
        partial.naming.add(&bytes);
        partial.progress = now;
        partial.tried = now;
        let whole = bytes.len() == length as usize;
        if !whole {
            // The first bytes show that the value exists: room for all of it from here on.
            partial.bytes.reserve(length as usize - partial.bytes.len());
            partial.bytes.extend_from_slice(&bytes);
            if (partial.bytes.len() as u32) < length {
                return Arrival::More(partial.ask());
            }
        }
        let Some(partial) = self.partial.remove(&name) else { return Arrival::Dropped };
        if partial.naming.name() != name {
            return Arrival::Dropped;
        }
        // What came in one chunk stays where it arrived: it is nearly all of that frame.
        let bytes = if whole { bytes } else { partial.bytes.freeze() };
        self.insert(now, name, bytes.clone());
        Arrival::Complete(bytes, partial.offered_by)
    }

    /// Fetches that got nowhere for `patience_micros`: starts each again at what is missing, from the next holder that
    /// `other` names. Returns whom to ask for what.
    pub fn stalled(
        &mut self,
        now: Time,
        patience_micros: u64,
        mut other: impl FnMut(SocketAddr) -> Option<SocketAddr>,
    ) -> Vec<(SocketAddr, DataName, u32)> {
        let mut asks = Vec::new();
        for (name, partial) in &mut self.partial {
            if now.since(partial.tried) < patience_micros {
                continue;
            }
            partial.from = other(partial.from).unwrap_or(partial.from);
            partial.tried = now;
            partial.asked = partial.bytes.len() as u32;
            asks.extend(partial.ask().into_iter().map(|offset| (partial.from, *name, offset)));
        }
        asks
    }

    pub fn source(&self, name: &DataName) -> Option<SocketAddr> {
        self.partial.get(name).map(|partial| partial.from)
    }

    pub fn is_fetching(&self) -> bool {
        !self.partial.is_empty()
    }

    /// A part of a value that is here.
    pub fn slice(&self, name: &DataName, offset: u32) -> Option<(u32, Bytes)> {
        let bytes = &self.held.get(name)?.bytes;
        let start = (offset as usize).min(bytes.len());
        let end = (start + CHUNK_BYTES).min(bytes.len());
        Some((bytes.len() as u32, bytes.slice(start..end)))
    }

    /// Drops what no entry names (`named`) and is older than a while, and fetches nobody wants.
    pub fn trim(&mut self, now: Time, named: impl Fn(&DataName) -> bool) {
        let offers = &self.offers;
        self.held.retain(|name, held| {
            named(name)
                || offers.contains_key(name)
                || held.named.is_none() && now.since(held.since) < UNNAMED_MICROS_MAX
        });
        self.partial.retain(|_, partial| now.since(partial.progress) < UNNAMED_MICROS_MAX);
    }
}

impl Assembly {
    /// Copied and named in pieces that stay in the processor's cache between the two.
    fn take_piece(&mut self) {
        let piece = self.rest.chunk();
        let piece = &piece[..piece.len().min(PIECE_BYTES)];
        let count = piece.len();
        self.naming.add(piece);
        self.bytes.extend_from_slice(piece);
        self.rest.advance(count);
    }
}

impl Partial {
    /// The next chunks to ask for: a few under way at once fill the link without flooding it.
    fn ask(&mut self) -> Vec<u32> {
        let mut offsets = Vec::new();
        let limit = self.bytes.len() + FETCH_CHUNKS * CHUNK_BYTES;
        while self.asked < self.length && (self.asked as usize) < limit {
            offsets.push(self.asked);
            self.asked = self.asked.saturating_add(CHUNK_BYTES as u32);
        }
        offsets
    }
}

/// Bytes in one chunk. A megabyte with what its sender wrapped around it is one, and so never copied by who fetches it.
const CHUNK_BYTES: usize = 1024 * 1024 + 64 * 1024;
/// Chunks under way per value.
const FETCH_CHUNKS: usize = 2;
/// What is copied and named at a time.
const PIECE_BYTES: usize = 64 * 1024;
/// Pieces in one step: a chunk, which takes a few hundred microseconds.
const ASSEMBLE_PIECES: usize = CHUNK_BYTES / PIECE_BYTES + 1;
/// Values under way at once: each may take [`OUT_OF_BAND_MAX`] bytes.
const PARTIAL_MAX: usize = 16;
/// How long a value that no entry names is kept: its begin may still be on the way.
const UNNAMED_MICROS_MAX: u64 = 60_000_000;

const _: () = assert!(CHUNK_BYTES < FRAME_BYTES_MAX / 2 && CHUNK_BYTES.is_multiple_of(PIECE_BYTES));

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time(1);

    fn value(length: usize) -> Bytes {
        (0..length).map(|at| (at * 7 + at / 251) as u8).collect()
    }

    fn peer() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 1))
    }

    #[test]
    fn a_value_is_put_on_offer_a_step_at_a_time() {
        let bytes = value(3 * CHUNK_BYTES);
        let mut head = Writer::default();
        head.put_slice(b"head");
        head.put_bytes(&bytes);
        let mut data = Data::default();
        data.take_in(head);
        let mut steps = 1;
        let (name, whole) = loop {
            match data.assemble(NOW, Incarnation(1)) {
                Some(done) => break done,
                None => assert!(data.is_assembling() && data.offers().next().is_none()),
            }
            steps += 1;
        };
        assert_eq!(whole, [b"head", &bytes[..]].concat());
        assert_eq!(name, DataName::of(&whole));
        assert!(steps >= 3 && !data.is_assembling());
        assert_eq!(
            data.offers().map(|(name, length, _)| (name, length)).collect::<Vec<_>>(),
            [(name, whole.len() as u32)]
        );
    }

    #[test]
    fn what_comes_in_one_chunk_is_not_copied() {
        let bytes = value(1_000_100);
        let (name, length) = (DataName::of(&bytes), bytes.len() as u32);
        let mut data = Data::default();
        assert_eq!(data.fetch(NOW, name, length, peer(), Want::Offered), [0]);
        let arrival = data.chunk(NOW, name, length, 0, bytes.clone());
        assert!(matches!(arrival, Arrival::Complete(held, Some(_)) if held.as_ptr() == bytes.as_ptr()));
    }

    #[test]
    fn a_value_is_held_only_if_its_bytes_match_its_name() {
        let bytes = value(2 * CHUNK_BYTES + 1);
        let (name, length) = (DataName::of(&bytes), bytes.len() as u32);
        for damaged in [None, Some(0), Some(CHUNK_BYTES + 5), Some(bytes.len() - 1)] {
            let mut sent = bytes.to_vec();
            damaged.into_iter().for_each(|at: usize| sent[at] ^= 1);
            let sent = Bytes::from(sent);
            let mut data = Data::default();
            data.fetch(NOW, name, length, peer(), Want::Begun);
            let mut arrivals = Vec::new();
            for offset in (0..sent.len()).step_by(CHUNK_BYTES) {
                let piece = sent.slice(offset..sent.len().min(offset + CHUNK_BYTES));
                arrivals.push(data.chunk(NOW, name, length, offset as u32, piece));
            }
            let complete = matches!(arrivals.pop(), Some(Arrival::Complete(held, None)) if held == bytes);
            assert_eq!((complete, data.get(&name).is_some()), (damaged.is_none(), damaged.is_none()));
        }
    }

    #[test]
    fn what_is_wanted_more_takes_the_place_of_what_is_wanted_less() {
        let name = |count: usize| DataName::of(&count.to_le_bytes());
        let mut data = Data::default();
        for count in 0..PARTIAL_MAX {
            assert!(!data.fetch(NOW, name(count), 1, peer(), Want::Offered).is_empty());
        }
        assert!(data.fetch(NOW, name(100), 1, peer(), Want::Offered).is_empty(), "there is no room");
        for count in 200..200 + PARTIAL_MAX {
            assert!(!data.fetch(NOW, name(count), 1, peer(), Want::Begun).is_empty());
        }
        assert!(!data.fetch(NOW, name(300), 1, peer(), Want::Needed).is_empty());
        assert!(data.fetch(NOW, name(400), 1, peer(), Want::Begun).is_empty());
        assert!(data.fetch(NOW, name(100), 1, peer(), Want::Offered).is_empty());
        assert_eq!((data.partial.len(), data.source(&name(300))), (PARTIAL_MAX, Some(peer())));
    }

    #[test]
    fn a_fetch_under_way_is_wanted_as_much_as_anyone_wants_it() {
        let name = |count: usize| DataName::of(&count.to_le_bytes());
        let mut data = Data::default();
        for count in 0..PARTIAL_MAX {
            data.fetch(NOW, name(count), 1, peer(), Want::Offered);
        }
        data.fetch(NOW, name(3), 1, peer(), Want::Needed);
        data.fetch(NOW, name(3), 1, peer(), Want::Offered);
        for count in 100..200 {
            data.fetch(NOW, name(count), 1, peer(), Want::Begun);
        }
        assert!(data.source(&name(3)).is_some());
    }
}
