//! [`Worker`]: one client program. It is asked for its next call, and told how each ended.

use super::{
    APPEND_FILES, APPENDS, FENCED, Fenced, LOCKS, OWN, RECEIVE_QUEUES, REGISTER_FILES, REGISTERS, Token,
    WAIT_QUEUES, WATCHED, value_bytes,
};
use crate::history::{Call, ClientNumber, Ending};
use bytes::Bytes;
use kumo_pfs::{Command, Condition, Place, Query, Reply, Resource};
use lot::Random;
use std::collections::BTreeMap;

/// What a client is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Writes, reads, compares and deletes shared files, in a `Sync` session.
    Register,
    /// Appends to shared files, several calls at a time.
    Append,
    /// Writes a file of its own and reads it at any replica.
    Own,
    Lock,
    Produce,
    /// Takes messages by wait.
    Consume,
    /// Takes messages by receive and acknowledge.
    Receive,
    Watch,
    /// Makes what is watched.
    Change,
    /// Does everything that can be done to files and directories, in a small tree and in a `Sync` session.
    Tree,
    /// Watches a directory, a lock and a queue.
    Observe,
    /// Waits for a lock that others keep.
    Contend,
    /// Makes more events than are kept.
    Flood,
    /// Watches those, some for long without asking.
    Lag,
}

impl Role {
    /// The first kinds, which seeds that failed once know.
    pub const PLAIN: [Role; 9] = [
        Role::Register,
        Role::Append,
        Role::Own,
        Role::Lock,
        Role::Produce,
        Role::Consume,
        Role::Receive,
        Role::Watch,
        Role::Change,
    ];
    pub const LATER: [Role; 5] = [Role::Tree, Role::Observe, Role::Contend, Role::Flood, Role::Lag];
}

/// What a client finds.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// There are values of more than 64 KiB.
    pub large: bool,
    /// The flooded directory has a path as long as paths may be.
    pub deep: bool,
    /// How often the cell went on from a survivor: every time a new tree is begun.
    pub era: u64,
}

/// One client program.
#[derive(Debug)]
pub struct Worker {
    pub(super) client: ClientNumber,
    role: Role,
    sync: bool,
    pub(super) setting: Setting,
    pub(super) random: Random,
    /// Bytes of a large value, in runs that have them.
    large: Option<u64>,
    pub(super) count: u64,
    /// Versions last seen of the shared files.
    pub(super) versions: BTreeMap<String, u64>,
    /// The lock held: its name and number, whether it is exclusive, and the writes still to do under it.
    pub(super) held: Option<(String, u64, bool, u64)>,
    /// The message last shown by a peek: one in three is deleted.
    shown: Option<(String, u64)>,
    /// The message received and not yet acknowledged.
    received: Option<(String, u64)>,
    watching: bool,
    /// Ephemeral or not: what this client's own file is.
    ephemeral: bool,
    /// What is still to be watched, the next last.
    pub(super) unwatched: Vec<Resource>,
    /// Asks for events rarely.
    lazy: bool,
    /// The file that is renamed again and again is there.
    pub(super) afloat: bool,
}

impl Worker {
    pub fn new(client: ClientNumber, role: Role, mut random: Random, setting: Setting) -> Worker {
        let sync = match role {
            Role::Register | Role::Tree => true,
            Role::Own => false,
            Role::Append
            | Role::Lock
            | Role::Produce
            | Role::Consume
            | Role::Receive
            | Role::Watch
            | Role::Change
            | Role::Observe
            | Role::Contend
            | Role::Flood
            | Role::Lag => random.permille(500),
        };
        let large = setting.large.then(|| random.between(66_000, 200_000));
        let ephemeral = random.permille(500);
        let unwatched = super::events::unwatched(role, setting.deep, &mut random);
        let lazy = role == Role::Lag && random.permille(600);
        Worker {
            client,
            role,
            sync,
            setting,
            random,
            large,
            count: 0,
            versions: BTreeMap::new(),
            held: None,
            shown: None,
            received: None,
            watching: false,
            ephemeral,
            unwatched,
            lazy,
            afloat: false,
        }
    }

