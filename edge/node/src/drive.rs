//! [`Node`]: the loop that feeds a cell with what arrives and performs what it wants done.
//!
//! One turn: read every socket that woke → read the clock, once → step the cell for each input → put its records
//! on disk (durable mode) → perform its effects → write to every connection that has something to write, once.

use crate::durable::{Progress, Storage};
use crate::house::{House, HouseEffect};
use crate::metrics::{NodeMetrics, PUBLISH_MICROS, Stopwatch, cell_answer, cell_request};
use crate::transport::{Arrivals, Links};
use crate::{NodeError, clock, notes};
use kumo_link::{Linger, Quiet, ReadyList, Token};
use kumo_paxos::{ExitReason, Time};
use kumo_session::{Application, Cell, Effect, Input, NodeNote, Parts};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::{Instant, Sleep};
use tracing::{error, info, warn};

/// A node: a cell and its sockets and files. All of it lives in one task.
pub struct Node<A: Application, H: House<A>> {
    cell: Cell<A>,
    house: H,
    wanted: Vec<HouseEffect>,
    unit_micros: u64,
    listeners: Vec<TcpListener>,
    /// No accepting before this: the process has no file descriptors left.
    accept_after: Time,
    ready: Arc<ReadyList>,
    /// Sockets that woke and were not looked at yet, in order.
    tokens: VecDeque<Token>,
    arrivals: Arrivals,
    links: Links,
    inputs: Vec<Input>,
    effects: Vec<Effect>,
    durable: Option<Durable<A>>,
    linger: Linger,
    timer: Pin<Box<Sleep>>,
    /// When the timer fires; it may be earlier than needed, never later.
    timer_at: Option<Time>,
    /// A clean end is under way, and must be over then.
    stopping_until: Option<Time>,
    end: Option<Result<(), NodeError>>,
    /// Reused for the ready list.
    woken: Vec<Token>,
    metrics: Arc<NodeMetrics>,
    stopwatch: Stopwatch,
    published: Time,
}

/// What a durable node has besides.
struct Durable<A: Application> {
    storage: Storage,
    /// Effects of turns whose records are not on disk yet, with the ticket they wait for.
    held: VecDeque<(u64, Vec<Effect>, Vec<HouseEffect>)>,
    held_effects: usize,
    /// The parts still to be written of the snapshot under way.
    parts: Option<Parts<A>>,
}

impl<A: Application, H: House<A>> Node<A, H> {
    // Each is a part of the node; a struct to carry them would be the node again.
    #[allow(clippy::too_many_arguments)]
    pub fn new(
        cell: Cell<A>,
        house: H,
        listeners: Vec<TcpListener>,
        storage: Option<Storage>,
        unit_micros: u64,
        own: std::net::SocketAddr,
        noise: u64,
        linger: Duration,
        metrics: Arc<NodeMetrics>,
    ) -> Node<A, H> {
        let ready = Arc::new(ReadyList::default());
        Node {
            cell,
            house,
            wanted: Vec::new(),
            unit_micros,
            listeners,
            accept_after: Time::default(),
            tokens: VecDeque::new(),
            arrivals: Arrivals::new(ready.clone(), H::OPEN),
            links: Links::new(ready.clone(), own, unit_micros, noise),
            ready,
            // The first step: a cell may want something done before anything happens to it.
            inputs: vec![Input::Wall(clock::wall())],
            effects: Vec::new(),
            durable: storage.map(|storage| Durable {
                storage,
                held: VecDeque::new(),
                held_effects: 0,
                parts: None,
            }),
            linger: Linger::new(linger),
            timer: Box::pin(tokio::time::sleep(Duration::ZERO)),
            timer_at: None,
            stopping_until: None,
            end: None,
            woken: Vec::new(),
            metrics,
            stopwatch: Stopwatch::new(),
            published: Time::default(),
        }
    }

    /// Runs until `stop` completes or the cell ends it.
    pub async fn run(mut self, stop: impl Future<Output = ()>) -> Result<(), NodeError> {
        let mut stop = Quiet::new(stop);
        // The loop bounds its own turns; the runtime's way of doing so would make sockets look idle in mid-turn.
        tokio::task::unconstrained(poll_fn(|context| self.turn(context, &mut stop))).await
    }

