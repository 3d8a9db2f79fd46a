//! From the history of a small tree to steps on one object: whole directories are renamed, so no file in it can be
//! judged alone.

mod model;
mod versions;

use super::Verdict;
use super::order::{self, Object, Step};
use crate::history::{ClientNumber, History, Operation};
use kumo_pfs::{Command, Query, Reply};
use model::{Request, Tree};
use std::collections::BTreeMap;

/// Checks the tree below `root`, which began as nothing. `leases`: linear reads are to be trusted. `at_last`: what
/// was found there when everything was over.
pub fn check(history: &History, root: &str, leases: bool, at_last: &[(Query, Reply)]) -> Verdict {
    let mut steps = Vec::new();
    let mut owners: BTreeMap<ClientNumber, u64> = BTreeMap::new();
    for (operation, command) in history.commands() {
        if !path_of(command).is_some_and(|path| is_in(path, root)) {
            continue;
        }
        if let Command::Write { ephemeral: true, .. } = command {
            owners.entry(operation.client).or_default();
        }
        if operation.reply().is_some() || operation.unclear() {
            let told = operation.reply().cloned();
            let (client, change) = (operation.client, steps.len() as u64);
            steps.push(step(operation, Action::Command { client, change, command: command.clone(), told }));
        }
    }
    for (operation, query, linear) in history.queries().filter(|_| leases) {
        let (
            Query::Read { path, .. } | Query::Stat { path } | Query::ReadDir { path, .. },
            Some(reply),
            true,
        ) = (query, operation.reply(), linear)
        else {
            continue;
        };
        if is_in(path, root) {
            steps.push(step(operation, Action::Query { query: query.clone(), told: reply.clone() }));
        }
    }
    sessions_end(history, owners, &mut steps);
    for ((query, told), moment) in at_last.iter().cloned().zip(AT_LAST..) {
        let action = Action::Query { query, told };
        steps.push(Step { invoked: moment, settled: Some(moment), unclear: false, action });
    }
    order::check(&Files, &Tree::default(), steps).map_err(|wrong| format!("{root}: {wrong}"))
}

/// The end of a session takes its ephemeral files: some time after the last thing it was told of, or never.
fn sessions_end(history: &History, mut owners: BTreeMap<ClientNumber, u64>, steps: &mut Vec<Step<Action>>) {
    for (operation, _) in history.commands().filter(|(operation, _)| !operation.unclear()) {
        if let Some(last) = owners.get_mut(&operation.client) {
            *last = operation.invoked.max(*last);
        }
    }
    for (client, invoked) in owners {
        let action = Action::SessionEnds { client, change: steps.len() as u64 };
        steps.push(Step { invoked, settled: None, unclear: true, action });
    }
}

fn step(operation: &Operation, action: Action) -> Step<Action> {
    let (invoked, settled, unclear) = (operation.invoked, operation.settled(), operation.unclear());
    Step { invoked, settled, unclear, action }
}

/// What happened to the tree.
#[derive(Clone, Debug)]
enum Action {
    Command { client: ClientNumber, change: u64, command: Command, told: Option<Reply> },
    Query { query: Query, told: Reply },
    SessionEnds { client: ClientNumber, change: u64 },
}

struct Files;

impl Object for Files {
    type State = Tree;
    type Action = Action;

    fn after(&self, tree: &Tree, action: &Action) -> Option<Tree> {
        let tree = tree.clone();
        match action {
            Action::Command { client, change, command, told } => {
                let (client, change, told) = (*client, *change, told.as_ref());
                tree.command(&Request { client, change, command, told })
            }
            Action::Query { query, told } => tree.query(query, told),
            Action::SessionEnds { client, change } => tree.session_ended(*client, *change),
        }
    }
}

/// Where a command changes a tree, if it does. Both ends of a rename are in the same one.
fn path_of(command: &Command) -> Option<&str> {
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
