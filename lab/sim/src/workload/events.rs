//! Clients that watch more than one thing, and those that give them much to watch.

use super::worker::{Role, Worker};
use super::{KEPT, RECEIVE_QUEUES, Token, WAIT_QUEUES, WATCHED, flood_folder};
use crate::history::Call;
use kumo_pfs::{Command, Condition, Place, Query, Resource};
use lot::Random;

/// What a client of that kind watches.
pub(super) fn unwatched(role: Role, deep: bool, random: &mut Random) -> Vec<Resource> {
    match role {
        Role::Observe => {
            let lock = ["lock-0", KEPT, KEPT][random.below(3) as usize];
            let queue = [WAIT_QUEUES[0], WAIT_QUEUES[1], RECEIVE_QUEUES[0]][random.below(3) as usize];
            vec![
                Resource::Lock(lock.to_owned()),
                Resource::Queue(queue.to_owned()),
                // The changes of a directory can be told apart: between them, the others are counted.
                Resource::Directory(WATCHED.to_owned()),
            ]
        }
        Role::Lag => vec![Resource::Directory(flood_folder(deep))],
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
        | Role::Contend
        | Role::Flood => Vec::new(),
    }
}

impl Worker {
    pub(super) fn observe(&mut self) -> Call {
        match self.unwatched.last() {
            Some(resource) => Call::Command(Command::Watch { resource: resource.clone() }),
            None => Call::Events,
        }
    }

    /// Who has the lock keeps it for long.
    pub(super) fn contend(&mut self) -> Call {
        let name = KEPT.to_owned();
        match self.held {
            None => {
                let exclusive = self.random.permille(700);
                Call::Command(Command::Lock { name, exclusive, try_only: false })
            }
            Some(_) if self.random.permille(30) => Call::Command(Command::Unlock { name }),
            Some(_) => self.ask(Query::Stat { path: "/".to_owned() }),
        }
    }

    /// One file gets one name after the other: a name comes once and goes once.
    pub(super) fn flood(&mut self) -> Call {
        let folder = flood_folder(self.setting.deep);
        let name = |count: u64| format!("{folder}/{}-{count}", self.client.0);
        if std::mem::replace(&mut self.afloat, true) {
            return Call::Command(Command::Rename { from: name(self.count - 1), to: name(self.count) });
        }
        Call::Command(Command::Write {
            path: name(self.count),
            place: Place::Replace,
            data: Token { client: self.client, number: self.count }.bytes(),
            ephemeral: false,
            condition: Condition::Version(0),
        })
    }

    /// Once too much has happened, it is enough.
    pub(super) fn flood_pause(&mut self) -> u64 {
        let enough = if self.setting.deep { 250 } else { 650 };
        match self.count > enough {
            true => self.random.between(100_000, 600_000),
            false => self.random.between(500, 6_000),
        }
    }
}
