//! The storage engine behind [`kumo_cluster::Store`]: a log of records in files, and an index of all keys in memory.
//!
//! **Log.** A put appends one record to a buffer; [`Engine::flush`] hands the buffer to the operating system, once for
//! all requests of a turn, and [`Engine::commit`] also waits for the disk if the options say so. The log is cut into
//! segments. Space on the disk is reserved before a record is accepted, so a full disk refuses a put in time and
//! nothing has changed. A key that is removed leaves a marker in the log; a tombstone is a record like others.
//!
//! **Index.** Every key with its head, packed, and their order by (hash, key), in 64 shards by the first bits of the
//! hash. Heads and scans never read the disk. With keys in memory, a record costs about 38 bytes of memory beyond its
//! key; keys on the disk would save the key and cost a read for every head, thus for every put on a replica. In memory
//! mode small data lies in the index too (33 bytes beyond key and data), and there is no log.
//!
//! **Start.** The log is replayed in its order, the last record of a key counts. Closed segments that stay have hint files, with all
//! but the data. The torn end of a segment is cut; it is told from damage by marks in the log that say how
//! far the disk had it. Damage is named by file and offset, and the store is left as it is; a roster says which segments
//! must be there. A backup was whole when it got
//! its name: until a server makes a store of it, all that does not read in it is damage.
//!
//! **Compaction** appends what is current in a segment to the log again and then removes the segment. Because copies
//! are appended under the same locks as puts, the order of the log is always the order of changes, and a crash at any
//! point leaves either both or the copy. It needs room for what it moves: a reserve is kept for it, since a full disk that
//! holds garbage must not stay full.
//!
//! | file            | what it is for                                          |
//! |-----------------|---------------------------------------------------------|
//! | `layout.rs`     | the bytes of a record                                   |
//! | `segment.rs`    | a file of records, and the walk through it              |
//! | `log.rs`        | all segments: append, flush, sync, close                |
//! | `entry.rs`, `arena.rs`, `leaf.rs`, `index.rs`, `shard.rs` | the index     |
//! | `hint.rs`, `recovery.rs` | the start                                      |
//! | `compaction.rs`, `attend.rs` | garbage, and the threads that work in the background |
//! | `reserve.rs`    | room that only compaction may use up                    |
//! | `roster.rs`     | which segments there are                                |
//! | `damage.rs`     | what was found unreadable                               |
//! | `folder.rs`     | format, lock, notes                                     |
//! | `settle.rs`     | what a start finds is made durable                      |
//! | `backup.rs`, `merge.rs`, `manifest.rs` | copies of stores, and whether they are whole |
//! | `disk.rs`       | the seam to the file system, where tests let it fail    |

mod arena;
mod attend;
mod backup;
mod compaction;
mod damage;
mod disk;
mod engine;
mod entry;
mod error;
mod folder;
mod hint;
mod index;
mod layout;
mod leaf;
mod log;
mod manifest;
mod merge;
mod notes;
mod options;
mod recovery;
mod reserve;
mod roster;
mod segment;
mod settle;
mod shard;

#[cfg(test)]
mod tests;

pub use backup::Backup;
pub use engine::Engine;
pub use error::{Lack, OpenError};
pub use folder::{FORMAT_VERSION, is_taken};
pub use layout::{DATA_BYTES_MAX, KEY_BYTES_MAX, RECORD_BYTES};
pub use merge::{CLUSTER_NOTE, Merged, MergedSource, merge};
pub use notes::NOTE_BYTES_MAX;
pub use options::{Options, Sync};
pub use recovery::{Cut, Opened};
