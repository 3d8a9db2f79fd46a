//! [`Server`]: keeps records, orders the keys it is primary of, replicates, settles, copies.

mod adopt;
mod bucket;
mod catching;
mod copy;
mod expire;
mod few;
mod flush;
mod holdings;
mod ids;
mod judge;
mod keyed;
mod leftovers;
mod link;
mod origin;
mod pace;
mod pendings;
#[cfg(feature = "mutants")]
mod portrait;
mod read;
mod repair;
mod replica;
mod replies;
mod settle;
mod sweep;
mod unread;
mod unstored;
mod world;
mod write;

use crate::{
    Alive, Answer, Clock, Fault, Garbage, GatewayId, Message, Progress, Range, ServerEffect, ServerId,
    ServerInput, ServerNote, ServerSettings, Space, SpaceNumber, Store, StoreKey,
};
use copy::Copies;
use holdings::Holdings;
use ids::Ids;
use keyed::Keyed;
use kumo_paxos::Time;
use kumo_session::{ConnectionId, UnixMillis};
use link::Link;
use pace::Pace;
use pendings::Pendings;
use read::Reads;
use replica::Mark;
use settle::Settlement;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use unread::Unread;
use unstored::Unstored;
use world::World;

/// A server of the store, without IO but for its [`Store`]. The rules it keeps are REPLICATION.md's; comments
/// cite them by number.
///
/// A write that is not committed lives in `pending` at its primary and as a marked record at the others. The
/// primary's own store takes it when all have acknowledged: until then a read there shows the version before,
/// as rule 8 wants, without a second copy of it.
#[derive(Clone)]
pub struct Server<S: Store> {
    settings: ServerSettings,
    store: S,
    world: Option<World>,
    /// Greatest ever heard or stamped.
    clock: Clock,
    wall: UnixMillis,
    /// Reads need no confirmation before this time.
    lease_end: Time,
    /// How long the leases are that it is granted.
    lease_micros: u64,
    /// The cell's time, and when it was heard.
    cell_time: Option<(Time, UnixMillis)>,
    /// It was this late before, in milliseconds.
    cell_floor: u64,
    /// By member index of the world's space.
    links: Vec<Link>,
    up: BTreeSet<ServerId>,
    managers: BTreeSet<SocketAddr>,
    pending: Pendings,
    /// Of them, those that cannot be read.
    unread: Unread,
    /// Committed, and not on the disk.
    unstored: Unstored,
    /// Records that may not be committed, as a replica knows them.
    dirty: Keyed<Mark>,
    /// While Catching: keys that came by Replicate since, which a copy must not touch.
    replicated: BTreeSet<StoreKey>,
    ids: Ids,
    settlement: Option<Settlement>,
    copies: Copies,
    unsafe_copies: Vec<catching::UnsafeCopy>,
    pace: Pace,
    /// Copying goes on then: until then clients come first.
    copy_at: Option<Time>,
    reads: Reads,
    /// The newest space that a gateway's connection was given.
    told: BTreeMap<ConnectionId, SpaceNumber>,
    /// Was an owner in this life: what it does not own any more is not wanted any more.
    owned: bool,
    sweep: sweep::Sweep,
    counts: Counts,
    backup_for: Option<SocketAddr>,
    /// As it was told last.
    full: bool,
    holdings: Holdings,
    /// The other cell that was heard of last.
    stranger: Option<kumo_paxos::CellId>,
    flushes: flush::Flushes,
    /// A space that is adopted when what must not be served in it is dropped.
    postponed: Option<Space>,
    postponed_until: Time,
    /// Of the space that is kept, while no other names this life: see [`leftovers`].
    orphaned_before: Vec<Range>,
    tick_at: Time,
    alive_at: Time,
    /// When what is unsaid goes out on its own. It stays when that was said with a frame: then nothing does.
    watermark_at: Option<Time>,
    watermark_wanted: bool,
}

/// Requests served, for people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub gets: u64,
    pub sets: u64,
    pub deletes: u64,
}

