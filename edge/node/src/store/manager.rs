//! [`ManagerHouse`]: the store's manager beside its replica of the cell, in one process and at one port.

use crate::clock;
use crate::house::{House, HouseEffect, HouseInput};
use crate::metrics::{NodeMetrics, PUBLISH_MICROS};
use crate::pair::Pair;
use crate::store::notes;
use kumo_cluster::control::{ToolAnswer, ToolRequest};
use kumo_cluster::{CellView, Cluster, Manager, ManagerEffect, ManagerInput, Message, ReplicaView};
use kumo_paxos::{Instance, Side, Time};
use kumo_session::{Cell, ConnectionId};
use kumo_wire::Wire;
use std::collections::BTreeMap;
use std::sync::Arc;
use tracing::warn;

/// A manager and the connections of servers, gateways and tools at its port.
pub struct ManagerHouse {
    manager: Manager,
    sides: BTreeMap<ConnectionId, Side>,
    effects: Vec<ManagerEffect>,
    /// How the cell stood when the manager was last told.
    view: CellView,
    executed: Instance,
    metrics: Arc<NodeMetrics>,
    published: Time,
}

impl ManagerHouse {
    pub fn new(manager: Manager, metrics: Arc<NodeMetrics>) -> ManagerHouse {
        ManagerHouse {
            manager,
            sides: BTreeMap::new(),
            effects: Vec::new(),
            view: CellView::default(),
            executed: Instance(0),
            metrics,
            published: Time(0),
        }
    }

    fn publish(&mut self, now: Time, cluster: &Cluster) {
        if now.since(self.published) >= PUBLISH_MICROS {
            self.published = now;
            self.metrics.publish_cluster(cluster, self.manager.connected(), self.manager.progress(cluster));
        }
    }

    fn arrived(&mut self, now: Time, input: HouseInput, cell: &Cell<Pair>, wanted: &mut Vec<HouseEffect>) {
        let input = match input {
            HouseInput::Up(id, hello) => {
                self.sides.insert(id, hello.side);
                ManagerInput::Up(id)
            }
            HouseInput::Down(id) => {
                self.sides.remove(&id);
                ManagerInput::Down(id)
            }
            HouseInput::Frame(id, body) => {
                let tool = self.sides.get(&id) == Some(&Side::Tool);
                let read = if tool {
                    ToolRequest::from_bytes(body).map_err(|error| error.to_string()).and_then(|request| {
                        match request {
                            ToolRequest::Control(request) => Ok(ManagerInput::Control(id, request)),
                            ToolRequest::Inspect => Err("this is a manager, not a server".to_owned()),
                        }
                    })
                } else {
                    let message = Message::from_bytes(body).map_err(|error| error.to_string());
                    message.map(|message| ManagerInput::From(id, message))
                };
                match read {
                    Ok(input) => input,
                    Err(reason) => {
                        warn!(connection = id.0, reason, "bad message");
                        let answer = if tool {
                            ToolAnswer::Refused { reason }.to_bytes()
                        } else {
                            Message::Unwelcome { reason }.to_bytes()
                        };
                        wanted.push(HouseEffect::Send(id, answer));
                        wanted.push(HouseEffect::Hangup(id));
                        return;
                    }
                }
            }
        };
        self.manager.step(now, input, &cell.application().cluster, &mut self.effects);
    }

    /// `due`: the manager looks at what only time brings about, and wants to know how the others do.
    fn look_at_cell(&mut self, now: Time, due: bool, cell: &Cell<Pair>) {
        let replica = cell.replica();
        let leads = cell.is_master();
        let master = replica.master();
        // The lease is looked at now and used now: its end is not asked for.
        let lease_end = cell.has_lease(now).then(|| now.plus_micros(1));
        let same = self.view.leads == leads && self.view.master == master && !leads;
        if same && self.executed == cell.executed_upto() {
            return;
        }
        self.executed = cell.executed_upto();
        let members = replica.configuration().map_or_else(Vec::new, |configuration| {
            configuration.members.iter().map(|member| member.address).collect()
        });
        let replicas = match leads && (due || !self.view.leads || self.view.members != members) {
            true => replicas(now, cell),
            false => std::mem::take(&mut self.view.replicas),
        };
        self.view = CellView { cluster: cell.hello().cell, master, leads, lease_end, members, replicas };
        let input = ManagerInput::Cell(self.view.clone());
        self.manager.step(now, input, &cell.application().cluster, &mut self.effects);
    }

    fn perform(&mut self, wanted: &mut Vec<HouseEffect>) {
        for effect in self.effects.drain(..) {
            match effect {
                ManagerEffect::Send(id, message) => wanted.push(HouseEffect::Send(id, message.to_bytes())),
                ManagerEffect::Answer(id, answer) => {
                    wanted.push(HouseEffect::Send(id, ToolAnswer::Control(answer).to_bytes()));
                }
                ManagerEffect::Hangup(id) => wanted.push(HouseEffect::Hangup(id)),
                ManagerEffect::Propose(command) => wanted.push(HouseEffect::Propose(command)),
                ManagerEffect::Change(change) => wanted.push(HouseEffect::Change(change)),
                ManagerEffect::Note(note) => notes::manager(&note),
            }
        }
    }
}

fn replicas(now: Time, cell: &Cell<Pair>) -> Vec<ReplicaView> {
    let seen = cell.status(now).replicas.into_iter();
    seen.map(|replica| ReplicaView {
        address: replica.member.address,
        role: replica.member.role,
        state: replica.state,
    })
    .collect()
}

impl House<Pair> for ManagerHouse {
    const OPEN: bool = true;

    fn turn(
        &mut self,
        now: Time,
        arrived: &mut Vec<HouseInput>,
        cell: &Cell<Pair>,
        wanted: &mut Vec<HouseEffect>,
    ) {
        let due = self.manager.deadline().is_some_and(|deadline| deadline <= now);
        let quiet = arrived.is_empty() && !due && self.executed == cell.executed_upto();
        if quiet && self.view.leads == cell.is_master() && self.view.master == cell.replica().master() {
            return;
        }
        let cluster = &cell.application().cluster;
        // First how the cell stands now: with an older view the manager would take its lease for run out.
        self.look_at_cell(now, due, cell);
        self.manager.step(now, ManagerInput::Wall(clock::wall()), cluster, &mut self.effects);
        for input in arrived.drain(..) {
            self.arrived(now, input, cell, wanted);
        }
        if self.manager.deadline().is_some_and(|deadline| deadline <= now) {
            self.manager.step(now, ManagerInput::Timeout, cluster, &mut self.effects);
        }
        self.perform(wanted);
        self.publish(now, cluster);
    }

    fn deadline(&self) -> Option<Time> {
        self.manager.deadline()
    }
}
