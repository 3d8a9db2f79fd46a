//! [`Driver`]: all clients of a load, driven by one thread in a closed loop.
//!
//! One turn: wait for any socket → read it and let its client hear every whole message → one write call a connection.

use super::{Heard, Plan, Talk, Turn};
use crate::failure::{Context, Failure, Result};
use crate::process;
use crate::sample::{Counted, Sample};
use hdrhistogram::Histogram;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fd::OwnedFd;
use rustix::time::{ClockId, clock_gettime};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

pub struct Driver<T, F> {
    plan: Plan,
    make: F,
    epoll: OwnedFd,
    links: Vec<Link<T>>,
    scratch: Vec<u8>,
    counted: Counted,
    success: Instant,
    /// `None`: the clock does not run yet.
    until: Option<Instant>,
    /// Why a client failed; the first.
    trouble: Option<Failure>,
}

/// The place of one client.
struct Link<T> {
    /// `None`: it was lost, and is opened again at `open_at`.
    connection: Option<Connection<T>>,
    open_at: Instant,
    /// Which of the addresses.
    address: usize,
    /// It has done what comes before, or after, the clock.
    is_still: bool,
}

struct Connection<T> {
    stream: TcpStream,
    talk: T,
    turn: Turn,
    began: Instant,
    input: Vec<u8>,
    output: Vec<u8>,
    /// Waits for the socket to take more.
    is_blocked: bool,
}

impl<T: Talk, F: FnMut(usize) -> T> Driver<T, F> {
    /// Runs `plan` with the clients that `make` makes. A connection that is lost is an error, and opened again.
    pub fn run(plan: &Plan, make: F) -> Result<Sample> {
        let now = Instant::now();
        let latency_us = Histogram::new_with_bounds(1, LATENCY_US_MAX, 3).expect("the bounds are in order");
        let counted = Counted {
            operations: 0,
            latency_us,
            spent: Duration::ZERO,
            gap: Duration::ZERO,
            errors: 0,
            client_cpu: Duration::ZERO,
            server_cpu: None,
        };
        let link = |client| {
            let address = client % plan.addresses.len().max(1);
            Link { connection: None, open_at: now, address, is_still: false }
        };
        let mut driver = Driver {
            plan: plan.clone(),
            make,
            epoll: epoll::create(CreateFlags::CLOEXEC).context("wait for sockets")?,
            links: (0..plan.clients).map(link).collect(),
            scratch: vec![0; READ_BYTES],
            counted,
            success: now,
            until: None,
            trouble: None,
        };
        driver.prepare()?;
        driver.operate()?;
        driver.verify()?;
        Ok(Sample::counted(&driver.counted))
    }

    /// Connects everyone. What fails here fails the load: nothing is measured yet.
    fn prepare(&mut self) -> Result<()> {
        for client in 0..self.links.len() {
            self.open(client).context(format!("connect to {}", self.address(client)))?;
        }
        self.drive_until_still("prepare")
    }

    fn operate(&mut self) -> Result<()> {
        let servers = process::cpu(&self.plan.pids)?;
        let (began, cpu) = (Instant::now(), own_cpu());
        let until = began + Duration::from_secs_f64(self.plan.secs);
        (self.until, self.success) = (Some(until), began);
        self.begin_all(Turn::Operate);
        self.drive_while(until + END_MAX, |driver| {
            Instant::now() < until || driver.links.iter().any(|link| !link.is_still)
        })?;
        for client in 0..self.links.len() {
            if !self.links[client].is_still {
                self.lost(client, Failure::new("no answer"));
            }
        }
        // A gap that the end of the time cut short is a gap too.
        self.counted.gap = self.counted.gap.max(until.saturating_duration_since(self.success));
        self.counted.spent = began.elapsed();
        self.counted.client_cpu = own_cpu().saturating_sub(cpu);
        let has_pids = !self.plan.pids.is_empty();
        self.counted.server_cpu = match has_pids {
            true => Some(process::cpu(&self.plan.pids)?.saturating_sub(servers)),
            false => None,
        };
        match (self.counted.operations, self.trouble.take()) {
            (0, Some(trouble)) => Err(trouble),
            (0, None) => Err(Failure::new("no operation was done in time")),
            (1.., _) => Ok(()),
        }
    }