impl<S: Store> Server<S> {
    pub fn new(settings: ServerSettings, store: S, now: Time) -> Server<S> {
        let holdings = match settings.cluster {
            None => Holdings::of(&store),
            Some(_) => Holdings::default(),
        };
        let mut server = Server {
            store,
            holdings,
            full: false,
            world: None,
            clock: Clock(0),
            wall: UnixMillis(0),
            lease_end: Time(0),
            lease_micros: u64::MAX,
            cell_time: None,
            cell_floor: 0,
            links: Vec::new(),
            up: BTreeSet::new(),
            managers: BTreeSet::new(),
            pending: Pendings::default(),
            unread: Unread::default(),
            unstored: Unstored::default(),
            dirty: Keyed::default(),
            replicated: BTreeSet::new(),
            ids: Ids::default(),
            settlement: None,
            copies: Copies::new(),
            unsafe_copies: Vec::new(),
            pace: Pace::new(now, settings.courteous),
            copy_at: None,
            reads: Reads::default(),
            told: BTreeMap::new(),
            owned: false,
            sweep: sweep::Sweep::default(),
            counts: Counts::default(),
            backup_for: None,
            stranger: None,
            flushes: flush::Flushes::default(),
            postponed: None,
            postponed_until: now,
            orphaned_before: Vec::new(),
            tick_at: now,
            alive_at: now,
            watermark_at: None,
            watermark_wanted: false,
            settings,
        };
        // It names no life of this process: nothing is served under it, but its number is never undercut.
        if let Some(space) = server.settings.space.clone() {
            server.clock = space.clock;
            server.links.resize_with(space.members.len(), || Link::new(now));
            server.orphaned_before = server.orphaned_before(&space);
            server.world = Some(World::new(space, None, None, server.settings.broken));
        }
        server
    }

    /// All change happens here.
    pub fn step(&mut self, now: Time, input: ServerInput, effects: &mut Vec<ServerEffect>) {
        let wanted = self.watermark_wanted;
        match input {
            ServerInput::Timeout => self.tick(now, effects),
            ServerInput::Wall(wall) => self.wall = wall,
            ServerInput::ServerUp(id) => self.server_up(now, id, effects),
            ServerInput::ServerDown(id) => self.server_down(id),
            ServerInput::Server(from, message) => self.server(now, from, message, effects),
            ServerInput::Gateway(connection, message) => self.gateway(now, connection, message, effects),
            ServerInput::GatewayDown(connection) => {
                self.told.remove(&connection);
            }
            ServerInput::ManagerUp(address) => {
                self.managers.insert(address);
                self.alive(now, Some(address), effects);
            }
            ServerInput::ManagerDown(address) => {
                self.managers.remove(&address);
            }
            ServerInput::Manager(from, message) => self.manager(now, from, message, effects),
            ServerInput::BackedUp { suffix, result } => self.backed_up(suffix, result, effects),
        }
        if self.watermark_wanted && (!wanted || self.watermark_at.is_none()) {
            self.watermark_at = Some(now.plus_micros(WATERMARK_MICROS));
        }
    }

    /// When to call `step` with [`ServerInput::Timeout`] at the latest.
    pub fn deadline(&self) -> Option<Time> {
        let sooner = [self.watermark_at, self.copy_at, self.sweep.again_at];
        sooner.into_iter().flatten().chain([self.tick_at]).min()
    }

    pub fn store(&self) -> &S {
        &self.store
    }

    pub fn id(&self) -> ServerId {
        self.settings.id
    }

    pub fn space(&self) -> Option<&Space> {
        self.world.as_ref().map(|world| &world.space)
    }

    pub fn counts(&self) -> Counts {
        self.counts
    }

    pub fn has_lease(&self, now: Time) -> bool {
        now < self.lease_end
    }

    pub fn lease_left_micros(&self, now: Time) -> u64 {
        self.lease_end.since(now)
    }

    /// Managers that it has a connection with.
    pub fn managers_connected(&self) -> usize {
        self.managers.len()
    }

    /// How far the copies are. One that is in memory alone, and would be the only one, is not done.
    pub fn progress(&self) -> Progress {
        let (progress, alone) = (self.copies.progress(), self.alone_in_memory());
        Progress { copies: progress.copies + alone, unreadable: progress.unreadable + alone, ..progress }
    }

    pub fn garbage(&self) -> Garbage {
        self.sweep.garbage()
    }

    /// Writes that not all have acknowledged, and records that may not be committed.
    pub fn under_way(&self) -> (u64, u64) {
        (self.pending.len() as u64, self.dirty.len() as u64)
    }

    /// Writes under way, marks and requests that wait: all of them resolve when nothing fails any more.
    pub fn unsettled(&self) -> usize {
        self.pending.len() + self.dirty.len() + self.reads.len()
    }

