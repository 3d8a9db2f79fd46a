//! From the history of a small tree to steps on one object: whole directories are renamed, so no file in it can be
//! judged alone.

mod model;
mod versions;

use super::Verdict;
use super::order::{self, Object, Step};
use super::truth::{Truth, Turn};
use crate::history::{ClientNumber, History, Operation};
use kumo_pfs::{Command, Query, Reply};
use model::{Request, Tree};
use std::collections::BTreeMap;

/// Checks the tree below `root`, which began as nothing. `leases`: linear reads are to be trusted. `at_last`: what
/// was found there when everything was over. `truth`: an order that may well explain it all.
pub fn check(
    history: &History,
    root: &str,
    leases: bool,
    at_last: &[(Query, Reply)],
    truth: &Truth,
) -> Verdict {
    let mut steps = commands(history, root, truth);
    if leases {
        queries(history, root, &mut steps);
    }
    for ((query, told), moment) in at_last.iter().cloned().zip(AT_LAST..) {
        let action = Action::Query { query, told };
        steps.push(Step { invoked: moment, settled: Some(moment), unclear: false, turn: None, action });
    }
    if order::as_executed(&Files { knowing: true }, &Tree::default(), &mut steps) {
        return Ok(());
    }
    order::check(&Files { knowing: false }, &Tree::default(), steps)
        .map_err(|wrong| format!("{root}: {wrong}"))
}

/// All that may have changed the tree.
fn commands(history: &History, root: &str, truth: &Truth) -> Vec<Step<Action>> {
    let mut steps = Vec::new();
    let mut executions = truth.executions();
    let mut owners: BTreeMap<ClientNumber, u64> = BTreeMap::new();
    for (operation, command) in history.commands() {
        if !path_of(command).is_some_and(|path| is_in(path, root)) {
            continue;
        }
        if let Command::Write { ephemeral: true, .. } = command {
            owners.entry(operation.client).or_default();
        }
        if operation.reply().is_some() || operation.unclear() {
            let execution = executions.next(operation.client, command);
            let (told, truly) = (operation.reply().cloned(), execution.and_then(|found| found.reply.clone()));
            let (client, change) = (operation.client, steps.len() as u64);
            let action = Action::Command { client, change, command: command.clone(), told, truly };
            steps.push(step(operation, execution.map(|found| found.turn), action));
        }
    }
    sessions_end(history, owners, truth, &mut steps);
    steps
}

fn queries(history: &History, root: &str, steps: &mut Vec<Step<Action>>) {
    for (operation, query, linear) in history.queries() {
        let (
            Query::Read { path, .. } | Query::Stat { path } | Query::ReadDir { path, .. },
            Some(reply),
            true,
        ) = (query, operation.reply(), linear)
        else {
            continue;
        };
        if is_in(path, root) {
            steps.push(step(operation, None, Action::Query { query: query.clone(), told: reply.clone() }));
        }
    }
}

/// The end of a session takes its ephemeral files: some time after the last thing it was told of, or never.
fn sessions_end(
    history: &History,
    mut owners: BTreeMap<ClientNumber, u64>,
    truth: &Truth,
    steps: &mut Vec<Step<Action>>,
) {
    for (operation, _) in history.commands().filter(|(operation, _)| !operation.unclear()) {
        if let Some(last) = owners.get_mut(&operation.client) {
            *last = operation.invoked.max(*last);
        }
    }
    let ends = truth.ends();
    for (client, invoked) in owners {
        let turn = ends.get(&client).copied();
        let action = Action::SessionEnds { client, change: steps.len() as u64 };
        steps.push(Step { invoked, settled: None, unclear: true, turn, action });
    }
}

fn step(operation: &Operation, turn: Option<Turn>, action: Action) -> Step<Action> {
    let (invoked, settled, unclear) = (operation.invoked, operation.settled(), operation.unclear());
    Step { invoked, settled, unclear, turn, action }
}

/// What happened to the tree.
#[derive(Clone, Debug)]
enum Action {
    Command {
        client: ClientNumber,
        change: u64,
        command: Command,
        told: Option<Reply>,
        /// What the client was told or would have been.
        truly: Option<Reply>,
    },
    Query {
        query: Query,
        told: Reply,
    },
    SessionEnds {
        client: ClientNumber,
        change: u64,
    },
}

struct Files {
    /// Replies that nobody was told count too: an order that gives even those gives what was told.
    knowing: bool,
}

impl Object for Files {
    type State = Tree;
    type Action = Action;

    fn after(&self, tree: &Tree, action: &Action) -> Option<Tree> {
        let tree = tree.clone();
        match action {
            Action::Command { client, change, command, told, truly } => {
                let (client, change) = (*client, *change);
                let told = told.as_ref().or(truly.as_ref().filter(|_| self.knowing));
                tree.command(&Request { client, change, command, told })
            }
            Action::Query { query, told } => tree.query(query, told),
            Action::SessionEnds { client, change } => tree.session_ended(*client, *change),
        }
    }
}

/// Where a command changes a tree, if it does. Both ends of a rename are in the same one.
pub(super) fn path_of(command: &Command) -> Option<&str> {
    match command {
        Command::Write { path, .. }
        | Command::Truncate { path, .. }
        | Command::Delete { path, .. }
        | Command::Rename { from: path, .. }
        | Command::Mkdir { path }
        | Command::Rmdir { path } => Some(path),
        Command::Lock { .. }
        | Command::Unlock { .. }
        | Command::Watch { .. }
        | Command::Unwatch { .. }
        | Command::Post { .. }
        | Command::Wait { .. }
        | Command::Receive { .. }
        | Command::Acknowledge { .. }
        | Command::DeleteMessage { .. } => None,
    }
}

fn is_in(path: &str, root: &str) -> bool {
    path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// After every run.
const AT_LAST: u64 = u64::MAX / 2;

#[cfg(test)]
mod tests;