    pub fn sync(&self) -> bool {
        self.sync
    }

    /// Calls this client may have under way at once.
    pub fn depth(&self) -> usize {
        match self.role {
            Role::Append => 3,
            Role::Flood => 6,
            Role::Register
            | Role::Own
            | Role::Lock
            | Role::Produce
            | Role::Consume
            | Role::Receive
            | Role::Watch
            | Role::Change
            | Role::Tree
            | Role::Observe
            | Role::Contend
            | Role::Lag => 1,
        }
    }

    /// Microseconds until the next call.
    pub fn pause(&mut self) -> u64 {
        if self.lazy && self.unwatched.is_empty() {
            return self.random.between(1_500_000, 4_000_000);
        }
        if self.role == Role::Flood {
            return self.flood_pause();
        }
        match self.random.permille(100) {
            true => self.random.between(100_000, 600_000),
            false => self.random.between(1_000, 80_000),
        }
    }

    /// How long this client waits for a lock or a message before it gives up.
    pub fn patience(&mut self) -> u64 {
        match self.role {
            Role::Contend => self.random.between(20_000, 400_000),
            Role::Register
            | Role::Append
            | Role::Own
            | Role::Lock
            | Role::Produce
            | Role::Consume
            | Role::Receive
            | Role::Watch
            | Role::Change
            | Role::Tree
            | Role::Observe
            | Role::Flood
            | Role::Lag => self.random.between(300_000, 4_000_000),
        }
    }

    /// What it asks next.
    pub fn next_call(&mut self) -> Call {
        self.count += 1;
        match self.role {
            Role::Register => self.register(),
            Role::Append => self.append(),
            Role::Own => self.own(),
            Role::Lock => self.lock(),
            Role::Produce => self.produce(),
            Role::Consume => self.consume(),
            Role::Receive => self.receive(),
            Role::Watch => self.watch(),
            Role::Change => self.change(),
            Role::Tree => self.tree(),
            Role::Observe | Role::Lag => self.observe(),
            Role::Contend => self.contend(),
            Role::Flood => self.flood(),
        }
    }

    /// How a call ended.
    pub fn ended(&mut self, call: &Call, ending: &Ending) {
        let Ending::Reply(reply) = ending else { return };
        match (call, reply) {
            (Call::Command(Command::Write { path, .. }), Reply::Written { version, .. })
            | (Call::Read { query: Query::Read { path, .. }, .. }, Reply::Data { version, .. }) => {
                self.versions.insert(path.clone(), *version);
            }
            (Call::Command(Command::Lock { name, exclusive, .. }), Reply::Granted { number }) => {
                let writes = if *exclusive { self.random.between(1, 3) } else { 0 };
                self.held = Some((name.clone(), *number, *exclusive, writes));
            }
            (Call::Command(Command::Unlock { .. }), _) => self.held = None,
            (Call::Command(Command::Receive { queue, .. }), Reply::Message { id, .. }) => {
                self.received = Some((queue.clone(), *id));
            }
            (Call::Read { query: Query::Peek { queue }, .. }, Reply::Message { id, .. }) => {
                self.shown = self.random.permille(330).then(|| (queue.clone(), *id));
            }
            (Call::Command(Command::Watch { .. }), Reply::Done) => {
                self.watching = true;
                self.unwatched.pop();
            }
            (Call::Command(Command::Rename { .. }), Reply::Refused(_)) => self.afloat = false,
            _ => {}
        }
    }

    /// A value that nobody else writes: the client above, its count below.
    fn unique(&self) -> u64 {
        u64::from(self.client.0 + 1) << 32 | self.count
    }

    fn value(&mut self) -> Bytes {
        let length = match self.large {
            Some(length) if self.random.permille(100) => length,
            Some(_) | None => self.random.between(16, 200),
        };
        value_bytes(self.unique(), length as usize)
    }

    fn read(&self, path: String) -> Call {
        self.ask(Query::Read { path, offset: 0, length: kumo_pfs::READ_BYTES_MAX })
    }

