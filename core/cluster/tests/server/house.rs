//! [`House`]: some servers, the links between them, and a gateway's side of the requests.

use super::disk::Disk;
use bytes::Bytes;
use kumo_cluster::{
    Answer, Broken, Early, GatewayId, Incarnation, Job, KeyHash, Limits, Member, MemberState, Message,
    Operation, Request, RequestId, Server, ServerEffect, ServerId, ServerInput, ServerNote, ServerSettings,
    Space, SpaceNumber, StoreKey, Table, key_hash,
};
use kumo_paxos::{CellId, Time};
use kumo_session::ConnectionId;
use kumo_wire::Wire;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

pub struct House {
    pub now: Time,
    pub servers: Vec<Server<Disk>>,
    pub disks: Vec<Disk>,
    /// The space that each disk keeps, and the lives that it remembers: the one that kept it, and those since.
    pub kept: Vec<(Option<Space>, Vec<Incarnation>)>,
    pub space: Space,
    queue: VecDeque<(usize, usize, Message)>,
    /// Nothing reaches it.
    pub cut_off: Option<usize>,
    /// From one to another nothing comes through.
    pub blocked: Vec<(usize, usize)>,
    /// Writes do not come through.
    pub drop_frames: bool,
    pub answers: BTreeMap<u64, Answer>,
    /// Flushes that a server said it is done with: which one, in which space, of which number.
    pub flushed: Vec<(usize, SpaceNumber, u64)>,
    /// What servers noted, and who.
    pub notes: Vec<(usize, ServerNote)>,
    /// The most that one step of a server asked of its disk.
    pub work_max: usize,
    /// The longest message.
    pub bytes_max: usize,
    /// Watermarks that went out on their own.
    pub lone_watermarks: usize,
}

impl House {
    /// The first `attached` of them own everything.
    pub fn new(servers: usize, attached: usize, copies_min: usize) -> House {
        House::with_broken(servers, attached, copies_min, Broken::default())
    }

    /// Without a rule.
    pub fn with_broken(servers: usize, attached: usize, copies_min: usize, broken: Broken) -> House {
        House::with(servers, attached, |settings| {
            (settings.copies_min, settings.broken) = (copies_min, broken)
        })
    }

    /// With other settings.
    pub fn with(servers: usize, attached: usize, change: impl Fn(&mut ServerSettings)) -> House {
        let now = Time(1_000_000);
        let disks: Vec<Disk> = (0..servers).map(|_| Disk::default()).collect();
        let start = |(index, disk): (usize, &Disk)| {
            let mut settings = settings(index);
            change(&mut settings);
            Server::new(settings, disk.clone(), now)
        };
        let mut house = House {
            now,
            servers: disks.iter().enumerate().map(start).collect(),
            disks,
            kept: vec![(None, vec![server(0).incarnation]); servers],
            space: Space::empty(CellId(1), SpaceNumber(0)),
            queue: VecDeque::new(),
            cut_off: None,
            blocked: Vec::new(),
            drop_frames: false,
            answers: BTreeMap::new(),
            flushed: Vec::new(),
            notes: Vec::new(),
            work_max: 0,
            bytes_max: 0,
            lone_watermarks: 0,
        };
        let member = |index: usize| Member {
            address: server(index).address,
            incarnation: server(index).incarnation,
            state: MemberState::Active,
        };
        house.space.members = (0..servers).map(member).collect();
        for one in 0..servers {
            for other in (0..servers).filter(|&other| other != one) {
                house.step(one, ServerInput::ServerUp(server(other)));
            }
        }
        house.publish(|space| {
            space.rhs = (0..attached as u16).collect();
            space.whs = space.rhs.clone();
        });
        house.lease();
        house
    }

    /// The next space, to all who can hear it.
    pub fn publish(&mut self, change: impl FnOnce(&mut Space)) {
        self.space.number.0 += 1;
        change(&mut self.space);
        let cut_off = self.cut_off;
        for to in (0..self.servers.len()).filter(|to| Some(*to) != cut_off) {
            let message = Message::new_space(self.space.clone());
            self.step(to, ServerInput::Manager(manager(), message));
        }
        self.settle();
    }

    /// A replace to all servers there are.
    pub fn attach_all(&mut self) {
        let all = (0..self.servers.len() as u16).collect();
        self.publish(|space| {
            (space.whs, space.whs_since) = (all, space.number);
            space.job = Some(Job { full: false, paused: false, rate: 0 });
        });
    }

    pub fn lease(&mut self) {
        (0..self.servers.len()).for_each(|to| self.lease_at(to, START_SECONDS));
    }

    /// One of them hears that it is so late in the cell.
    pub fn lease_at(&mut self, to: usize, seconds: u64) {
        let lease = Message::Lease { sent: self.now, micros: LEASE_MICROS, unix_millis: seconds * 1000 };
        self.step(to, ServerInput::Manager(manager(), lease));
    }

    /// Delivers everything, in order.
    pub fn settle(&mut self) {
        while let Some((from, to, message)) = self.queue.pop_front() {
            let cut = self.blocked.contains(&(from, to)) || [from, to].map(Some).contains(&self.cut_off);
            let dropped = self.drop_frames && matches!(message, Message::Replicate { .. });
            if !cut && !dropped {
                self.step(to, ServerInput::Server(self.servers[from].id(), message));
            }
        }
    }

