//! [`Driver`]: all connections of a benchmark, driven by one thread.
//!
//! One turn: wait for any socket → read it and judge every whole reply → ask anew what may be asked → one write call
//! a connection.

use super::connection::{Asked, Connection, What};
use super::keys::{Keys, NAME_BYTES};
use super::{Op, StoreBench};
use crate::bench::tally::Tally;
use crate::failure::Failure;
use crate::output::note;
use kumo_wire::memcache::{Call, Reply};
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fd::OwnedFd;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

pub struct Driver {
    address: SocketAddr,
    epoll: OwnedFd,
    /// Wakes when the next request is due; a wait of whole milliseconds would be too coarse.
    timer: OwnedFd,
    timer_at: Option<Instant>,
    links: Vec<Link>,
    /// How many of them have no connection.
    down: usize,
    /// Links that may ask or write in this turn.
    touched: Vec<u32>,
    keys: Keys,
    tally: Tally,
    misses: u64,
    success: Instant,
    gap: Duration,
    random: u64,
    pipeline: usize,
    scratch: Vec<u8>,
    /// Why a connection was lost, or what a server said instead of an answer; the first.
    trouble: Option<String>,
}

/// The place of one connection.
struct Link {
    /// `None`: it was lost, and is opened again.
    connection: Option<Connection>,
    open_at: Instant,
    touched: bool,
    /// Waits for the socket to take more.
    blocked: bool,
    /// Requests sent, and those that are due.
    begun: u64,
    due: u64,
}

pub struct Outcome {
    pub tally: Tally,
    pub misses: u64,
    pub spent: Duration,
    pub gap: Duration,
}

/// What the connections are to ask.
enum Work {
    /// Every key once.
    Fill,
    /// Requests one after another until then.
    Closed { op: Op, until: Instant },
    /// Requests when they are due, the number `n` at `began + n * interval`, until then.
    Open { op: Op, until: Instant, began: Instant, interval: Duration, next: u64 },
}

