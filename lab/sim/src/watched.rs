//! [`Watched`]: PFS that keeps note of what it executes, until somebody takes the notes.

use bytes::Bytes;
use kumo_pfs::Pfs;
use kumo_session::{Application, Entry, Outcome, SessionId};
use kumo_wire::Malformed;
use std::cell::RefCell;

/// PFS as one replica has it. The notes are no part of its state: a snapshot leaves them out.
#[derive(Clone, Default)]
pub struct Watched {
    pfs: Pfs,
    notes: RefCell<Vec<Note>>,
}

/// Something was executed.
#[derive(Clone, Debug)]
pub struct Note {
    pub entry: Entry,
    pub done: Done,
}

/// What was executed.
#[derive(Clone, Debug)]
pub enum Done {
    Command {
        command: Bytes,
        /// `None`: it was parked.
        reply: Option<Bytes>,
    },
    SessionEnded,
}

impl Watched {
    /// Hands out all notes since the last time.
    pub fn take_notes(&self, take: impl FnMut(Note)) {
        self.notes.borrow_mut().drain(..).for_each(take);
    }
}

impl Application for Watched {
    type Parts = kumo_pfs::Parts;

    fn apply(&mut self, entry: Entry, command: Bytes, outcome: &mut Outcome) {
        self.pfs.apply(entry, command.clone(), outcome);
        let done = Done::Command { command, reply: outcome.reply.clone() };
        self.notes.get_mut().push(Note { entry, done });
    }

    fn cancel(&mut self, entry: Entry, target: u64, outcome: &mut Outcome) -> bool {
        self.pfs.cancel(entry, target, outcome)
    }

    fn session_ended(&mut self, entry: Entry, outcome: &mut Outcome) {
        self.pfs.session_ended(entry, outcome);
        self.notes.get_mut().push(Note { entry, done: Done::SessionEnded });
    }

    fn session_has_room(&mut self, entry: Entry, outcome: &mut Outcome) {
        self.pfs.session_has_room(entry, outcome);
    }

    fn complaint(answer: &Bytes) -> Option<String> {
        Pfs::complaint(answer)
    }

    fn read(&self, session: SessionId, query: Bytes) -> Bytes {
        self.pfs.read(session, query)
    }

    fn snapshot(&self) -> kumo_pfs::Parts {
        self.pfs.snapshot()
    }

    fn restore(parts: Vec<Bytes>) -> Result<Watched, Malformed> {
        Ok(Watched { pfs: Pfs::restore(parts)?, notes: RefCell::default() })
    }
}
