//! [`Room`]: memory for what clients have sent and were not answered yet, and who waits for some of it.

use super::clients::KEYS_MAX;
use kumo_paxos::Time;
use kumo_session::ConnectionId;
use kumo_wire::memcache::{KEYS_LINE_BYTES_MAX, LINE_BYTES_MAX};
use std::collections::VecDeque;

/// How much of it clients hold, and how much that may be.
///
/// Each has [`FREE_BYTES`] of its own, which need no room: small requests are served whatever others hold. Who has room for
/// a request has room for all of it, however large, so nobody stops half-way because of others that do; those that come
/// when nothing is left wait in line with the little that they have sent. So the memory is bounded by that, one request,
/// and what is free.
pub struct Room {
    bytes_max: usize,
    /// Of all clients, beyond what is free. What those in line have sent of what they wait for is not in it: it is given
    /// back by nobody but them.
    bytes: usize,
    line: VecDeque<ConnectionId>,
    look_after: Time,
}

/// What one client has of it.
#[derive(Default)]
pub struct Share {
    /// For its requests that were taken and are not answered.
    pub taken: usize,
    /// The size of the request that was decoded last.
    pub decoded: usize,
    /// The size of the request that has come in part, if there is room for it.
    pub promised: usize,
    /// How many bytes of it there are to come at most.
    expected: usize,
    /// What the one that was decoded last was promised.
    granted: usize,
    /// It stands in line, and what for.
    pub waits: bool,
    needs: usize,
    /// There is room for its next request.
    turn: bool,
    counted: usize,
    /// How often it was looked at since it was promised that.
    looks: usize,
}

impl Room {
    pub fn new(bytes_max: usize) -> Room {
        Room { bytes_max, bytes: 0, line: VecDeque::new(), look_after: Time(0) }
    }

    /// What clients hold of it.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Nothing is left of it.
    pub fn is_short(&self) -> bool {
        self.bytes >= self.bytes_max
    }

    /// Somebody in line may go on.
    pub fn has_turns(&self) -> bool {
        !self.line.is_empty() && !self.is_short()
    }

    /// A client holds so much now.
    pub fn count(&mut self, share: &mut Share, held: usize) {
        let counted = held.saturating_sub(FREE_BYTES);
        self.bytes = self.bytes - share.counted + counted;
        share.counted = counted;
    }

    /// Whether the rest of a request may come, of which so many bytes are here and at least so many are not.
    pub fn promise(&self, share: &mut Share, here: usize, missing: usize) -> bool {
        // A line says nowhere how long it is, nor how many keys are in it.
        let is_line = missing == 1 && here > LINE_BYTES_MAX;
        let least = here + missing + CALL_BYTES;
        let size = if is_line { here.max(LINE_BYTES) } else { least };
        // Who has sent all that it began owes nothing, and is judged by what comes next. Of what there is room for, the last
        // byte is no line.
        if here == 0 || least <= share.promised {
            return true;
        }
        if share.has_free(size) {
            share.turn = false;
            return true;
        }
        if !self.is_open(share) {
            share.needs = size;
            return false;
        }
        if share.promised == 0 {
            share.looks = 0;
        }
        share.promised = size;
        share.expected = if is_line { KEYS_LINE_BYTES_MAX } else { size };
        true
    }

    /// Whether a request may be taken that has come and becomes so many calls.
    pub fn admits(&self, share: &mut Share, calls: impl FnOnce() -> usize) -> bool {
        if self.is_open(share) {
            return true;
        }
        share.needs = share.decoded + calls() * CALL_BYTES;
        share.has_free(share.needs.saturating_sub(share.granted))
    }

    /// Newcomers have their turn after those in line.
    fn is_open(&self, share: &Share) -> bool {
        share.turn || (self.line.is_empty() && !self.is_short())
    }

    /// It gets in line.
    pub fn wait(&mut self, id: ConnectionId, share: &mut Share) {
        if !std::mem::replace(&mut share.waits, true) {
            self.line.push_back(id);
        }
    }

    /// The first in line, if there is room for it.
    pub fn next(&mut self) -> Option<ConnectionId> {
        if self.is_short() { None } else { self.line.pop_front() }
    }

    /// It is out of the line if what is free is enough for it now.
    pub fn frees(&mut self, id: ConnectionId, share: &mut Share) -> bool {
        if share.waits && share.has_free(share.needs) {
            self.line.retain(|waiting| *waiting != id);
            share.waits = false;
        }
        !share.waits
    }

