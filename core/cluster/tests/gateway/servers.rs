//! Made-up servers around one map: whatever they do to a request, the map executes it in one moment. Also the
//! spaces, and managers that hand them out.

use crate::names::{server, space};
use bytes::Bytes;
use kumo_cluster::{Answer, GatewayId, Message, Operation, Refusal, Reply, Request, RequestId, Space, Table};
use std::collections::{BTreeMap, VecDeque};

pub const SERVERS: [char; 5] = ['a', 'b', 'c', 'd', 'e'];

/// A small generator: the same numbers for the same seed.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)) % bound
    }

    pub fn permille(&mut self, chance: u64) -> bool {
        self.below(1000) < chance
    }
}

/// What all servers share, as replication would have it.
#[derive(Default)]
pub struct Shared {
    values: BTreeMap<Bytes, Bytes>,
    replies: BTreeMap<RequestId, Reply>,
    lowest: BTreeMap<GatewayId, u64>,
    /// When each ticket's write was executed, or its key was read last.
    pub executed: BTreeMap<u64, Vec<u64>>,
    pub read: BTreeMap<u64, Vec<u64>>,
    pub refused_answered: Vec<RequestId>,
    pub spaces: Vec<(Space, Table)>,
    pub gateway_floor: u64,
    /// By nonce.
    pub ids: BTreeMap<u128, u64>,
}

pub struct Server {
    pub name: char,
    /// An index into the spaces.
    pub space: usize,
    /// Requests on their way, with the connection they came by: in the order of each connection.
    pub coming: VecDeque<(u64, u64, Request)>,
    /// Those taken on that wait for this server to learn the newest space.
    stalled: Vec<(u64, Request)>,
    /// The last connection that anything came by: what an older one brought later is dropped.
    connection: u64,
}

/// How mean the servers are, in thousandths.
#[derive(Clone, Copy)]
pub struct Mood {
    pub wait: u64,
    pub swallow: u64,
}

/// The key proper, and the ticket that each request of the test carries in its key.
pub fn parts(key: &Bytes) -> (Bytes, u64) {
    let at = key.iter().position(|&byte| byte == b'/').expect("every key has a ticket");
    let ticket = std::str::from_utf8(&key[at + 1..]).expect("digits").parse().expect("digits");
    (key.slice(..at), ticket)
}

impl Shared {
    pub fn newest(&self) -> usize {
        self.spaces.len() - 1
    }

    /// The next space: who is lost is drawn anew.
    pub fn change(&mut self, random: &mut Random) {
        let mut servers = String::new();
        for name in SERVERS {
            servers.push(name);
            if random.permille(350) {
                servers.push('!');
            }
        }
        if random.permille(60) {
            self.gateway_floor = 1 + self.ids.len() as u64;
        }
        let number = self.spaces.len() as u64 + 1;
        let space = Space { gateway_floor: GatewayId(self.gateway_floor), ..space(number, &servers) };
        let table = Table::new(&space);
        self.spaces.push((space, table));
    }

    /// The same wish gets the same id.
    pub fn register(&mut self, nonce: u128) -> GatewayId {
        let next = 1 + self.ids.len() as u64;
        GatewayId(*self.ids.entry(nonce).or_insert(next))
    }

    fn execute(&mut self, now: u64, request: &Request) -> Answer {
        let (key, ticket) = parts(&request.key);
        let before = self.values.get(&key).cloned();
        if request.operation == Operation::Get {
            self.read.entry(ticket).or_default().push(now);
            let value = |data| Answer::Reply(Reply::Value { clock: 1, flags: 0, ttl: None, data });
            return before.map_or(Answer::Missing, value);
        }
        if let Some(reply) = self.replies.get(&request.id) {
            return Answer::Reply(reply.clone());
        }
        let after = match (&request.operation, before) {
            (Operation::Set { data, .. }, _) | (Operation::Add { data, .. }, None) => Some(data.clone()),
            (Operation::Add { .. }, Some(_)) => return Answer::NotStored,
            (Operation::Delete { .. }, Some(_)) => None,
            (Operation::Delete { .. }, None) => return Answer::Missing,
            (other, _) => panic!("not called in this test: {other:?}"),
        };
        match after {
            Some(data) => self.values.insert(key, data),
            None => self.values.remove(&key),
        };
        self.executed.entry(ticket).or_default().push(now);
        let reply = Reply::Done { clock: 1 };
        self.replies.insert(request.id, reply.clone());
        Answer::Reply(reply)
    }

