//! [`History`]: what every client asked, when, and what it was told.

use kumo_paxos::Change;
use kumo_pfs::{Command, Event, Query, Reply};
use kumo_session::{GENERATION_SHIFT, SessionId};
use std::net::SocketAddr;

/// One session of one client program; a client that starts again is another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientNumber(pub u32);

/// What was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    Command(Command),
    Read {
        query: Query,
        /// In a `Sync` session.
        linear: bool,
    },
    Events,
    Change(Change),
    /// The cell goes on from the survivor at that address.
    Recover(SocketAddr),
    /// Another client's session is ended.
    Kill(SessionId),
    Transfer,
    Snapshot,
    Close,
}

/// What was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    Reply(Reply),
    Events {
        omitted: u64,
        first: u64,
        events: Vec<Event>,
    },
    Done,
    /// Given up while it waited: it had no effect and never will.
    Cancelled,
    /// Not executed, and why.
    Refused(String),
    /// The cell said that the session is over: executed before this answer, or never.
    Over,
    /// Nobody knows: executed some time, or never.
    Unknown,
}

/// One call of one client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    pub client: ClientNumber,
    pub call: Call,
    pub invoked: u64,
    pub finished: Option<(u64, Ending)>,
}

impl Operation {
    /// The reply of PFS, if one came.
    pub fn reply(&self) -> Option<&Reply> {
        match &self.finished {
            Some((_, Ending::Reply(reply))) => Some(reply),
            Some((
                _,
                Ending::Events { .. }
                | Ending::Done
                | Ending::Cancelled
                | Ending::Refused(_)
                | Ending::Over
                | Ending::Unknown,
            ))
            | None => None,
        }
    }

    /// Whether it may have been executed without anybody being told.
    pub fn unclear(&self) -> bool {
        match &self.finished {
            None | Some((_, Ending::Over | Ending::Unknown)) => true,
            Some((
                _,
                Ending::Reply(_)
                | Ending::Events { .. }
                | Ending::Done
                | Ending::Cancelled
                | Ending::Refused(_),
            )) => false,
        }
    }

    /// When it can no longer take effect; `None`: it always may.
    pub fn settled(&self) -> Option<u64> {
        match &self.finished {
            None | Some((_, Ending::Unknown)) => None,
            Some((
                time,
                Ending::Reply(_)
                | Ending::Events { .. }
                | Ending::Done
                | Ending::Cancelled
                | Ending::Refused(_)
                | Ending::Over,
            )) => Some(*time),
        }
    }
}

/// A lock as its holder saw it: from the grant until it let go or was no longer sure of its session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    pub client: ClientNumber,
    pub lock: String,
    pub exclusive: bool,
    pub number: u64,
    pub from: u64,
    pub until: Option<u64>,
}

/// All calls of a run in the order they were made, and all locks as their holders saw them.
#[derive(Clone, Debug, Default)]
pub struct History {
    pub operations: Vec<Operation>,
    pub holdings: Vec<Holding>,
}

impl History {
    /// Notes a call; the number under which its answer is noted.
    pub fn invoke(&mut self, client: ClientNumber, call: Call, now: u64) -> u64 {
        self.operations.push(Operation { client, call, invoked: now, finished: None });
        self.operations.len() as u64 - 1
    }

    pub fn finish(&mut self, number: u64, ending: Ending, now: u64) {
        let operation = &mut self.operations[number as usize];
        assert!(
            operation.finished.is_none(),
            "call {number} is answered twice: {operation:?}, now {ending:?}"
        );
        operation.finished = Some((now, ending));
    }

    /// What is left to judge when the cell went on from a survivor at `time` as `generation`: of everything asked
    /// before, nobody knows any more whether it was executed. Events of an earlier generation are those of sessions
    /// that ended there: the survivor may still tell them, after others that nobody knows of any more.
    pub fn after(&self, time: u64, generation: u32) -> History {
        let lost = |operation: &Operation| match &operation.finished {
            Some((_, Ending::Events { first, .. })) => first >> GENERATION_SHIFT < u64::from(generation),
            Some(_) | None => false,
        };
        let forget = |operation: &Operation| match operation.invoked > time && !lost(operation) {
            true => operation.clone(),
            false => Operation {
                finished: operation.finished.as_ref().map(|(time, _)| (*time, Ending::Unknown)),
                ..operation.clone()
            },
        };
        History {
            operations: self.operations.iter().map(forget).collect(),
            holdings: self.holdings.iter().filter(|holding| holding.from > time).cloned().collect(),
        }
    }

    /// Calls that nobody answered.
    pub fn pending(&self) -> impl Iterator<Item = (u64, &Operation)> {
        (0u64..).zip(&self.operations).filter(|(_, operation)| operation.finished.is_none())
    }

    /// Commands that were executed as asked, not refused.
    pub fn succeeded(&self) -> u64 {
        let fine = |operation: &&Operation| match operation.reply() {
            Some(Reply::Refused(_)) | None => false,
            Some(_) => true,
        };
        self.operations.iter().filter(fine).count() as u64
    }

    /// Answers that said that events were omitted.
    pub fn overflows(&self) -> u64 {
        let told = |operation: &&Operation| {
            matches!(operation.finished, Some((_, Ending::Events { omitted: 1.., .. })))
        };
        self.operations.iter().filter(told).count() as u64
    }

    /// The commands with their clients, in the order they were called.
    pub fn commands(&self) -> impl Iterator<Item = (&Operation, &Command)> {
        self.operations.iter().filter_map(|operation| match &operation.call {
            Call::Command(command) => Some((operation, command)),
            Call::Read { .. }
            | Call::Events
            | Call::Change(_)
            | Call::Recover(_)
            | Call::Kill(_)
            | Call::Transfer
            | Call::Snapshot
            | Call::Close => None,
        })
    }

    /// The queries, and whether each was asked in a `Sync` session.
    pub fn queries(&self) -> impl Iterator<Item = (&Operation, &Query, bool)> {
        self.operations.iter().filter_map(|operation| match &operation.call {
            Call::Read { query, linear } => Some((operation, query, *linear)),
            Call::Command(_)
            | Call::Events
            | Call::Change(_)
            | Call::Recover(_)
            | Call::Kill(_)
            | Call::Transfer
            | Call::Snapshot
            | Call::Close => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_recovery_nobody_knows_what_came_of_earlier_calls() {
        let mut history = History::default();
        for (asked, answered) in [(1, 2), (5, 12), (11, 13)] {
            let number = history.invoke(ClientNumber(1), Call::Events, asked);
            history.finish(number, Ending::Done, answered);
        }
        let unclear: Vec<bool> = history.after(10, 1).operations.iter().map(Operation::unclear).collect();
        assert_eq!(unclear, [true, true, false]);
        assert!(history.after(10, 1).operations[1].settled().is_none());
    }

    #[test]
    fn events_that_the_survivor_tells_an_ended_session_are_not_judged() {
        let mut history = History::default();
        for generation in [1, 2] {
            let number = history.invoke(ClientNumber(generation), Call::Events, 11);
            let first = u64::from(generation) << GENERATION_SHIFT | 7;
            history.finish(number, Ending::Events { omitted: 0, first, events: Vec::new() }, 12);
        }
        let unclear: Vec<bool> = history.after(10, 2).operations.iter().map(Operation::unclear).collect();
        assert_eq!(unclear, [true, false]);
    }
}
