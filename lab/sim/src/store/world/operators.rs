//! Operators: they ask a manager for one thing, follow it to the master, and ask again for a while.

use super::processes::{ProcessId, Program};
use super::{Event, Kind, World};
use crate::store::fault::Fault;
use kumo_cluster::ManagerInput;
use kumo_cluster::control::{ControlAnswer, ControlRequest};
use kumo_session::ConnectionId;
use std::net::SocketAddr;

/// A wish that is not answered yet.
pub struct Errand {
    request: ControlRequest,
    /// What it counts as.
    fault: Option<Fault>,
    /// Managers it may still be handed to.
    hops: u32,
}

impl World {
    /// An operator wants something. Whether it makes sense now is for the master to say.
    pub fn wish(&mut self, fault: Fault) {
        // Who knows that the managers have forgotten the cluster asks them for nothing else first.
        if !self.chaos || (self.is_forgotten() && fault != Fault::Flush) {
            return;
        }
        let request = match fault {
            Fault::Attach => ControlRequest::Attach {
                servers: self.named(fault),
                replace: self.draw(fault, 0, 9) > 0,
                accept_data_loss: false,
            },
            Fault::Detach => {
                let servers = self.named(fault);
                if servers.len() + 1 > self.plan.servers {
                    return;
                }
                ControlRequest::Detach { servers, replace: self.draw(fault, 0, 9) > 0 }
            }
            Fault::Replace => ControlRequest::Replace,
            Fault::FullReplace => ControlRequest::FullReplace,
            Fault::Cancel => ControlRequest::Cancel,
            Fault::PauseJob => {
                let length = self.draw(fault, 100_000, 3_000_000);
                self.schedule.put(self.now + length, Event::Resumed);
                ControlRequest::Pause
            }
            Fault::Rate => ControlRequest::Rate { bytes: [0, 100, 10_000][self.draw(fault, 0, 2) as usize] },
            Fault::AutoReplace => ControlRequest::AutoReplace { on: self.draw(fault, 0, 3) > 0 },
            Fault::Flush => return self.flush_keys(),
            fault => unreachable!("{fault:?} is no wish"),
        };
        self.ask(Some(fault), request);
    }

    /// Nobody in particular, or some of the servers.
    fn named(&mut self, fault: Fault) -> Vec<SocketAddr> {
        let some = self.draw(fault, 0, 2) == 0 || (self.plan.named && fault == Fault::Detach);
        let bits = self.draw(fault, 1, 63);
        let servers = self.slots[self.places(Kind::Server)].iter().map(|slot| slot.address);
        let chosen = servers.enumerate().filter(|(index, _)| some && bits >> index & 1 == 1);
        chosen.map(|(_, address)| address).collect()
    }

    /// A job is not left paused for ever.
    pub fn resumed(&mut self) {
        self.ask(None, ControlRequest::Resume);
    }

    pub fn ask(&mut self, fault: Option<Fault>, request: ControlRequest) {
        let connection = ConnectionId(self.fresh());
        let slot = self.randoms.names.below(self.plan.managers as u64) as usize;
        self.trace.note(self.now, &[40, connection.0, slot as u64], &[], || {
            format!("operator asks n{slot} for {request:?}")
        });
        self.errands.insert(connection, Errand { request, fault, hops: HOPS_MAX });
        let delay = self.network.delay();
        self.schedule.put(self.now + delay, Event::Control { slot, connection });
    }

    /// At the manager: an operator's wish.
    pub fn control(&mut self, slot: usize, connection: ConnectionId) {
        let Some(errand) = self.errands.get(&connection) else { return };
        let request = errand.request.clone();
        match self.slots[slot].listener {
            Some(process) => {
                self.manager_step(process, ManagerInput::Up(connection));
                self.manager_step(process, ManagerInput::Control(connection, request));
            }
            None => self.hand_on(connection, None),
        }
    }

    pub fn answered(&mut self, id: ProcessId, connection: ConnectionId, answer: ControlAnswer) {
        self.trace.note(self.now, &[41, id.0, connection.0], &[], || {
            format!("p{} answers an operator: {}", id.0, super::clip(&answer))
        });
        match answer {
            ControlAnswer::Master(master) => self.hand_on(connection, master),
            ControlAnswer::Done => {
                let Some(errand) = self.errands.remove(&connection) else { return };
                if matches!(errand.request, ControlRequest::Rebuild { .. }) {
                    self.rebuilt();
                }
                if matches!(errand.request, ControlRequest::Attach { accept_data_loss: true, .. }) {
                    self.loss_accepted();
                }
                if let Some(fault) = errand.fault {
                    *self.struck.entry(fault).or_default() += 1;
                }
            }
            ControlAnswer::Stat(_)
            | ControlAnswer::Plan(_)
            | ControlAnswer::Backup(_)
            | ControlAnswer::Refused(_) => {
                self.errands.remove(&connection);
            }
        }
    }

    /// Asks another manager: the master, if it is known, after a moment.
    fn hand_on(&mut self, connection: ConnectionId, master: Option<SocketAddr>) {
        let Some(mut errand) = self.errands.remove(&connection) else { return };
        errand.hops -= 1;
        if errand.hops == 0 {
            return;
        }
        let fresh = ConnectionId(self.fresh());
        let slot = match master.and_then(|master| self.slot_at(master)) {
            Some(slot) => slot,
            None => self.randoms.names.below(self.plan.managers as u64) as usize,
        };
        self.errands.insert(fresh, errand);
        self.schedule.put(self.now + HAND_ON_MICROS, Event::Control { slot, connection: fresh });
    }

    /// Whether that process is the cell's master, by its own word.
    pub fn is_master(&self, id: ProcessId) -> bool {
        match self.processes.get(&id).map(|process| &process.program) {
            Some(Program::Manager(node)) => node.cell.is_master(),
            Some(Program::Server(_) | Program::Gateway(_)) | None => false,
        }
    }
}

/// How often an operator tries.
const HOPS_MAX: u32 = 12;
/// Between two tries.
const HAND_ON_MICROS: u64 = 150_000;
