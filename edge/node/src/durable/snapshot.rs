//! [`SnapshotFile`]: a snapshot on its way to disk, and how one is read back.
//!
//! After the header: one frame with the position, one per part, and last an end frame. The file gets its name
//! only when it is whole and on disk; until then it is called `writing-N`.
//!
//! | offset | size | body of the end frame        |
//! |      0 |    8 | how many parts there must be |

use super::frame::{self, HEADER_BYTES, Header, Kind};
use bytes::{Bytes, BytesMut};
use kumo_paxos::Position;
use kumo_wire::Wire;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A snapshot being written.
#[derive(Debug)]
pub struct SnapshotFile {
    file: File,
    directory: PathBuf,
    number: u64,
    parts: u64,
    bytes: u64,
}

impl SnapshotFile {
    /// Begins the snapshot that goes before segment `number`.
    pub fn create(directory: &Path, number: u64, position: &Position) -> io::Result<SnapshotFile> {
        let file = File::create(temporary(directory, number))?;
        let mut snapshot = SnapshotFile { file, directory: directory.to_owned(), number, parts: 0, bytes: 0 };
        let mut out = BytesMut::new();
        Kind::Snapshot.put_header(number, &mut out);
        frame::put(position, &mut out);
        snapshot.write(&out)?;
        Ok(snapshot)
    }

    pub fn part(&mut self, part: &Bytes) -> io::Result<()> {
        let mut out = BytesMut::with_capacity(part.len() + 16);
        frame::put(part, &mut out);
        self.parts += 1;
        self.write(&out)
    }

    /// Puts the end, and gives the file its name once all of it is on disk. Returns its bytes. The name is not
    /// durable before the folder is synced.
    pub fn finish(mut self) -> io::Result<u64> {
        let mut out = BytesMut::new();
        frame::put(&self.parts, &mut out);
        self.write(&out)?;
        self.file.sync_all()?;
        fs::rename(temporary(&self.directory, self.number), path(&self.directory, self.number))?;
        Ok(self.bytes)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.bytes += bytes.len() as u64;
        self.file.write_all(bytes)
    }
}

/// What was read from a snapshot.
#[derive(Debug, PartialEq, Eq)]
pub enum Contents {
    Whole { position: Position, parts: Vec<Bytes> },
    Damaged { offset: u64 },
    OtherFormat(u32),
    Foreign,
}

/// Reads a snapshot's bytes.
pub fn read(number: u64, file: &Bytes) -> Contents {
    match Kind::Snapshot.read_header(number, file) {
        Header::Good => {}
        Header::Short | Header::Blank | Header::Damaged => return Contents::Damaged { offset: 0 },
        Header::OtherFormat(version) => return Contents::OtherFormat(version),
        Header::Foreign => return Contents::Foreign,
    }
    let mut bodies = Vec::new();
    let mut offset = HEADER_BYTES;
    while offset < file.len() {
        let Some((body, next)) = frame::read(file, offset) else {
            return Contents::Damaged { offset: offset as u64 };
        };
        bodies.push(body);
        offset = next;
    }
    assemble(bodies).unwrap_or(Contents::Damaged { offset: offset as u64 })
}

/// The position, the parts and the end that `bodies` must be.
fn assemble(mut bodies: Vec<Bytes>) -> Option<Contents> {
    let count = u64::from_bytes(bodies.pop()?).ok()?;
    if bodies.len() as u64 != count.checked_add(1)? {
        return None;
    }
    let mut bodies = bodies.into_iter();
    let position = Position::from_bytes(bodies.next()?).ok()?;
    let parts = bodies.map(Bytes::from_bytes).collect::<Result<_, _>>().ok()?;
    Some(Contents::Whole { position, parts })
}

pub fn path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{NAME}{number}"))
}

/// Removes what there is of a snapshot that cannot be finished.
pub fn abandon(directory: &Path, number: u64) -> io::Result<()> {
    match fs::remove_file(temporary(directory, number)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn temporary(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{TEMPORARY_NAME}{number}"))
}

/// A snapshot's file name, before its number.
pub const NAME: &str = "snapshot-";
/// Its name while it is written.
pub const TEMPORARY_NAME: &str = "writing-";

#[cfg(test)]
mod tests {
    use super::*;
    use kumo_paxos::{CellId, Configuration, Incarnation, Instance, Member, ReplicaId, Role, Schedule};

    fn position() -> Position {
        let member = Member {
            id: ReplicaId(0),
            address: ([127, 0, 0, 1], 19700).into(),
            incarnation: Incarnation(1),
            role: Role::Core,
        };
        let configuration = Configuration { version: 1, next_id: ReplicaId(1), members: vec![member] };
        Position {
            cell: CellId(5),
            generation: 1,
            executed: Instance(9),
            schedule: Schedule { window: 8, entries: vec![(Instance(1), configuration)] },
            digest: 3,
        }
    }

    #[test]
    fn a_snapshot_is_read_as_it_was_written_or_not_at_all() {
        let directory = crate::durable::scratch("snapshot");
        let parts = vec![Bytes::from_static(b"one"), Bytes::new(), Bytes::from_static(b"three")];
        let mut snapshot = SnapshotFile::create(&directory, 3, &position()).unwrap();
        parts.iter().for_each(|part| snapshot.part(part).unwrap());
        assert!(!path(&directory, 3).exists(), "no name before it is whole");
        let bytes = snapshot.finish().unwrap();
        let whole = Bytes::from(fs::read(path(&directory, 3)).unwrap());
        assert_eq!(whole.len() as u64, bytes);
        assert_eq!(read(3, &whole), Contents::Whole { position: position(), parts });
        for length in 0..whole.len() {
            assert!(matches!(read(3, &whole.slice(..length)), Contents::Damaged { .. }), "length {length}");
        }
        for bit in 0..whole.len() * 8 {
            let mut damaged = BytesMut::from(&whole[..]);
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(!matches!(read(3, &damaged.freeze()), Contents::Whole { .. }), "bit {bit}");
        }
        fs::remove_dir_all(directory).unwrap();
    }
}