    /// A client that lost its connection does not know what is stored; the others must find what they wrote.
    fn verify(&mut self) -> Result<()> {
        self.begin_all(Turn::Verify);
        self.drive_until_still("verify")
    }

    fn begin_all(&mut self, turn: Turn) {
        for client in 0..self.links.len() {
            let link = &mut self.links[client];
            link.is_still = link.connection.is_none() && turn == Turn::Verify;
            if let Some(connection) = &mut link.connection {
                connection.begin(turn);
                self.flush(client);
            }
        }
    }

    /// Until everyone has done the turn, without an error.
    fn drive_until_still(&mut self, what: &str) -> Result<()> {
        let limit = Instant::now() + END_MAX;
        let errors = self.counted.errors;
        self.drive_while(limit, |driver| {
            driver.counted.errors == errors && driver.links.iter().any(|link| !link.is_still)
        })?;
        let is_done = self.links.iter().all(|link| link.is_still);
        match self.trouble.take().filter(|_| self.counted.errors > errors) {
            Some(trouble) => Err(trouble).context(what),
            None if is_done => Ok(()),
            None => Err(Failure::new(format!("{what}: no answer within {} s", END_MAX.as_secs()))),
        }
    }

    fn drive_while(&mut self, limit: Instant, mut goes_on: impl FnMut(&Self) -> bool) -> Result<()> {
        let mut events = [Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; EVENTS_MAX];
        let timeout = Timespec { tv_sec: 0, tv_nsec: WAIT.subsec_nanos().into() };
        while goes_on(self) && Instant::now() < limit {
            let count = match epoll::wait(&self.epoll, &mut events, Some(&timeout)) {
                Ok(count) => count,
                Err(rustix::io::Errno::INTR) => 0,
                Err(error) => return Err(error).context("wait for sockets"),
            };
            for event in &events[..count] {
                let client = event.data.u64() as usize;
                match self.woken(client) {
                    Ok(()) => self.flush(client),
                    Err(failure) => self.lost(client, failure),
                }
            }
            self.give_up_late();
            self.open_lost();
        }
        Ok(())
    }

    /// Requests that a dead leader took with it are answered late or never; whoever is in a hurry asks someone else.
    fn give_up_late(&mut self) {
        let (Some(patience), Some(_)) = (self.plan.patience, self.until) else { return };
        for client in 0..self.links.len() {
            let Link { connection: Some(connection), is_still: false, .. } = &self.links[client] else {
                continue;
            };
            if connection.turn != Turn::Verify && connection.began.elapsed() > patience {
                self.lost(client, Failure::new(format!("no answer within {patience:?}")));
            }
        }
    }

    fn open_lost(&mut self) {
        let now = Instant::now();
        // Nothing is opened for verification, or after the end.
        if self.until.is_none_or(|until| now >= until) {
            return;
        }
        for client in 0..self.links.len() {
            if self.links[client].connection.is_none()
                && self.links[client].open_at <= now
                && let Err(error) = self.open(client)
            {
                self.lost(client, Failure::new(error.to_string()));
            }
        }
    }

    fn address(&self, client: usize) -> SocketAddr {
        self.plan.addresses[self.links[client].address]
    }

    fn open(&mut self, client: usize) -> io::Result<()> {
        let stream = TcpStream::connect_timeout(&self.address(client), CONNECT_MAX)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        epoll::add(&self.epoll, &stream, EventData::new_u64(client as u64), EventFlags::IN)?;
        let talk = (self.make)(client);
        let mut connection = Connection {
            stream,
            talk,
            turn: Turn::Prepare,
            began: Instant::now(),
            input: Vec::new(),
            output: Vec::new(),
            is_blocked: false,
        };
        connection.begin(Turn::Prepare);
        self.links[client].connection = Some(connection);
        self.flush(client);
        Ok(())
    }