impl Driver {
    pub fn connect(address: SocketAddr, plan: &StoreBench) -> Result<Driver, Failure> {
        let failed = |error: rustix::io::Errno| Failure::refused(format!("cannot wait for sockets: {error}"));
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(failed)?;
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags).map_err(failed)?;
        epoll::add(&epoll, &timer, EventData::new_u64(TIMER), EventFlags::IN).map_err(failed)?;
        let now = Instant::now();
        let mut driver = Driver {
            address,
            epoll,
            timer,
            timer_at: None,
            links: Vec::new(),
            down: 0,
            touched: Vec::new(),
            keys: Keys::new(plan.keys(), plan.size as usize),
            tally: Tally::new(),
            misses: 0,
            success: now,
            gap: Duration::ZERO,
            random: RANDOM,
            pipeline: plan.pipeline as usize,
            scratch: vec![0; READ_BYTES],
            trouble: None,
        };
        for index in 0..plan.conns {
            driver.links.push(Link::new(now));
            driver.down += 1;
            driver
                .open(index)
                .map_err(|error| Failure::unreachable(format!("cannot connect to {address}: {error}")))?;
        }
        Ok(driver)
    }

    fn open(&mut self, index: u32) -> io::Result<()> {
        let connection = Connection::open(self.address)?;
        epoll::add(&self.epoll, &connection.stream, EventData::new_u64(index.into()), EventFlags::IN)?;
        let link = &mut self.links[index as usize];
        link.connection = Some(connection);
        link.blocked = false;
        self.down -= 1;
        self.touch(index);
        Ok(())
    }

    /// Stores every key once. A load on keys that are not there would measure something else.
    pub fn fill(&mut self) -> Result<(), Failure> {
        let until = Instant::now() + FILL_MAX;
        let pipeline = self.pipeline;
        self.pipeline = pipeline.max(FILL_PIPELINE);
        let mut work = Work::Fill;
        loop {
            self.turn(&mut work)?;
            if let Some(trouble) = self.trouble.take() {
                return Err(Failure::refused(format!("cannot store the keys: {trouble}")));
            }
            if self.tally.latency_us.len() == u64::from(self.keys.count()) {
                break;
            }
            if Instant::now() >= until {
                return Err(Failure::refused("cannot store the keys in ten minutes"));
            }
        }
        self.pipeline = pipeline;
        self.tally = Tally::new();
        self.links.iter_mut().for_each(|link| link.begun = 0);
        Ok(())
    }

    pub fn run(mut self, plan: &StoreBench) -> Result<Outcome, Failure> {
        let began = Instant::now();
        let until = began + plan.secs;
        let mut work = match plan.rate {
            None => Work::Closed { op: plan.op, until },
            Some(rate) => {
                let interval = Duration::from_nanos(1_000_000_000 / rate).max(Duration::from_nanos(1));
                Work::Open { op: plan.op, until, began, interval, next: 0 }
            }
        };
        (0..plan.conns).for_each(|index| self.touch(index));
        self.success = began;
        loop {
            self.turn(&mut work)?;
            let now = Instant::now();
            if now >= until && (self.is_idle() || now >= until + DRAIN_MAX) {
                break;
            }
        }
        // What was due and has no answer by now is not forgotten because the clock ran out.
        let open = matches!(work, Work::Open { .. });
        for link in &self.links {
            self.tally.errors += link.connection.as_ref().map_or(0, |one| one.under_way.len() as u64);
            self.tally.errors += if open { link.due - link.begun } else { 0 };
        }
        if let Some(trouble) = &self.trouble {
            note(format!("kumo bench: {trouble}"));
        }
        let spent = self.success.saturating_duration_since(began).max(plan.secs);
        Ok(Outcome { tally: self.tally, misses: self.misses, spent, gap: self.gap })
    }

    fn is_idle(&self) -> bool {
        self.links.iter().all(|link| {
            let open = link.connection.as_ref();
            open.is_none_or(|one| one.under_way.is_empty()) && link.due <= link.begun
        })
    }

    fn turn(&mut self, work: &mut Work) -> Result<(), Failure> {
        let now = Instant::now();
        self.reopen(now);
        self.mark_due(now, work);
        let mut touched = std::mem::take(&mut self.touched);
        for index in touched.drain(..) {
            self.links[index as usize].touched = false;
            self.ask(index, now, work);
            self.flush(index);
        }
        // Flushing may have lost a connection, which touches nothing; keep the room.
        touched.append(&mut self.touched);
        self.touched = touched;
        self.wait(work).map_err(|error| Failure::refused(format!("cannot wait for sockets: {error}")))
    }

    fn reopen(&mut self, now: Instant) {
        if self.down == 0 {
            return;
        }
        for index in 0..self.links.len() as u32 {
            let link = &mut self.links[index as usize];
            if link.connection.is_none() && link.open_at <= now {
                link.open_at = now + REOPEN_INTERVAL;
                // One that cannot be opened now is tried again.
                let _ = self.open(index);
            }
        }
    }

    /// Open loop: each request falls to the connections in turn, however busy they are.
    fn mark_due(&mut self, now: Instant, work: &mut Work) {
        let Work::Open { until, began, interval, next, .. } = work else { return };
        let count = self.links.len() as u64;
        loop {
            let at = intended(*began, *interval, *next);
            if at >= *until {
                return self.set_timer(None);
            }
            if at > now {
                return self.set_timer(Some(at));
            }
            let index = (*next % count) as u32;
            self.links[index as usize].due += 1;
            self.touch(index);
            *next += 1;
        }
    }

    fn set_timer(&mut self, at: Option<Instant>) {
        if self.timer_at == at {
            return;
        }
        self.timer_at = at;
        // Zero would stop the timer.
        let wait =
            at.map_or(Duration::ZERO, |at| at.saturating_duration_since(Instant::now()).max(TIMER_MIN));
        let value = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() };
        let spec = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &spec).expect("a relative time is valid");
    }

    /// Asks until the pipeline is full or there is nothing to ask.
    fn ask(&mut self, index: u32, now: Instant, work: &Work) {
        let count = self.links.len() as u32;
        loop {
            let link = &mut self.links[index as usize];
            let Some(connection) = &mut link.connection else { return };
            if connection.under_way.len() >= self.pipeline {
                return;
            }
            let (op, since) = match *work {
                Work::Fill => {
                    let key = u64::from(index) + link.begun * u64::from(count);
                    if key >= u64::from(self.keys.count()) {
                        return;
                    }
                    link.begun += 1;
                    set(connection, &mut self.keys, key as u32, now);
                    continue;
                }
                Work::Closed { op, until } if now < until => (op, now),
                Work::Closed { .. } => return,
                Work::Open { op, began, interval, .. } if link.begun < link.due => {
                    let number = link.begun * u64::from(count) + u64::from(index);
                    (op, intended(began, interval, number))
                }
                Work::Open { .. } => return,
            };
            link.begun += 1;
            let draw = next_random(&mut self.random);
            let sets = op == Op::Set || (op == Op::Mixed && draw.is_multiple_of(10));
            let draw = (draw >> 8) as u32;
            if sets {
                let own = (self.keys.count() - index).div_ceil(count);
                set(connection, &mut self.keys, index + draw % own * count, since);
            } else {
                get(connection, &self.keys, draw % self.keys.count(), op.keys(), since);
            }
        }
    }

    fn flush(&mut self, index: u32) {
        let link = &mut self.links[index as usize];
        let Some(connection) = &mut link.connection else { return };
        let flushed = connection.flush();
        let blocked = match flushed {
            Ok(all) => !all,
            Err(error) => return self.lost(index, &format!("connection lost: {error}")),
        };
        if blocked != link.blocked {
            link.blocked = blocked;
            let flags = if blocked { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
            let data = EventData::new_u64(index.into());
            if let Err(error) = epoll::modify(&self.epoll, &connection.stream, data, flags) {
                self.lost(index, &format!("connection lost: {error}"));
            }
        }
    }

    fn wait(&mut self, work: &Work) -> rustix::io::Result<()> {
        let now = Instant::now();
        let until = match work {
            Work::Fill => now + WAIT_MAX,
            Work::Closed { until, .. } | Work::Open { until, .. } => *until,
        };
        let wait = match until.checked_duration_since(now) {
            Some(left) if self.touched.is_empty() => left.min(WAIT_MAX),
            Some(_) => Duration::ZERO,
            None => WAIT_MAX,
        };
        let timeout = Timespec { tv_sec: 0, tv_nsec: wait.subsec_nanos().into() };
        let mut events = [Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; EVENTS_MAX];
        let count = match epoll::wait(&self.epoll, &mut events, Some(&timeout)) {
            Ok(count) => count,
            Err(rustix::io::Errno::INTR) => 0,
            Err(error) => return Err(error),
        };
        for event in &events[..count] {
            let number = event.data.u64();
            if number != TIMER {
                self.woken(number as u32);
            }
        }
        Ok(())
    }

    fn woken(&mut self, index: u32) {
        self.touch(index);
        let link = &mut self.links[index as usize];
        let Some(connection) = &mut link.connection else { return };
        if let Err(error) = connection.read(&mut self.scratch) {
            return self.lost(index, &format!("connection lost: {error}"));
        }
        let now = Instant::now();
        loop {
            let Some(connection) = &mut self.links[index as usize].connection else { return };
            match connection.next_reply() {
                Ok(None) => return,
                Ok(Some(reply)) => {
                    if let Err(reason) = self.judge(index, reply, now) {
                        return self.lost(index, &reason);
                    }
                }
                Err(error) => return self.lost(index, &error.to_string()),
            }
        }
    }

    /// What a reply means for the request it belongs to. An error: the two do not fit, and nothing after them can.
    fn judge(&mut self, index: u32, reply: Reply, now: Instant) -> Result<(), String> {
        let connection = self.links[index as usize].connection.as_mut();
        let Some(connection) = connection else { return Ok(()) };
        let Some(asked) = connection.under_way.front_mut() else {
            return Err(format!("a reply that nobody asked for: {reply:?}"));
        };
        let since = asked.since;
        match (&mut asked.what, reply) {
            (What::Set { key, number }, Reply::Stored) => {
                self.keys.stored(*key, *number);
                connection.under_way.pop_front();
                self.succeeded(since, now);
            }
            (What::Get { key, count, floor, found }, Reply::Value { key: name, data, .. }) => {
                *found += 1;
                let right = self.keys.numbered(&name).is_some_and(|read| {
                    let place = (read + self.keys.count() - *key) % self.keys.count();
                    let floor = if read == *key { *floor } else { self.keys.floor(read) };
                    place < *count && *found <= *count && self.keys.is_right(read, floor, &data)
                });
                self.tally.check(right);
            }
            (What::Get { count, found, .. }, Reply::End) => {
                self.misses += u64::from(count.saturating_sub(*found));
                connection.under_way.pop_front();
                self.succeeded(since, now);
            }
            (what, Reply::Error(said)) => {
                if let What::Set { key, .. } = what {
                    self.keys.lost(*key);
                }
                connection.under_way.pop_front();
                self.tally.errors += 1;
                self.trouble.get_or_insert_with(|| String::from_utf8_lossy(&said).into_owned());
            }
            (_, reply) => return Err(format!("a reply that does not fit: {reply:?}")),
        }
        Ok(())
    }

    fn succeeded(&mut self, since: Instant, now: Instant) {
        self.tally.success(now.saturating_duration_since(since));
        self.gap = self.gap.max(now.saturating_duration_since(self.success));
        self.success = now;
    }

    /// Its requests have no known outcome.
    fn lost(&mut self, index: u32, reason: &str) {
        let link = &mut self.links[index as usize];
        let Some(connection) = link.connection.take() else { return };
        link.open_at = Instant::now() + REOPEN_INTERVAL;
        self.down += 1;
        for asked in connection.under_way {
            self.tally.errors += 1;
            match asked.what {
                What::Set { key, .. } => self.keys.lost(key),
                What::Get { .. } => {}
            }
        }
        self.trouble.get_or_insert_with(|| reason.to_owned());
    }

    fn touch(&mut self, index: u32) {
        if !std::mem::replace(&mut self.links[index as usize].touched, true) {
            self.touched.push(index);
        }
    }
}

