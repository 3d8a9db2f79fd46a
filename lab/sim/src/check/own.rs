//! Read your writes: a session that is the only writer of its file reads, wherever it is served, nothing older
//! than its last acknowledged write.

use super::Verdict;
use super::linear::ABSENT;
use crate::history::{ClientNumber, History};
use crate::workload::value_of;
use kumo_pfs::{Command, Query, Refusal, Reply};
use std::collections::BTreeMap;

/// Checks the files under `folder`; each has one writer, whose values grow.
pub fn check(history: &History, folder: &str) -> Verdict {
    let mut writes: BTreeMap<(&str, ClientNumber), Vec<Written>> = BTreeMap::new();
    for (operation, command) in history.commands() {
        let Command::Write { path, data, .. } = command else { continue };
        if path.starts_with(folder) {
            let answered = matches!(operation.reply(), Some(Reply::Written { .. }));
            writes.entry((path, operation.client)).or_default().push(Written {
                value: value_of(data)?,
                invoked: operation.invoked,
                acknowledged: operation.settled().filter(|_| answered),
            });
        }
    }
    for (operation, query, _) in history.queries() {
        let Query::Read { path, .. } = query else { continue };
        let (Some(reply), Some(finished)) = (operation.reply(), operation.settled()) else { continue };
        if !path.starts_with(folder) {
            continue;
        }
        let seen = match reply {
            Reply::Data { bytes, .. } => value_of(bytes)?,
            Reply::Refused(Refusal::NotFound(_)) => ABSENT,
            reply => return Err(format!("{path}: unexpected reply to a read: {reply:?}")),
        };
        let mine = writes.get(&(path.as_str(), operation.client)).map_or(&[][..], Vec::as_slice);
        let least =
            mine.iter().filter(|written| written.acknowledged.is_some_and(|time| time <= operation.invoked));
        let least = least.map(|written| written.value).max().unwrap_or(ABSENT);
        if seen < least {
            return Err(format!("{path}: its writer wrote {least} and then read {seen}, at {finished}"));
        }
        let asked = |written: &&Written| written.value == seen && written.invoked <= finished;
        if seen != ABSENT && mine.iter().find(asked).is_none() {
            return Err(format!("{path}: {seen} was read at {finished}, and never written"));
        }
    }
    Ok(())
}

struct Written {
    value: u64,
    invoked: u64,
    acknowledged: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Call, Ending};
    use crate::workload::value_bytes;
    use kumo_pfs::{Condition, Place};

    fn session(reads: &[u64]) -> History {
        let mut history = History::default();
        for value in 1..3 {
            let command = Command::Write {
                path: "/o/1".to_owned(),
                place: Place::Replace,
                data: value_bytes(value, 32),
                ephemeral: false,
                condition: Condition::Always,
            };
            let number = history.invoke(ClientNumber(1), Call::Command(command), value * 10);
            let reply = Reply::Written { count: 32, version: value, length: 32 };
            history.finish(number, Ending::Reply(reply), value * 10 + 1);
        }
        for &value in reads {
            let query = Query::Read { path: "/o/1".to_owned(), offset: 0, length: 100 };
            let number = history.invoke(ClientNumber(1), Call::Read { query, linear: false }, 50);
            let reply = match value {
                ABSENT => Reply::Refused(Refusal::NotFound("/o/1".to_owned())),
                value => Reply::Data { bytes: value_bytes(value, 32), version: value },
            };
            history.finish(number, Ending::Reply(reply), 60);
        }
        history
    }

    #[test]
    fn an_old_an_absent_and_an_invented_value_are_found() {
        check(&session(&[2, 2]), "/o/").unwrap();
        for bad in [1, ABSENT, 3] {
            check(&session(&[2, bad]), "/o/").unwrap_err();
        }
    }
}
