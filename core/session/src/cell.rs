//! [`Cell`]: a whole node without IO: agreement, sessions and an application.

use crate::application::{Application, SessionId, UnixMillis};
use crate::entry::LogEntry;
use crate::front::{Front, ParkedReads};
use crate::operator::PendingChange;
use crate::protocol::{CellMessage, EndReason, Reply};
use crate::reads::LinearRead;
use crate::serve::complain;
use crate::snapshot::{self, Parts};
use crate::step::{CellSettings, ConnectionId, Effect, Input, NodeNote};
use crate::table::{At, Named, Table, Told};
use crate::transfer::{Donor, Receiver};
use bytes::Bytes;
use kumo_paxos::{
    Executable, Hello, Incarnation, Instance, Message, Position, Record, Replica, Round, Status, Time,
};
use kumo_wire::Malformed;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A node: one member of a cell, with the sessions and the application's state as far as it has executed.
pub struct Cell<A: Application> {
    pub(crate) replica: Replica,
    pub(crate) paxos: kumo_paxos::Settings,
    pub(crate) settings: CellSettings,
    pub(crate) application: A,
    pub(crate) table: Table,
    /// The application panicked, and its state may be torn: nothing is executed or read until a snapshot.
    pub(crate) torn: bool,
    pub(crate) front: Front,
    /// The round this node leads, as of the last step.
    pub(crate) reign: Option<Round>,
    /// What people's clock said last.
    pub(crate) wall: UnixMillis,
    /// What clients were last told: master, version of the configuration, least-loaded replica.
    pub(crate) told_master: (Option<SocketAddr>, u64, Option<SocketAddr>),
    pub(crate) tell_load_at: Time,

    pub(crate) parked: ParkedReads,
    pub(crate) linear: VecDeque<LinearRead>,
    /// Sessions with new events and somebody who waits for them.
    pub(crate) event_sessions: BTreeSet<SessionId>,
    /// Requests and reads since the load was last told.
    pub(crate) load: u32,
    pub(crate) load_at: Time,

    /// Every session counts as heard of at this time or later.
    pub(crate) fresh_since: Time,
    pub(crate) stepped: Time,
    pub(crate) expiry_at: Time,
    /// Expiries proposed in this reign and not executed yet.
    pub(crate) expiring: BTreeSet<SessionId>,

    pub(crate) change: Option<PendingChange>,
    pub(crate) peers: BTreeMap<SocketAddr, Incarnation>,
    pub(crate) donor: Donor<A>,
    pub(crate) receiver: Option<Receiver>,
    /// Entries and bytes executed since a snapshot was last asked of the edge.
    pub(crate) log_entries: u64,
    pub(crate) log_bytes: u64,

    /// What agreement wants done and nobody has looked at yet.
    pub(crate) agreed: Vec<kumo_paxos::Effect>,
    told: Vec<Told>,
}

impl<A: Application> Cell<A> {
    /// A node without memory. `application` is the empty state every member starts with.
    pub fn new(paxos: kumo_paxos::Settings, settings: CellSettings, application: A, now: Time) -> Cell<A> {
        let replica = Replica::new(paxos.clone(), now);
        Cell::with(replica, paxos, settings, Table::default(), application, now)
    }

    /// A durable node with the memory of its earlier life: the newest snapshot and the records after it.
    /// `application` is the empty state, used when there is no snapshot. What was decided is executed in
    /// the first step.
    pub fn recover(
        paxos: kumo_paxos::Settings,
        settings: CellSettings,
        application: A,
        snapshot: Option<(Position, Vec<Bytes>)>,
        records: Vec<Record>,
        now: Time,
    ) -> Result<Cell<A>, Malformed> {
        let (position, (table, application)) = match snapshot {
            None => (None, (Table::default(), application)),
            Some((position, parts)) => {
                let restored = snapshot::restore(parts, position.digest)?;
                (Some(position), restored)
            }
        };
        let replica = Replica::recover(paxos.clone(), position, records, now);
        Ok(Cell::with(replica, paxos, settings, table, application, now))
    }

