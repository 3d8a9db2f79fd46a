//! [`Counters`]: the replicated service, and what can be asked of it. It knows neither network nor replicas.

use bytes::Bytes;
use kumo_session::{Application, Entry, Outcome, SessionId};
use kumo_wire::{Malformed, Wire, wire_enum, wire_struct};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// A change, executed once on every replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Answered with the new count.
    Add { name: String, amount: u64 },
    /// Answered when the count is at least that, which may be at once or much later.
    Wait { name: String, at_least: u64 },
}

wire_enum!(Command {
    1 = Add { name, amount },
    2 = Wait { name, at_least },
});

/// A question, answered by one replica. A counter that was never added to is 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    pub name: String,
}

wire_struct!(Query { name });

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Count(u64),
    Refused(Refusal),
}

wire_enum!(Reply {
    1 = Count(count),
    2 = Refused(refusal),
});

/// Why nothing was changed. Part of the agreed reply, so equal on all replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    Malformed,
    Name,
    Full,
    Overflow,
}

wire_enum!(Refusal {
    1 = Malformed,
    2 = Name,
    3 = Full,
    4 = Overflow,
});

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Refusal::Malformed => write!(out, "not a command of the counter"),
            Refusal::Name => write!(out, "a name has 1 to {NAME_BYTES_MAX} bytes"),
            Refusal::Full => write!(out, "no more than {COUNTERS_MAX} counters, and as many who wait"),
            Refusal::Overflow => write!(out, "the count would exceed {}", u64::MAX),
        }
    }
}

/// All counters, and who waits for one. Both maps are shared with snapshots under way: a clone costs nothing, and
/// the first change after it copies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    counts: Arc<BTreeMap<String, u64>>,
    /// By session and request number, as answers are addressed.
    waiting: Arc<BTreeMap<(SessionId, u64), Goal>>,
}

/// What somebody waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Goal {
    name: String,
    at_least: u64,
}

wire_struct!(Goal { name, at_least });

impl Counters {
    fn count(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or(0)
    }

    /// `None`: parked. Everything is checked before anything is changed.
    fn execute(
        &mut self,
        entry: Entry,
        command: Bytes,
        outcome: &mut Outcome,
    ) -> Result<Option<u64>, Refusal> {
        match Command::from_bytes(command).map_err(|_| Refusal::Malformed)? {
            Command::Add { name, amount } => self.add(name, amount, outcome).map(Some),
            Command::Wait { name, at_least } => self.wait(entry, Goal { name, at_least }),
        }
    }

    fn add(&mut self, name: String, amount: u64, outcome: &mut Outcome) -> Result<u64, Refusal> {
        check(&name)?;
        if self.counts.len() >= COUNTERS_MAX && !self.counts.contains_key(&name) {
            return Err(Refusal::Full);
        }
        let count = self.count(&name).checked_add(amount).ok_or(Refusal::Overflow)?;
        let reached = |goal: &Goal| goal.name == name && goal.at_least <= count;
        if self.waiting.values().any(reached) {
            for ((session, number), _) in
                Arc::make_mut(&mut self.waiting).extract_if(.., |_, goal| reached(goal))
            {
                outcome.answers.push((session, number, Reply::Count(count).to_bytes()));
            }
        }
        Arc::make_mut(&mut self.counts).insert(name, count);
        Ok(count)
    }

    fn wait(&mut self, entry: Entry, goal: Goal) -> Result<Option<u64>, Refusal> {
        check(&goal.name)?;
        let count = self.count(&goal.name);
        if count >= goal.at_least {
            return Ok(Some(count));
        }
        if self.waiting.len() >= COUNTERS_MAX {
            return Err(Refusal::Full);
        }
        Arc::make_mut(&mut self.waiting).insert((entry.session, entry.number), goal);
        Ok(None)
    }
}

impl Application for Counters {
    type Parts = std::array::IntoIter<Bytes, 2>;

    fn apply(&mut self, entry: Entry, command: Bytes, outcome: &mut Outcome) {
        outcome.reply = match self.execute(entry, command, outcome) {
            Ok(count) => count.map(|count| Reply::Count(count).to_bytes()),
            Err(refusal) => Some(Reply::Refused(refusal).to_bytes()),
        };
    }

    fn cancel(&mut self, entry: Entry, target: u64, _outcome: &mut Outcome) -> bool {
        Arc::make_mut(&mut self.waiting).remove(&(entry.session, target)).is_some()
    }

    fn session_ended(&mut self, entry: Entry, _outcome: &mut Outcome) {
        Arc::make_mut(&mut self.waiting).retain(|(session, _), _| *session != entry.session);
    }

