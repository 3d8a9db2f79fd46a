//! What a replica keeps on disk, beside a snapshot and after it.

use super::{GRANT_UNITS, Replica};
use crate::message::Position;
use crate::step::Record;
use crate::value::Value;

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
        let data = memory.iter().filter_map(|record| match record {
            Record::Accepted { value: Value::Large { name, .. }, .. }
            | Record::Decided { value: Value::Large { name, .. }, .. } => {
                self.data.get(name).map(|bytes| Record::Data { name: *name, bytes })
            }
            Record::Accepted { .. } | Record::Decided { .. } => None,
            Record::Life { .. } | Record::Promised(_) | Record::Data { .. } => None,
        });
        [life].into_iter().chain(data).chain(memory.iter().cloned()).collect()
    }

    pub(super) fn life(&self, kept: u64) -> Record {
        let grant_micros = self.settings.unit_micros.saturating_mul(GRANT_UNITS);
        Record::Life { incarnation: self.settings.incarnation, grant_micros, kept }
    }
}
