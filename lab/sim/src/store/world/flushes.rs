//! Flushes: somebody deletes all keys that begin alike, through any gateway.

use super::processes::Program;
use super::{Event, Kind, World};
use crate::store::fault::Fault;
use crate::store::history::Ending;
use bytes::Bytes;

impl World {
    /// All keys, or some.
    pub fn flush_keys(&mut self) {
        let nth = self.draw(Fault::Flush, 0, 99) as usize;
        let digit = self.draw(Fault::Flush, 1, 9);
        let prefix = match self.draw(Fault::Flush, 0, 2) == 0 {
            true => Bytes::new(),
            false => Bytes::from(format!("key-{digit}")),
        };
        let gateways = self.places(Kind::Gateway);
        let Some(process) = self.slots[gateways.start + nth % gateways.len()].listener else { return };
        let number = self.history.flush(prefix.clone(), self.now);
        self.trace.note(self.now, &[25, number as u64], &prefix, || {
            format!("flush #{number} of {prefix:?} at p{}", process.0)
        });
        let node = self.processes.get_mut(&process).map(|process| &mut process.program);
        if let Some(Program::Gateway(node)) = node {
            node.tickets.insert(number);
        }
        self.dispatch(Event::Call { process, number });
    }

    /// It counts as one when it was done.
    pub fn flush_ended(&mut self, number: usize, ending: Ending) {
        if matches!(ending, Ending::Answer(_)) {
            *self.struck.entry(Fault::Flush).or_default() += 1;
        }
        self.history.finish(number, ending, self.now);
    }
}