    fn turn<S: Future<Output = ()>>(
        &mut self,
        context: &mut Context,
        stop: &mut Quiet<S>,
    ) -> Poll<Result<(), NodeError>> {
        if self.linger.looks_on(!self.ready.is_empty(), context) {
            return Poll::Pending;
        }
        self.ready.watch(context.waker());
        if self.stopping_until.is_none() && stop.poll(context).is_ready() {
            self.begin_stop();
        }
        self.accept(context);
        self.read();
        let now = clock::now();
        if !self.inputs.is_empty() {
            self.linger.heard(now);
        }
        self.expire(now);
        self.step(now);
        self.house_turn(now);
        self.dispatch(now);
        self.poll_disk(now, context);
        self.links.flush(now, &mut self.inputs);
        self.arrivals.flush(&mut self.inputs);
        self.measure(now);
        if let Some(end) = self.ended(now) {
            return Poll::Ready(end);
        }
        if !self.inputs.is_empty() || !self.tokens.is_empty() {
            context.waker().wake_by_ref();
        } else {
            self.wait(now, context);
        }
        Poll::Pending
    }

    /// What was answered in this turn is written now.
    fn measure(&mut self, now: Time) {
        self.stopwatch.written(&self.metrics.latencies);
        if now.since(self.published) >= PUBLISH_MICROS {
            self.published = now;
            self.metrics.publish(now, &self.cell);
        }
    }

    fn begin_stop(&mut self) {
        info!("stopping");
        self.listeners.clear();
        self.inputs.push(Input::Stop);
        self.stopping_until = Some(clock::now().plus_micros(self.unit_micros));
    }

    /// Takes connections in, a bounded number per turn.
    fn accept(&mut self, context: &mut Context) {
        for number in 0..self.listeners.len() {
            self.accept_on(number, context);
        }
    }

    fn accept_on(&mut self, number: usize, context: &mut Context) {
        for _ in 0..ACCEPTS_PER_TURN {
            let now = clock::now();
            if now < self.accept_after {
                return;
            }
            match self.listeners[number].poll_accept(context) {
                Poll::Pending => return,
                Poll::Ready(Ok((stream, from))) => self.arrivals.accept(now, stream, from),
                Poll::Ready(Err(error)) => {
                    warn!(%error, "cannot accept a connection");
                    self.accept_after = now.plus_micros(ACCEPT_PAUSE_MICROS);
                }
            }
        }
        context.waker().wake_by_ref();
    }

    /// Reads the sockets that woke: what replicas say first, then clients up to the bounds of a turn.
    fn read(&mut self) {
        self.ready.take(&mut self.woken);
        let now = clock::now();
        for token in self.woken.drain(..) {
            match token {
                Token::Link(number) => self.links.wake(now, number, &self.cell, &mut self.inputs),
                Token::Arrival(id) if self.arrivals.is_replica(id) => {
                    self.arrivals.wake(now, id, &self.cell, &mut self.inputs);
                }
                Token::Arrival(_) => self.tokens.push_back(token),
            }
        }
        let mut bytes = 0;
        while self.inputs.len() < INPUTS_PER_TURN
            && bytes < CLIENT_BYTES_PER_TURN
            && let Some(token) = self.tokens.pop_front()
        {
            let Token::Arrival(id) = token else { continue };
            let (read, greeted) = self.arrivals.wake(now, id, &self.cell, &mut self.inputs);
            bytes += read;
            if let Some(replica) = greeted {
                self.links.hurry(now, replica);
            }
        }
    }

    fn expire(&mut self, now: Time) {
        if self.links.deadline().is_some_and(|deadline| deadline <= now) {
            self.links.expire(now, &self.cell, &mut self.inputs);
        }
        if self.arrivals.deadline().is_some_and(|deadline| deadline <= now) {
            self.arrivals.expire(now, &mut self.inputs);
        }
    }

    /// Tells the cell all that happened. `now` was read after the last byte of it arrived.
    fn step(&mut self, now: Time) {
        let due = self.cell.deadline().is_some_and(|deadline| deadline <= now);
        if self.inputs.is_empty() && !due {
            return;
        }
        self.cell.step(now, Input::Wall(clock::wall()), &mut self.effects);
        for input in self.inputs.drain(..) {
            if let Input::Client(_, message) = &input
                && let Some((key, operation)) = cell_request(message)
            {
                self.metrics.requests[operation].add(1);
                self.stopwatch.came(now, key, operation);
            }
            self.cell.step(now, input, &mut self.effects);
        }
        // What arrived may have moved it: a heartbeat that waited in a socket is not a missing one.
        if self.cell.deadline().is_some_and(|deadline| deadline <= now) {
            self.cell.step(now, Input::Timeout, &mut self.effects);
        }
    }

    /// The house looks at what the cell has become. What it says waits for the disk as everything else does: what
    /// it speaks of was executed here, perhaps with this node's own vote that is not on disk yet.
    fn house_turn(&mut self, now: Time) {
        self.house.turn(now, &mut self.arrivals.porch.arrived, &self.cell, &mut self.wanted);
        let mut proposed = Vec::new();
        self.wanted.retain(|effect| match effect {
            HouseEffect::Send(..) | HouseEffect::Hangup(_) => true,
            HouseEffect::Propose(command) => {
                proposed.push(Input::House(command.clone()));
                false
            }
            HouseEffect::Change(change) => {
                proposed.push(Input::HouseChange(change.clone()));
                false
            }
        });
        for input in proposed {
            self.cell.step(now, input, &mut self.effects);
        }
    }

