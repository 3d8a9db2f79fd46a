//! [`Manifest`]: what a copy of a store holds, so that one that lost a part on its way is not taken for whole.

use crate::disk::{Access, Disk, What, fault, read_whole, write_whole};
use crate::error::{Lack, OpenError};
use crate::folder::SEGMENT;
use crate::layout::checksum;
use crate::notes::NOTE;
use crate::segment::number_of;
use kumo_cluster::Fault;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// The segments and notes of a backup, or of the result of a merge, with their lengths. In the file `MANIFEST`, with a
/// CRC-32 of the lines above in the last one:
///
/// ```text
/// 0000000001.segment 33554398
/// 0000000002.segment 81120
/// space.note 1208
/// crc32 0f3c9a1e
/// ```
///
/// Hints are not in it: without them a start takes longer, nothing else.
#[derive(Debug, PartialEq, Eq)]
pub struct Manifest {
    bytes: BTreeMap<String, u64>,
}

impl Manifest {
    /// Says what must be in this folder from now on. Durable when this returns.
    pub fn write(disk: &dyn Disk, folder: &Path) -> Result<(), Fault> {
        let path = folder.join(MANIFEST);
        let written = Manifest::of(disk, folder).and_then(|manifest| {
            let text = manifest.text();
            if text.len() as u64 > MANIFEST_BYTES_MAX {
                return Err(io::Error::other("too many segments"));
            }
            write_whole(disk, folder, MANIFEST, &[text.as_bytes()])
        });
        written.map_err(|error| fault("write", &path, &error))
    }

    /// Whether all that the folder's manifest lists is there, and nothing that belongs to another store.
    pub fn check(disk: &dyn Disk, folder: &Path) -> Result<(), OpenError> {
        let incomplete =
            |file: &str, lack| Err(OpenError::Incomplete { path: folder.into(), file: file.into(), lack });
        let path = folder.join(MANIFEST);
        let failed = |error| fault("read", &path, &error);
        if disk.what(&path).map_err(failed)? != What::File {
            return incomplete(MANIFEST, Lack::Missing);
        }
        let file = disk.open(&path, Access::Read).map_err(failed)?;
        if file.bytes().map_err(failed)? > MANIFEST_BYTES_MAX {
            return incomplete(MANIFEST, Lack::Damaged);
        }
        let bytes = read_whole(&*file, MANIFEST_BYTES_MAX).map_err(failed)?;
        let Some(listed) = Manifest::parse(&bytes) else { return incomplete(MANIFEST, Lack::Damaged) };
        let found = Manifest::of(disk, folder).map_err(|error| fault("list", folder, &error))?;
        for (name, &listed) in &listed.bytes {
            match found.bytes.get(name) {
                None => return incomplete(name, Lack::Missing),
                Some(&found) if found != listed => return incomplete(name, Lack::Bytes { found, listed }),
                Some(_) => {}
            }
        }
        match found.bytes.keys().find(|name| !listed.bytes.contains_key(*name)) {
            Some(name) => incomplete(name, Lack::Foreign),
            None => Ok(()),
        }
    }

    /// What is there.
    fn of(disk: &dyn Disk, folder: &Path) -> io::Result<Manifest> {
        let mut bytes = BTreeMap::new();
        for name in disk.list(folder)? {
            if number_of(&name, SEGMENT).is_some() || name.ends_with(NOTE) {
                let length = disk.open(&folder.join(&name), Access::Read)?.bytes()?;
                bytes.insert(name, length);
            }
        }
        Ok(Manifest { bytes })
    }

    fn text(&self) -> String {
        let lines: String = self.bytes.iter().map(|(name, bytes)| format!("{name} {bytes}\n")).collect();
        let crc = checksum(0, lines.as_bytes());
        format!("{lines}{CRC}{crc:08x}\n")
    }

    /// None: not what was written.
    fn parse(bytes: &[u8]) -> Option<Manifest> {
        let text = std::str::from_utf8(bytes).ok()?;
        let lines = text.lines().filter(|line| !line.starts_with(CRC));
        let listed = lines.map(|line| {
            let (name, bytes) = line.split_once(' ')?;
            Some((name.to_owned(), bytes.parse().ok()?))
        });
        let manifest = Manifest { bytes: listed.collect::<Option<_>>()? };
        // Its checksum is in it.
        (manifest.text() == text).then_some(manifest)
    }
}

pub const MANIFEST: &str = "MANIFEST";

const CRC: &str = "crc32 ";

/// Two million segments: far more than a disk has room for. What is longer is not ours.
const MANIFEST_BYTES_MAX: u64 = 64 << 20;
