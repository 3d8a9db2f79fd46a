//! [`Pendings`]: the writes of a primary that not all of A(k) have acknowledged, and what waits behind them.

use super::few::Few;
use super::keyed::Keyed;
use super::link::Frames;
use crate::{Operation, Origin, Record, Request, RequestId, StoreKey};
use kumo_session::ConnectionId;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Deref;

/// By key. Knows how much memory all of them take, so that no more is ordered than is bearable.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pendings {
    writes: Keyed<Pending>,
    bytes: usize,
}

/// A write that not all of A(k) have acknowledged.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    pub record: Record,
    pub origin: Option<Origin>,
    /// Who wants its answer, and the number of the request there. One at most: it is of one request, and a retry comes from
    /// where its answer is wanted now.
    pub waiter: Option<(ConnectionId, u64)>,
    /// Who has not acknowledged.
    pub waiting: Few,
    pub frames: Frames,
    /// The store still has the version before, which reads may show.
    pub shows_old: bool,
    /// By a settlement: it may have been answered already.
    pub taken_over: bool,
    /// A write that could not be read, in whose place this one is, with who waits for its answer: it was done before this
    /// one, and is known to be when this one is committed.
    pub over: Option<Box<Over>>,
    /// Later requests for the key, in order.
    queue: Queue,
}

/// A write in whose place there is another.
#[derive(Clone, Debug)]
pub(crate) struct Over {
    pub origin: Origin,
    pub waiter: Option<(ConnectionId, u64)>,
}

pub(crate) type Queue = VecDeque<(ConnectionId, Request)>;

impl Pendings {
    /// What was ordered and is not committed takes so much memory that nothing more is ordered meanwhile. What must be
    /// carried forward (by a settlement, into a new space) is, all the same.
    pub fn is_full(&self) -> bool {
        self.bytes >= PENDING_BYTES_MAX
    }

    pub fn insert(&mut self, key: StoreKey, pending: Pending) {
        let key_bytes = key.key.len();
        self.bytes += pending.bytes(key_bytes);
        if let Some(before) = self.writes.insert(key, pending) {
            self.bytes -= before.bytes(key_bytes);
        }
    }

    /// It is committed: what waited behind it is the caller's now.
    pub fn remove(&mut self, key: &StoreKey) -> Option<(Pending, Queue)> {
        let mut pending = self.writes.remove(key)?;
        self.bytes -= pending.bytes(key.key.len());
        let queue = std::mem::take(&mut pending.queue);
        Some((pending, queue))
    }

    /// To change whatever does not need memory.
    pub fn get_mut(&mut self, key: &StoreKey) -> Option<&mut Pending> {
        self.writes.get_mut(key)
    }

    /// Puts a request behind the write of its key. Returns who is to ask again: itself, if there is no such write or so many
    /// are behind it already, or another that asked the same before.
    pub fn queue(
        &mut self,
        key: &StoreKey,
        from: ConnectionId,
        request: Request,
        queued_max: usize,
    ) -> Option<ConnectionId> {
        let full = self.is_full();
        let Some(pending) = self.writes.get_mut(key) else { return Some(from) };
        if let Some((before, _)) = pending.queue.iter_mut().find(|(_, queued)| queued.id == request.id) {
            return Some(std::mem::replace(before, from)).filter(|before| *before != from);
        }
        if full || pending.queue.len() >= queued_max {
            return Some(from);
        }
        self.bytes += bytes_of(&request);
        pending.queue.push_back((from, request));
        None
    }

    /// What stands behind the write of the key does so no more.
    pub fn take_queue(&mut self, key: &StoreKey) -> Queue {
        let Some(pending) = self.writes.get_mut(key) else { return Queue::new() };
        let queue = std::mem::take(&mut pending.queue);
        self.bytes -= queue.iter().map(|(_, request)| bytes_of(request)).sum::<usize>();
        queue
    }

