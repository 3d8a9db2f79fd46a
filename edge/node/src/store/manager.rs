//! [`ManagerHouse`]: the store's manager beside its replica of the cell, in one process and at one port.

use crate::clock;
use crate::house::{House, HouseEffect, HouseInput};
use crate::metrics::{NodeMetrics, PUBLISH_MICROS};
use crate::pair::Pair;
use crate::store::notes;
use crate::store::relay::Relay;
use kumo_cluster::control::{ToolAnswer, ToolRequest};
use kumo_cluster::{CellView, Cluster, Manager, ManagerEffect, ManagerInput, Message, ReplicaView};
use kumo_paxos::{Hello, Instance, Side, Time};
use kumo_session::{Cell, ConnectionId};
use kumo_wire::Wire;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use tracing::warn;

/// A manager and the connections of servers, gateways and tools at its port.
pub struct ManagerHouse {
    manager: Manager,
    hellos: BTreeMap<ConnectionId, Hello>,
    relay: Relay,
    effects: Vec<ManagerEffect>,
    /// How the cell stood when the manager was last told.
    view: CellView,
    /// When its replicas were last looked at.
    looked: Time,
    executed: Instance,
    metrics: Arc<NodeMetrics>,
    published: Time,
}

impl ManagerHouse {
    /// `address`: where others reach it.
    pub fn new(manager: Manager, address: SocketAddr, metrics: Arc<NodeMetrics>) -> ManagerHouse {
        ManagerHouse {
            manager,
            hellos: BTreeMap::new(),
            relay: Relay::new(address),
            effects: Vec::new(),
            view: CellView::default(),
            looked: Time(0),
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
                self.hellos.insert(id, hello);
                ManagerInput::Up(id)
            }
            HouseInput::Down(id) => {
                self.hellos.remove(&id);
                self.relay.left(id);
                ManagerInput::Down(id)
            }
            HouseInput::Frame(id, body) => {
                let tool = self.hellos.get(&id).filter(|hello| hello.side == Side::Tool);
                let read = if let Some(hello) = tool {
                    ToolRequest::from_bytes(body).map_err(|error| error.to_string()).and_then(|request| {
                        match request {
                            ToolRequest::Control(request) => {
                                self.relay.asks(id, hello, &request);
                                Ok(ManagerInput::Control(id, request))
                            }
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
                        let answer = if tool.is_some() {
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

    fn look_at_cell(&mut self, now: Time, cell: &Cell<Pair>) {
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
        // By our own clock: the manager's next look is put off by everything it does, and people who ask it without a
        // pause would keep it from ever hearing how the others do.
        let stale = now.since(self.looked) >= LOOK_MICROS;
        let replicas = match leads && (stale || !self.view.leads || self.view.members != members) {
            true => {
                self.looked = now;
                replicas(now, cell)
            }
            false => std::mem::take(&mut self.view.replicas),
        };
        self.view = CellView { cluster: cell.hello().cell, master, leads, lease_end, members, replicas };
        let input = ManagerInput::Cell(self.view.clone());
        self.manager.step(now, input, &cell.application().cluster, &mut self.effects);
    }

    fn perform(&mut self, now: Time, wanted: &mut Vec<HouseEffect>) {
        for (id, relayed) in self.relay.take(now) {
            wanted.push(match relayed {
                Some(answer) => HouseEffect::Send(id, answer.to_bytes()),
                None => HouseEffect::Hangup(id),
            });
        }
        for effect in self.effects.drain(..) {
            match effect {
                ManagerEffect::Send(id, message) => wanted.push(HouseEffect::Send(id, message.to_bytes())),
                ManagerEffect::Answer(id, answer) => {
                    let answer = self.relay.answered(id, answer).map(ToolAnswer::Control);
                    wanted.extend(answer.map(|answer| HouseEffect::Send(id, answer.to_bytes())));
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
        let quiet =
            arrived.is_empty() && !due && self.relay.is_idle() && self.executed == cell.executed_upto();
        if quiet && self.view.leads == cell.is_master() && self.view.master == cell.replica().master() {
            return;
        }
        let cluster = &cell.application().cluster;
        // First how the cell stands now: with an older view the manager would take its lease for run out.
        self.look_at_cell(now, cell);
        self.manager.step(now, ManagerInput::Wall(clock::wall()), cluster, &mut self.effects);
        for input in arrived.drain(..) {
            self.arrived(now, input, cell, wanted);
        }
        if self.manager.deadline().is_some_and(|deadline| deadline <= now) {
            self.manager.step(now, ManagerInput::Timeout, cluster, &mut self.effects);
        }
        self.perform(now, wanted);
        self.publish(now, cluster);
    }

    fn deadline(&self) -> Option<Time> {
        [self.manager.deadline(), self.relay.deadline()].into_iter().flatten().min()
    }
}

/// How old a master's picture of the other replicas may be: less than the time between two looks of its manager.
const LOOK_MICROS: u64 = 25_000;

#[cfg(test)]
mod tests {
    use super::*;
    use kumo_cluster::ManagerSettings;
    use kumo_cluster::control::{ControlAnswer, ControlRequest};
    use kumo_paxos::{Incarnation, ReplicaState, Settings};
    use kumo_session::{CellSettings, Effect, Input};
    use std::collections::VecDeque;

    /// Three managers on a perfect network. The first of them leads, and somebody asks it how things stand at every step.
    struct Bench {
        now: Time,
        cells: Vec<Cell<Pair>>,
        house: ManagerHouse,
        answer: Option<ToolAnswer>,
    }

    impl Bench {
        fn new() -> Bench {
            let cells: Vec<Cell<Pair>> = (0..3).map(cell).collect();
            let settings = ManagerSettings {
                life: 7,
                lease_micros: 1_500_000,
                keepalive_micros: 2_000_000,
                connect_retry_limit: 4,
                connect_timeout_steps: 3,
                clock_interval_micros: 500_000,
                replace_delay_micros: 4_000_000,
                auto_replace: false,
                unit_micros: 100_000,
                session_timeout_micros: 10_000_000,
                durable: false,
                voter_patience_micros: 60_000_000,
                broken: kumo_cluster::Broken::default(),
            };
            let manager = Manager::new(settings, Time(0));
            let address = SocketAddr::from(([10, 0, 0, 1], 1));
            let house = ManagerHouse::new(manager, address, Arc::new(NodeMetrics::new(true)));
            let mut bench = Bench { now: Time(0), cells, house, answer: None };
            let hello = cell(0).hello();
            let mut tool = vec![HouseInput::Up(TOOL, Hello { side: Side::Tool, ..hello })];
            bench.house.turn(bench.now, &mut tool, &bench.cells[0], &mut Vec::new());
            let pairs = (0..3).flat_map(|from| (0..3).map(move |to| (from, to)));
            for (from, to) in pairs.filter(|(from, to)| from != to) {
                let up = Input::PeerUp(bench.cells[to].hello());
                bench.step(from, up, &|_| true);
            }
            bench
        }

        /// A step of one, and what follows from it among those that are there.
        fn step(&mut self, which: usize, input: Input, there: &dyn Fn(usize) -> bool) {
            let mut inputs = VecDeque::from([(which, input)]);
            while let Some((which, input)) = inputs.pop_front() {
                let mut effects = Vec::new();
                self.cells[which].step(self.now, input, &mut effects);
                for effect in effects {
                    if let Effect::Peer(to, envelope) = effect {
                        let to = usize::from(to.port()) - 1;
                        inputs.extend(there(to).then_some((to, Input::Peer(envelope))));
                    }
                }
            }
        }

        /// Ten milliseconds at a time, with a question each.
        fn pass(&mut self, steps: usize, there: &dyn Fn(usize) -> bool) {
            for _ in 0..steps {
                self.now = self.now.plus_micros(10_000);
                for which in (0..3).filter(|&which| there(which)) {
                    self.step(which, Input::Timeout, there);
                }
                let ask = ToolRequest::Control(ControlRequest::Stat).to_bytes();
                let mut wanted = Vec::new();
                self.house.turn(
                    self.now,
                    &mut vec![HouseInput::Frame(TOOL, ask)],
                    &self.cells[0],
                    &mut wanted,
                );
                for effect in wanted {
                    match effect {
                        HouseEffect::Propose(command) => self.step(0, Input::House(command), there),
                        HouseEffect::Send(TOOL, body) => {
                            self.answer = Some(ToolAnswer::from_bytes(body).unwrap());
                        }
                        HouseEffect::Send(..) | HouseEffect::Hangup(_) | HouseEffect::Change(_) => {}
                    }
                }
            }
        }

        fn states(&self) -> Vec<Option<ReplicaState>> {
            let Some(ToolAnswer::Control(ControlAnswer::Stat(stat))) = &self.answer else {
                panic!("the master answers: {:?}", self.answer)
            };
            stat.voters.iter().map(|voter| voter.state).collect()
        }
    }

    fn cell(place: u16) -> Cell<Pair> {
        let address = |place: u16| SocketAddr::from(([10, 0, 0, 1], place + 1));
        let settings = Settings {
            address: address(place),
            peers: (0..3).filter(|&other| other != place).map(address).collect(),
            extension: false,
            incarnation: Incarnation(u128::from(place) + 1),
            unit_micros: 100_000,
            entropy: u128::from(place) + 100,
            durable: false,
            forms_after_micros: 0,
        };
        let cell = CellSettings { session_timeout_micros: 10_000_000, sessions_max: 16 };
        Cell::new(settings, cell, Pair::default(), Time(0))
    }

    #[test]
    fn a_manager_that_is_asked_all_the_time_hears_how_the_others_do() {
        let mut bench = Bench::new();
        bench.pass(500, &|_| true);
        assert!(bench.cells[0].is_master(), "the eldest of equals leads");
        assert_eq!(bench.states(), [Some(ReplicaState::Voting); 3]);
        bench.pass(100, &|which| which != 2);
        let (up, down) = (Some(ReplicaState::Voting), Some(ReplicaState::Down));
        assert_eq!(bench.states(), [up, up, down]);
        bench.pass(100, &|_| true);
        assert_eq!(bench.states(), [up, up, up]);
    }

    const TOOL: ConnectionId = ConnectionId(9);
}
