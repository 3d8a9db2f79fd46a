//! [`Options`]: how an engine keeps its files.

use std::time::Duration;

/// How an engine keeps its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    pub sync: Sync,
    /// A segment is closed when it has grown to this. Within [`Options::SEGMENT_BYTES_MIN`] and
    /// [`Options::SEGMENT_BYTES_MAX`].
    pub segment_bytes: u64,
    /// A segment is rewritten when this part of it is garbage.
    pub garbage_percent: u8,
    /// How fast segments are rewritten, so that requests keep most of the disk.
    pub compaction_bytes_per_second: u64,
    /// At the start, read every record instead of trusting the hint files.
    pub verify: bool,
}

/// When what was written is forced to the disk. A killed process loses nothing that was flushed in any case; this
/// is about the power.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// Before a segment gets its hint, and before one is removed; otherwise at the system's leisure.
    None,
    /// At this interval.
    Interval(Duration),
    /// At every [`crate::Engine::commit`].
    Always,
}

impl Options {
    pub const SEGMENT_BYTES_MIN: u64 = 4096;

    /// With [`crate::DATA_BYTES_MAX`] it keeps offsets within 32 bits.
    pub const SEGMENT_BYTES_MAX: u64 = 2 << 30;
}

impl Default for Options {
    fn default() -> Options {
        Options {
            sync: Sync::Interval(Duration::from_millis(100)),
            segment_bytes: 32 << 20,
            garbage_percent: 50,
            compaction_bytes_per_second: 64 << 20,
            verify: false,
        }
    }
}

const _: () = assert!(
    Options::SEGMENT_BYTES_MAX + crate::DATA_BYTES_MAX as u64 + (1 << 20) < u32::MAX as u64,
    "a place has 32 bits for the offset"
);
