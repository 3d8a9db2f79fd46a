//! [`Asked`]: whom something was sent to, and when it is to be sent again.

use kumo_paxos::Time;
use std::net::SocketAddr;

/// The state of one question to the cell.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Asked {
    /// Whom, and when it is sent again.
    now: Option<(SocketAddr, Time)>,
    sent_at: Option<Time>,
    /// When it was first sent to anybody.
    first: Option<Time>,
    tries: u32,
}

impl Asked {
    /// Whether it is to be sent to `to`: it never was, or the answer is overdue.
    pub fn is_due(&self, now: Time, to: SocketAddr) -> bool {
        match self.now {
            None => true,
            Some((asked, again)) => asked != to || now >= again,
        }
    }

    /// It is sent. The more often, the longer until the next time.
    pub fn sent(&mut self, now: Time, to: SocketAddr, resend_micros: u64) {
        let wait = resend_micros.saturating_mul(1 << self.tries.min(DOUBLINGS_MAX));
        self.now = Some((to, now.plus_micros(wait.max(1))));
        self.sent_at = Some(now);
        self.first.get_or_insert(now);
        self.tries += 1;
    }

    /// It is sent, and again at the same pace however often.
    pub fn sent_steadily(&mut self, now: Time, to: SocketAddr, resend_micros: u64) {
        self.tries = 0;
        self.sent(now, to, resend_micros);
    }

    /// Nothing will come from there any more.
    pub fn forget(&mut self, address: SocketAddr) {
        if self.now.is_some_and(|(asked, _)| asked == address) {
            self.now = None;
            self.tries = 0;
        }
    }

    /// The member asked cannot answer: another is asked next.
    pub fn turned_away(&mut self) {
        self.now = None;
    }

    pub fn to(&self) -> Option<SocketAddr> {
        self.now.map(|(asked, _)| asked)
    }

    pub fn again_at(&self) -> Option<Time> {
        self.now.map(|(_, again)| again)
    }

    /// When it was sent last, if it is still waiting there.
    pub fn sent_at(&self) -> Option<Time> {
        self.now.and(self.sent_at)
    }

    pub fn first(&self) -> Option<Time> {
        self.first
    }

    pub fn tries(&self) -> u32 {
        self.tries
    }
}

/// The time until something is sent again doubles so often: a lock may be waited for all day.
const DOUBLINGS_MAX: u32 = 4;
