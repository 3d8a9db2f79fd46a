//! Sessions, locks and queues, a page at a time.

use super::Board;
use crate::http::answer::{Answer, Refused, ok};
use axum::extract::{Query as Parameters, State};
use axum::http::StatusCode;
use pfs::{GENERATION_SHIFT, LockInfo, Query, QueueInfo, Reply, SessionId, SessionInfo};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// Which page.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageOf {
    #[serde(default)]
    after: String,
    count: Option<usize>,
}

impl PageOf {
    fn count(&self) -> Result<usize, Refused> {
        let count = self.count.unwrap_or(COUNT_USUAL);
        match (1..=COUNT_MAX).contains(&count) {
            true => Ok(count),
            false => Err(Refused::bad(format!("count is 1 to {COUNT_MAX}"))),
        }
    }
}

/// Parameters as axum reads them, or why not.
pub type Given<T> = Result<Parameters<T>, axum::extract::rejection::QueryRejection>;

pub fn given<T>(parameters: Given<T>) -> Result<T, Refused> {
    parameters.map(|Parameters(given)| given).map_err(|error| Refused::bad(error.body_text()))
}

pub async fn sessions(State(board): State<Arc<Board>>, page: Given<PageOf>) -> Answer {
    let page = given(page)?;
    let (count, after) = (page.count()?, session_id(&page.after)?);
    let total = board.metrics.sessions.get();
    if total > SESSIONS_LISTED_MAX {
        let sentence = format!(
            "there are {total} sessions, and at most {SESSIONS_LISTED_MAX} are listed: use kumo session ls"
        );
        return Err(Refused(StatusCode::SERVICE_UNAVAILABLE, sentence));
    }
    let sessions = board.seat.sessions().await?;
    let mut rest = sessions.iter().filter(|info| after.is_none_or(|after| info.session > after));
    let listed: Vec<&SessionInfo> = rest.by_ref().take(count).collect();
    let next = listed.last().filter(|_| rest.next().is_some()).map(|last| last.session.to_string());
    let listed: Vec<Value> = listed.into_iter().map(session).collect();
    ok(&json!({ "sessions": listed, "total": sessions.len(), "next": next }))
}

pub async fn locks(State(board): State<Arc<Board>>, page: Given<PageOf>) -> Answer {
    let page = given(page)?;
    let count = page.count()?;
    let Reply::Locks(locks) = board.seat.ask(Query::Locks { after: page.after }).await? else {
        return Err(not_understood());
    };
    let next = next(&locks, count, |lock| &lock.name);
    let locks: Vec<Value> = locks.iter().take(count).map(lock).collect();
    ok(&json!({ "locks": locks, "next": next }))
}

pub async fn queues(State(board): State<Arc<Board>>, page: Given<PageOf>) -> Answer {
    let page = given(page)?;
    let count = page.count()?;
    let Reply::Queues(queues) = board.seat.ask(Query::Queues { after: page.after }).await? else {
        return Err(not_understood());
    };
    let next = next(&queues, count, |queue| &queue.name);
    let queues: Vec<Value> = queues.iter().take(count).map(queue).collect();
    ok(&json!({ "queues": queues, "next": next }))
}

/// After which name the next page begins: there may be more when a page is full.
fn next<T>(all: &[T], count: usize, name: impl Fn(&T) -> &String) -> Option<String> {
    let more = all.len() > count || all.len() >= pfs::ENTRIES_MAX as usize;
    all.get(count.min(all.len()).checked_sub(1)?).filter(|_| more).map(|last| name(last).clone())
}

fn session(info: &SessionInfo) -> Value {
    json!({
        "id": info.session.to_string(),
        "address": info.label.address,
        "pid": info.label.pid,
        "number": info.label.number,
        "opened_at": info.opened.0,
        "requests": info.requests,
        "parked": info.parked,
        "silent_ms": info.silent_ms,
    })
}

fn lock(lock: &LockInfo) -> Value {
    let some = |sessions: &[SessionId]| {
        sessions.iter().take(NAMED_MAX).map(SessionId::to_string).collect::<Vec<String>>()
    };
    json!({
        "name": lock.name,
        "exclusive": lock.exclusive,
        "number": lock.number.to_string(),
        "holders": some(&lock.holders),
        "waiters": some(&lock.waiters),
        "holders_total": lock.holders.len(),
        "waiters_total": lock.waiters.len(),
    })
}

fn queue(queue: &QueueInfo) -> Value {
    json!({ "name": queue.name, "ready": queue.ready, "hidden": queue.hidden, "waiting": queue.waiting })
}

/// `generation.count`, as sessions are shown; nothing: before the first.
fn session_id(text: &str) -> Result<Option<SessionId>, Refused> {
    if text.is_empty() {
        return Ok(None);
    }
    let number = |text: &str, limit: u64| text.parse::<u64>().ok().filter(|&number| number < limit);
    let parts = text.split_once('.');
    let id = parts.and_then(|(generation, count)| {
        let generation = number(generation, 1 << (u64::BITS - GENERATION_SHIFT))?;
        Some(SessionId(generation << GENERATION_SHIFT | number(count, 1 << GENERATION_SHIFT)?))
    });
    id.map(Some).ok_or_else(|| Refused::bad(format!("{text} is not the id of a session")))
}

pub fn not_understood() -> Refused {
    Refused(StatusCode::SERVICE_UNAVAILABLE, "the cell's answer is not understood".to_owned())
}

/// Entries of a page.
const COUNT_USUAL: usize = 100;
const COUNT_MAX: usize = 1000;

/// Holders and waiters of a lock that are listed.
const NAMED_MAX: usize = 100;

/// The cell tells all its sessions at once: beyond this it is not asked for them by a page that looks every second.
const SESSIONS_LISTED_MAX: u64 = 20_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_named_as_it_is_shown() {
        for id in [SessionId(1), SessionId(7 << GENERATION_SHIFT | 12)] {
            assert_eq!(session_id(&id.to_string()), Ok(Some(id)));
        }
        for bad in ["7", "1.2.3", "a.1", "65536.1", "0.281474976710656", "-1.2"] {
            assert!(session_id(bad).is_err(), "{bad}");
        }
        assert_eq!(session_id(""), Ok(None));
    }

    #[test]
    fn a_page_says_where_the_next_begins() {
        let names = |count: usize| (0..count).map(|number| format!("{number:04}")).collect::<Vec<String>>();
        assert_eq!(next(&names(0), 3, |name| name), None);
        assert_eq!(next(&names(3), 3, |name| name), None);
        assert_eq!(next(&names(4), 3, |name| name), Some("0002".to_owned()));
        assert_eq!(next(&names(1000), 1000, |name| name), Some("0999".to_owned()));
    }
}
