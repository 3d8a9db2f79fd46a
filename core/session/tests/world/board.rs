//! A small application for the tests: a sum, requests that wait, events, and a command that panics.

use bytes::Bytes;
use kumo_session::{Application, Entry, Outcome, SessionId};
use kumo_wire::{Malformed, Wire};

/// Commands are words: `add N`, `wait`, `wake`, `tell TEXT` (an event to everybody who ever added), `big N`
/// (a reply of N bytes), `panic`. A query answers with the sum.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Board {
    pub sum: u64,
    pub parked: Vec<(SessionId, u64)>,
    pub members: Vec<SessionId>,
    /// Every command executed, as `session number`.
    pub history: Vec<(SessionId, u64)>,
    /// Panics on `panic`; not part of the state.
    pub fragile: bool,
}

impl Application for Board {
    type Parts = std::vec::IntoIter<Bytes>;

    fn apply(&mut self, entry: Entry, command: Bytes, outcome: &mut Outcome) {
        self.history.push((entry.session, entry.number));
        let text = String::from_utf8_lossy(&command).into_owned();
        let (word, rest) = text.split_once(' ').unwrap_or((&text, ""));
        match word {
            "add" => {
                self.sum += rest.trim_end_matches('.').parse::<u64>().unwrap_or(0);
                if !self.members.contains(&entry.session) {
                    self.members.push(entry.session);
                }
                outcome.reply = Some(Bytes::from(self.sum.to_string()));
            }
            "wait" => self.parked.push((entry.session, entry.number)),
            "wake" => {
                for (session, number) in std::mem::take(&mut self.parked) {
                    outcome.answers.push((session, number, Bytes::from_static(b"woken")));
                }
                outcome.reply = Some(Bytes::from_static(b"ok"));
            }
            "tell" => {
                for member in &self.members {
                    outcome.events.push((*member, Bytes::from(rest.to_owned())));
                }
                outcome.reply = Some(Bytes::from_static(b"ok"));
            }
            "big" => outcome.reply = Some(Bytes::from(vec![b'x'; rest.parse().unwrap_or(0)])),
            "panic" => {
                assert!(!self.fragile, "asked to panic");
                outcome.reply = Some(Bytes::from_static(b"survived"));
            }
            _ => outcome.reply = Some(Bytes::from_static(b"?")),
        }
    }

    fn cancel(&mut self, entry: Entry, target: u64, _outcome: &mut Outcome) -> bool {
        let before = self.parked.len();
        self.parked.retain(|parked| *parked != (entry.session, target));
        self.parked.len() < before
    }

    fn session_ended(&mut self, entry: Entry, outcome: &mut Outcome) {
        self.parked.retain(|(session, _)| *session != entry.session);
        self.members.retain(|session| *session != entry.session);
        for member in &self.members {
            outcome.events.push((*member, Bytes::from_static(b"somebody left")));
        }
    }

    fn read(&self, _session: SessionId, _query: Bytes) -> Bytes {
        Bytes::from(self.sum.to_string())
    }

    fn snapshot(&self) -> Self::Parts {
        let parts = vec![
            self.sum.to_bytes(),
            self.parked.to_bytes(),
            self.members.to_bytes(),
            self.history.to_bytes(),
        ];
        parts.into_iter()
    }

    fn restore(parts: Vec<Bytes>) -> Result<Self, Malformed> {
        let [sum, parked, members, history]: [Bytes; 4] = parts.try_into().map_err(|_| Malformed::Short)?;
        Ok(Board {
            sum: Wire::from_bytes(sum)?,
            parked: Wire::from_bytes(parked)?,
            members: Wire::from_bytes(members)?,
            history: Wire::from_bytes(history)?,
            fragile: false,
        })
    }
}
