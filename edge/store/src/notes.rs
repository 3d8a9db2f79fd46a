//! Notes: small blobs of the server's beside its records. They have their room on the disk before they are needed: a server
//! whose disk is full must still be able to say which hash space it acts in.

use crate::disk::{Access, DiskFile, What, fault, read_whole, write_roomy};
use crate::folder::Folder;
use crate::layout::checksum;
use kumo_cluster::Fault;
use std::io;
use std::sync::atomic::Ordering;

/// A note's file begins with:
///
/// | offset | size | field                              |
/// |--------|------|------------------------------------|
/// |      0 |    4 | CRC-32 of the next two             |
/// |      4 |    4 | bytes of the content               |
/// |      8 |    … | content                            |
///
/// What follows is left of longer notes that the file held before. All numbers are big-endian.
///
/// A note is written to the file `ROOM`, whose space is reserved, and then the two change names: what was the note is the
/// room of the next one. So nothing is given back that another could take.
impl Folder {
    pub fn put_note(&self, name: &str, content: &[u8]) -> Result<(), Fault> {
        let file = note_file(name)?;
        if content.len() > NOTE_BYTES_MAX {
            return Err(Fault::Io(format!("note {name}: {} bytes, at most {NOTE_BYTES_MAX}", content.len())));
        }
        self.keep(&file, content)
    }

    /// Puts a file of that name, with a note's layout, in place of an older one. Durable when this returns.
    pub fn keep(&self, file: &str, content: &[u8]) -> Result<(), Fault> {
        let (crc, rest) = encoded(content);
        let mut named = self.noting.lock().expect("no panic under this lock");
        let (path, room) = (self.path.join(file), self.path.join(ROOM));
        let mut write = || {
            // Until the disk knows that the two changed names the room is the old note, and must not be written to.
            if !*named {
                self.disk.sync_folder(&self.path)?;
            }
            // Reserved or not, the note may fit: its writing tells.
            let (file, _) = self.room(HEAD_BYTES + content.len() as u64)?;
            file.write_at(0, &crc)?;
            file.write_at(crc.len() as u64, &rest)?;
            file.sync()?;
            *named = false;
            match self.disk.what(&path)? {
                What::Missing => self.disk.rename(&room, &path)?,
                What::File | What::Folder => self.disk.exchange(&room, &path)?,
            }
            self.disk.sync_folder(&self.path)?;
            *named = true;
            Ok(())
        };
        write().map_err(|error| fault("write", &path, &error))?;
        // A note of a new name took the room there was.
        self.reserve();
        Ok(())
    }

    /// Puts a file of that name and layout where there is none. Its space is its own: what the next note has reserved stays
    /// there, for what must be written on a full disk.
    pub fn keep_first(&self, file: &str, content: &[u8]) -> Result<(), Fault> {
        let (crc, rest) = encoded(content);
        // As much as the room has, since it becomes that when the file is written again.
        let room = self.room_bytes.load(Ordering::Relaxed).max(HEAD_BYTES + content.len() as u64);
        let written = write_roomy(&*self.disk, &self.path, file, &[&crc, &rest], room);
        written.map_err(|error| fault("write", &self.path.join(file), &error))
    }

    /// Sees whether the next note has its room by now. Why not, if not: [`Folder::roomless`].
    pub fn keep_room(&self) {
        if self.roomless().is_some() {
            let _turn = self.noting.lock().expect("no panic under this lock");
            self.reserve();
        }
    }

    /// Why the next note has no room of its own; it may find some all the same.
    pub fn roomless(&self) -> Option<Fault> {
        self.roomless.lock().expect("no panic under this lock").clone()
    }

    /// Room for the next note. Without it nothing has failed yet, and nobody waits for the answer.
    pub fn reserve(&self) {
        let lacking = match self.room(0) {
            Ok((_, reserved)) => reserved.err(),
            Err(error) => Some(error),
        };
        let path = self.path.join(ROOM);
        // Of a full disk, too, it says what lacks the space.
        let lacking =
            lacking.map(|error| Fault::Io(format!("reserve space for {}: {error}", path.display())));
        *self.roomless.lock().expect("no panic under this lock") = lacking;
    }

