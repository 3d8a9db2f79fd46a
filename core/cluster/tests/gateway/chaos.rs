//! A gateway under load while links break, spaces change, servers dawdle and managers come and go: every call is
//! answered once, nothing is executed twice, and the gateway never spins.

use crate::names::{CLUSTER, manager, name, server, settings};
use crate::servers::{Mood, Random, SERVERS, Server, Shared, parts};
use bytes::Bytes;
use kumo_cluster::{
    Answer, Gateway, GatewayEffect, GatewayError, GatewayInput, GatewaySettings, Message, Operation, Request,
    RequestId, ServerId, SpaceNumber, key_hash,
};
use kumo_paxos::Time;
use std::collections::{BTreeMap, BTreeSet};

/// Everything around the gateway. Times are microseconds, in steps of one millisecond.
struct World {
    now: u64,
    random: Random,
    gateway: Gateway,
    shared: Shared,
    servers: Vec<Server>,
    /// By server: the connection, if it is up, or when it will be.
    links: BTreeMap<char, Link>,
    connections: u64,
    managers_up: BTreeSet<u8>,
    /// On their way to the gateway.
    coming: Vec<(u64, Source, Message)>,
    seen: Seen,
}

#[derive(Clone, Copy)]
enum Link {
    Down { until: u64 },
    Up { connection: u64, last_in: u64, last_out: u64 },
}

#[derive(Clone, Copy, PartialEq)]
enum Source {
    Manager(u8),
    Server(char, u64),
}

/// What the gateway did, for judgement.
#[derive(Default)]
struct Seen {
    called: BTreeMap<u64, (u64, Operation)>,
    done: BTreeMap<u64, (u64, Result<Answer, GatewayError>)>,
    /// What each id was used for, and the space it was first sent in.
    ids: BTreeMap<RequestId, (u64, SpaceNumber)>,
    /// Of the calls that are open and were sent: by seq the ticket, and by ticket the seq.
    open: BTreeMap<u64, u64>,
    seqs: BTreeMap<u64, u64>,
    sends: BTreeMap<u64, u64>,
    effects: u64,
    breaks: u64,
    retries: u64,
    expired: u64,
}

const STEP: u64 = 1_000;
const LOAD_MICROS: u64 = 6_000_000;
const REQUEST_MICROS: u64 = 2_500_000;

/// Sends of one call: its 2.5 s hold some 60 rests; the rest is links and spaces, of which there are fewer.
const SENDS_MAX: u64 = 150;

impl World {
    fn new(seed: u64) -> World {
        let settings = GatewaySettings {
            cluster: Some(CLUSTER),
            try_micros: 300_000,
            request_micros: REQUEST_MICROS,
            keepalive_micros: 200_000,
            spread_reads: seed % 3 == 1,
            set_retry_max: if seed % 4 == 2 { 2 } else { 20 },
            ..settings()
        };
        let mut random = Random(seed);
        let mut shared = Shared::default();
        shared.change(&mut random);
        World {
            now: 0,
            random,
            gateway: Gateway::new(settings, Time(0)),
            shared,
            servers: SERVERS.map(Server::new).into(),
            links: BTreeMap::new(),
            connections: 0,
            managers_up: BTreeSet::new(),
            coming: Vec::new(),
            seen: Seen::default(),
        }
    }

    fn run(&mut self) {
        let mut ticket = 0;
        while self.now < LOAD_MICROS {
            self.now += STEP;
            if self.random.permille(200) {
                ticket += 1;
                self.call(ticket);
            }
            self.trouble();
            self.turn(Mood { wait: 100, swallow: 3 });
        }
        let end = self.now + REQUEST_MICROS + STEP;
        while self.now < end {
            self.now += STEP;
            self.turn(Mood { wait: 0, swallow: 0 });
        }
    }

    fn call(&mut self, ticket: u64) {
        let name = self.random.below(8).to_string();
        let data = Bytes::from(ticket.to_string());
        let (flags, expiry) = (0, 0);
        let operation = match self.random.below(5) {
            0 => Operation::Set { flags, expiry, data },
            1 => Operation::Add { flags, expiry, data },
            2 => Operation::Delete { unique: None },
            _ => Operation::Get,
        };
        self.seen.called.insert(ticket, (self.now, operation.clone()));
        let (hash, key) = (key_hash(name.as_bytes()), Bytes::from(format!("{name}/{ticket}")));
        self.step(GatewayInput::Call { ticket, hash, key, operation });
    }