    fn server(&mut self, now: Time, from: ServerId, message: Message, effects: &mut Vec<ServerEffect>) {
        match message {
            Message::NewSpace { space } => self.adopt_from(now, from, *space, effects),
            Message::WantSpace { above } => self.give_space(from, above, effects),
            Message::Replicate { .. } => self.replicate(from, message, effects),
            Message::Replicated { epoch, first, last } => {
                self.replicated(now, from, epoch, first..=last, effects);
            }
            Message::ReplicaFull { epoch, seq } => self.replica_full(from, epoch, seq),
            Message::Watermark { epoch, upto } => self.watermark(from, epoch, upto),
            Message::Confirm { space, ticket } => self.confirm(from, space, ticket, effects),
            Message::Confirmed { space, ticket } => self.confirmed(now, from, space, ticket, effects),
            Message::AskPrimary { space, ticket, key } => self.asked(now, from, space, ticket, key, effects),
            Message::PrimarySays { space, ticket, found, unreadable } => {
                self.primary_says(now, space, ticket, found, unreadable, effects);
            }
            Message::Settle { space, ranges, after } => self.settle(from, space, ranges, after, effects),
            Message::Settled { .. } => self.settled(now, from, message, effects),
            Message::CopyDigest { .. } => self.copy_digest(from, message, effects),
            Message::CopyRecords { .. } => self.copy_records(from, message, effects),
            Message::CopySame { job, range } => self.copy_same(now, from, job, range, effects),
            Message::CopyStored { job, range } => self.copy_stored(now, from, job, range, effects),
            Message::CopyDiffers { job, range } => self.copy_differs(now, from, job, range, effects),
            Message::CopyLater { job, range } => self.copy_later(from, job, range),
            Message::CopyHeads { job, range, heads } => {
                self.copy_heads(now, from, job, range, heads, effects);
            }
            Message::CopyNarrow { job, range, last } => {
                self.copy_narrow(now, from, job, range, last, effects);
            }
            Message::CopyIds { .. } => self.copy_ids(from, message, effects),
            Message::CopyIdsStored { job, range, after } => {
                self.copy_ids_stored(now, from, job, range, after, effects);
            }
            // Between a server and somebody else: said by a server they mean nothing.
            Message::Request(_)
            | Message::Answer { .. }
            | Message::Alive(_)
            | Message::Lease { .. }
            | Message::Register { .. }
            | Message::Registered { .. }
            | Message::GatewayAlive { .. }
            | Message::Managers { .. }
            | Message::Backup { .. }
            | Message::BackedUp { .. }
            | Message::Recruit(_)
            | Message::Probe { .. }
            | Message::Probed { .. }
            | Message::Flush { .. }
            | Message::Flushed { .. }
            | Message::Unwelcome { .. } => {}
        }
    }

    fn gateway(&mut self, now: Time, from: ConnectionId, message: Message, effects: &mut Vec<ServerEffect>) {
        match message {
            Message::Request(request) => {
                self.pace.asked(now);
                self.request(now, from, request, effects);
            }
            Message::NewSpace { space } => self.adopt(now, *space, effects),
            Message::Flush { .. } => self.flush(now, from, message, effects),
            _other => {}
        }
    }

    fn manager(&mut self, now: Time, from: SocketAddr, message: Message, effects: &mut Vec<ServerEffect>) {
        match message {
            Message::NewSpace { space } => self.adopt(now, *space, effects),
            Message::Lease { sent, micros, unix_millis } => self.leased(now, sent, micros, unix_millis),
            Message::WantSpace { above } => {
                if let Some(world) = self.world.as_ref().filter(|world| world.number() > above) {
                    let space = world.space.clone();
                    effects.push(ServerEffect::Manager(from, Message::new_space(space)));
                }
            }
            // Those of another cell, which forgot this one, must not take the place of its own; and one that has not
            // found its cell yet knows of nobody.
            Message::Managers { cluster, managers, .. }
                if !managers.is_empty() && self.settings.cluster.is_none_or(|ours| ours == cluster) =>
            {
                effects.push(ServerEffect::Managers(managers));
            }
            Message::Backup { suffix } => {
                self.backup_for = Some(from);
                effects.push(ServerEffect::Backup { suffix });
            }
            Message::Recruit(recruit) => effects.push(ServerEffect::Recruit(recruit)),
            Message::Probe { nonce } => effects.push(ServerEffect::Manager(from, Message::Probed { nonce })),
            // One that owned something goes on: what another cell's manager says of it is that one's affair.
            Message::Unwelcome { reason } if !self.owned => effects.push(ServerEffect::Exit(reason)),
            _other => {}
        }
    }

    fn backed_up(&mut self, suffix: String, result: Result<String, String>, effects: &mut Vec<ServerEffect>) {
        let Some(manager) = self.backup_for.take() else { return };
        let (path, error) = match result {
            Ok(path) => (Some(path), None),
            Err(error) => (None, Some(error)),
        };
        effects.push(ServerEffect::Manager(manager, Message::BackedUp { suffix, path, error }));
    }

    fn leased(&mut self, now: Time, sent: Time, micros: u64, unix_millis: u64) {
        self.lease_end = self.lease_end.max(sent.plus_micros(micros));
        self.lease_micros = micros;
        // Never back: a new master's clock may be behind the one before it. It stands still meanwhile.
        if self.cell_time.is_some() {
            self.cell_floor = self.cell_millis(now);
        }
        self.cell_time = Some((now, UnixMillis(unix_millis)));
    }

