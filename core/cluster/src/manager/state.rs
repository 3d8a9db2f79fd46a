//! [`Manager`]: routes what happens to the part it concerns, and acts on what was executed.

use super::desk::Desk;
use super::gateways::Registrations;
use super::peers::Peers;
use super::reign::Reign;
use crate::cluster::given_up;
use crate::{
    CellView, Cluster, ManagerEffect, ManagerInput, ManagerNote, ManagerSettings, Message, SpaceNumber,
};
use kumo_paxos::Time;
use kumo_session::{ConnectionId, UnixMillis};

/// A manager beside its replica. The replica's application is an argument of [`Manager::step`], which must be called after every
/// entry of it that was executed (any input will do).
pub struct Manager {
    pub(super) settings: ManagerSettings,
    pub(super) cell: CellView,
    /// People's clock here, and the greatest time that was told to servers.
    wall: UnixMillis,
    /// The cell\'s time as it was last told, and when.
    told: (Time, UnixMillis),
    pub(super) peers: Peers,
    /// While this node is the cell's master.
    pub(super) reign: Option<Reign>,
    pub(super) registrations: Registrations,
    pub(super) desk: Desk,
    /// The space that was handed to everybody last.
    space: SpaceNumber,
    /// The replace that was noted last gives up what is lost.
    loss_accepted: bool,
    /// The space is not for everybody yet.
    withheld: bool,
    /// It was noted that a server knows what this cell has forgotten.
    pub(super) forgotten: bool,
    /// When to act next.
    tick: Option<Time>,
    /// Since when this process has not been starved: what it did not hear before says nothing about others.
    pub(super) awake_since: Time,
}

impl Manager {
    pub fn new(settings: ManagerSettings, now: Time) -> Manager {
        Manager {
            peers: Peers::new(&settings),
            settings,
            cell: CellView::default(),
            wall: UnixMillis(0),
            told: (now, UnixMillis(0)),
            reign: None,
            registrations: Registrations::default(),
            desk: Desk::default(),
            space: SpaceNumber(0),
            loss_accepted: false,
            withheld: false,
            forgotten: false,
            tick: None,
            awake_since: now,
        }
    }

    /// `now` must be read after the input arrived: a lease counts from the sending of what is answered here.
    pub fn step(
        &mut self,
        now: Time,
        input: ManagerInput,
        cluster: &Cluster,
        effects: &mut Vec<ManagerEffect>,
    ) {
        if self.tick.is_some_and(|due| now.since(due) > STARVED_MICROS) {
            self.awake_since = now;
        }
        let executed = self.look(now, cluster, effects);
        let changed = match input {
            ManagerInput::Timeout => false,
            ManagerInput::Wall(wall) => {
                self.wall = self.wall.max(wall);
                false
            }
            ManagerInput::Cell(view) => self.cell_changed(view, cluster, effects),
            ManagerInput::Up(connection) => {
                self.peers.up(connection);
                false
            }
            ManagerInput::Down(connection) => self.down(now, connection, cluster, effects),
            ManagerInput::From(connection, message) => {
                self.message(now, connection, message, cluster, effects);
                false
            }
            ManagerInput::Control(connection, request) => {
                self.asked(now, connection, request, effects);
                true
            }
        };
        if executed || changed || self.tick.is_some_and(|due| due <= now) {
            self.act(now, cluster, effects);
            self.tick = self.busy().then(|| now.plus_micros(TICK_MICROS));
        } else if self.tick.is_none() && self.busy() {
            self.tick = Some(now.plus_micros(TICK_MICROS));
        }
    }

    pub fn deadline(&self) -> Option<Time> {
        self.tick
    }

    /// The master's term, once it is executed here.
    pub fn term(&self) -> Option<u64> {
        self.reign.as_ref()?.term()
    }

    /// Whether time alone can make something to do.
    fn busy(&self) -> bool {
        self.reign.is_some() || self.peers.has_newcomers() || !self.desk.is_empty()
    }

    /// Notices what was executed since the last step.
    fn look(&mut self, now: Time, cluster: &Cluster, effects: &mut Vec<ManagerEffect>) -> bool {
        let term = self.reign.as_mut().is_some_and(|reign| reign.look(now, cluster, &self.settings));
        let answered = self.desk.has_answer(cluster) || self.registrations.has_answer(cluster);
        self.note_forgotten(cluster, effects);
        let space = cluster.space();
        if cluster.doubt().is_some() {
            return term || answered;
        }
        let was_withheld = std::mem::replace(&mut self.withheld, cluster.risen().is_some());
        let (is_new, shown) = (space.number > self.space, was_withheld && !self.withheld);
        if is_new || shown {
            for connection in self.peers.followers() {
                if self.may_know(connection, cluster) {
                    self.peers.push_space(now, connection, space, effects);
                }
            }
        }
        if !is_new {
            return term || answered || shown;
        }
        self.space = space.number;
        self.peers.forget_strangers(space);
        effects.push(ManagerEffect::Note(ManagerNote::Space { space: space.clone() }));
        if !std::mem::replace(&mut self.loss_accepted, cluster.loss_accepted()) && self.loss_accepted {
            let given_up = given_up(space).map(ManagerNote::LossAccepted);
            effects.extend(given_up.map(ManagerEffect::Note));
        }
        true
    }

