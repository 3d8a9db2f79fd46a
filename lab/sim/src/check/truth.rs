//! [`Truth`]: which commands on trees were executed, and in what order. No client knows it, and no checker
//! believes it: it says only where to look first.

use super::trees;
use crate::history::ClientNumber;
use crate::watched::{Done, Note};
use crate::workload::TREES;
use kumo_pfs::{Command, Reply};
use kumo_session::SessionId;
use kumo_wire::Wire;
use std::collections::{BTreeMap, VecDeque};

/// What all replicas of a run were seen to execute.
#[derive(Debug, Default)]
pub struct Truth {
    clients: BTreeMap<SessionId, ClientNumber>,
    /// By session and number. `None`: nothing of a tree.
    requests: BTreeMap<(SessionId, u64), (Turn, Option<Execution>)>,
    ends: BTreeMap<SessionId, Turn>,
}

/// A place in the agreed sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Turn {
    generation: u32,
    instance: u64,
    /// A recovery ends earlier sessions before it executes its first command.
    command: bool,
}

impl Turn {
    /// Of a command, in the first generation.
    #[cfg(test)]
    pub fn at(instance: u64) -> Turn {
        Turn { generation: 1, instance, command: true }
    }
}

/// A command that was executed.
#[derive(Debug)]
pub struct Execution {
    pub turn: Turn,
    pub command: Command,
    pub reply: Option<Reply>,
}

impl Truth {
    pub fn opened(&mut self, session: SessionId, client: ClientNumber) {
        self.clients.insert(session, client);
    }

    /// A replica executed something, as others did before it or will. Where a crash undid it and it came out
    /// elsewhere, the last time counts.
    pub fn note(&mut self, note: Note) {
        let Note { entry, done } = note;
        let command = matches!(done, Done::Command { .. });
        let turn = Turn { generation: entry.generation, instance: entry.instance.0, command };
        match done {
            Done::SessionEnded => {
                self.ends.insert(entry.session, turn);
            }
            Done::Command { command, reply } => {
                let request = (entry.session, entry.number);
                if self.requests.get(&request).is_some_and(|(known, _)| *known == turn) {
                    return;
                }
                let command = Command::from_bytes(command).ok().filter(is_of_tree);
                let reply = reply.and_then(|reply| Reply::from_bytes(reply).ok());
                let execution = command.map(|command| Execution { turn, command, reply });
                self.requests.insert(request, (turn, execution));
            }
        }
    }

    pub fn executions(&self) -> Executions<'_> {
        let mut executions: BTreeMap<_, VecDeque<_>> = BTreeMap::new();
        for ((session, _), (_, execution)) in &self.requests {
            if let (Some(client), Some(execution)) = (self.clients.get(session), execution) {
                executions.entry(*client).or_default().push_back(execution);
            }
        }
        Executions(executions)
    }

    /// When whose session ended.
    pub fn ends(&self) -> BTreeMap<ClientNumber, Turn> {
        let of = |(session, turn): (&SessionId, &Turn)| Some((*self.clients.get(session)?, *turn));
        self.ends.iter().filter_map(of).collect()
    }
}

/// What was executed of each client's commands and has not been asked for, in the order of its calls.
pub struct Executions<'a>(BTreeMap<ClientNumber, VecDeque<&'a Execution>>);

impl<'a> Executions<'a> {
    /// What came of a client's next command on a tree. A session executes its requests in the order of its calls,
    /// so another command at the front means that this one was not executed.
    pub fn next(&mut self, client: ClientNumber, command: &Command) -> Option<&'a Execution> {
        let executions = self.0.get_mut(&client)?;
        if executions.front()?.command != *command {
            return None;
        }
        executions.pop_front()
    }
}

fn is_of_tree(command: &Command) -> bool {
    trees::path_of(command).is_some_and(|path| path.starts_with(TREES))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kumo_paxos::Instance;
    use kumo_session::{Entry, UnixMillis};

    const SESSION: SessionId = SessionId(9);
    const CLIENT: ClientNumber = ClientNumber(1);

    fn mkdir(name: &str) -> Command {
        Command::Mkdir { path: format!("{TREES}0/{name}") }
    }

    fn entry(instance: u64, number: u64) -> Entry {
        let (instance, time) = (Instance(instance), UnixMillis(0));
        Entry { instance, generation: 1, time, session: SESSION, number }
    }

    fn executed(instance: u64, number: u64, command: &Command) -> Note {
        let reply = Some(Reply::Done.to_bytes());
        Note { entry: entry(instance, number), done: Done::Command { command: command.to_bytes(), reply } }
    }

    #[test]
    fn calls_find_their_executions_and_those_left_out_find_none() {
        let mut truth = Truth::default();
        truth.opened(SESSION, CLIENT);
        let other = Command::Mkdir { path: "/other".to_owned() };
        // Two replicas execute the same.
        for _ in 0..2 {
            truth.note(executed(5, 1, &mkdir("a")));
            truth.note(executed(6, 2, &other));
            truth.note(executed(8, 3, &mkdir("c")));
        }
        let mut executions = truth.executions();
        let mut instance = |name| executions.next(CLIENT, &mkdir(name)).map(|found| found.turn.instance);
        assert_eq!(
            [instance("a"), instance("b"), instance("c"), instance("c")],
            [Some(5), None, Some(8), None]
        );
    }

    #[test]
    fn what_a_crash_undid_counts_where_it_came_out_at_last() {
        let mut truth = Truth::default();
        truth.opened(SESSION, CLIENT);
        truth.note(executed(5, 1, &mkdir("a")));
        truth.note(executed(7, 1, &mkdir("a")));
        let found = truth.executions().next(CLIENT, &mkdir("a")).map(|found| found.turn.instance);
        assert_eq!(found, Some(7));
    }

    #[test]
    fn a_recovery_ends_a_session_before_it_executes_a_command() {
        let mut truth = Truth::default();
        truth.opened(SESSION, CLIENT);
        truth.note(executed(5, 1, &mkdir("a")));
        truth.note(Note { entry: entry(5, 0), done: Done::SessionEnded });
        let command = truth.executions().next(CLIENT, &mkdir("a")).map(|found| found.turn);
        assert!(truth.ends().get(&CLIENT).copied() < command);
    }
}
