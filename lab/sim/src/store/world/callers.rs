//! Callers: programs that use the store through a gateway, one call at a time.

use super::gateways::GatewayNode;
use super::processes::{ProcessId, Program};
use super::{Event, Kind, World};
use crate::store::history::Ending;
use crate::store::workload::Caller;
use kumo_cluster::{Answer, GatewayError, GatewayInput, Operation};
use lot::Random;

/// A caller, and the call it waits for.
pub struct Seat {
    caller: Caller,
    pub open: Option<usize>,
}

impl World {
    pub fn add_caller(&mut self, index: usize) {
        let random = Random::new(self.plan.seed, &format!("caller {index}"));
        self.seats.push(Seat { caller: Caller::new(random, self.plan.pause_micros), open: None });
    }

    /// Makes the next call, if it is time for one.
    pub fn act(&mut self, seat: usize) {
        if !self.working || self.seats[seat].open.is_some() {
            return;
        }
        let gateways = self.places(Kind::Gateway);
        let nth = self.seats[seat].caller.gateway(gateways.len());
        let Some(process) = self.slots[gateways.start + nth].listener else {
            // Refused; it tries again.
            return self.schedule.put(self.now + 50_000, Event::Act { seat });
        };
        let number = self.history.calls.len();
        let soon = self.cell_seconds() + 1 + (number % 12) as i64;
        let (key, operation) =
            self.seats[seat].caller.next_call(&self.plan.keys, number as u64, soon, EXPIRY_FAR);
        self.invoke(Some(seat), process, key, operation);
        if let Some(patience) = self.seats[seat].caller.patience() {
            self.schedule.put(self.now + patience, Event::GiveUp { number });
        }
    }

    /// The seconds that the managers' clocks show at most.
    fn cell_seconds(&self) -> i64 {
        let walls = self.slots[self.places(Kind::Manager)].iter().map(|slot| slot.clock.wall(self.now).0);
        (walls.max().unwrap_or(0) / 1000) as i64
    }

    /// Calls a gateway; nobody's call is one of the world's own.
    pub fn invoke(&mut self, seat: Option<usize>, process: ProcessId, key: usize, operation: Operation) {
        let caller = seat.unwrap_or(usize::MAX);
        let number = self.history.invoke(caller, key, operation, self.now);
        let call = &self.history.calls[number];
        self.trace.note(self.now, &[22, caller as u64, number as u64, key as u64], &[], || {
            format!("call #{number} at p{} key-{key} {:?}", process.0, call.operation)
        });
        if let Some(seat) = seat {
            self.seats[seat].open = Some(number);
        }
        self.note_space(number);
        let node = self.processes.get_mut(&process);
        if let Some(Program::Gateway(node)) = node.map(|process| &mut process.program) {
            node.tickets.insert(number);
        }
        self.dispatch(Event::Call { process, number });
    }

    pub fn call(&mut self, process: ProcessId, number: usize) {
        if let Some(flush) = self.history.flush_of(number) {
            let input = GatewayInput::Flush { ticket: number as u64, prefix: flush.prefix.clone() };
            return self.gateway_step(process, input);
        }
        let call = &self.history.calls[number];
        let key = &self.plan.keys[call.key];
        let input = GatewayInput::Call {
            ticket: number as u64,
            hash: key.hash,
            key: key.name.clone(),
            operation: call.operation.clone(),
        };
        self.gateway_step(process, input);
    }

    pub fn done(&mut self, process: ProcessId, number: usize, result: Result<Answer, GatewayError>) {
        self.trace.note(self.now, &[24, number as u64], &[], || format!("call #{number} ends {result:?}"));
        let node = self.processes.get_mut(&process).map(|process| &mut process.program);
        let known = match node {
            Some(Program::Gateway(node)) => node.tickets.remove(&number),
            Some(Program::Manager(_) | Program::Server(_)) | None => false,
        };
        if !known {
            return self.fail(format!("#{number} is answered, and nobody waits for it: {result:?}"));
        }
        let ending = Ending::of(result);
        self.count_copies(number, &ending);
        self.ended(number, ending);
    }

    fn ended(&mut self, number: usize, ending: Ending) {
        if self.history.flush_of(number).is_some() {
            return self.flush_ended(number, ending);
        }
        let call = &self.history.calls[number];
        let (seat, key) = (call.caller, call.key);
        self.history.finish(number, ending.clone(), self.now);
        let Some(seat_of) = self.seats.get_mut(seat).filter(|seat| seat.open == Some(number)) else { return };
        seat_of.open = None;
        seat_of.caller.ended(key, self.plan.keys[key].class, &ending);
        let mut pause = seat_of.caller.pause();
        // Who was told that nothing works does not ask again at once.
        if !matches!(ending, Ending::Answer(_)) {
            pause = pause.max(DISMAY_MICROS);
        }
        self.schedule.put(self.now + pause, Event::Act { seat });
    }

    /// The caller has waited long enough and hangs up.
    pub fn give_up(&mut self, number: usize) {
        let open = self.history.calls[number].ending.is_none();
        if !open || self.gateway_of(number).is_none() {
            return;
        }
        self.trace.note(self.now, &[23, number as u64], &[], || format!("call #{number} is given up"));
        self.ended(number, Ending::Unknown(None));
    }

    fn gateway_of(&self, number: usize) -> Option<ProcessId> {
        let holds = |program: &Program| match program {
            Program::Gateway(node) => node.tickets.contains(&number),
            Program::Manager(_) | Program::Server(_) => false,
        };
        self.processes.iter().find(|(_, process)| holds(&process.program)).map(|(id, _)| *id)
    }

    /// The gateway is gone, and with it what it would have said.
    pub fn calls_lost(&mut self, node: &GatewayNode) {
        for number in &node.tickets {
            self.ended(*number, Ending::Unknown(None));
        }
    }

    /// Calls that some gateway has not answered.
    pub fn open_calls(&self) -> Vec<usize> {
        let of = |program: &Program| match program {
            Program::Gateway(node) => node.tickets.iter().copied().collect(),
            Program::Manager(_) | Program::Server(_) => Vec::new(),
        };
        self.processes.values().flat_map(|process| of(&process.program)).collect()
    }
}

/// How long a caller rests after an error.
const DISMAY_MICROS: u64 = 100_000;
/// Ten years after the clocks' start: no run lasts so long.
pub const EXPIRY_FAR: i64 = 1_900_000_000;