    /// One thing that goes wrong, now and then.
    fn trouble(&mut self) {
        if self.random.permille(5) {
            let name = SERVERS[self.random.below(5) as usize];
            self.break_link(name);
        }
        if self.random.permille(2) {
            self.shared.change(&mut self.random);
        }
        if self.random.permille(4) {
            let number = self.random.below(2) as u8;
            if self.managers_up.remove(&number) {
                self.coming.retain(|(_, source, _)| *source != Source::Manager(number));
                self.step(GatewayInput::ManagerDown(manager(number)));
            }
        }
    }

    fn break_link(&mut self, name: char) {
        let Some(link @ Link::Up { .. }) = self.links.get(&name).copied() else { return };
        let Link::Up { connection, .. } = link else { return };
        let until = self.now + self.random.below(400) * 1000;
        self.links.insert(name, Link::Down { until });
        self.coming.retain(|(_, source, _)| *source != Source::Server(name, connection));
        // Of what is under way some never arrives; the rest may, after the gateway gave the connection up.
        let random = &mut self.random;
        let server = self.servers.iter_mut().find(|server| server.name == name).expect("it is one");
        server.coming.retain(|(_, by, _)| *by != connection || random.permille(500));
        self.seen.breaks += 1;
        self.step(GatewayInput::ServerDown(crate::names::server(name)));
    }

    /// One millisecond: links and managers come up, what is due arrives, the gateway wakes.
    fn turn(&mut self, mood: Mood) {
        for name in SERVERS {
            if let Some(Link::Down { until }) = self.links.get(&name).copied()
                && until <= self.now
            {
                self.connections += 1;
                let connection = self.connections;
                self.links.insert(name, Link::Up { connection, last_in: 0, last_out: 0 });
                self.step(GatewayInput::ServerUp(server(name)));
            }
        }
        for number in 0..2 {
            if !self.managers_up.contains(&number) && self.random.permille(20) {
                self.managers_up.insert(number);
                self.step(GatewayInput::ManagerUp(manager(number)));
            }
        }
        self.serve(mood);
        self.deliver();
        if self.gateway.deadline().is_some_and(|at| at.0 <= self.now) {
            self.step(GatewayInput::Timeout);
            assert!(self.gateway.deadline().is_none_or(|at| at.0 > self.now), "it would spin");
        }
    }

    fn serve(&mut self, mood: Mood) {
        let mut servers = std::mem::take(&mut self.servers);
        for server in &mut servers {
            let mut out = Vec::new();
            if server.space < self.shared.newest() && self.random.permille(30) {
                out = server.learn(&self.shared);
            }
            out.extend(server.serve(self.now, &mut self.shared, mood, &mut self.random));
            for (connection, message) in out {
                self.answer(server.name, connection, message);
            }
        }
        self.servers = servers;
    }

    /// A server's message sets out, if its connection still lives. A server may say twice what it came to (once for
    /// each of two tries), but never that nothing came of a try: connections do not repeat.
    fn answer(&mut self, from: char, by: u64, message: Message) {
        let reply = matches!(message, Message::Answer { answer: Answer::Reply(_), .. });
        let twice = reply && self.random.permille(50);
        for _ in 0..=u8::from(twice) {
            let delay = self.delay();
            let Some(Link::Up { connection, last_in, .. }) = self.links.get_mut(&from) else { return };
            if *connection == by {
                *last_in = (*last_in).max(self.now + delay);
                self.coming.push((*last_in, Source::Server(from, by), message.clone()));
            }
        }
    }

    fn delay(&mut self) -> u64 {
        if self.random.permille(10) { self.random.below(700) * 1000 } else { self.random.below(3) * 1000 }
    }