    pub fn note(&self, name: &str) -> Result<Option<Vec<u8>>, Fault> {
        self.kept(&note_file(name)?)
    }

    /// The content of a file with a note's layout.
    pub fn kept(&self, file: &str) -> Result<Option<Vec<u8>>, Fault> {
        let path = self.path.join(file);
        let failed = |error| fault("read", &path, &error);
        // What is read here could become the room of another note, and be written to, before it is read.
        let _turn = self.noting.lock().expect("no panic under this lock");
        if self.disk.what(&path).map_err(failed)? == What::Missing {
            return Ok(None);
        }
        let file = self.disk.open(&path, Access::Read).map_err(failed)?;
        let bytes = read_whole(&*file, NOTE_BYTES_MAX as u64 + HEAD_BYTES).map_err(failed)?;
        let content = content(&bytes).map(<[u8]>::to_vec);
        let damaged = || Fault::Damaged(format!("{}: damaged at offset 0: wrong checksum", path.display()));
        content.ok_or_else(damaged).map(Some)
    }

    /// The names of all notes.
    pub fn notes(&self) -> Result<Vec<String>, Fault> {
        let names = self.names()?;
        Ok(names.iter().filter_map(|name| name.strip_suffix(NOTE)).map(str::to_owned).collect())
    }

    /// The file of the next note, and whether it has its space.
    fn room(&self, bytes: u64) -> io::Result<(Box<dyn DiskFile>, io::Result<()>)> {
        let path = self.path.join(ROOM);
        let file = match self.disk.what(&path)? {
            What::Missing => self.disk.create(&path)?,
            What::File | What::Folder => {
                let file = self.disk.open(&path, Access::Write)?;
                if file.links()? > 1 {
                    // It is a note, or the room of one, in a copy that somebody made of links.
                    self.disk.remove(&path)?;
                    self.disk.create(&path)?
                } else {
                    file
                }
            }
        };
        let reserved = file.allocate(bytes.max(self.room_bytes.load(Ordering::Relaxed)));
        Ok((file, reserved))
    }
}

/// The checksum, and what it is of.
pub fn encoded(content: &[u8]) -> ([u8; 4], Vec<u8>) {
    let mut rest = (content.len() as u32).to_be_bytes().to_vec();
    rest.extend_from_slice(content);
    (checksum(0, &rest).to_be_bytes(), rest)
}

/// The content in a file of this layout; none if it is not what was written.
pub fn content(bytes: &[u8]) -> Option<&[u8]> {
    let (crc, rest) = bytes.split_first_chunk::<4>()?;
    let (length, _) = rest.split_first_chunk::<4>()?;
    let checked = rest.get(..length.len() + u32::from_be_bytes(*length) as usize)?;
    (checksum(0, checked).to_be_bytes() == *crc).then(|| &checked[length.len()..])
}

pub fn note_file(name: &str) -> Result<String, Fault> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    if name.is_empty() || name.len() > NOTE_NAME_BYTES_MAX || !name.bytes().all(allowed) {
        return Err(Fault::Io(format!("not a name for a note: {name:?}")));
    }
    Ok(format!("{name}{NOTE}"))
}

pub const NOTE: &str = ".note";

/// The name of the file that becomes the next note.
pub const ROOM: &str = "ROOM";

/// What a note finds reserved. A hash space of a thousand servers fits; a longer note needs a disk that is not full.
pub const ROOM_BYTES: u64 = 64 << 10;

/// A hash space of hundreds of servers fits many times.
pub const NOTE_BYTES_MAX: usize = 1 << 20;

pub const HEAD_BYTES: u64 = 8;

/// Names are chosen by the program; any file system takes one this long.
const NOTE_NAME_BYTES_MAX: usize = 64;
