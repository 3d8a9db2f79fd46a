//! [`Play`]: a tale told by hand. Every step is one that the model allows, so it shows nothing that a search could
//! not find.

use super::chapter::server;
use super::state::{From, Letter, State};
use super::tale::{Action, Tale};
use crate::models::shared::Shared;
use kumo_cluster::{Answer, Message};
use stateright::Model;

/// A tale and where it is.
pub struct Play {
    pub tale: Tale,
    pub state: State,
}

impl Play {
    pub fn new(tale: Tale) -> Play {
        let tale = Tale { ticks: u8::MAX, restarts: u8::MAX, tries: u8::MAX, ..tale };
        let state = tale.init_states().remove(0);
        Play { tale, state }
    }

    /// Takes a step.
    pub fn act(&mut self, action: Action) {
        assert!(self.allows(&action), "not a step of the model: {action:?}");
        if let Some(next) = self.tale.next_state(&self.state, action) {
            self.state = next;
        }
    }

    pub fn allows(&self, action: &Action) -> bool {
        let mut allowed = Vec::new();
        self.tale.actions(&self.state, &mut allowed);
        allowed.contains(action)
    }

    /// The next space is published, and these adopt it.
    pub fn publish(&mut self, to: &[usize]) {
        self.act(Action::Publish);
        self.adopt(to);
    }

    /// These adopt the newest space.
    pub fn adopt(&mut self, to: &[usize]) {
        for &server in to {
            self.act(Action::Adopt { server, space: self.state.published as u64 });
        }
    }

    /// The call is sent to that server; returns what it was answered, if it was.
    pub fn send(&mut self, ask: usize, to: usize) -> Option<Answer> {
        let mut allowed = Vec::new();
        self.tale.actions(&self.state, &mut allowed);
        let wanted = |action: &Action| matches!(action, Action::Send { ask: one, to: whom, .. } if (*one, *whom) == (ask, to));
        let send = allowed.into_iter().find(wanted);
        self.act(send.unwrap_or_else(|| panic!("call {ask} cannot be sent to {to}")));
        self.answer(ask)
    }

    pub fn answer(&self, ask: usize) -> Option<Answer> {
        self.state.asks[ask].call.answer().cloned()
    }

    /// What is on its way from the one to the other and is wanted arrives. Panics if there is nothing.
    pub fn deliver(&mut self, from: usize, to: usize, wanted: impl Fn(&Message) -> bool) {
        let letters = self.letters(&[from], &[to], wanted);
        assert!(!letters.is_empty(), "no such letter from {from} to {to}: {:#?}", self.state.letters);
        for letter in letters {
            self.act(Action::Deliver(letter));
        }
    }

    /// Everything among these arrives, and what follows from it; but only what is wanted.
    pub fn settle(&mut self, among: &[usize], wanted: impl Fn(&Message) -> bool) {
        loop {
            let letters = self.letters(among, among, &wanted);
            let deliverable = letters.into_iter().find(|letter| {
                let action = Action::Deliver(letter.clone());
                self.allows(&action) && self.tale.next_state(&self.state, action).is_some()
            });
            match deliverable {
                Some(letter) => self.act(Action::Deliver(letter)),
                None => return,
            }
        }
    }

    fn letters(
        &self,
        from: &[usize],
        to: &[usize],
        wanted: impl Fn(&Message) -> bool,
    ) -> Vec<Shared<Letter>> {
        let place = |id| self.state.nodes.iter().position(|node| server(node.life) == id);
        let fits = |letter: &&Shared<Letter>| {
            let From::Server(sender) = letter.from else { return false };
            let sent = place(sender).is_some_and(|place| from.contains(&place));
            sent && place(letter.to).is_some_and(|place| to.contains(&place)) && wanted(&letter.message)
        };
        self.state.letters.iter().filter(fits).cloned().collect()
    }
}
