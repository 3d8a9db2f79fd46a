//! [`Client`]: one memcached connection: what it asked and was not told yet, and how much more it may ask.

use super::budget::Grant;
use super::clients::{KEYS_MAX, Ticket};
use super::request::{Entry, Part};
use super::room::Share;
use bytes::{Bytes, BytesMut};
use kumo_cluster::Operation;
use kumo_wire::memcache::{Command, Decoded, Decoder, Keys, Request};
use std::collections::{BTreeMap, VecDeque};

/// One memcached connection.
pub struct Client {
    pub decoder: Decoder,
    /// What it has of the memory for requests.
    pub share: Share,
    /// Requests that have no whole answer yet, or stand behind one, in order.
    pub entries: VecDeque<Entry>,
    /// Requests that were answered before the first of `entries`.
    pub answered: u64,
    /// Keys with calls under way. A request for one of them waits, unless all of them only read: on one connection
    /// every request sees what those before it did, as memcached's clients expect.
    under_way: BTreeMap<Bytes, UnderWay>,
    /// A flush of everything is under way: what comes after it must not be deleted by it, nor see what was before.
    pub flushing: bool,
    /// The next request, which waits for that.
    pub held: Option<Request>,
    /// Parts of its requests that are not called yet, in order, and how many are.
    pub uncalled: VecDeque<(Ticket, Part)>,
    pub calls: usize,
    /// Of these, those that are answered with values, and what the values are taken for.
    reads: usize,
    read_bytes: usize,
    /// What they are taken for beyond that since it reads larger ones, as the budget has it.
    pub doubt: Grant,
    /// Bytes of the values that `entries` hold: they stand behind a request that is not answered.
    pub unwritten: usize,
    /// Bytes of what it was answered on the spot since it had taken all its answers.
    pub said: usize,
    /// Of the values that it read and wrote lately.
    pub value_bytes: usize,
    /// Some of its parts wait for a turn of their own.
    pub stalled: bool,
    /// Nothing more is read: answered and closed.
    pub ending: bool,
    pub paused: bool,
}

#[derive(Clone, Copy, Default)]
struct UnderWay {
    reads: u32,
    writes: u32,
}

impl Client {
    pub fn new(decoder: Decoder) -> Client {
        Client {
            decoder,
            share: Share::default(),
            entries: VecDeque::new(),
            answered: 0,
            under_way: BTreeMap::new(),
            flushing: false,
            held: None,
            uncalled: VecDeque::new(),
            calls: 0,
            reads: 0,
            read_bytes: 0,
            doubt: Grant::default(),
            unwritten: 0,
            said: 0,
            value_bytes: VALUE_BYTES_FIRST,
            stalled: false,
            ending: false,
            paused: false,
        }
    }

    /// The next request that has arrived.
    pub fn decode(&mut self, inbox: &mut BytesMut) -> Decoded {
        let before = inbox.len();
        let decoded = self.decoder.next(inbox);
        if !matches!(decoded, Decoded::More(_)) {
            self.share.decoded(before - inbox.len());
        }
        decoded
    }

    /// The request that was decoded last is taken.
    pub fn push(&mut self, mut entry: Entry) {
        entry.weigh(&mut self.share);
        self.entries.push_back(entry);
    }

    /// As [`push`](Client::push), of one that is answered on the spot. Returns the bytes of the answer.
    pub fn say(&mut self, entry: Entry) -> usize {
        let bytes = entry.said_bytes();
        self.said += bytes;
        self.push(entry);
        bytes
    }

    /// The first is answered.
    pub fn pop(&mut self) -> Option<Entry> {
        let entry = self.entries.pop_front()?;
        self.answered += 1;
        self.share.taken -= entry.weight();
        Some(entry)
    }

    /// What of its requests, so many bytes of which were not decoded yet, and of values behind them is in memory, or will
    /// be: but what it waits for room for.
    pub fn sent(&self, here: usize) -> usize {
        let held = if self.held.is_some() { self.share.decoded } else { 0 };
        let coming = if self.share.waits { 0 } else { here.max(self.share.promised) + held };
        self.share.taken + self.unwritten + coming
    }

    /// Requests it may have under way: fewer when their answers are long.
    pub fn window(&self) -> usize {
        (ANSWER_BYTES_MAX / (self.value_bytes + 1)).clamp(ENTRIES_MIN, ENTRIES_MAX)
    }

    /// It asks faster than it is answered: nothing more is read from it.
    pub fn is_full(&self) -> bool {
        self.entries.len() >= self.window() || self.uncalled.len() >= UNCALLED_MAX
    }

    /// What it asked is answered so far that more may be read.
    pub fn may_ask(&self) -> bool {
        self.entries.len() <= self.window() / 2 && self.uncalled.len() <= UNCALLED_MAX / 2
    }

    /// Its next call may be under way beside the others: values are fewer than requests may be.
    pub fn has_room(&self) -> bool {
        let next = self.next_bytes();
        let reads = self.reads < ENTRIES_MIN || self.awaited_bytes() + next <= ANSWER_BYTES_MAX;
        self.calls < self.window() && (next == 0 || reads)
    }

