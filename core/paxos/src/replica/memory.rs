//! What a replica keeps on disk, beside a snapshot and after it.

use super::{GRANT_UNITS, Replica};
use crate::message::Position;
use crate::step::{Effect, Record};
use crate::value::{DataName, Value};
use std::collections::BTreeSet;

impl Replica {
    /// What a snapshot taken now must carry. `None`: this replica belongs to no cell yet.
    pub fn position(&self) -> Option<Position> {
        let schedule = self.agreement.schedule()?.clone();
        Some(Position {
            cell: self.agreement.cell,
            generation: self.agreement.generation,
            executed: self.agreement.log().executed(),
            schedule,
            digest: self.digest,
        })
    }

    /// The records that a durable replica must still have beside a snapshot taken now.
    pub fn memory_records(&self) -> Vec<Record> {
        let memory = self.agreement.memory();
        let votes = memory.iter().filter(|record| record.is_vote()).count() as u64;
        let life = self.life(self.kept_so_far().saturating_sub(votes));
        let pending: BTreeSet<DataName> = memory.iter().filter_map(large_name).collect();
        let data = self.data.recorded(&pending).map(|(name, bytes)| Record::Data { name, bytes });
        [life].into_iter().chain(data).chain(memory.iter().cloned()).collect()
    }

    pub(super) fn life(&self, kept: u64) -> Record {
        let grant_micros = self.settings.unit_micros.saturating_mul(GRANT_UNITS);
        Record::Life { incarnation: self.settings.incarnation, grant_micros, kept }
    }

    /// What this step wrote is to be kept. The bytes of what it accepted come before it: an accept without them would
    /// count among a majority that holds them.
    pub(super) fn persist(&mut self, effects: &mut Vec<Effect>) {
        if !self.settings.durable {
            self.records.clear();
            return;
        }
        for record in self.records.drain(..) {
            if record.is_vote()
                && let Some(name) = large_name(&record)
                && let Some(bytes) = self.data.record(&name)
            {
                effects.push(Effect::Persist(Record::Data { name, bytes }));
            }
            effects.push(Effect::Persist(record));
        }
    }
}

/// The large value that a record accepts or decides.
fn large_name(record: &Record) -> Option<DataName> {
    match record {
        Record::Accepted { value: Value::Large { name, .. }, .. }
        | Record::Decided { value: Value::Large { name, .. }, .. } => Some(*name),
        Record::Accepted { .. } | Record::Decided { .. } => None,
        Record::Life { .. } | Record::Promised(_) | Record::Data { .. } => None,
    }
}