    fn deliver(&mut self) {
        let now = self.now;
        let (due, later) = std::mem::take(&mut self.coming).into_iter().partition(|(at, ..)| *at <= now);
        self.coming = later;
        let due: Vec<(u64, Source, Message)> = due;
        for (_, source, message) in due {
            match source {
                Source::Manager(number) if self.managers_up.contains(&number) => {
                    self.step(GatewayInput::Manager(manager(number), message));
                }
                Source::Server(from, by) => {
                    // It may have been given up by what came just before.
                    if matches!(self.links.get(&from), Some(Link::Up { connection, .. }) if *connection == by)
                    {
                        self.step(GatewayInput::Server(server(from), message));
                    }
                }
                Source::Manager(_) => {}
            }
        }
    }

    fn step(&mut self, input: GatewayInput) {
        let mut effects = Vec::new();
        self.gateway.step(Time(self.now), input, &mut effects);
        for effect in effects {
            self.seen.effects += 1;
            match effect {
                GatewayEffect::Manager(to, message) => {
                    let octets = to.ip().to_string();
                    self.manager(octets.bytes().last().expect("an address") - b'0', message);
                }
                GatewayEffect::Server(to, Message::Request(request)) => self.request(to, request),
                GatewayEffect::Server(to, Message::NewSpace { space }) => {
                    self.server_learns(to, space.number)
                }
                GatewayEffect::Server(_, Message::WantSpace { .. }) => {}
                GatewayEffect::Server(_, other) => panic!("not for a server: {other:?}"),
                GatewayEffect::Dial(to) => {
                    let until = self.now + self.random.below(20) * 1000;
                    assert!(self.links.insert(name(to), Link::Down { until }).is_none(), "dialled twice");
                }
                GatewayEffect::Undial(to) => {
                    assert!(self.links.remove(&name(to)).is_some(), "not dialled");
                }
                GatewayEffect::Done { ticket, result } => {
                    if let Some(seq) = self.seen.seqs.remove(&ticket) {
                        self.seen.open.remove(&seq);
                    }
                    let again = self.seen.done.insert(ticket, (self.now, result));
                    assert!(again.is_none(), "{ticket} is answered twice");
                }
                GatewayEffect::Note(kumo_cluster::GatewayNote::Expired { .. }) => {
                    self.seen.expired += 1;
                    self.seen.open.clear();
                    self.seen.seqs.clear();
                }
                GatewayEffect::Managers(_) | GatewayEffect::Note(_) => {}
                GatewayEffect::Exit(why) => panic!("ended: {why}"),
            }
        }
        let open = self.seen.called.len() - self.seen.done.len();
        assert_eq!(open, self.gateway.in_flight());
        assert!(open == 0 || self.gateway.deadline().is_some(), "open calls and nothing to wake for");
    }

    fn manager(&mut self, number: u8, message: Message) {
        let newest = self.shared.spaces[self.shared.newest()].0.clone();
        let answer = match message {
            Message::Register { nonce } => {
                let gateway = self.shared.register(nonce);
                Message::Registered { nonce, gateway, cluster: newest.cluster }
            }
            Message::WantSpace { above } if newest.number > above => Message::new_space(newest),
            // A manager sends what is missing; now and then it lags.
            Message::GatewayAlive { space, .. } if newest.number > space && self.random.permille(700) => {
                Message::new_space(newest)
            }
            Message::WantSpace { .. } | Message::GatewayAlive { .. } => return,
            other => panic!("not for a manager: {other:?}"),
        };
        if self.random.permille(800) {
            let at = self.now + self.delay();
            self.coming.push((at, Source::Manager(number), answer));
        }
    }

    fn server_learns(&mut self, to: ServerId, number: SpaceNumber) {
        let newest = self.shared.spaces[self.shared.newest()].0.number;
        let server = self.servers.iter_mut().find(|server| server.name == name(to));
        // Mid-serve there is no server to be found: it hears of it from a manager then.
        if let Some(server) = server.filter(|_| number == newest) {
            for (connection, message) in server.learn(&self.shared) {
                self.answer(name(to), connection, message);
            }
        }
    }

