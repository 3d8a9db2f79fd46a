//! [`Random`]: numbers from a seed, and commands made of few names, so that they meet.

use ::bytes::Bytes;
use kumo_pfs::{Command, Condition, Place, Query, Resource};

/// A linear congruential generator: enough to choose by, the same everywhere.
pub struct Random(u64);

/// What happens to a PFS.
#[derive(Clone, Debug)]
pub enum Step {
    Command(u64, Command),
    Cancel(u64, u64),
    End(u64),
}

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % bound
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len() as u64) as usize]
    }

    pub fn bytes(&mut self, length: u64) -> Bytes {
        (0..length).map(|_| self.below(256) as u8).collect()
    }

    /// `requests`: how many each session has made, for cancels that hit.
    pub fn step(&mut self, requests: &dyn Fn(u64) -> u64) -> Step {
        let session = 1 + self.below(SESSIONS);
        match self.below(100) {
            0..3 => Step::End(session),
            3..8 => Step::Cancel(session, (requests(session) + 1).saturating_sub(self.below(6))),
            _ => Step::Command(session, self.command()),
        }
    }

    pub fn command(&mut self) -> Command {
        match self.below(24) {
            0..5 => self.write(),
            5 => Command::Truncate { path: self.path(), length: self.below(20) },
            6 => Command::Delete { path: self.path(), condition: self.condition() },
            7..9 => Command::Rename { from: self.path(), to: self.path() },
            9 => Command::Mkdir { path: self.path() },
            10 => Command::Rmdir { path: self.path() },
            11..14 => {
                Command::Lock { name: self.name(), exclusive: self.chance(40), try_only: self.chance(20) }
            }
            14..16 => Command::Unlock { name: self.name() },
            16 => Command::Watch { resource: self.resource() },
            17 => Command::Unwatch { resource: self.resource() },
            18..20 => Command::Post { queue: self.name(), data: self.data() },
            20 => Command::Wait { queue: self.name(), try_only: self.chance(30) },
            21 => Command::Receive { queue: self.name(), try_only: self.chance(30) },
            22 => Command::Acknowledge { queue: self.name(), id: self.number(60) },
            _ => Command::DeleteMessage { queue: self.name(), id: self.number(60) },
        }
    }

    pub fn query(&mut self) -> Query {
        match self.below(7) {
            0 => Query::Read { path: self.path(), offset: self.below(30), length: self.below(30) },
            1 => Query::Stat { path: self.path() },
            2 => Query::ReadDir { path: self.path(), index: self.below(4), count: self.below(4) },
            3 => Query::Peek { queue: self.name() },
            4 => Query::Queues { after: self.name() },
            5 => Query::Locks { after: self.name() },
            _ => Query::Usage,
        }
    }

    fn write(&mut self) -> Command {
        let place = match self.below(3) {
            0 => Place::Offset(self.below(20)),
            1 => Place::End,
            _ => Place::Replace,
        };
        let (path, data) = (self.path(), self.data());
        Command::Write { path, place, data, ephemeral: self.chance(30), condition: self.condition() }
    }

    fn condition(&mut self) -> Condition {
        match self.below(10) {
            0 => Condition::Version(0),
            1 => Condition::Version(self.number(60)),
            2 => Condition::Fence { lock: self.name(), number: self.number(40) },
            _ => Condition::Always,
        }
    }

    fn resource(&mut self) -> Resource {
        match self.below(3) {
            0 => Resource::Directory(self.path()),
            1 => Resource::Lock(self.name()),
            _ => Resource::Queue(self.name()),
        }
    }

    fn path(&mut self) -> String {
        if self.chance(2) {
            return self.pick(&["", "a", "/a/", "/..", "//", "/a\0"]).to_string();
        }
        if self.chance(3) {
            return "/".to_owned();
        }
        (0..1 + self.below(3)).map(|_| *self.pick(&["/a", "/b", "/c"])).collect()
    }

    fn name(&mut self) -> String {
        if self.chance(1) { String::new() } else { self.pick(&["p", "q", "r"]).to_string() }
    }

    fn data(&mut self) -> Bytes {
        let length = self.below(12);
        self.bytes(length)
    }

    fn number(&mut self, bound: u64) -> u64 {
        kumo_session::numbered(1, self.below(bound))
    }
}

pub const SESSIONS: u64 = 4;
