//! [`Pair`]: the two services behind one log of a store's managers: PFS, and the state of the cluster.
//!
//! Sessions belong to PFS alone. The cluster's commands come from the house (`kumo_session::SessionId::HOUSE`), so the
//! two need no mark to be told apart.

use bytes::Bytes;
use kumo_cluster::Cluster;
use kumo_pfs::Pfs;
use kumo_session::{Application, Entry, Outcome, SessionId};
use kumo_wire::{Malformed, Wire};

/// PFS and the cluster's state, executed from one log.
#[derive(Clone, Debug, Default)]
pub struct Pair {
    pub pfs: Pfs,
    pub cluster: Cluster,
}

impl Application for Pair {
    type Parts = Box<dyn Iterator<Item = Bytes> + Send>;

    fn apply(&mut self, entry: Entry, command: Bytes, outcome: &mut Outcome) {
        match entry.session {
            SessionId::HOUSE => self.cluster.apply(entry, command, outcome),
            _session => self.pfs.apply(entry, command, outcome),
        }
    }

    fn cancel(&mut self, entry: Entry, target: u64, outcome: &mut Outcome) -> bool {
        self.pfs.cancel(entry, target, outcome)
    }

    fn session_ended(&mut self, entry: Entry, outcome: &mut Outcome) {
        self.pfs.session_ended(entry, outcome);
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

    /// First how many parts the cluster has, then those, then PFS'.
    fn snapshot(&self) -> Self::Parts {
        let cluster: Vec<Bytes> = self.cluster.snapshot().collect();
        let count = (cluster.len() as u32).to_bytes();
        Box::new(std::iter::once(count).chain(cluster).chain(self.pfs.snapshot()))
    }

    fn restore(parts: Vec<Bytes>) -> Result<Pair, Malformed> {
        let mut parts = parts.into_iter();
        let count = u32::from_bytes(parts.next().ok_or(Malformed::Short)?)? as usize;
        let cluster: Vec<Bytes> = parts.by_ref().take(count).collect();
        if cluster.len() < count {
            return Err(Malformed::Short);
        }
        Ok(Pair { cluster: Cluster::restore(cluster)?, pfs: Pfs::restore(parts.collect())? })
    }
}