    fn with(
        replica: Replica,
        paxos: kumo_paxos::Settings,
        settings: CellSettings,
        table: Table,
        application: A,
        now: Time,
    ) -> Cell<A> {
        Cell {
            replica,
            paxos,
            settings,
            application,
            table,
            torn: false,
            front: Front::default(),
            reign: None,
            wall: UnixMillis(0),
            told_master: (None, 0, None),
            tell_load_at: now,
            parked: BTreeMap::new(),
            linear: VecDeque::new(),
            event_sessions: BTreeSet::new(),
            load: 0,
            load_at: now,
            fresh_since: now,
            stepped: now,
            expiry_at: now,
            expiring: BTreeSet::new(),
            change: None,
            peers: BTreeMap::new(),
            donor: Donor::new(),
            receiver: None,
            log_entries: 0,
            log_bytes: 0,
            agreed: Vec::new(),
            told: Vec::new(),
        }
    }

    /// All change happens here. When it returns, everything decided and at hand has been executed.
    pub fn step(&mut self, now: Time, input: Input, effects: &mut Vec<Effect>) {
        self.attend(now);
        match input {
            Input::Timeout => self.agree(now, kumo_paxos::Input::Timeout),
            Input::Wall(wall) => self.wall = wall,
            Input::PeerUp(hello) => {
                self.peers.insert(hello.address, hello.incarnation);
                self.agree(now, kumo_paxos::Input::PeerUp(hello));
            }
            Input::PeerDown(address) => {
                self.peers.remove(&address);
                self.agree(now, kumo_paxos::Input::PeerDown(address));
                self.donor_lost(now, address);
            }
            Input::Peer(envelope) => self.agree(now, kumo_paxos::Input::Message(envelope)),
            Input::ClientUp(connection) => self.client_up(connection, effects),
            Input::ClientDown(connection) => self.client_down(connection),
            Input::Client(connection, message) => self.client(now, connection, message, effects),
            Input::House(command) => self.house(now, command),
            Input::HouseChange(change) => self.house_change(now, change),
            Input::Stop => self.stop(now),
        }
        self.turn(now, effects);
        self.front.check();
    }

    /// When to call `step` with [`Input::Timeout`] at the latest.
    pub fn deadline(&self) -> Option<Time> {
        let expiry = self.reign.map(|_| self.expiry_at);
        let receiver = self.receiver.as_ref().map(|receiver| receiver.ask_at);
        [self.replica.deadline(), expiry, receiver].into_iter().flatten().min()
    }

    pub fn hello(&self) -> Hello {
        self.replica.hello()
    }

    /// Whether a hello that arrived is welcome; if not, why, for its sender and the log.
    pub fn greet(&self, hello: &Hello) -> Result<(), String> {
        self.replica.greet(hello)
    }

    pub fn status(&self, now: Time) -> Status {
        self.replica.status(now)
    }

    /// A frozen copy: what agreement must know, and the parts, made one by one while the node goes on.
    /// `None`: there is no cell yet, or the state is torn.
    pub fn snapshot(&self) -> Option<(Position, Parts<A>)> {
        if self.torn {
            return None;
        }
        Some((self.replica.position()?, Parts::new(&self.table, &self.application)))
    }

    /// The records that a durable node must still have beside a snapshot taken now.
    pub fn memory_records(&self) -> Vec<Record> {
        self.replica.memory_records()
    }

    pub fn replica(&self) -> &Replica {
        &self.replica
    }

    pub fn application(&self) -> &A {
        &self.application
    }

    pub fn executed_upto(&self) -> Instance {
        self.replica.executed_upto()
    }

    /// Requests that were put up for agreement here and are not executed.
    pub fn in_flight(&self) -> usize {
        self.front.in_flight
    }

    pub fn is_master(&self) -> bool {
        self.reign.is_some()
    }

    pub fn has_lease(&self, now: Time) -> bool {
        self.is_master() && self.replica.has_lease(now)
    }

    /// The rolling hash of everything executed and answered.
    pub fn digest(&self) -> u64 {
        self.table.digest.0
    }

    pub fn position(&self) -> Option<Position> {
        self.replica.position()
    }

    /// How many sessions there are.
    pub fn sessions_count(&self) -> usize {
        self.table.sessions.len()
    }