    /// What the answer to its next call is taken for.
    pub fn next_bytes(&self) -> usize {
        let Some((ticket, part)) = self.uncalled.front() else { return 0 };
        match &part.operation {
            Operation::Get => self.value_bytes.max(CALL_BYTES_MIN).max(ticket.let_go_bytes),
            Operation::GetAndTouch { .. } => self.value_bytes.max(TOUCH_BYTES_MIN),
            _answered_in_a_line => 0,
        }
    }

    /// As far as anybody knows, the answer to its next call is not longer than that.
    pub fn asks_small(&self, bytes_max: usize) -> bool {
        let let_go_bytes = self.uncalled.front().map_or(0, |(ticket, _)| ticket.let_go_bytes);
        self.value_bytes.max(let_go_bytes) <= bytes_max
    }

    /// Its next call is for what it is told next: all that it holds waits behind that.
    pub fn asks_first(&self) -> bool {
        let (Some((ticket, _)), Some(entry)) = (self.uncalled.front(), self.entries.front()) else {
            return false;
        };
        ticket.place() == (self.answered, entry.next() as u32)
    }

    /// Some of its calls will be answered with values.
    pub fn awaits_values(&self) -> bool {
        self.reads > 0
    }

    /// What they are taken for: each for as much as values are now, whatever it was when it was called.
    pub fn awaited_bytes(&self) -> usize {
        self.read_bytes.max(self.reads * self.value_bytes)
    }

    /// As much of that as their grants are not for.
    pub fn doubtful_bytes(&self) -> usize {
        self.awaited_bytes() - self.read_bytes
    }

    /// A call is under way whose answer is taken for so much.
    pub fn called(&mut self, bytes: usize) {
        self.calls += 1;
        self.reads += usize::from(bytes > 0);
        self.read_bytes += bytes;
    }

    /// As [`called`](Client::called), and it is answered.
    pub fn returned(&mut self, bytes: usize) {
        self.calls -= 1;
        self.reads -= usize::from(bytes > 0);
        self.read_bytes -= bytes;
    }

    /// A value of so many bytes was read or written; 0: a request without one.
    pub fn learn(&mut self, bytes: usize) {
        self.value_bytes = (self.value_bytes * 3 + bytes) / 4;
    }

    /// A value of so many bytes came that could not be held. Its next ones are taken for as much at once.
    pub fn let_go(&mut self, bytes: usize) {
        self.value_bytes = self.value_bytes.max(bytes);
    }

    /// Its part waits for a turn once more, before those that come after it.
    pub fn put_back(&mut self, ticket: Ticket, part: Part) {
        let at = self.uncalled.partition_point(|(other, _)| other.place() < ticket.place());
        self.uncalled.insert(at, (ticket, part));
    }

    /// A request before it on the same key is under way, and one of the two writes.
    pub fn must_wait(&self, request: &Request) -> bool {
        if self.under_way.is_empty() && !self.flushing {
            return false;
        }
        let busy = |key: &Bytes, writes: bool| {
            self.flushing
                || self.under_way.get(key).is_some_and(|open| open.writes > 0 || (writes && open.reads > 0))
        };
        match &request.command {
            Command::Get { keys: Keys::One(key), touch } => busy(key, touch.is_some()),
            // One with more is refused.
            Command::Get { keys, touch } => keys.iter().take(KEYS_MAX).any(|key| busy(&key, touch.is_some())),
            Command::Describe { key } => busy(key, false),
            Command::Store { key, .. }
            | Command::Delete { key, .. }
            | Command::Arithmetic { key, .. }
            | Command::Touch { key, .. } => busy(key, true),
            // After all that was written before it.
            Command::FlushAll { .. } => true,
            Command::Verbosity
            | Command::Version
            | Command::Stats { .. }
            | Command::Quit
            | Command::Noop
            | Command::Sasl(_) => false,
        }
    }

    pub fn begin(&mut self, key: &Bytes, writes: bool) {
        let open = self.under_way.entry(key.clone()).or_default();
        *(if writes { &mut open.writes } else { &mut open.reads }) += 1;
    }

    pub fn end(&mut self, key: &Bytes, writes: bool) {
        let Some(open) = self.under_way.get_mut(key) else { return };
        *(if writes { &mut open.writes } else { &mut open.reads }) -= 1;
        if open.reads == 0 && open.writes == 0 {
            self.under_way.remove(key);
        }
    }
}

/// Requests of one connection under way. Beyond it nothing more is read from it.
const ENTRIES_MAX: usize = 1024;
const ENTRIES_MIN: usize = 4;

/// Answers that one connection may have under way, as far as its last ones tell.
const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Parts of its requests that were read and are not called yet, beyond which nothing more is read: a line of many keys
/// is short, and each of its keys is not. The last line may add [`KEYS_MAX`].
const UNCALLED_MAX: usize = 4096;

/// What an answer is taken for at least: who got small values may ask for large ones next.
const CALL_BYTES_MIN: usize = 48 * 1024;

/// The same of one that touches. It cannot be asked for again, so it has to be held however large it is.
const TOUCH_BYTES_MIN: usize = 256 * 1024;

/// What a connection's values are taken for before it got any: the largest that there are, unless told otherwise.
const VALUE_BYTES_FIRST: usize = 1024 * 1024;
