//! From the history of files that hold one value each to the steps of [`super::linear`].

use super::Verdict;
use super::linear::{self, ABSENT, Action, Step, Value};
use crate::history::{History, Operation};
use crate::workload::value_of;
use kumo_pfs::{Command, Condition, Query, Refusal, Reply};
use std::collections::BTreeMap;

/// Checks every file under `folder` on its own: linearizability is local.
pub fn check(history: &History, folder: &str) -> Verdict {
    let mut files: BTreeMap<&str, File> = BTreeMap::new();
    for (operation, command) in history.commands() {
        let path = match command {
            Command::Write { path, .. } | Command::Delete { path, .. } => path,
            _ => continue,
        };
        if path.starts_with(folder) {
            files.entry(path).or_default().command(operation, command)?;
        }
    }
    for (operation, query, linear) in history.queries() {
        let Query::Read { path, .. } = query else { continue };
        if path.starts_with(folder) && linear {
            files.entry(path).or_default().read(operation)?;
        }
    }
    for (path, file) in files {
        linear::check(&file.steps, &file.versions).map_err(|wrong| format!("{path}: {wrong}"))?;
    }
    Ok(())
}

#[derive(Default)]
struct File {
    steps: Vec<Step>,
    versions: BTreeMap<Value, u64>,
}

impl File {
    fn command(&mut self, operation: &Operation, command: &Command) -> Verdict {
        let wish = match command {
            Command::Write { data, condition: Condition::Version(version), .. } => {
                Action::CompareAndWrite { version: *version, value: value_of(data)? }
            }
            Command::Write { data, .. } => Action::Write(value_of(data)?),
            Command::Delete { .. } => Action::Delete,
            _ => return Ok(()),
        };
        let action = match operation.reply() {
            Some(Reply::Refused(Refusal::Version(actual))) => Action::Mismatch { actual: *actual },
            Some(Reply::Refused(Refusal::NotFound(_))) => Action::Read(ABSENT),
            Some(Reply::Refused(refusal)) => return Err(format!("unexpected refusal: {refusal}")),
            Some(Reply::Written { version, .. }) => {
                if let Action::Write(value) | Action::CompareAndWrite { value, .. } = &wish {
                    self.version(*value, *version)?;
                }
                wish
            }
            Some(_) => wish,
            None if operation.unclear() => wish,
            None => return Ok(()),
        };
        self.push(operation, action);
        Ok(())
    }

    fn read(&mut self, operation: &Operation) -> Verdict {
        match operation.reply() {
            Some(Reply::Data { bytes, version }) => {
                let value = value_of(bytes)?;
                self.version(value, *version)?;
                self.push(operation, Action::Read(value));
                Ok(())
            }
            Some(Reply::Refused(Refusal::NotFound(_))) => {
                self.push(operation, Action::Read(ABSENT));
                Ok(())
            }
            Some(reply) => Err(format!("unexpected reply to a read: {reply:?}")),
            None => Ok(()),
        }
    }

    /// A value is written once, so it has one version for ever.
    fn version(&mut self, value: Value, version: u64) -> Verdict {
        match self.versions.insert(value, version) {
            Some(earlier) if earlier != version => {
                Err(format!("value {value} was seen with versions {earlier} and {version}: written twice"))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn push(&mut self, operation: &Operation, action: Action) {
        self.steps.push(Step {
            invoked: operation.invoked,
            settled: operation.settled(),
            unclear: operation.unclear(),
            turn: None,
            action,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Call, ClientNumber, Ending};
    use crate::workload::value_bytes;
    use kumo_pfs::Place;

    fn write(history: &mut History, value: Value, condition: Condition, times: (u64, u64), reply: Reply) {
        let command = Command::Write {
            path: "/r/1".to_owned(),
            place: Place::Replace,
            data: value_bytes(value, 40),
            ephemeral: false,
            condition,
        };
        let number = history.invoke(ClientNumber(1), Call::Command(command), times.0);
        history.finish(number, Ending::Reply(reply), times.1);
    }

    fn read(history: &mut History, value: Value, version: u64, times: (u64, u64)) {
        let query = Query::Read { path: "/r/1".to_owned(), offset: 0, length: 100 };
        let number = history.invoke(ClientNumber(2), Call::Read { query, linear: true }, times.0);
        let reply = Reply::Data { bytes: value_bytes(value, 40), version };
        history.finish(number, Ending::Reply(reply), times.1);
    }

    fn written(version: u64) -> Reply {
        Reply::Written { count: 40, version, length: 40 }
    }

    #[test]
    fn a_stale_read_in_a_history_is_found() {
        let mut history = History::default();
        write(&mut history, 1, Condition::Always, (0, 1), written(1));
        write(&mut history, 2, Condition::Version(1), (2, 3), written(2));
        read(&mut history, 2, 2, (4, 5));
        check(&history, "/r/").unwrap();
        read(&mut history, 1, 1, (6, 7));
        check(&history, "/r/").unwrap_err();
    }

    #[test]
    fn a_value_with_two_versions_was_written_twice() {
        let mut history = History::default();
        write(&mut history, 1, Condition::Always, (0, 1), written(1));
        read(&mut history, 1, 2, (2, 3));
        assert!(check(&history, "/r/").unwrap_err().contains("twice"));
    }
}
