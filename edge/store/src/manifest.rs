//! [`Manifest`]: what a copy of a store holds, so that one that lost a part on its way is not taken for whole.

use crate::disk::{Access, Disk, What, fault, read_whole, write_whole};
use crate::error::{Lack, OpenError};
use crate::folder::SEGMENT;
use crate::layout::checksum;
use crate::notes::NOTE;
use crate::segment::{number_of, read_salt};
use kumo_cluster::Fault;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// The segments and notes of a backup, or of the result of a merge, with their lengths, and the salts of the segments. In
/// the file `MANIFEST`, with a CRC-32 of the lines above in the last one:
///
/// ```text
/// 0000000001.segment 33554398 5d1f00c3
/// 0000000002.segment 81120 e2094b77
/// space.note 1208
/// crc32 0f3c9a1e
/// ```
///
/// In a folder of format 2 the salts are missing: a segment of another store, of the same length, is not told there.
/// Hints are not in it: without them a start takes longer, nothing else.
#[derive(Debug, PartialEq, Eq)]
pub struct Manifest {
    files: BTreeMap<String, Listed>,
}

/// What is said of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Listed {
    bytes: u64,
    /// Of a segment that has a header.
    salt: Option<u32>,
}

/// What a manifest tells segments by, which depends on the format of the folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listing {
    Lengths,
    LengthsAndSalts,
}

impl Manifest {
    /// Says what must be in this folder from now on. Durable when this returns.
    pub fn write(disk: &dyn Disk, folder: &Path) -> Result<(), Fault> {
        let path = folder.join(MANIFEST);
        let failed = |error| fault("write", &path, &error);
        let manifest = Manifest::of(disk, folder).map_err(failed)?;
        // A segment of the store itself, which was opened long ago.
        if let Some(name) = manifest.unsalted() {
            let text = format!("{}: damaged at offset 0: no header", folder.join(name).display());
            return Err(Fault::Damaged(text));
        }
        let text = manifest.text();
        if text.len() as u64 > MANIFEST_BYTES_MAX {
            return Err(failed(io::Error::other("too many segments")));
        }
        write_whole(disk, folder, MANIFEST, &[text.as_bytes()]).map_err(failed)
    }

    /// Whether all that the folder's manifest lists is there, and nothing that belongs to another store.
    pub fn check(disk: &dyn Disk, folder: &Path, listing: Listing) -> Result<(), OpenError> {
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
        let Some(listed) = Manifest::parse(&bytes, listing) else {
            return incomplete(MANIFEST, Lack::Damaged);
        };
        let found = Manifest::of(disk, folder).map_err(|error| fault("list", folder, &error))?;
        for (name, listed) in &listed.files {
            if let Some(lack) = listed.lack(found.files.get(name)) {
                return incomplete(name, lack);
            }
        }
        match found.files.keys().find(|name| !listed.files.contains_key(*name)) {
            Some(name) => incomplete(name, Lack::Foreign),
            None => Ok(()),
        }
    }

    /// What is there.
    fn of(disk: &dyn Disk, folder: &Path) -> io::Result<Manifest> {
        let mut files = BTreeMap::new();
        for name in disk.list(folder)? {
            let number = number_of(&name, SEGMENT);
            if number.is_some() || name.ends_with(NOTE) {
                let file = disk.open(&folder.join(&name), Access::Read)?;
                let salt = number.map_or(Ok(None), |number| read_salt(&*file, number))?;
                files.insert(name, Listed { bytes: file.bytes()?, salt });
            }
        }
        Ok(Manifest { files })
    }

    /// A segment without a salt.
    fn unsalted(&self) -> Option<&str> {
        let mut segments = self.files.iter().filter(|(name, _)| number_of(name, SEGMENT).is_some());
        segments.find(|(_, listed)| listed.salt.is_none()).map(|(name, _)| name.as_str())
    }

    fn text(&self) -> String {
        let lines = self.files.iter().map(|(name, Listed { bytes, salt })| match salt {
            Some(salt) => format!("{name} {bytes} {salt:08x}\n"),
            None => format!("{name} {bytes}\n"),
        });
        let lines: String = lines.collect();
        let crc = checksum(0, lines.as_bytes());
        format!("{lines}{CRC}{crc:08x}\n")
    }

    /// None: not what was written.
    fn parse(bytes: &[u8], listing: Listing) -> Option<Manifest> {
        let text = std::str::from_utf8(bytes).ok()?;
        let lines = text.lines().filter(|line| !line.starts_with(CRC));
        let listed = lines.map(|line| {
            let (name, rest) = line.split_once(' ')?;
            let (bytes, salt) = match rest.split_once(' ') {
                Some((bytes, salt)) => (bytes, Some(u32::from_str_radix(salt, 16).ok()?)),
                None => (rest, None),
            };
            Some((name.to_owned(), Listed { bytes: bytes.parse().ok()?, salt }))
        });
        let manifest = Manifest { files: listed.collect::<Option<_>>()? };
        let as_listed = match listing {
            Listing::Lengths => manifest.files.values().all(|listed| listed.salt.is_none()),
            Listing::LengthsAndSalts => manifest.unsalted().is_none(),
        };
        // Its checksum is in it.
        (as_listed && manifest.text() == text).then_some(manifest)
    }
}

impl Listed {
    /// What is wrong with a file, if something is.
    fn lack(&self, found: Option<&Listed>) -> Option<Lack> {
        let Some(found) = found else { return Some(Lack::Missing) };
        if found.bytes != self.bytes {
            return Some(Lack::Bytes { found: found.bytes, listed: self.bytes });
        }
        match (self.salt, found.salt) {
            // Without a header it is not a segment at all.
            (Some(_), None) => Some(Lack::DamagedAt { offset: 0 }),
            (Some(listed), Some(found)) if listed != found => Some(Lack::Foreign),
            (Some(_), Some(_)) | (None, _) => None,
        }
    }
}

pub const MANIFEST: &str = "MANIFEST";

const CRC: &str = "crc32 ";

/// More than a million segments: far more than a disk has room for. What is longer is not ours.
const MANIFEST_BYTES_MAX: u64 = 64 << 20;