impl Link {
    fn new(now: Instant) -> Link {
        Link { connection: None, open_at: now, touched: false, blocked: false, begun: 0, due: 0 }
    }
}

fn set(connection: &mut Connection, keys: &mut Keys, key: u32, since: Instant) {
    let (value, number) = keys.next(key);
    let call = Call::Set { key: &Keys::name(key), flags: 0, expiry: 0, cas: None, value: &value };
    connection.ask(Asked { since, what: What::Set { key, number } }, &call);
}

fn get(connection: &mut Connection, keys: &Keys, key: u32, count: u32, since: Instant) {
    let count = count.min(keys.count());
    let what = What::Get { key, count, floor: keys.floor(key), found: 0 };
    if count == 1 {
        let call = Call::Get { keys: &[&Keys::name(key)], cas: false };
        return connection.ask(Asked { since, what }, &call);
    }
    let names: Vec<[u8; NAME_BYTES]> =
        (0..count).map(|offset| Keys::name((key + offset) % keys.count())).collect();
    let names: Vec<&[u8]> = names.iter().map(|name| &name[..]).collect();
    connection.ask(Asked { since, what }, &Call::Get { keys: &names, cas: false });
}

fn intended(began: Instant, interval: Duration, number: u64) -> Instant {
    began + Duration::from_nanos((interval.as_nanos() as u64).saturating_mul(number))
}

/// xorshift: which key comes next needs no better one.
pub fn next_random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Where the draws begin: every run asks for the same keys.
pub const RANDOM: u64 = 0x9E37_79B9_7F4A_7C15;

/// The number of the timer among the links.
const TIMER: u64 = u64::MAX;

/// Sockets that are read in one turn.
const EVENTS_MAX: usize = 256;

/// What one read takes at most; more than a pipeline of small replies.
const READ_BYTES: usize = 64 * 1024;

/// Nothing is waited for longer, so that ends and lost connections are looked at.
const WAIT_MAX: Duration = Duration::from_millis(100);

const TIMER_MIN: Duration = Duration::from_micros(1);

/// Between attempts to open a connection again.
const REOPEN_INTERVAL: Duration = Duration::from_millis(100);

/// How long the last replies are waited for: longer than a failover takes.
const DRAIN_MAX: Duration = Duration::from_secs(10);

/// Keys are stored so many at a time on each connection at least.
const FILL_PIPELINE: usize = 16;
const FILL_MAX: Duration = Duration::from_secs(600);