    fn perform_house(&mut self, now: Time, wanted: &mut Vec<HouseEffect>) {
        for effect in wanted.drain(..) {
            match effect {
                HouseEffect::Send(id, body) => self.arrivals.send_body(id, &body, &mut self.inputs),
                HouseEffect::Hangup(id) => self.arrivals.hang_up(now, id, &mut self.inputs),
                // Put up for agreement already.
                HouseEffect::Propose(_) | HouseEffect::Change(_) => {}
            }
        }
    }

    /// Performs a turn's effects, or in durable mode holds them until its records are on disk.
    fn dispatch(&mut self, now: Time) {
        let mut wanted = std::mem::take(&mut self.wanted);
        let Some(durable) = &mut self.durable else {
            self.perform(now, None);
            self.perform_house(now, &mut wanted);
            self.wanted = wanted;
            return;
        };
        let mut others = Vec::new();
        for effect in self.effects.drain(..) {
            match effect {
                Effect::Persist(record) => durable.storage.append(&record),
                Effect::Peer(..)
                | Effect::Client(..)
                | Effect::Hangup(_)
                | Effect::Dial(_)
                | Effect::Undial(_)
                | Effect::WriteSnapshot
                | Effect::Note(_)
                | Effect::Exit(_) => others.push(effect),
            }
        }
        let ticket = durable.storage.seal();
        if durable.held.is_empty() && durable.storage.is_safe(ticket) {
            self.perform(now, Some(others));
            return self.perform_house(now, &mut wanted);
        }
        if others.is_empty() && wanted.is_empty() {
            return;
        }
        durable.held_effects += others.len();
        durable.held.push_back((ticket, others, wanted));
        if durable.held_effects > HELD_EFFECTS_MAX {
            self.arrivals.hold_clients(true);
        }
    }

    /// Performs `effects`, or this turn's own.
    fn perform(&mut self, now: Time, effects: Option<Vec<Effect>>) {
        let mut effects = effects.unwrap_or_else(|| std::mem::take(&mut self.effects));
        for effect in effects.drain(..) {
            match effect {
                Effect::Peer(to, envelope) => self.links.send(now, to, &envelope, &mut self.inputs),
                Effect::Client(id, message) => {
                    if let Some(key) = cell_answer(&message) {
                        self.stopwatch.answered(key);
                    }
                    self.arrivals.send(id, &message, &mut self.inputs);
                }
                Effect::Hangup(id) => self.arrivals.hang_up(now, id, &mut self.inputs),
                Effect::Dial(address) => self.links.dial(now, address),
                Effect::Undial(address) => self.links.undial(address, &mut self.inputs),
                // A node without a disk keeps nothing.
                Effect::Persist(_) => {}
                Effect::WriteSnapshot => self.write_snapshot(),
                Effect::Note(note) => self.note(now, note),
                Effect::Exit(reason) => self.exit(reason),
            }
        }
        self.effects = effects;
    }

    fn note(&mut self, now: Time, note: NodeNote) {
        // Who it is, only its connection knows.
        match &note {
            NodeNote::ClientRefused { connection, reason } => {
                self.arrivals.refused(now, *connection, "connection refused", reason);
            }
            NodeNote::RequestRefused { connection, reason } => {
                self.arrivals.refused(now, *connection, "request refused", reason);
            }
            _other => {}
        }
        notes::write(note, self.stopping_until.is_some());
    }

    fn exit(&mut self, reason: ExitReason) {
        notes::write_exit(&reason);
        let (distrusted, end) = match reason {
            ExitReason::Removed => (true, Ok(())),
            ExitReason::Replaced | ExitReason::Over(_) | ExitReason::Differs(_) | ExitReason::Forgot => {
                (true, Err(NodeError::Exit(reason)))
            }
            // Nobody knows yet whose memory is wrong: a peer that lies must not make the others forget theirs.
            ExitReason::Conflict(_) => (false, Err(NodeError::Exit(reason))),
        };
        // It must not come back with this memory.
        if let Some(durable) = self.durable.as_ref().filter(|_| distrusted) {
            durable.storage.distrust();
        }
        self.end.get_or_insert(end);
    }

