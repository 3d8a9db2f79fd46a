//! Clients that do everything that can be done to files and directories, where they get into each other's way.

use super::worker::Worker;
use crate::history::Call;
use bytes::{BufMut, Bytes, BytesMut};
use kumo_pfs::{Command, Condition, ENTRIES_MAX, Place, Query, READ_BYTES_MAX};

/// How the path of every tree begins.
pub const TREES: &str = "/t";

/// The directory that all of one era work in.
pub fn tree_root(era: u64) -> String {
    format!("{TREES}{era}")
}

/// Every path that there ever is below a root.
pub fn tree_paths(root: &str) -> Vec<String> {
    let two =
        NAMES.iter().flat_map(|first| NAMES.iter().map(move |second| format!("{root}/{first}/{second}")));
    NAMES.iter().map(|name| format!("{root}/{name}")).chain(two).collect()
}

impl Worker {
    pub(super) fn tree(&mut self) -> Call {
        let path = self.path();
        let condition = self.condition(&path);
        Call::Command(match self.random.below(100) {
            0..22 => return self.look(path),
            22..42 => {
                let place = match self.random.below(4) {
                    0 => Place::Offset(self.random.below(12)),
                    1 => Place::End,
                    _ => Place::Replace,
                };
                let ephemeral = self.random.permille(150);
                Command::Write { path, place, data: self.word(), ephemeral, condition }
            }
            42..52 => Command::Truncate { path, length: self.random.below(14) },
            52..60 => Command::Delete { path, condition },
            60..80 => Command::Rename { from: path, to: self.path() },
            80..90 => Command::Mkdir { path },
            _ => Command::Rmdir { path },
        })
    }

    fn look(&mut self, path: String) -> Call {
        let root = tree_root(self.setting.era);
        let query = match self.random.below(5) {
            0 => Query::Stat { path },
            1 => Query::ReadDir { path: root, index: 0, count: ENTRIES_MAX },
            2 => Query::ReadDir { path, index: self.random.below(2), count: self.random.between(1, 3) },
            3 => Query::Read { path, offset: self.random.below(10), length: self.random.below(20) },
            _ => Query::Read { path, offset: 0, length: READ_BYTES_MAX },
        };
        self.ask(query)
    }

    fn path(&mut self) -> String {
        let root = tree_root(self.setting.era);
        let first = NAMES[self.random.below(3) as usize];
        match self.random.permille(400) {
            true => format!("{root}/{first}/{}", NAMES[self.random.below(3) as usize]),
            false => format!("{root}/{first}"),
        }
    }

    /// Mostly none; otherwise the version last seen, or that there is nothing.
    fn condition(&mut self, path: &str) -> Condition {
        match self.random.below(10) {
            0..7 => Condition::Always,
            7 => Condition::Version(0),
            _ => Condition::Version(self.versions.get(path).copied().unwrap_or(0)),
        }
    }

    /// Bytes that nobody else writes.
    fn word(&self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(8);
        bytes.put_u32(self.client.0);
        bytes.put_u32(self.count as u32);
        bytes.freeze()
    }
}

/// Few, so that all want the same.
const NAMES: [&str; 3] = ["a", "b", "d"];