    pub(super) fn ask(&self, query: Query) -> Call {
        Call::Read { query, linear: self.sync }
    }

    fn register(&mut self) -> Call {
        let path = format!("{REGISTERS}{}", self.random.below(REGISTER_FILES));
        let condition = match self.random.below(100) {
            0..45 => return self.read(path),
            45..52 => return Call::Command(Command::Delete { path, condition: Condition::Always }),
            52..75 => match self.versions.get(&path) {
                Some(version) => Condition::Version(*version),
                None => Condition::Version(0),
            },
            _ => Condition::Always,
        };
        let data = self.value();
        Call::Command(Command::Write { path, place: Place::Replace, data, ephemeral: false, condition })
    }

    fn append(&mut self) -> Call {
        let path = format!("{APPENDS}{}", self.random.below(APPEND_FILES));
        if self.random.permille(200) {
            return self.read(path);
        }
        let data = Token { client: self.client, number: self.count }.bytes();
        let condition = Condition::Always;
        Call::Command(Command::Write { path, place: Place::End, data, ephemeral: false, condition })
    }

    fn own(&mut self) -> Call {
        let path = format!("{OWN}{}", self.client.0);
        if self.random.permille(600) {
            return self.read(path);
        }
        let data = self.value();
        let (ephemeral, condition) = (self.ephemeral, Condition::Always);
        Call::Command(Command::Write { path, place: Place::Replace, data, ephemeral, condition })
    }

    fn lock(&mut self) -> Call {
        let client = self.client;
        Call::Command(match &mut self.held {
            None => Command::Lock {
                name: format!("lock-{}", self.random.below(LOCKS)),
                exclusive: self.random.permille(800),
                try_only: self.random.permille(200),
            },
            Some((name, _, _, 0)) => Command::Unlock { name: name.clone() },
            Some((name, number, _, writes)) => {
                *writes -= 1;
                Command::Write {
                    path: format!("{FENCED}{name}"),
                    place: Place::End,
                    data: Fenced { number: *number, client, step: *writes }.bytes(),
                    ephemeral: false,
                    condition: Condition::Fence { lock: name.clone(), number: *number },
                }
            }
        })
    }

    fn produce(&mut self) -> Call {
        if let Some((queue, id)) = self.shown.take() {
            return Call::Command(Command::DeleteMessage { queue, id });
        }
        let queues = [WAIT_QUEUES[0], WAIT_QUEUES[1], RECEIVE_QUEUES[0]];
        let queue = queues[self.random.below(3) as usize].to_owned();
        if self.random.permille(100) {
            return Call::Read { query: Query::Peek { queue }, linear: self.sync };
        }
        let data = Token { client: self.client, number: self.count }.bytes();
        Call::Command(Command::Post { queue, data })
    }

    fn consume(&mut self) -> Call {
        let queue = WAIT_QUEUES[self.random.below(2) as usize].to_owned();
        Call::Command(Command::Wait { queue, try_only: self.random.permille(200) })
    }

    fn receive(&mut self) -> Call {
        if let Some((queue, id)) = self.received.take() {
            return Call::Command(Command::Acknowledge { queue, id });
        }
        let queue = RECEIVE_QUEUES[0].to_owned();
        Call::Command(Command::Receive { queue, try_only: self.random.permille(200) })
    }

    fn watch(&mut self) -> Call {
        if self.watching {
            return Call::Events;
        }
        Call::Command(Command::Watch { resource: Resource::Directory(WATCHED.to_owned()) })
    }

    /// A name's life: created, updated, deleted, one call after the other.
    fn change(&mut self) -> Call {
        let step = self.count - 1;
        let path = format!("{WATCHED}/{}-{}", self.client.0, step / 3);
        let (place, condition) = match step % 3 {
            0 => (Place::Replace, Condition::Version(0)),
            1 => (Place::End, Condition::Always),
            _ => return Call::Command(Command::Delete { path, condition: Condition::Always }),
        };
        let data = Token { client: self.client, number: self.count }.bytes();
        Call::Command(Command::Write { path, place, data, ephemeral: false, condition })
    }
}