    fn request(&mut self, to: ServerId, request: Request) {
        let (_, ticket) = parts(&request.key);
        self.seen.judge(ticket, &request);
        let delay = self.delay();
        let to = name(to);
        let Some(Link::Up { connection, last_out, .. }) = self.links.get_mut(&to) else {
            panic!("sent to {to} without a link");
        };
        *last_out = (*last_out).max(self.now + delay);
        let coming = (*last_out, *connection, request);
        self.servers.iter_mut().find(|server| server.name == to).expect("it is one").coming.push_back(coming);
    }
}

impl Seen {
    fn judge(&mut self, ticket: u64, request: &Request) {
        assert!(self.called.contains_key(&ticket) && !self.done.contains_key(&ticket), "{ticket} is over");
        let (owner, first_space) = *self.ids.entry(request.id).or_insert((ticket, request.first_space));
        assert_eq!(owner, ticket, "an id is used again");
        assert_eq!(first_space, request.first_space, "a retry keeps the space it was first sent in");
        assert!(first_space <= request.space);
        if let Some(&seq) = self.seqs.get(&ticket) {
            assert_eq!(seq, request.id.seq, "a retry keeps its id");
            self.retries += 1;
        }
        self.open.insert(request.id.seq, ticket);
        self.seqs.insert(ticket, request.id.seq);
        let lowest = *self.open.keys().next().expect("one was just put in");
        assert!(request.lowest_open <= lowest, "an open call is passed over");
        // Seqs are handed out in the order of the calls.
        let before = self.open.range(..request.id.seq).next_back();
        assert!(before.is_none_or(|(_, one)| *one < ticket), "seqs out of order");
        let sends = self.sends.entry(ticket).or_default();
        *sends += 1;
        assert!(*sends <= SENDS_MAX, "{ticket} was sent {sends} times");
    }
}

/// What the callers were told is what happened.
fn judge(world: &World) {
    let Seen { called, done, .. } = &world.seen;
    assert_eq!(called.len(), done.len(), "calls without an answer");
    for (ticket, (came, operation)) in called {
        let (answered, result) = &done[ticket];
        assert!(answered - came <= REQUEST_MICROS + STEP, "{ticket} took too long");
        let is_get = *operation == Operation::Get;
        let times = if is_get { &world.shared.read } else { &world.shared.executed };
        let times = times.get(ticket).map_or(&[][..], Vec::as_slice);
        assert!(is_get || times.len() <= 1, "{ticket} was executed {} times", times.len());
        match result {
            Ok(Answer::Missing | Answer::NotStored) if !is_get => {
                assert!(times.is_empty(), "{ticket} wrote after all");
            }
            Ok(_) => assert!(
                times.iter().any(|at| came <= at && at <= answered),
                "{ticket} was answered but not executed in its time"
            ),
            Err(error) => assert!(
                *error != GatewayError::Unreachable || is_get || times.is_empty(),
                "{ticket} was executed by servers that were never reached"
            ),
        }
    }
    // Only a new id makes a call take another seq.
    let last = world.seen.ids.keys().map(|id| id.seq).max().unwrap_or_default();
    assert!(world.seen.expired > 0 || last <= called.len() as u64, "seqs are consecutive");
    let effects_max = 60 * called.len() as u64 + 20_000;
    assert!(world.seen.effects <= effects_max, "{} effects are too many", world.seen.effects);
}

#[test]
fn every_call_is_answered_once_and_executed_once_at_most() {
    let (mut calls, mut good, mut breaks, mut retries, mut expired, mut spaces) = (0, 0, 0, 0, 0, 0);
    for seed in 0..100 {
        let mut world = World::new(seed);
        let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            world.run();
            judge(&world);
        }));
        assert!(ran.is_ok(), "seed {seed}");
        calls += world.seen.called.len();
        good += world.seen.done.values().filter(|(_, result)| result.is_ok()).count();
        breaks += world.seen.breaks;
        retries += world.seen.retries;
        expired += world.seen.expired;
        spaces += world.shared.spaces.len();
    }
    // A run in which nothing happened proves nothing.
    let summary =
        format!("{good} of {calls} calls good, {breaks} breaks, {retries} retries, {expired} expired");
    assert!(good * 10 > calls * 8, "{summary}");
    assert!(breaks > 1000 && retries > 20_000 && expired > 20 && spaces > 800, "{summary}, {spaces} spaces");
}
