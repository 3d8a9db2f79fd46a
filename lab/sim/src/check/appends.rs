//! Exactly once, by append-only files: every append is a token of its own, so the file is the sequence in which
//! they were executed.

use super::Verdict;
use crate::history::{ClientNumber, History, Operation};
use crate::workload::{TOKEN_BYTES, Token, tokens_of};
use kumo_pfs::{Command, Place, Query, Reply};
use std::collections::{BTreeMap, BTreeSet};

/// Checks the file `path` against its content at the end of the run. `leases`: linear reads are to be trusted.
pub fn check(history: &History, path: &str, content: &[u8], leases: bool) -> Verdict {
    let tokens = tokens_of(content)?;
    let mut places: BTreeMap<Token, usize> = BTreeMap::new();
    for (place, token) in tokens.iter().enumerate() {
        if places.insert(*token, place).is_some() {
            return Err(format!("{path}: {token:?} was appended twice"));
        }
    }
    appended(history, path, &places)?;
    in_session_order(path, &tokens)?;
    reads(history, path, content, leases)
}

/// Acknowledged appends are there, where their answers said; nothing is there that nobody asked for.
fn appended(history: &History, path: &str, places: &BTreeMap<Token, usize>) -> Verdict {
    let mut asked: BTreeSet<Token> = BTreeSet::new();
    for (operation, command) in history.commands() {
        let Command::Write { path: written, place: Place::End, data, .. } = command else { continue };
        if written != path {
            continue;
        }
        let token = *tokens_of(data)?.first().ok_or("an append without a token")?;
        match (operation.reply(), places.get(&token)) {
            (Some(Reply::Written { length, .. }), Some(place)) => {
                let expected = (place + 1) * TOKEN_BYTES;
                if *length != expected as u64 {
                    return Err(format!(
                        "{path}: {token:?} ends at {expected}, but its answer said {length}"
                    ));
                }
            }
            (Some(Reply::Written { .. }), None) => {
                return Err(format!("{path}: {token:?} was acknowledged and is lost"));
            }
            (_, Some(_)) if !operation.unclear() => {
                return Err(format!("{path}: {token:?} was refused or cancelled and is there"));
            }
            _ => {}
        }
        asked.insert(token);
    }
    match places.keys().find(|token| !asked.contains(token)) {
        Some(token) => Err(format!("{path}: nobody appended {token:?}")),
        None => Ok(()),
    }
}

/// Requests of a session are executed in the order of their numbers.
fn in_session_order(path: &str, tokens: &[Token]) -> Verdict {
    let mut last: BTreeMap<ClientNumber, u64> = BTreeMap::new();
    for token in tokens {
        if let Some(earlier) = last.insert(token.client, token.number)
            && earlier > token.number
        {
            return Err(format!("{path}: {token:?} stands after number {earlier} of the same session"));
        }
    }
    Ok(())
}

/// Every read saw a prefix; a linear one not a shorter prefix than anything acknowledged before it was asked.
fn reads(history: &History, path: &str, content: &[u8], leases: bool) -> Verdict {
    let mut known: Vec<(u64, u64)> = Vec::new();
    for (operation, command) in history.commands() {
        if let (Command::Write { path: written, .. }, Some(Reply::Written { length, .. }), Some(time)) =
            (command, operation.reply(), operation.settled())
            && written == path
        {
            known.push((time, *length));
        }
    }
    let mut seen = Vec::new();
    for (operation, query, linear) in history.queries() {
        let (Query::Read { path: read, .. }, Some(Reply::Data { bytes, .. }), Some(time)) =
            (query, operation.reply(), operation.settled())
        else {
            continue;
        };
        if read != path {
            continue;
        }
        if !content.starts_with(bytes) {
            return Err(format!("{path}: a read at {time} saw what is no beginning of the file"));
        }
        own_are_there(history, operation, path, bytes.len() as u64)?;
        if linear && leases {
            known.push((time, bytes.len() as u64));
            seen.push((operation.invoked, bytes.len() as u64));
        }
    }
    for (invoked, length) in seen {
        if let Some((time, longer)) = known.iter().find(|(time, known)| *time < invoked && *known > length) {
            return Err(format!(
                "{path}: a linear read asked at {invoked} saw {length} bytes, {longer} were known at {time}"
            ));
        }
    }
    Ok(())
}