    fn server_up(&mut self, now: Time, id: ServerId, effects: &mut Vec<ServerEffect>) {
        self.up.insert(id);
        // The other may be behind; it must know our space before anything that names it.
        self.give_space(id, SpaceNumber(0), effects);
        let Some(index) = self.index_of(id) else { return };
        let link = &mut self.links[usize::from(index)];
        (link.up, link.given) = (true, true);
        self.resend(now, index, effects);
        self.send_watermark(index, effects);
        self.resend_settle(now, index, effects);
    }

    fn server_down(&mut self, id: ServerId) {
        self.up.remove(&id);
        if let Some(index) = self.index_of(id) {
            self.links[usize::from(index)].up = false;
        }
    }

    fn give_space(&self, to: ServerId, above: SpaceNumber, effects: &mut Vec<ServerEffect>) {
        let Some(world) = &self.world else { return };
        if world.number() > above {
            effects.push(ServerEffect::Server(to, Message::new_space(world.space.clone())));
        }
    }

    /// The member that is this life of that server, and acts.
    fn index_of(&self, server: ServerId) -> Option<u16> {
        self.world.as_ref()?.space.index_of(server)
    }

    fn send(&self, to: u16, message: Message, effects: &mut Vec<ServerEffect>) {
        let Some(world) = &self.world else { return };
        if self.links[usize::from(to)].up {
            effects.push(ServerEffect::Server(world.space.server(to), message));
        }
    }

    fn answer(&self, to: ConnectionId, seq: u64, answer: Answer, effects: &mut Vec<ServerEffect>) {
        effects.push(ServerEffect::Gateway(to, Message::Answer { seq, answer }));
    }

    /// "Not here": with the space that says where, if the gateway's is older.
    fn wrong_space(
        &mut self,
        to: ConnectionId,
        asked: SpaceNumber,
        seq: u64,
        effects: &mut Vec<ServerEffect>,
    ) {
        let Some(world) = &self.world else { return };
        let newest = world.number();
        if asked < newest && self.told.get(&to).is_none_or(|&told| told < newest) {
            self.told.insert(to, newest);
            effects.push(ServerEffect::Gateway(to, Message::new_space(world.space.clone())));
        }
        self.answer(to, seq, Answer::WrongSpace { newest }, effects);
    }

    fn alive(&mut self, now: Time, only: Option<SocketAddr>, effects: &mut Vec<ServerEffect>) {
        let full = self.store.is_full();
        if std::mem::replace(&mut self.full, full) != full {
            effects.push(ServerEffect::Note(ServerNote::Full(full)));
        }
        let alive = Alive {
            server: self.settings.id,
            previous: self.settings.previous.clone(),
            cluster: self.settings.cluster,
            stamped: self.holdings.stamped,
            digest: self.holdings.digest,
            space: self.world.as_ref().map_or(SpaceNumber(0), World::number),
            sent: now,
            usage: self.store.usage(),
            progress: self.progress(),
            gets: self.counts.gets,
            sets: self.counts.sets,
            deletes: self.counts.deletes,
            seat: self.settings.seat,
            leased: self.has_lease(now),
            full,
        };
        for &manager in self.managers.iter().filter(|&&one| only.is_none_or(|only| only == one)) {
            effects.push(ServerEffect::Manager(manager, Message::Alive(Box::new(alive.clone()))));
        }
    }

    fn store_fault(&self, fault: &Fault, effects: &mut Vec<ServerEffect>) {
        effects.push(ServerEffect::Note(ServerNote::StoreFault { what: fault.to_string() }));
    }

    /// Seconds of the cell's time; of people's while no manager was ever heard.
    fn cell_seconds(&self, now: Time) -> u64 {
        self.cell_millis(now) / 1000
    }

    fn cell_millis(&self, now: Time) -> u64 {
        match self.cell_time {
            Some((heard, time)) => time.0.saturating_add(now.since(heard) / 1000).max(self.cell_floor),
            None => self.wall.0,
        }
    }

    fn expired(&self, now: Time, expiry: u32) -> bool {
        // Before a manager has told the time nothing has expired: this host's own clock may be a day off.
        expiry != 0 && self.cell_time.is_some() && self.cell_seconds(now) >= u64::from(expiry)
    }

    fn gateway_expired(&self, gateway: GatewayId) -> bool {
        self.world.as_ref().is_some_and(|world| world.space.expired(gateway))
    }
}

/// A watermark that no frame carried goes out on its own after this long. (Rule 7)
const WATERMARK_MICROS: u64 = 2_000;
