//! Losses that an operator accepted: which keys they struck, and when. What was acknowledged of these is gone, and of no
//! other key.

use super::{Event, Kind, World};
use crate::store::fault::Fault;
use crate::store::history::Loss;
use crate::store::workload::Key;
use kumo_cluster::control::ControlRequest;
use kumo_cluster::{ServerId, Space, Table};

/// A switch over arcs that nobody led: from then on others own them, who have nothing of them.
pub struct GivenUp {
    at: u64,
    /// When the operator's replace began: what is lost after that he has not seen, and not given up.
    seen: Table,
    before: Table,
}

impl GivenUp {
    /// Whether the new owners of that key begin with nothing.
    pub fn is_struck(&self, key: &Key) -> bool {
        [&self.seen, &self.before].into_iter().all(|table| table.arc(key.hash).readers.is_empty())
    }

    pub fn loss(&self) -> Loss {
        Loss::Gone { at: self.at }
    }
}

impl World {
    /// When something of that key that was acknowledged may have been lost, or was.
    pub fn losses(&self, key: &Key, given_up: &[GivenUp]) -> Vec<Loss> {
        let struck = given_up.iter().filter(|one| one.is_struck(key)).map(GivenUp::loss);
        let rebuilt = self.forsaken.iter().filter_map(|one| one.loss(key));
        self.blacked_out().into_iter().chain(struck).chain(rebuilt).collect()
    }

    /// All of them, and for each of them an operator's consent. Who switches is in the space before, so that one is known.
    pub fn given_up(&self) -> Vec<GivenUp> {
        let all: Vec<&(u64, Space)> = self.spaces.values().collect();
        let switches = all.windows(2).filter(|pair| is_switch(&pair[0].1, &pair[1].1));
        let mut consents = self.consents.iter();
        let struck = switches.filter_map(|pair| {
            let [(_, last), (at, _)] = pair else { unreachable!("a pair is two") };
            let before = Table::new(last);
            before.dark().next()?;
            let of_job = |space: &Space| (space.cluster, space.whs_since) == (last.cluster, last.whs_since);
            let (began, first) = all.iter().find(|(_, space)| of_job(space))?;
            consents.next().filter(|consent| *consent <= began)?;
            Some(GivenUp { at: *at, seen: Table::new(first), before })
        });
        struck.collect()
    }

    /// All who read some key lose their disks; an operator will look after it.
    pub fn lose_copies(&mut self) -> bool {
        let fault = Fault::CopiesLost;
        let nth = self.draw(fault, 0, 999) as usize;
        let silent = self.draw(fault, 0, 3) == 0;
        let look = self.draw(fault, 200_000, 4_000_000);
        let Some(cluster) = self.newest_cluster() else { return false };
        let space = cluster.space();
        let table = Table::new(space);
        let readers = &table.arc(self.plan.keys[nth % self.plan.keys.len()].hash).readers;
        let readers: Vec<ServerId> = readers.iter().map(|&index| space.server(index)).collect();
        let holds = |slot: &usize| {
            let (address, lives) = (self.slots[*slot].address, self.slots[*slot].engine.lives());
            readers.iter().any(|one| one.address == address && lives.contains(&one.incarnation))
        };
        let slots: Vec<usize> = self.places(Kind::Server).filter(holds).collect();
        if slots.is_empty() {
            return false;
        }
        for slot in slots {
            self.lose_disk_of(slot, silent);
            let delay = self.draw(fault, 10_000, 5_000_000);
            self.schedule.put(self.now + delay, Event::Start { slot });
        }
        self.schedule.put(self.now + look, Event::Accept);
        true
    }

    /// The operator looks for keys whose copies are all lost, and gives them up. A replace that cannot end without them is
    /// in the way of that.
    pub fn look_for_losses(&mut self) {
        if !self.chaos {
            return;
        }
        if self.arcs_lost() {
            let stuck = self.newest_cluster().is_some_and(|cluster| {
                cluster.space().job.is_some() && !cluster.loss_accepted() && cluster.may_switch().is_err()
            });
            if stuck {
                self.ask(None, ControlRequest::Cancel);
            }
            self.accept_loss();
        }
        self.schedule.put(self.now + LOOK_AGAIN_MICROS, Event::Accept);
    }

    /// A replace begins that gives up what is lost. Now and then all servers stop before they hear of its end, and what they
    /// have of these keys is still on their disks.
    pub fn loss_accepted(&mut self) {
        if self.chaos && self.draw(Fault::CopiesLost, 0, 1) == 0 {
            let delay = self.draw(Fault::CopiesLost, 0, 400_000);
            self.schedule.put(self.now + delay, Event::Strike(Fault::Outage));
        }
    }

    pub fn accept_loss(&mut self) {
        self.trace.note(self.now, &[51], &[], || "the operator accepts the loss of data".to_owned());
        self.consents.push(self.now);
        self.ask(None, ControlRequest::Attach { servers: Vec::new(), replace: true, accept_data_loss: true });
    }
}

/// The ring that was written to is read now, and was another one before.
fn is_switch(before: &Space, after: &Space) -> bool {
    let ids = |space: &Space, ring: &[u16]| -> Vec<ServerId> {
        ring.iter().map(|&index| space.server(index)).collect()
    };
    let (was, written) = (ids(before, &before.rhs), ids(before, &before.whs));
    before.cluster == after.cluster && was != written && ids(after, &after.rhs) == written
}

/// Between two looks.
const LOOK_AGAIN_MICROS: u64 = 900_000;