    /// The sessions there are, in order.
    pub fn sessions(&self) -> impl Iterator<Item = SessionId> {
        self.table.sessions.keys().copied()
    }

    /// One step of agreement. What it wants done waits in `agreed` for the turn.
    pub(crate) fn agree(&mut self, now: Time, input: kumo_paxos::Input) {
        self.replica.step(now, input, &mut self.agreed);
    }

    /// Does what agreement wants, executes what is decided, and then sees who can be answered.
    fn turn(&mut self, now: Time, effects: &mut Vec<Effect>) {
        self.tell_load(now);
        self.expire(now);
        self.snapshot_timeout(now, effects);
        let before = self.replica.executed_upto();
        loop {
            self.settle_agreed(now, effects);
            if self.torn {
                break;
            }
            let Some((instance, executable)) = self.replica.executable() else { break };
            self.execute(now, instance, executable, effects);
        }
        self.reign_check(now);
        self.tell_master(now, effects);
        self.answer_events(effects);
        self.answer_parked(now, before, effects);
    }

    /// Hands agreement's effects on, or acts on them. Acting may lead to more.
    fn settle_agreed(&mut self, now: Time, effects: &mut Vec<Effect>) {
        while !self.agreed.is_empty() {
            let mut agreed = std::mem::take(&mut self.agreed);
            for effect in agreed.drain(..) {
                match effect {
                    kumo_paxos::Effect::Send(to, envelope) => effects.push(Effect::Peer(to, envelope)),
                    kumo_paxos::Effect::Dial(address) => effects.push(Effect::Dial(address)),
                    kumo_paxos::Effect::Hangup(address) => effects.push(Effect::Undial(address)),
                    kumo_paxos::Effect::Persist(record) => effects.push(Effect::Persist(record)),
                    kumo_paxos::Effect::TakeSnapshot(from) => self.take_snapshot(now, from, effects),
                    kumo_paxos::Effect::Snapshot(from, sender, message) => {
                        self.snapshot_message(now, from, sender, message, effects);
                    }
                    kumo_paxos::Effect::Changed(result) => self.changed(result, effects),
                    // Compared at the end of the turn, when everything inherited is executed.
                    kumo_paxos::Effect::Master(_) => {}
                    kumo_paxos::Effect::Note(note) => effects.push(Effect::Note(NodeNote::Paxos(note))),
                    kumo_paxos::Effect::Exit(reason) => effects.push(Effect::Exit(reason)),
                }
            }
            if self.agreed.is_empty() {
                // Keep the room for the next turn.
                self.agreed = agreed;
                return;
            }
        }
    }

    fn execute(&mut self, now: Time, instance: Instance, executable: Executable, effects: &mut Vec<Effect>) {
        let (command, name) = match executable {
            Executable::Nothing => (Bytes::new(), None),
            Executable::Command(command) => (command, None),
            Executable::Large(name, command) => (command, Some(name)),
        };
        let at = At { instance, generation: self.replica.executing_generation() };
        if !command.is_empty() {
            self.count_log(command.len(), effects);
        }
        if !command.is_empty() || self.table.has_earlier(at) {
            let (table, application, told) = (&mut self.table, &mut self.application, &mut self.told);
            // A panic must not take agreement down: this node steps aside until it has a state that got past it.
            let executed = catch_unwind(AssertUnwindSafe(|| {
                table.end_earlier(at, application, told);
                if command.is_empty() { None } else { table.execute(at, command, name, application, told) }
            }));
            match executed {
                Ok(named) => self.tell(now, instance, named, effects),
                Err(_) => {
                    self.told.clear();
                    self.torn = true;
                    effects.push(Effect::Note(NodeNote::Panicked { instance: instance.0 }));
                    self.replica.panicked(now, &mut self.agreed);
                    return;
                }
            }
        }
        self.replica.executed(now, self.table.digest.0, &mut self.agreed);
    }