    fn read(&self, _session: SessionId, query: Bytes) -> Bytes {
        let reply = match Query::from_bytes(query) {
            Ok(query) => Reply::Count(self.count(&query.name)),
            Err(_) => Reply::Refused(Refusal::Malformed),
        };
        reply.to_bytes()
    }

    /// Two parts are enough for so little. Maps are ordered, so equal states give equal bytes.
    fn snapshot(&self) -> Self::Parts {
        let counts: Vec<(String, u64)> =
            self.counts.iter().map(|(name, count)| (name.clone(), *count)).collect();
        let waiting: Vec<((SessionId, u64), Goal)> =
            self.waiting.iter().map(|(who, goal)| (*who, goal.clone())).collect();
        [counts.to_bytes(), waiting.to_bytes()].into_iter()
    }

    /// A snapshot comes from a disk or a network: what breaks a rule of the state is refused.
    fn restore(parts: Vec<Bytes>) -> Result<Counters, Malformed> {
        let [counts, waiting] = <[Bytes; 2]>::try_from(parts).map_err(|_| Malformed::Short)?;
        let counts = Vec::<(String, u64)>::from_bytes(counts)?;
        let waiting = Vec::<((SessionId, u64), Goal)>::from_bytes(waiting)?;
        let longest = counts.len().max(waiting.len());
        if longest > COUNTERS_MAX {
            return Err(Malformed::Length(longest as u64));
        }
        let mut names = counts.iter().map(|(name, _)| name).chain(waiting.iter().map(|(_, goal)| &goal.name));
        if let Some(name) = names.find(|name| check(name).is_err()) {
            return Err(Malformed::Length(name.len() as u64));
        }
        Ok(Counters {
            counts: Arc::new(counts.into_iter().collect()),
            waiting: Arc::new(waiting.into_iter().collect()),
        })
    }
}

fn check(name: &str) -> Result<(), Refusal> {
    if (1..=NAME_BYTES_MAX).contains(&name.len()) { Ok(()) } else { Err(Refusal::Name) }
}

/// Bytes of a counter's name: enough for a path-like one.
const NAME_BYTES_MAX: usize = 250;

/// Counters, and goals waited for: what one snapshot part of about a mebibyte holds, and what may be copied when
/// a snapshot is under way.
const COUNTERS_MAX: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;
    use kumo_session::UnixMillis;

    fn apply(counters: &mut Counters, session: u64, number: u64, command: &Command) -> Outcome {
        let entry = Entry {
            instance: Default::default(),
            generation: 1,
            time: UnixMillis(0),
            session: SessionId(session),
            number,
        };
        let mut outcome = Outcome::default();
        counters.apply(entry, command.to_bytes(), &mut outcome);
        outcome
    }

    fn add(name: &str, amount: u64) -> Command {
        Command::Add { name: name.into(), amount }
    }

    fn wait(name: &str, at_least: u64) -> Command {
        Command::Wait { name: name.into(), at_least }
    }

    #[test]
    fn who_waits_is_answered_when_the_count_is_reached() {
        let mut counters = Counters::default();
        assert_eq!(apply(&mut counters, 1, 1, &wait("a", 3)), Outcome::default());
        assert!(apply(&mut counters, 2, 1, &add("a", 2)).answers.is_empty());
        assert!(apply(&mut counters, 2, 2, &add("b", 9)).answers.is_empty());
        let outcome = apply(&mut counters, 2, 3, &add("a", 1));
        assert_eq!(outcome.answers, [(SessionId(1), 1, Reply::Count(3).to_bytes())]);
        assert_eq!(outcome.reply, Some(Reply::Count(3).to_bytes()));
        assert!(counters.waiting.is_empty());
    }

    #[test]
    fn a_refusal_changes_nothing() {
        let mut counters = Counters::default();
        apply(&mut counters, 1, 1, &add("a", u64::MAX));
        apply(&mut counters, 1, 2, &wait("b", 1));
        let before = counters.clone();
        for (command, refusal) in [
            (add("a", 1), Refusal::Overflow),
            (add("", 1), Refusal::Name),
            (wait(&"x".repeat(251), 1), Refusal::Name),
        ] {
            let outcome = apply(&mut counters, 1, 3, &command);
            assert_eq!(outcome.reply, Some(Reply::Refused(refusal).to_bytes()));
            assert_eq!(counters, before);
        }
    }

    #[test]
    fn a_snapshot_restored_is_the_same() {
        let mut counters = Counters::default();
        apply(&mut counters, 1, 1, &add("a", 7));
        apply(&mut counters, 1, 2, &wait("a", 8));
        let parts: Vec<Bytes> = counters.snapshot().collect();
        assert_eq!(Counters::restore(parts.clone()), Ok(counters));
        assert!(Counters::restore(parts[..1].to_vec()).is_err());
        assert!(Counters::restore(vec![parts[0].slice(1..), parts[1].clone()]).is_err());
    }
}
