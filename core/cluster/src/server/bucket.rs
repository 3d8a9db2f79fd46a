//! [`Bucket`]: a part of a copy that was asked or sent and is not answered, and [`InFlight`]: what all of them come to.

use super::link::brought_micros;
use crate::{Range, RequestId};
use kumo_paxos::Time;

#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    pub range: Range,
    pub sent_at: Time,
    /// It is of ids, and these are passed when it is answered; none: it is of records.
    pub ids: Option<Passed>,
    /// What bringing it was counted as.
    pub work: u64,
    /// What of it is on its way: of one that is compared first, nothing.
    pub bytes: u64,
    /// The other has no room for it, or it cannot be read: it comes again when its time runs out.
    pub rests: bool,
}

/// How far the ids of an arc were copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Passed {
    Upto(Option<RequestId>),
    All,
}

/// Buckets that were asked or sent and are waited for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct InFlight {
    buckets: usize,
    work: u64,
    bytes: u64,
    /// Of those that rested.
    woken: usize,
}

impl Bucket {
    /// It is no burden to the link from now on: others go on meanwhile.
    pub fn rest(&mut self) {
        (self.work, self.bytes, self.rests) = (0, 0, true);
    }
}

impl InFlight {
    pub fn is_enough(&self) -> bool {
        self.buckets >= BUCKETS_MAX || self.work >= WORK_MAX
    }

    /// Behind those before it, that one may still be on its way, or its answer.
    pub fn may_have(&self, now: Time, bucket: &Bucket) -> bool {
        now.since(bucket.sent_at) <= AGAIN_MICROS + brought_micros(self.bytes + bucket.bytes)
    }

    pub fn add(&mut self, bucket: &Bucket) {
        self.buckets += usize::from(!bucket.rests);
        self.work += bucket.work;
        self.bytes += bucket.bytes;
    }

    /// One that rests is tried again. A few at a time: those that can be brought must not wait for all that cannot.
    pub fn may_wake(&mut self) -> bool {
        self.woken += 1;
        self.woken <= WOKEN_MAX
    }
}

/// Buckets under way at once: enough to keep the link busy, few enough to leave it to the clients.
const BUCKETS_MAX: usize = 16;

/// Of them, those that did not go through before.
const WOKEN_MAX: usize = 4;

/// And what they come to, if values are large: a link that has too much to bring is cut.
const WORK_MAX: u64 = 16 << 20;

/// A bucket without an answer is tried again after this long, and as long as it takes to be brought.
const AGAIN_MICROS: u64 = 1_000_000;
