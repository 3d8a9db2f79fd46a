//! [`Admission`]: how many calls of a session are under way at once; the others wait in line, in order.

use crate::caller::Call;
use kumo_session::ClientInput;
use std::collections::VecDeque;

/// The line before the session's core. The core refuses what is too much; callers who come in numbers should not
/// have to know. What may be parked for long takes no place: else waits could keep out what ends them.
#[derive(Default)]
pub(crate) struct Admission {
    line: VecDeque<Call>,
    calls: usize,
    bytes: usize,
}

impl Admission {
    pub(crate) fn stand_in_line(&mut self, call: Call) {
        self.line.push_back(call);
    }

    /// The next call that may go on. Its order among all calls is kept.
    pub(crate) fn next(&mut self) -> Option<Call> {
        let bytes = weight(&self.line.front()?.input);
        let parks = self.line.front()?.parks();
        let full = self.calls >= CALLS_MAX || self.bytes + bytes > BYTES_MAX;
        if !parks && full && self.calls > 0 {
            return None;
        }
        if !parks {
            self.calls += 1;
            self.bytes += bytes;
        }
        self.line.pop_front()
    }

    /// A call that was let go on and does not park is answered.
    pub(crate) fn leave(&mut self, bytes: usize) {
        self.calls -= 1;
        self.bytes -= bytes;
    }

    /// Takes a call out of the line again.
    pub(crate) fn withdraw(&mut self, ticket: u64) -> Option<Call> {
        let place = self.line.iter().position(|call| call.waiter.ticket == ticket)?;
        self.line.remove(place)
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

/// Their bytes: one of the largest, alone.
const BYTES_MAX: usize = kumo_paxos::OUT_OF_BAND_MAX;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caller::Waiter;
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
        admission.leave(10);
        assert_eq!(admitted(&mut admission), [128, 1000]);
    }

    #[test]
    fn the_largest_call_goes_alone() {
        let mut admission = Admission::default();
        admission.stand_in_line(call(1, BYTES_MAX, false));
        admission.stand_in_line(call(2, 1, false));
        assert_eq!(admitted(&mut admission), [1]);
        admission.leave(BYTES_MAX);
        assert_eq!(admitted(&mut admission), [2]);
    }
}