    /// What stood behind a write that is committed stands behind the next one of the key.
    pub fn requeue(&mut self, key: &StoreKey, queue: Queue) {
        let Some(pending) = self.writes.get_mut(key) else { return };
        self.bytes += queue.iter().map(|(_, request)| bytes_of(request)).sum::<usize>();
        pending.queue.extend(queue);
    }

    /// All of them, in order.
    pub fn take(&mut self) -> impl Iterator<Item = (StoreKey, Pending)> + use<> {
        std::mem::take(self).writes.into_values()
    }
}

impl From<BTreeMap<StoreKey, Pending>> for Pendings {
    fn from(writes: BTreeMap<StoreKey, Pending>) -> Pendings {
        let mut pendings = Pendings::default();
        writes.into_iter().for_each(|(key, pending)| pendings.insert(key, pending));
        pendings
    }
}

impl Deref for Pendings {
    type Target = Keyed<Pending>;

    fn deref(&self) -> &Keyed<Pending> {
        &self.writes
    }
}

impl Pending {
    pub fn new(record: Record, origin: Option<Origin>) -> Pending {
        Pending {
            record,
            origin,
            waiter: None,
            waiting: Few::default(),
            frames: Frames::default(),
            shows_old: true,
            taken_over: false,
            over: None,
            queue: VecDeque::new(),
        }
    }

    /// As a settlement takes it over: the store may hold this version already, and the one before is not to be had.
    pub fn taken_over(record: Record, origin: Option<Origin>) -> Pending {
        Pending { shows_old: false, taken_over: true, ..Pending::new(record, origin) }
    }

    pub fn is_of(&self, id: RequestId) -> bool {
        self.ids().any(|one| one == id)
    }

    /// Of what is done when it is committed, and not before.
    pub fn ids(&self) -> impl Iterator<Item = RequestId> + '_ {
        let over = self.over.as_ref().map(|over| over.origin.id);
        self.origin.as_ref().map(|origin| origin.id).into_iter().chain(over)
    }

    /// A retry: its sender takes the place of another, which is returned. That may be the one that is listened to: bytes of a
    /// connection that was given up can come after those of the next.
    pub fn join(&mut self, id: RequestId, from: ConnectionId) -> Option<ConnectionId> {
        let waiter = match &mut self.over {
            Some(over) if over.origin.id == id => &mut over.waiter,
            _itself => &mut self.waiter,
        };
        let before = waiter.replace((from, id.seq));
        before.map(|(before, _)| before).filter(|before| *before != from)
    }

    /// Everybody who waits for this write or behind it.
    pub fn everyone(&self) -> impl Iterator<Item = (ConnectionId, u64)> + '_ {
        let queued = self.queue.iter().map(|(connection, request)| (*connection, request.id.seq));
        let over = self.over.as_ref().and_then(|over| over.waiter);
        self.waiter.into_iter().chain(over).chain(queued)
    }

    fn bytes(&self, key_bytes: usize) -> usize {
        let queued: usize = self.queue.iter().map(|(_, request)| bytes_of(request)).sum();
        ENTRY_BYTES + key_bytes + self.record.data.len() + queued
    }
}

/// What it takes to keep a request.
pub(super) fn bytes_of(request: &Request) -> usize {
    let data = match &request.operation {
        Operation::Set { data, .. }
        | Operation::Cas { data, .. }
        | Operation::Add { data, .. }
        | Operation::Replace { data, .. }
        | Operation::Append { data, .. }
        | Operation::Prepend { data, .. } => data.len(),
        Operation::Get
        | Operation::GetAndTouch { .. }
        | Operation::Touch { .. }
        | Operation::Delete { .. }
        | Operation::Add64 { .. } => 0,
    };
    ENTRY_BYTES + request.key.len() + data
}

/// Writes under way and requests behind them. Beyond it new ones are told to ask again, before they are ordered: a
/// copy that does not answer until it is given up must not fill the memory of the others. It is some seconds of the
/// largest values at a gigabit a second, and half a million small ones.
const PENDING_BYTES_MAX: usize = 128 << 20;

/// One of them without its key and data, and its share of the map.
pub(super) const ENTRY_BYTES: usize = 256;