    /// Ids below the lowest open seq are forgotten, and refused from then on. (REPLICATION.md, rule 2)
    fn hear_lowest(&mut self, request: &Request) -> bool {
        let gateway = request.id.gateway;
        let lowest = self.lowest.entry(gateway).or_default();
        *lowest = (*lowest).max(request.lowest_open);
        let seq = *lowest;
        while let Some((&id, _)) = self.replies.range(RequestId { gateway, seq: 0 }..).next()
            && id < (RequestId { gateway, seq })
        {
            self.replies.remove(&id);
        }
        request.id.seq >= seq
    }
}

impl Server {
    pub fn new(name: char) -> Server {
        let (coming, stalled) = (VecDeque::new(), Vec::new());
        Server { name, space: 0, coming, stalled, connection: 0 }
    }

    /// Takes what has arrived; the answers, each with its connection.
    pub fn serve(
        &mut self,
        now: u64,
        shared: &mut Shared,
        mood: Mood,
        random: &mut Random,
    ) -> Vec<(u64, Message)> {
        let mut out = Vec::new();
        let mut later = VecDeque::new();
        for (at, connection, request) in std::mem::take(&mut self.coming) {
            if at > now {
                later.push_back((at, connection, request));
            } else if connection >= self.connection {
                self.connection = connection;
                self.take(now, connection, request, shared, mood, random, &mut out);
            }
        }
        self.coming = later;
        out
    }

    /// Knows the newest space from now on: what it could not commit in the old one goes back.
    pub fn learn(&mut self, shared: &Shared) -> Vec<(u64, Message)> {
        self.space = shared.newest();
        let mut out = Vec::new();
        for (connection, request) in std::mem::take(&mut self.stalled) {
            self.wrong_space(connection, &request, shared, &mut out);
        }
        out
    }

    #[allow(clippy::too_many_arguments)]
    fn take(
        &mut self,
        now: u64,
        connection: u64,
        request: Request,
        shared: &mut Shared,
        mood: Mood,
        random: &mut Random,
        out: &mut Vec<(u64, Message)>,
    ) {
        let (space, table) = &shared.spaces[self.space];
        let me = space.index_of(server(self.name)).expect("all are members");
        let readers = &table.arc(request.hash).readers;
        let is_get = request.operation == Operation::Get;
        let mine = if is_get { readers.contains(&me) } else { readers.first() == Some(&me) };
        if request.space != space.number || !mine {
            if request.space > space.number {
                out.push((connection, Message::WantSpace { above: space.number }));
            }
            return self.wrong_space(connection, &request, shared, out);
        }
        if self.space < shared.newest() {
            // Others know more, and would not acknowledge or confirm.
            self.stalled.push((connection, request));
            return;
        }
        let swallowed = random.permille(mood.swallow);
        let answer = if space.expired(request.id.gateway) {
            Answer::Refused { reason: Refusal::GatewayExpired }
        } else if !shared.hear_lowest(&request) {
            shared.refused_answered.push(request.id);
            Answer::Refused { reason: Refusal::Answered }
        } else if random.permille(mood.wait) {
            Answer::Wait
        } else {
            shared.execute(now, &request)
        };
        if !swallowed {
            out.push((connection, Message::Answer { seq: request.id.seq, answer }));
        }
    }

    fn wrong_space(
        &self,
        connection: u64,
        request: &Request,
        shared: &Shared,
        out: &mut Vec<(u64, Message)>,
    ) {
        let space = &shared.spaces[self.space].0;
        if request.space < space.number {
            out.push((connection, Message::new_space(space.clone())));
        }
        let answer = Answer::WrongSpace { newest: space.number };
        out.push((connection, Message::Answer { seq: request.id.seq, answer }));
    }
}
