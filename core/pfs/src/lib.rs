//! PFS: files, directories, ephemerals, locks, queues and events (seed 004, part V), as an Application.

mod protocol;

pub use protocol::{
    Command, Condition, DEPTH_MAX, DirectoryEntry, ENTRIES_MAX, EntryChange, Event, FILE_BYTES_MAX, LockInfo,
    MESSAGE_BYTES_MAX, NAME_BYTES_MAX, PATH_BYTES_MAX, Place, Query, QueueChange, QueueInfo, READ_BYTES_MAX,
    Refusal, Reply, Resource, Stat, Usage, WRITE_BYTES_MAX,
};