    /// Begins a snapshot on disk of the state at this moment.
    fn write_snapshot(&mut self) {
        let Some(durable) = &mut self.durable else { return };
        if durable.storage.is_writing_snapshot() {
            return;
        }
        let Some((position, parts)) = self.cell.snapshot() else { return };
        durable.storage.begin_snapshot(position, &self.cell.memory_records());
        durable.parts = Some(parts);
    }

    /// Performs what waited for the disk, and gives a snapshot under way its next parts.
    fn poll_disk(&mut self, now: Time, context: &mut Context) {
        if self.durable.as_ref().is_some_and(|durable| durable.storage.wants_snapshot()) {
            self.write_snapshot();
        }
        while let Some(durable) = &mut self.durable
            && let Poll::Ready(progress) = durable.storage.poll(context)
        {
            match progress {
                Ok(Progress::Safe(ticket)) => self.release(now, ticket),
                Ok(Progress::WantsPart) => {
                    let part = durable.parts.as_mut().and_then(Iterator::next);
                    if part.is_none() {
                        durable.parts = None;
                    }
                    durable.storage.snapshot_part(part);
                }
                Ok(Progress::SnapshotFailed) => durable.parts = None,
                Err(fault) => {
                    error!(%fault, "the log cannot go on: this process ends");
                    self.end = Some(Err(fault));
                    // Nothing that waited for the disk may be said.
                    self.durable = None;
                    return;
                }
            }
        }
    }

    /// Performs the effects whose records are on disk by now.
    fn release(&mut self, now: Time, ticket: u64) {
        while let Some(durable) = &mut self.durable
            && durable.held.front().is_some_and(|&(waits_for, ..)| waits_for <= ticket)
            && let Some((_, effects, mut wanted)) = durable.held.pop_front()
        {
            durable.held_effects -= effects.len();
            if durable.held_effects <= HELD_EFFECTS_MAX / 2 {
                self.arrivals.hold_clients(false);
            }
            self.perform(now, Some(effects));
            self.perform_house(now, &mut wanted);
        }
    }

    /// The end, when it has come: at once after a fault, else when all is said or time is up.
    fn ended(&mut self, now: Time) -> Option<Result<(), NodeError>> {
        if let Some(Err(_)) = &self.end {
            return self.end.take();
        }
        let until = match (&self.end, self.stopping_until) {
            (None, None) => return None,
            // Removed: no Stop was asked for, but the last words are the same.
            (Some(_), None) => {
                let until = now.plus_micros(self.unit_micros);
                self.stopping_until = Some(until);
                until
            }
            (_, Some(until)) => until,
        };
        let silent = self.inputs.is_empty()
            && self.durable.as_ref().is_none_or(|durable| durable.held.is_empty())
            && !self.links.has_output()
            && !self.arrivals.has_output();
        if silent || now >= until {
            return Some(self.end.take().unwrap_or(Ok(())));
        }
        None
    }

    /// Looks again, or sets the timer for whatever is due next.
    fn wait(&mut self, now: Time, context: &mut Context) {
        let accept = Some(self.accept_after).filter(|&after| after > now);
        let wanted = [
            self.cell.deadline(),
            self.house.deadline(),
            self.links.deadline(),
            self.arrivals.deadline(),
            accept,
            self.stopping_until,
        ]
        .into_iter()
        .flatten()
        .min();
        // Where answers wait for a disk, what comes next does not come from a socket.
        let lingers = self.durable.is_none();
        if lingers && self.linger.stays(now, wanted, self.cell.in_flight() > 0, context) {
            return;
        }
        let Some(wanted) = wanted else { return };
        if wanted <= now {
            // There is more to do at once. The runtime's timers count milliseconds.
            return context.waker().wake_by_ref();
        }
        // An earlier alarm is left as it is: it costs one idle turn, moving it would cost more on every turn.
        if self.timer_at.is_none_or(|at| at > wanted) {
            let pause = Duration::from_micros(wanted.since(now));
            self.timer.as_mut().reset(Instant::now() + pause);
            self.timer_at = Some(wanted);
        }
        if self.timer.as_mut().poll(context).is_ready() {
            self.timer_at = None;
            context.waker().wake_by_ref();
        }
    }
}

/// Connections taken in before those that are here have their turn.
const ACCEPTS_PER_TURN: usize = 64;

/// How long accepting rests after it failed, as it does when no file descriptors are left.
const ACCEPT_PAUSE_MICROS: u64 = 100_000;

/// Inputs after which a turn reads no further client, and bytes of clients: a few milliseconds' work, so that
/// heartbeats are never late by more.
const INPUTS_PER_TURN: usize = 256;
const CLIENT_BYTES_PER_TURN: usize = 2 * 1024 * 1024;

/// Effects that may wait for the disk before clients are not read any more.
const HELD_EFFECTS_MAX: usize = 16 * 1024;
