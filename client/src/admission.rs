//! [`Admission`]: how many calls of a session are under way at once; the others wait in line, in order.

use crate::caller::{Call, Waiter};
use kumo_session::ClientInput;
use std::collections::VecDeque;

/// The line before the session's core. The core refuses what is too much; callers who come in numbers should not
/// have to know. What may be parked for long has places of its own: else waits could keep out what ends them.
#[derive(Default)]
pub(crate) struct Admission {
    line: VecDeque<Call>,
    /// Those that may be parked, while as many as may be are under way.
    parking: VecDeque<Call>,
    calls: usize,
    bytes: usize,
    parked: usize,
}

impl Admission {
    pub(crate) fn stand_in_line(&mut self, call: Call) {
        self.line.push_back(call);
    }

    /// The next call that may go on. The order of calls is kept, but for those that wait for a place to park.
    pub(crate) fn next(&mut self) -> Option<Call> {
        loop {
            if self.parked < PARKED_MAX
                && let Some(call) = self.parking.pop_front()
            {
                self.parked += 1;
                return Some(call);
            }
            let front = self.line.front()?;
            if front.parks() {
                let call = self.line.pop_front()?;
                self.parking.push_back(call);
                if self.parked >= PARKED_MAX {
                    continue;
                }
                self.parked += 1;
                return self.parking.pop_front();
            }
            let bytes = weight(&front.input);
            let full = self.calls >= CALLS_MAX || self.bytes + bytes > BYTES_MAX;
            if full && self.calls > 0 {
                return None;
            }
            self.calls += 1;
            self.bytes += bytes;
            return self.line.pop_front();
        }
    }

    /// A call that was let go on is answered.
    pub(crate) fn leave(&mut self, waiter: &Waiter) {
        if waiter.parks {
            self.parked -= 1;
        } else {
            self.calls -= 1;
            self.bytes -= waiter.bytes;
        }
    }

    /// Takes a call out of the line again.
    pub(crate) fn withdraw(&mut self, ticket: u64) -> Option<Call> {
        for line in [&mut self.line, &mut self.parking] {
            if let Some(place) = line.iter().position(|call| call.waiter.ticket == ticket) {
                return line.remove(place);
            }
        }
        None
    }
}

/// Bytes of a call, as far as they matter.
pub(crate) fn weight(input: &ClientInput) -> usize {
    match input {
        ClientInput::Command { command, .. } => command.len(),
        ClientInput::Read { query, .. } => query.len(),
        ClientInput::Timeout
        | ClientInput::Connected(_)
        | ClientInput::Disconnected(_)
        | ClientInput::Message(..)
        | ClientInput::Events { .. }
        | ClientInput::Cancel { .. }
        | ClientInput::Kill { .. }
        | ClientInput::Close { .. }
        | ClientInput::Status { .. }
        | ClientInput::Sessions { .. }
        | ClientInput::Change { .. }
        | ClientInput::Transfer { .. }
        | ClientInput::Snapshot { .. } => 0,
    }
}

/// Calls under way: half of what the core takes, the rest is for what parks.
const CALLS_MAX: usize = 128;

/// Calls under way that may be parked. With the others fewer than the core takes: it must never refuse an unlock.
const PARKED_MAX: usize = 112;

/// Their bytes: one of the largest, alone.
const BYTES_MAX: usize = kumo_paxos::OUT_OF_BAND_MAX;

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn call(ticket: u64, bytes: usize, parks: bool) -> Call {
        let (reply, _) = tokio::sync::oneshot::channel();
        let command = Bytes::from(vec![0; bytes]);
        let waiter = Waiter { ticket, reply, lock: None, parks, bytes };
        Call { input: ClientInput::Command { ticket, command }, waiter }
    }

    fn admitted(admission: &mut Admission) -> Vec<u64> {
        std::iter::from_fn(|| admission.next()).map(|call| call.waiter.ticket).collect()
    }

    #[test]
    fn calls_beyond_the_limit_wait_in_order_and_waits_take_no_place() {
        let mut admission = Admission::default();
        for ticket in 0..CALLS_MAX as u64 + 2 {
            admission.stand_in_line(call(ticket, 10, false));
        }
        admission.stand_in_line(call(1000, 10, true));
        assert_eq!(admitted(&mut admission).len(), CALLS_MAX);
        assert!(admission.withdraw(129).is_some());
        assert!(admitted(&mut admission).is_empty());
        admission.leave(&call(0, 10, false).waiter);
        assert_eq!(admitted(&mut admission), [128, 1000]);
    }

    #[test]
    fn waits_beyond_their_limit_let_the_others_pass() {
        let mut admission = Admission::default();
        for ticket in 0..PARKED_MAX as u64 + 2 {
            admission.stand_in_line(call(ticket, 10, true));
        }
        admission.stand_in_line(call(1000, 10, false));
        let first = admitted(&mut admission);
        assert_eq!((first.len(), first.last()), (PARKED_MAX + 1, Some(&1000)));
        admission.leave(&call(0, 10, true).waiter);
        assert_eq!(admitted(&mut admission), [PARKED_MAX as u64]);
    }

    #[test]
    fn the_largest_call_goes_alone() {
        let mut admission = Admission::default();
        admission.stand_in_line(call(1, BYTES_MAX, false));
        admission.stand_in_line(call(2, 1, false));
        assert_eq!(admitted(&mut admission), [1]);
        admission.leave(&call(1, BYTES_MAX, false).waiter);
        assert_eq!(admitted(&mut admission), [2]);
    }
}
