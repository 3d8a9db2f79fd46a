//! [`Snapshot`]: all servers at one moment, and the rows made of two of them.

use crate::failure::Failure;
use crate::store::condition::Condition;
use crate::store::kumoctl::{JobView, attached};
use crate::store::{kumostat, tool};
use kumo_cluster::control::{ServerReport, Stat};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Instant;

/// What a manager and all servers said.
pub struct Snapshot {
    at: Instant,
    pub stat: Stat,
    /// None: it did not answer.
    reports: BTreeMap<SocketAddr, Option<ServerReport>>,
}

impl Snapshot {
    pub async fn take(managers: &[SocketAddr]) -> Result<Snapshot, Failure> {
        let stat = tool::stat(managers).await?;
        let reports = tool::inspect_all(&kumostat::servers(&stat)).await;
        let reports = reports.into_iter().map(|(address, report)| (address, report.ok())).collect();
        Ok(Snapshot { at: Instant::now(), stat, reports })
    }

    #[cfg(test)]
    pub fn of(stat: Stat, reports: BTreeMap<SocketAddr, Option<ServerReport>>) -> Snapshot {
        Snapshot { at: Instant::now(), stat, reports }
    }

    /// Who can be asked next: the one that the operator named, and all that agree.
    pub fn managers(&self, named: SocketAddr) -> Vec<SocketAddr> {
        std::iter::once(named).chain(self.stat.managers.iter().copied()).collect()
    }

    pub fn job(&self) -> Option<JobView> {
        JobView::of(&self.stat)
    }

    /// A row a server; speeds come from the difference to an earlier snapshot.
    pub fn rows(&self, earlier: Option<&Snapshot>) -> Vec<Row> {
        let attached = attached(&self.stat);
        let row = |(&address, report): (&SocketAddr, &Option<ServerReport>)| {
            let state = match attached.get(&address).map(|one| (one.is, one.moving)) {
                Some((Condition::Returned, _)) => "fault, back",
                Some((Condition::Unheard | Condition::UnheardReturned, _)) => "not heard of",
                Some((Condition::Active, Some(moving))) => moving,
                Some((is, _)) => is.state(),
                None => "not attached",
            };
            let report = report.clone();
            let speed = report.as_ref().and_then(|report| self.speed(address, report, earlier?));
            Row { address, state, report, speed }
        };
        self.reports.iter().map(row).collect()
    }

    /// Of the same life of a server only: another one counts from zero.
    fn speed(&self, address: SocketAddr, now: &ServerReport, earlier: &Snapshot) -> Option<Speed> {
        let before = earlier.reports.get(&address)?.as_ref()?;
        let seconds = (self.at - earlier.at).as_secs_f64();
        if before.server != now.server || seconds <= 0.0 {
            return None;
        }
        let per_second = |before: u64, now: u64| now.saturating_sub(before) as f64 / seconds;
        Some(Speed {
            gets: per_second(before.gets, now.gets),
            sets: per_second(before.sets, now.sets),
            deletes: per_second(before.deletes, now.deletes),
        })
    }
}

/// One server.
pub struct Row {
    pub address: SocketAddr,
    pub state: &'static str,
    pub report: Option<ServerReport>,
    pub speed: Option<Speed>,
}

/// Requests a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Speed {
    pub gets: f64,
    pub sets: f64,
    pub deletes: f64,
}