    fn lost(&mut self, client: usize, failure: Failure) {
        self.counted.errors += 1;
        self.trouble.get_or_insert(failure);
        let link = &mut self.links[client];
        link.connection = None;
        link.address = (link.address + 1) % self.plan.addresses.len().max(1);
        let now = Instant::now();
        link.open_at = now + OPEN_INTERVAL;
        link.is_still = self.until.is_some_and(|until| now >= until);
    }

    fn flush(&mut self, client: usize) {
        if let Some(connection) = &mut self.links[client].connection
            && let Err(error) = connection.flush(&self.epoll, client)
        {
            self.lost(client, Failure::new(error.to_string()));
        }
    }

    /// Reads what has arrived, and lets the client hear it.
    fn woken(&mut self, client: usize) -> Result<()> {
        let Some(connection) = &mut self.links[client].connection else { return Ok(()) };
        connection.read(&mut self.scratch).context("connection lost")?;
        let mut at = 0;
        loop {
            let Some(connection) = &mut self.links[client].connection else { return Ok(()) };
            match connection.talk.hear(&connection.input[at..], &mut connection.output)? {
                Heard::Partial => {
                    connection.input.drain(..at);
                    return Ok(());
                }
                Heard::Taken(taken) => at += taken,
                Heard::Done { taken, operations } => {
                    at += taken;
                    self.done(client, operations);
                }
            }
        }
    }

    fn done(&mut self, client: usize, operations: u32) {
        let now = Instant::now();
        let link = &mut self.links[client];
        let Some(connection) = &mut link.connection else { return };
        if connection.turn == Turn::Operate {
            let latency = (now - connection.began).as_micros() as u64;
            self.counted.latency_us.saturating_record_n(latency, operations.into());
            self.counted.operations += u64::from(operations);
            self.counted.gap = self.counted.gap.max(now - self.success);
            self.success = now;
        }
        let is_timed = self.until.is_some_and(|until| now < until);
        match connection.turn {
            Turn::Prepare | Turn::Operate if is_timed => connection.begin(Turn::Operate),
            Turn::Prepare | Turn::Operate | Turn::Verify => link.is_still = true,
        }
    }
}

impl<T: Talk> Connection<T> {
    fn begin(&mut self, turn: Turn) {
        (self.turn, self.began) = (turn, Instant::now());
        self.talk.begin(turn, &mut self.output);
    }

    fn read(&mut self, scratch: &mut [u8]) -> io::Result<()> {
        loop {
            match self.stream.read(scratch) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    self.input.extend_from_slice(&scratch[..count]);
                    if count < scratch.len() {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes all that is to be said, with one call if the socket takes it.
    fn flush(&mut self, epoll: &OwnedFd, client: usize) -> io::Result<()> {
        let mut written = 0;
        while written < self.output.len() {
            match self.stream.write(&self.output[written..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => written += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.output.drain(..written);
        let is_blocked = !self.output.is_empty();
        if is_blocked != self.is_blocked {
            self.is_blocked = is_blocked;
            let flags = if is_blocked { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
            epoll::modify(epoll, &self.stream, EventData::new_u64(client as u64), flags)?;
        }
        Ok(())
    }
}

/// Processor time of this process.
fn own_cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Ten minutes: longer than any operation is waited for.
const LATENCY_US_MAX: u64 = 600_000_000;

/// For what was under way when the time was over, and for the turns before and after it.
const END_MAX: Duration = Duration::from_secs(60);

/// A server on this machine that does not answer by then is not there.
const CONNECT_MAX: Duration = Duration::from_secs(1);

/// Between attempts to connect while a server is dead.
const OPEN_INTERVAL: Duration = Duration::from_millis(10);

/// The longest wait: lost connections are opened again meanwhile.
const WAIT: Duration = Duration::from_millis(10);

const READ_BYTES: usize = 64 * 1024;
const EVENTS_MAX: usize = 64;