    /// The client is gone.
    pub fn leave(&mut self, id: ConnectionId, share: &Share) {
        self.bytes -= share.counted;
        if share.waits {
            self.line.retain(|waiting| *waiting != id);
        }
    }

    /// When those that hold room are to be looked at, if somebody waits for it.
    pub fn next_look(&self) -> Option<Time> {
        (!self.line.is_empty()).then_some(self.look_after)
    }

    /// Whether they are now.
    pub fn looks(&mut self, now: Time) -> bool {
        let looks = self.is_short() && self.next_look().is_some_and(|at| at <= now);
        if looks {
            self.look_after = now.plus_micros(LOOK_MICROS);
        }
        looks
    }
}

impl Share {
    /// A request of so many bytes is whole. What half of it was promised is for it.
    pub fn decoded(&mut self, bytes: usize) {
        self.granted = std::mem::take(&mut self.promised);
        self.decoded = bytes;
    }

    /// It is taken, with so many calls and bytes of an answer. Returns what it is taken for.
    pub fn take(&mut self, calls: usize, answer: usize) -> usize {
        let bytes = self.decoded + calls.max(1) * CALL_BYTES + answer;
        self.taken += bytes;
        (self.turn, self.granted) = (false, 0);
        bytes
    }

    /// It waits no more: it has its turn.
    pub fn go_on(&mut self) {
        self.waits = false;
        self.turn = true;
    }

    /// It holds some that is not free, in line or not.
    pub fn counted(&self) -> usize {
        self.counted
    }

    /// A look at one of whose request so much is here: it takes too long to send the rest.
    pub fn is_late(&mut self, here: usize) -> bool {
        if self.promised == 0 || self.waits {
            return false;
        }
        self.looks += 1;
        self.looks > LATE_SECONDS + SEND_SECONDS * here.min(self.expected) / self.expected.max(1)
    }

    fn has_free(&self, bytes: usize) -> bool {
        bytes == 0 || self.taken + bytes <= FREE_BYTES
    }
}

/// What a client may have sent without room: as much as a hundred keys of one line need.
pub const FREE_BYTES: usize = 64 * 1024;

/// What a key costs, beside its bytes, from the time it is read until it is answered.
const CALL_BYTES: usize = 512;

/// What a line of keys may become.
const LINE_BYTES: usize = KEYS_LINE_BYTES_MAX + KEYS_MAX * CALL_BYTES;

/// Between two looks at those that hold room.
const LOOK_MICROS: u64 = 1_000_000;

/// How long a client may take to send a request while others wait for room: it may begin late, and with all others that
/// have room it shares a line of 4 MiB/s.
const LATE_SECONDS: usize = 10;
const SEND_SECONDS: usize = 30;

#[cfg(test)]
mod tests {
    use super::*;

    /// A room of which nothing is left, and somebody in line.
    fn short() -> Room {
        let mut room = Room::new(1);
        room.count(&mut Share::default(), FREE_BYTES + 1);
        room.wait(ConnectionId(9), &mut Share::default());
        room
    }

    #[test]
    fn the_last_byte_of_what_was_promised_is_no_line() {
        let (open, short, mut share) = (Room::new(1), short(), Share::default());
        assert!(open.promise(&mut share, 20_000, 980_000));
        assert!(short.promise(&mut share, 999_999, 1));
        assert!(share.promised < 2_000_000, "{}", share.promised);
    }

    #[test]
    fn who_needs_no_room_any_more_has_no_turn_for_later() {
        let (mut room, mut share) = (short(), Share { taken: FREE_BYTES, ..Share::default() });
        assert!(!room.promise(&mut share, 1000, 100));
        room.wait(ConnectionId(1), &mut share);
        share.taken = 0;
        assert!(room.frees(ConnectionId(1), &mut share));
        assert!(room.promise(&mut share, 1000, 100), "it is free");
        assert!(!room.promise(&mut share, 1100, 1_000_000), "this is not");
    }

    #[test]
    fn a_line_of_keys_has_as_long_as_anything_else() {
        let (open, mut share) = (Room::new(1), Share::default());
        assert!(open.promise(&mut share, LINE_BYTES_MAX + 1, 1));
        let late = (1..).find(|_| share.is_late(KEYS_LINE_BYTES_MAX - 1)).unwrap_or(0);
        assert!(late > LATE_SECONDS + SEND_SECONDS / 2, "{late}");
    }
}