/// A read, wherever it is served, misses nothing that its own session was told is there.
fn own_are_there(history: &History, read: &Operation, path: &str, length: u64) -> Verdict {
    for (operation, command) in history.commands().filter(|(of, _)| of.client == read.client) {
        if let (Command::Write { path: written, .. }, Some(Reply::Written { length: known, .. })) =
            (command, operation.reply())
            && written == path
            && operation.settled().is_some_and(|settled| settled < read.invoked)
            && *known > length
        {
            return Err(format!(
                "{path}: {:?} was told of {known} bytes and then read {length}, asked at {}",
                read.client, read.invoked
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Call, Ending};
    use kumo_pfs::Condition;

    fn append(history: &mut History, token: Token, times: (u64, u64), ending: Ending) {
        let command = Command::Write {
            path: "/a/1".to_owned(),
            place: Place::End,
            data: token.bytes(),
            ephemeral: false,
            condition: Condition::Always,
        };
        let number = history.invoke(token.client, Call::Command(command), times.0);
        history.finish(number, ending, times.1);
    }

    fn token(client: u32, number: u64) -> Token {
        Token { client: ClientNumber(client), number }
    }

    fn at(length: usize) -> Ending {
        Ending::Reply(Reply::Written { count: 16, version: 1, length: (length * TOKEN_BYTES) as u64 })
    }

    fn content(tokens: &[Token]) -> Vec<u8> {
        tokens.iter().flat_map(|token| token.bytes().to_vec()).collect()
    }

    fn two_appends() -> History {
        let mut history = History::default();
        append(&mut history, token(1, 1), (0, 1), at(1));
        append(&mut history, token(1, 2), (2, 3), at(2));
        append(&mut history, token(2, 1), (4, 5), Ending::Unknown);
        history
    }

    #[test]
    fn an_unknown_append_may_be_there_or_not() {
        let history = two_appends();
        check(&history, "/a/1", &content(&[token(1, 1), token(1, 2)]), true).unwrap();
        check(&history, "/a/1", &content(&[token(1, 1), token(1, 2), token(2, 1)]), true).unwrap();
    }

    #[test]
    fn lost_doubled_invented_and_disordered_appends_are_found() {
        let history = two_appends();
        for bad in [
            &[token(1, 1)][..],
            &[token(1, 1), token(1, 2), token(1, 2)],
            &[token(1, 1), token(1, 2), token(3, 1)],
            &[token(1, 2), token(1, 1)],
        ] {
            check(&history, "/a/1", &content(bad), true).unwrap_err();
        }
    }

    #[test]
    fn session_order_is_checked_by_itself() {
        let mut history = History::default();
        append(&mut history, token(1, 1), (0, 9), Ending::Unknown);
        append(&mut history, token(1, 2), (0, 9), Ending::Unknown);
        let wrong = check(&history, "/a/1", &content(&[token(1, 2), token(1, 1)]), true).unwrap_err();
        assert!(wrong.contains("same session"), "{wrong}");
    }

    #[test]
    fn a_read_that_misses_an_append_of_its_own_session_is_found() {
        for (reader, fine) in [(1, false), (2, true)] {
            let mut history = two_appends();
            let query = Query::Read { path: "/a/1".to_owned(), offset: 0, length: 1000 };
            let number = history.invoke(ClientNumber(reader), Call::Read { query, linear: false }, 6);
            let reply = Reply::Data { bytes: content(&[token(1, 1)]).into(), version: 1 };
            history.finish(number, Ending::Reply(reply), 7);
            assert_eq!(check(&history, "/a/1", &content(&[token(1, 1), token(1, 2)]), true).is_ok(), fine);
        }
    }

    #[test]
    fn a_linear_read_that_misses_an_acknowledged_append_is_found() {
        for (linear, fine) in [(true, false), (false, true)] {
            let mut history = two_appends();
            let query = Query::Read { path: "/a/1".to_owned(), offset: 0, length: 1000 };
            let number = history.invoke(ClientNumber(3), Call::Read { query, linear }, 6);
            let reply = Reply::Data { bytes: content(&[token(1, 1)]).into(), version: 1 };
            history.finish(number, Ending::Reply(reply), 7);
            assert_eq!(check(&history, "/a/1", &content(&[token(1, 1), token(1, 2)]), true).is_ok(), fine);
        }
    }
}
