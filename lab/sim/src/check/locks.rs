//! Locks: no two sessions are sure of one exclusive lock at a time, grants are numbered in order, and what is
//! written under a grant never comes after something written under a later one.

use super::Verdict;
use crate::history::{Ending, History, Holding};
use crate::workload::fenced_of;
use kumo_pfs::{Command, Condition, Reply};
use std::collections::BTreeMap;

/// Nobody is sure of a lock that another is sure of exclusively. Sound only where clocks run at about one
/// speed: being sure of a session is a matter of time.
pub fn exclusion(holdings: &[Holding]) -> Verdict {
    for (index, one) in holdings.iter().enumerate() {
        for other in &holdings[index + 1..] {
            let apart = |one: &Holding, other: &Holding| one.until.is_some_and(|until| until <= other.from);
            let conflict = one.lock == other.lock
                && one.client != other.client
                && (one.exclusive || other.exclusive)
                && !apart(one, other)
                && !apart(other, one);
            if conflict {
                return Err(format!("held by two at once: {one:?} and {other:?}"));
            }
        }
    }
    Ok(())
}

/// A grant that was asked for after another was given has a greater number, and no two exclusive ones share one.
pub fn numbers(history: &History) -> Verdict {
    let mut grants: BTreeMap<&str, Vec<Grant>> = BTreeMap::new();
    for (operation, command) in history.commands() {
        let (Command::Lock { name, exclusive, .. }, Some(Reply::Granted { number }), Some((granted, _))) =
            (command, operation.reply(), &operation.finished)
        else {
            continue;
        };
        let client = operation.client;
        let (asked, exclusive) = (operation.invoked, *exclusive);
        grants.entry(name).or_default().push(Grant {
            client,
            asked,
            granted: *granted,
            number: *number,
            exclusive,
        });
    }
    for (name, grants) in grants {
        for one in &grants {
            for other in &grants {
                // Who holds it already gets the same grant again.
                if one.client != other.client && one.granted < other.asked && one.number > other.number {
                    return Err(format!("lock {name}: {other:?} is numbered below the earlier {one:?}"));
                }
                if one.client != other.client && one.exclusive && one.number == other.number {
                    return Err(format!("lock {name}: {one:?} and {other:?} share a number"));
                }
            }
        }
    }
    Ok(())
}

#[derive(Debug)]
struct Grant {
    client: crate::history::ClientNumber,
    asked: u64,
    granted: u64,
    number: u64,
    exclusive: bool,
}

/// The file written under a lock's fencing numbers, against its content at the end of the run.
pub fn fenced(history: &History, path: &str, content: &[u8]) -> Verdict {
    let lines = fenced_of(content)?;
    for pair in lines.windows(2) {
        if pair[0].number > pair[1].number {
            return Err(format!("{path}: {:?} was written after {:?}", pair[1], pair[0]));
        }
    }
    for (operation, command) in history.commands() {
        let Command::Write { path: written, data, condition: Condition::Fence { .. }, .. } = command else {
            continue;
        };
        if written != path {
            continue;
        }
        let line = fenced_of(data)?.pop().ok_or("a fenced write without a line")?;
        let count = lines.iter().filter(|other| **other == line).count();
        let expected = match &operation.finished {
            Some((_, Ending::Reply(Reply::Written { .. }))) => 1..=1,
            None | Some((_, Ending::Unknown | Ending::Over)) => 0..=1,
            Some((
                _,
                Ending::Reply(_)
                | Ending::Events { .. }
                | Ending::Done
                | Ending::Cancelled
                | Ending::Refused(_),
            )) => 0..=0,
        };
        if !expected.contains(&count) {
            return Err(format!(
                "{path}: {line:?} is there {count} times, its writer was told {operation:?}"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Call, ClientNumber};
    use crate::workload::Fenced;
    use kumo_pfs::{Place, Refusal};

    fn holding(client: u32, exclusive: bool, from: u64, until: Option<u64>) -> Holding {
        Holding { client: ClientNumber(client), lock: "l".to_owned(), exclusive, number: from, from, until }
    }

    #[test]
    fn two_holders_at_once_are_found() {
        exclusion(&[holding(1, true, 0, Some(5)), holding(2, true, 5, None)]).unwrap();
        exclusion(&[holding(1, false, 0, Some(5)), holding(2, false, 3, None)]).unwrap();
        exclusion(&[holding(1, true, 0, Some(5)), holding(2, true, 4, None)]).unwrap_err();
        exclusion(&[holding(1, true, 0, None), holding(2, false, 9, Some(10))]).unwrap_err();
        exclusion(&[holding(2, false, 9, Some(12)), holding(1, true, 10, None)]).unwrap_err();
    }

    fn grants(list: &[(u32, u64, u64, u64)]) -> History {
        let mut history = History::default();
        for &(client, asked, granted, number) in list {
            let lock = Command::Lock { name: "l".to_owned(), exclusive: true, try_only: false };
            let call = history.invoke(ClientNumber(client), Call::Command(lock), asked);
            history.finish(call, Ending::Reply(Reply::Granted { number }), granted);
        }
        history
    }

    #[test]
    fn numbers_that_do_not_grow_are_found() {
        numbers(&grants(&[(1, 0, 1, 5), (2, 0, 9, 6), (1, 2, 3, 5)])).unwrap();
        numbers(&grants(&[(1, 0, 1, 5), (2, 2, 9, 4)])).unwrap_err();
        numbers(&grants(&[(1, 0, 1, 5), (2, 0, 9, 5)])).unwrap_err();
    }

    #[test]
    fn interleaved_and_refused_writes_are_found() {
        let line = |number, step| Fenced { client: ClientNumber(1), number, step };
        let bytes =
            |lines: &[Fenced]| lines.iter().flat_map(|line| line.bytes().to_vec()).collect::<Vec<u8>>();
        let mut history = History::default();
        for (number, reply) in
            [(1, Reply::Written { count: 24, version: 1, length: 24 }), (2, Reply::Refused(Refusal::Fenced))]
        {
            let write = Command::Write {
                path: "/f/l".to_owned(),
                place: Place::End,
                data: line(number, 0).bytes(),
                ephemeral: false,
                condition: Condition::Fence { lock: "l".to_owned(), number },
            };
            let call = history.invoke(ClientNumber(1), Call::Command(write), 0);
            history.finish(call, Ending::Reply(reply), 1);
        }
        fenced(&history, "/f/l", &bytes(&[line(1, 0)])).unwrap();
        fenced(&history, "/f/l", &bytes(&[])).unwrap_err();
        fenced(&history, "/f/l", &bytes(&[line(1, 0), line(2, 0)])).unwrap_err();
        fenced(&history, "/f/l", &bytes(&[line(3, 0), line(1, 0)])).unwrap_err();
    }
}