    /// Its process ends, and another begins with what the disk kept.
    pub fn restart(&mut self, at: usize, change: impl Fn(&mut ServerSettings)) {
        let (before, (space, lives)) = (self.servers[at].id(), &mut self.kept[at]);
        let incarnation = Incarnation(before.incarnation.0 + 1);
        let mut again = settings(at);
        (again.id.incarnation, again.previous) = (incarnation, lives.clone());
        (again.cluster, again.space) = (space.as_ref().map(|space| space.cluster), space.clone());
        change(&mut again);
        lives.push(incarnation);
        let id = again.id;
        self.servers[at] = Server::new(again, self.disks[at].clone(), self.now);
        for other in (0..self.servers.len()).filter(|&other| other != at) {
            self.step(other, ServerInput::ServerDown(before));
            self.step(other, ServerInput::ServerUp(id));
            self.step(at, ServerInput::ServerUp(self.servers[other].id()));
        }
        self.settle();
        self.lease_at(at, START_SECONDS);
    }

    /// Lets time pass, tick by tick.
    pub fn wait(&mut self, micros: u64) {
        let until = self.now.plus_micros(micros);
        while self.now < until {
            self.now = self.now.plus_micros(10_000);
            for to in 0..self.servers.len() {
                self.step(to, ServerInput::Timeout);
            }
            self.settle();
        }
    }

    pub fn step(&mut self, at: usize, input: ServerInput) {
        let mut effects = Vec::new();
        self.disks[at].work();
        self.servers[at].step(self.now, input, &mut effects);
        self.work_max = self.work_max.max(self.disks[at].work());
        for effect in effects {
            match effect {
                ServerEffect::Server(to, message) => {
                    if matches!(
                        message,
                        Message::Replicate { .. }
                            | Message::Settled { .. }
                            | Message::CopyIds { .. }
                            | Message::CopyRecords { .. }
                            | Message::CopyHeads { .. }
                            | Message::CopyDigest { .. }
                    ) {
                        self.bytes_max = self.bytes_max.max(message.to_bytes().len());
                    }
                    self.lone_watermarks += usize::from(matches!(message, Message::Watermark { .. }));
                    self.queue.push_back((at, usize::from(to.address.port()) - 1, message));
                }
                ServerEffect::Gateway(_, Message::Answer { seq, answer }) => {
                    self.answers.insert(seq, answer);
                }
                ServerEffect::Gateway(_, Message::Flushed { space, seq }) => {
                    self.flushed.push((at, space, seq));
                }
                ServerEffect::KeepSpace(space) => {
                    self.kept[at] = (Some(space), vec![self.servers[at].id().incarnation]);
                }
                ServerEffect::Note(note) => self.notes.push((at, note)),
                _other => {}
            }
        }
    }

    /// Sends a request of the one gateway there is, and says what it was answered once all is quiet.
    pub fn ask(
        &mut self,
        to: usize,
        seq: u64,
        lowest_open: u64,
        key: &StoreKey,
        operation: Operation,
    ) -> Option<Answer> {
        self.send(to, seq, lowest_open, key, operation);
        self.settle();
        self.answers.get(&seq).cloned()
    }

    pub fn send(&mut self, to: usize, seq: u64, lowest_open: u64, key: &StoreKey, operation: Operation) {
        let request = self.request(seq, lowest_open, key, operation);
        self.send_request(to, request);
    }

    /// A try, as the gateway makes it now.
    pub fn request(&self, seq: u64, lowest_open: u64, key: &StoreKey, operation: Operation) -> Request {
        Request {
            space: self.space.number,
            first_space: self.space.number,
            id: RequestId { gateway: GatewayId(7), seq },
            lowest_open,
            hash: key.hash,
            key: key.key.clone(),
            operation,
            early: false,
        }
    }

    pub fn send_request(&mut self, to: usize, request: Request) {
        self.answers.remove(&request.id.seq);
        self.step(to, ServerInput::Gateway(ConnectionId(1), Message::Request(request)));
    }

    pub fn primary(&self, hash: KeyHash) -> usize {
        let table = Table::new(&self.space);
        usize::from(table.arc(hash).primary().expect("somebody owns it"))
    }

    pub fn owners(&self, key: &StoreKey) -> Vec<usize> {
        let table = Table::new(&self.space);
        table.arc(key.hash).readers.iter().copied().map(usize::from).collect()
    }

    /// Keys whose acting owners are these, in that order.
    pub fn keys_of(&self, owners: &[u16], count: usize) -> Vec<StoreKey> {
        let table = Table::new(&self.space);
        let names = (0u64..).map(|number| Bytes::from(format!("key-{number}")));
        let keys = names.map(|key| StoreKey { hash: key_hash(&key), key });
        keys.filter(|key| table.arc(key.hash).readers.starts_with(owners)).take(count).collect()
    }
}

/// The cell's time when all begins.
pub const START_SECONDS: u64 = 1_000_000;

/// Days: tests are about something else.
pub const LEASE_MICROS: u64 = 1 << 40;

pub fn server(index: usize) -> ServerId {
    let port = index as u16 + 1;
    ServerId { address: SocketAddr::from(([10, 0, 0, 1], port)), incarnation: Incarnation(1) }
}

pub fn set(data: &'static str) -> Operation {
    Operation::Set { flags: 0, expiry: 0, data: Bytes::from_static(data.as_bytes()) }
}

pub fn manager() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 2], 1))
}

pub fn settings(index: usize) -> ServerSettings {
    ServerSettings {
        id: server(index),
        previous: Vec::new(),
        cluster: None,
        space: None,
        copies_min: 1,
        early: Early::default(),
        value_bytes_max: 1 << 20,
        tombstone_micros_min: 0,
        keepalive_micros: 2_000_000,
        courteous: true,
        seat: None,
        limits: Limits::default(),
        broken: Broken::default(),
    }
}
