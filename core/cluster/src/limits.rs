//! [`Limits`]: how much a server does in one step, or has under way, before it goes on later.

/// A product meets them under load or with many keys. A simulation has few of both: it makes them narrow, so that what
/// begins beyond them is tried too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Frames behind one that the other has and that cannot be committed, before it is sent again under a new number. Well
    /// above what is on its way when all goes well.
    pub held_max: usize,
    /// Frames that were sent again on a link and are not answered; large ones count as several. The rest follows as they
    /// are. Far less than a link takes at once: one that is cut for that would be cut again and again.
    pub resent_max: usize,
    /// Requests that wait behind one key. Beyond it they are told to ask again.
    pub queued_max: usize,
    /// Records in one part of an answer to a settlement, whatever their size.
    pub settled_max: usize,
    /// Ids looked at in one step for a part of an answer: some tenths of a millisecond.
    pub ids_looked_max: usize,
    /// Marks asked about in one tick.
    pub marks_asked_max: usize,
    /// Records of one bucket of a copy. A turn that reads or puts one keeps clients waiting: a few tenths of a millisecond.
    pub bucket_records_max: usize,
    /// Records of one bucket that its receiver looks at in one step, and may have to remove.
    pub bucket_held_max: usize,
    /// Records dropped in one step, of arcs that the server owns no more.
    pub dropped_max: usize,
    /// Records that a flush looks at in one turn.
    pub flushed_max: usize,
    /// Records that one step of the sweep looks at.
    pub swept_max: usize,
    /// Records that one step of the sweep removes, or writes tombstones for: it keeps clients waiting.
    pub changed_max: usize,
}

impl Limits {
    /// The same in bytes. One frame goes whatever its size.
    pub fn resent_bytes_max(&self) -> usize {
        self.resent_max.saturating_mul(RESENT_BYTES)
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            held_max: 16_384,
            resent_max: 1024,
            queued_max: 1024,
            settled_max: 16_384,
            ids_looked_max: 8_192,
            marks_asked_max: 256,
            bucket_records_max: 128,
            bucket_held_max: 256,
            dropped_max: 256,
            flushed_max: 1024,
            swept_max: 1024,
            changed_max: 128,
        }
    }
}

/// A frame that is sent again counts as one up to this size: with the default, they are 16 MiB together.
pub(crate) const RESENT_BYTES: usize = 16 << 10;