    /// Tells the clients connected here what an entry led to.
    fn tell(&mut self, now: Time, instance: Instance, named: Option<Named>, effects: &mut Vec<Effect>) {
        let mut told = std::mem::take(&mut self.told);
        for told in told.drain(..) {
            match told {
                Told::Opened { token, session } => self.opened(now, token, session, instance, effects),
                Told::Reply { session, number, reply } => {
                    let seat = self.front.seats.get(&session);
                    // Only the master answers; what another replica would say is the same, but unasked for.
                    if self.reign.is_some()
                        && let Some(connection) = seat.and_then(|seat| seat.connection)
                    {
                        if let Reply::Body(body) = &reply {
                            complain::<A>(connection, body, effects);
                        }
                        let message = CellMessage::Reply { session, number, instance, reply };
                        effects.push(Effect::Client(connection, message));
                    }
                }
                Told::Event(session) => {
                    if self.front.seats.get(&session).is_some_and(|seat| seat.events.is_some()) {
                        self.event_sessions.insert(session);
                    }
                }
                Told::NotOpened { token, session, reason } => {
                    self.not_opened(token, session, reason, effects);
                }
                Told::Ended { session, reason } => {
                    if reason == EndReason::Expired {
                        effects.push(Effect::Note(NodeNote::SessionExpired(session)));
                    }
                    self.session_ended(session, reason, effects);
                }
            }
        }
        self.told = told;
        match named {
            None => {}
            Some(Named::Open(token)) => {
                self.front.open_settled(token);
            }
            Some(Named::Request(session, number)) => {
                self.front.request_settled(session, number);
                self.propose_waiting(now, session);
            }
            Some(Named::Expire(session)) => {
                self.expiring.remove(&session);
            }
        }
    }

    /// A durable node's log must not grow for ever.
    fn count_log(&mut self, bytes: usize, effects: &mut Vec<Effect>) {
        self.log_entries += 1;
        self.log_bytes += bytes as u64;
        if self.log_entries >= LOG_ENTRIES_MAX || self.log_bytes >= LOG_BYTES_MAX {
            self.want_snapshot(effects);
        }
    }

    /// Asks the edge of a durable node for a snapshot on disk.
    pub(crate) fn want_snapshot(&mut self, effects: &mut Vec<Effect>) {
        (self.log_entries, self.log_bytes) = (0, 0);
        if self.paxos.durable {
            effects.push(Effect::WriteSnapshot);
        }
    }

    /// Takes note of mastership won or lost.
    fn reign_check(&mut self, now: Time) {
        let reign = if self.torn { None } else { self.replica.is_master() };
        if reign == self.reign {
            return;
        }
        self.reign = reign;
        self.front.new_reign();
        self.expiring.clear();
        // Linear reads are not answered here any more; everybody is told of the change.
        self.linear.clear();
        if reign.is_some() {
            // Nobody told this node of renewals before: every session gets one full period.
            self.fresh_since = now;
            self.expiry_at = now;
        }
    }

    fn house(&mut self, now: Time, command: Bytes) {
        if self.reign.is_some() {
            self.propose(now, LogEntry::House { time: self.wall, command });
        }
    }

    pub(crate) fn stop(&mut self, now: Time) {
        if self.reign.is_some() {
            self.agree(now, kumo_paxos::Input::StepDown);
        }
    }

    fn tell_load(&mut self, now: Time) {
        if now < self.load_at {
            return;
        }
        self.load_at = now.plus_micros(self.paxos.unit_micros);
        let load = std::mem::take(&mut self.load);
        self.agree(now, kumo_paxos::Input::Load(load));
        self.donor.tidy(now, self.paxos.unit_micros);
        self.replica.pin(self.donor.oldest());
    }

    pub(crate) fn say(&self, connection: ConnectionId, message: CellMessage, effects: &mut Vec<Effect>) {
        effects.push(Effect::Client(connection, message));
    }

    /// A message of the host's own for a peer.
    pub(crate) fn envelope(&self, addressee: Incarnation, message: Message) -> kumo_paxos::Envelope {
        let hello = self.replica.hello();
        kumo_paxos::Envelope {
            cell: hello.cell,
            generation: hello.generation,
            from: hello.address,
            sender: hello.incarnation,
            addressee,
            kept: 0,
            message,
        }
    }
}

/// Entries executed after which a durable node writes a snapshot: reading the log back stays a matter of
/// a second.
const LOG_ENTRIES_MAX: u64 = 200_000;

/// Bytes executed after which it does.
const LOG_BYTES_MAX: u64 = 256 * 1024 * 1024;