    fn cell_changed(&mut self, view: CellView, cluster: &Cluster, effects: &mut Vec<ManagerEffect>) -> bool {
        let told = (self.cell.master, &self.cell.members) != (view.master, &view.members);
        let changed = self.cell.leads != view.leads;
        self.cell = view;
        if told {
            for connection in self.peers.followers() {
                effects.push(ManagerEffect::Send(connection, self.managers(cluster)));
            }
        }
        if changed && self.cell.leads {
            self.reign = Some(Reign::new(cluster));
        }
        if !self.cell.leads {
            self.reign = None;
            self.desk.hand_over(self.cell.master, cluster, effects);
        }
        changed
    }

    fn message(
        &mut self,
        now: Time,
        connection: ConnectionId,
        message: Message,
        cluster: &Cluster,
        effects: &mut Vec<ManagerEffect>,
    ) {
        match message {
            Message::Alive(alive) => self.alive(now, connection, *alive, cluster, effects),
            Message::Probed { nonce } => self.probed(connection, nonce, effects),
            Message::Register { nonce } => self.register(now, connection, nonce, cluster, effects),
            Message::GatewayAlive { gateway, space } => {
                self.gateway_alive(now, connection, gateway, space, cluster, effects);
            }
            Message::WantSpace { above } => {
                let may_know = self.peers.knows(connection) && self.may_know(connection, cluster);
                if may_know && cluster.space().number > above {
                    self.peers.push_space(now, connection, cluster.space(), effects);
                }
            }
            Message::NewSpace { space } => {
                if self.peers.server_at(connection).is_some() && space.well_formed() {
                    self.desk.offered(*space);
                }
            }
            Message::BackedUp { suffix, path, error } => {
                if let Some(server) = self.peers.server_at(connection) {
                    self.desk.backed_up(server, &suffix, path, error);
                }
            }
            // What servers and gateways say to each other, or hear from managers: not for us.
            Message::Request(_)
            | Message::Answer { .. }
            | Message::Replicate { .. }
            | Message::Replicated { .. }
            | Message::ReplicaFull { .. }
            | Message::Watermark { .. }
            | Message::Confirm { .. }
            | Message::Confirmed { .. }
            | Message::AskPrimary { .. }
            | Message::PrimarySays { .. }
            | Message::Settle { .. }
            | Message::Settled { .. }
            | Message::CopyDigest { .. }
            | Message::CopySame { .. }
            | Message::CopyDiffers { .. }
            | Message::CopyRecords { .. }
            | Message::CopyStored { .. }
            | Message::CopyLater { .. }
            | Message::Flush { .. }
            | Message::Flushed { .. }
            | Message::CopyHeads { .. }
            | Message::CopyNarrow { .. }
            | Message::CopyIds { .. }
            | Message::CopyIdsStored { .. }
            | Message::Lease { .. }
            | Message::Registered { .. }
            | Message::Managers { .. }
            | Message::Backup { .. }
            | Message::Recruit(_)
            | Message::Probe { .. }
            | Message::Unwelcome { .. } => {}
        }
    }

    fn act(&mut self, now: Time, cluster: &Cluster, effects: &mut Vec<ManagerEffect>) {
        self.settle_newcomers(now, cluster, effects);
        if self.reign.is_some() {
            self.claim(now, cluster, effects);
        }
        let leads = self.term().is_some();
        if leads && cluster.doubt().is_some() {
            self.settle_doubt(now, cluster, effects);
            self.serve_registrations(now, cluster, effects);
            self.recruit(now, cluster, effects);
        } else if leads {
            self.find_failures(now, cluster, effects);
            self.witness(now, cluster, effects);
            self.move_replace(now, cluster, effects);
            self.serve_registrations(now, cluster, effects);
            self.expire_gateways(now, cluster, effects);
            self.cancel_hopeless(now, cluster, effects);
            self.auto_replace(now, cluster, effects);
            self.recruit(now, cluster, effects);
        }
        self.work(now, cluster, effects);
    }

    /// Who the managers are, for servers and gateways.
    pub(super) fn managers(&self, cluster: &Cluster) -> Message {
        let (managers, master) = (self.cell.members.clone(), self.cell.master);
        Message::Managers { cluster: cluster.space().cluster, managers, master }
    }

    /// The cell's time: people's clock here, and never below what was told or logged before.
    /// It goes on by this process's own clock where people's is behind: it would stand still otherwise, for as long
    /// as the clocks differ.
    pub(super) fn cell_time(&mut self, now: Time, cluster: &Cluster) -> UnixMillis {
        let (told_at, told) = self.told;
        let gone_on = UnixMillis(told.0.saturating_add(now.since(told_at) / 1000));
        let time = gone_on.max(self.wall).max(cluster.time());
        self.told = (now, time);
        time
    }
}

/// How often a master looks at what only time brings about: well below a lease, well above nothing.
const TICK_MICROS: u64 = 50_000;

/// A tick this late means that the process did not run, and heard nobody meanwhile.
pub(super) const STARVED_MICROS: u64 = 1_000_000;
