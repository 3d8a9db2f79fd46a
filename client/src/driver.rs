//! [`Driver`]: the task that carries a session's core between its callers and the network.
//!
//! One turn takes all calls and all frames that are there, steps the core through them, and writes what came of
//! it with one call per connection. There is one timer, moved only when it would ring too late.

use crate::admission::Admission;
use crate::caller::{Call, Caller, Fault, Order, Shared, Waiter, abandoned, encode, explain};
use crate::clock;
use crate::connection::{Connection, Progress};
use crate::error::Error;
use crate::lifeline::{Lifeline, concerns};
use crate::transport::Transport;
use kumo_paxos::{CellId, Time};
use kumo_session::{
    Answer, CallError, CellMessage, Client, ClientEffect, ClientInput, ClientMessage, ClientSettings,
    SessionState,
};
use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, Sleep};

/// Carries one session. Ends when no caller is left.
pub(crate) struct Driver {
    core: Client,
    session_wanted: bool,
    orders: mpsc::UnboundedReceiver<Order>,
    batch: Vec<Order>,
    admission: Admission,
    waiters: HashMap<u64, Waiter>,
    transport: Arc<dyn Transport>,
    connections: BTreeMap<SocketAddr, Connection>,
    lifeline: Option<Lifeline>,
    /// A renewal was sent and is not answered.
    renewing: bool,
    token: u128,
    arrived: Vec<CellMessage>,
    effects: Vec<ClientEffect>,
    timer: Pin<Box<Sleep>>,
    armed: Option<Time>,
    state: watch::Sender<SessionState>,
    opened: Option<oneshot::Sender<Result<(), Error>>>,
    shared: Arc<Shared>,
    /// The cell of this session: another one at the same address is refused.
    cell: Option<CellId>,
    /// What went wrong with a connection last, for people.
    fault: Option<Fault>,
    farewell: Option<Farewell>,
}

/// The last caller is gone: the session is being closed.
struct Farewell {
    ticket: u64,
    until: Time,
    done: bool,
}

impl Driver {
    /// Starts a driver on the current runtime. `opened` tells when the session is open, or why it is not.
    pub(crate) fn start(
        settings: ClientSettings,
        transport: Arc<dyn Transport>,
    ) -> (Caller, oneshot::Receiver<Result<(), Error>>) {
        let (orders, receiver) = mpsc::unbounded_channel();
        let (state_sender, state) = watch::channel(SessionState::Opening);
        let (opened, opened_receiver) = oneshot::channel();
        let shared = Arc::new(Shared::default());
        let mut driver = Driver {
            session_wanted: settings.session,
            token: settings.token,
            core: Client::new(settings, clock::now()),
            orders: receiver,
            batch: Vec::new(),
            admission: Admission::default(),
            waiters: HashMap::new(),
            transport,
            connections: BTreeMap::new(),
            lifeline: None,
            renewing: false,
            arrived: Vec::new(),
            effects: Vec::new(),
            timer: Box::pin(tokio::time::sleep(Duration::ZERO)),
            armed: None,
            state: state_sender,
            opened: Some(opened),
            shared: shared.clone(),
            cell: None,
            fault: None,
            farewell: None,
        };
        driver.core.step(clock::now(), ClientInput::Timeout, &mut driver.effects);
        tokio::spawn(driver);
        (Caller { orders, state, shared }, opened_receiver)
    }

    fn take_orders(&mut self, cx: &mut Context) -> bool {
        if self.farewell.is_some() {
            return false;
        }
        match self.orders.poll_recv_many(cx, &mut self.batch, ORDERS_TAKEN_MAX) {
            Poll::Pending => false,
            Poll::Ready(0) => {
                self.say_farewell();
                true
            }
            Poll::Ready(_) => {
                let mut batch = std::mem::take(&mut self.batch);
                batch.drain(..).for_each(|order| self.order(order));
                // Keep the room for the next turn.
                self.batch = batch;
                true
            }
        }
    }

    fn order(&mut self, order: Order) {
        match order {
            Order::Start(call) => self.admission.stand_in_line(call),
            Order::Cancel(ticket) => match self.admission.withdraw(ticket) {
                Some(call) => self.answer(call.waiter, Err(Error::TimedOut)),
                None => {
                    self.core.step(clock::now(), ClientInput::Cancel { ticket }, &mut self.effects);
                }
            },
        }
    }

    /// Steps the core through the calls that may be under way now.
    fn admit(&mut self) -> bool {
        let Some(first) = self.admission.next() else { return false };
        let now = clock::now();
        let mut next = Some(first);
        while let Some(Call { input, waiter }) = next {
            self.waiters.insert(waiter.ticket, waiter);
            self.core.step(now, input, &mut self.effects);
            next = self.admission.next();
        }
        true
    }

    fn say_farewell(&mut self) {
        let now = clock::now();
        let ticket = self.shared.ticket();
        let open = match *self.state.borrow() {
            SessionState::Safe | SessionState::Jeopardy => self.session_wanted,
            SessionState::Opening | SessionState::Lost => false,
        };
        self.farewell = Some(Farewell { ticket, until: now.plus_micros(FAREWELL_MICROS), done: !open });
        if open {
            self.core.step(now, ClientInput::Close { ticket }, &mut self.effects);
        }
    }

    fn take_input(&mut self, cx: &mut Context) -> bool {
        let mut busy = false;
        let mut gone: Vec<(SocketAddr, Fault)> = Vec::new();
        for (&address, connection) in &mut self.connections {
            while let Poll::Ready(progress) = connection.poll_input(cx, &mut self.arrived) {
                busy = true;
                // Read after the last byte arrived: a session must not look younger than it is.
                let now = clock::now();
                for message in self.arrived.drain(..) {
                    self.renewing &= !matches!(message, CellMessage::Renewed { .. });
                    self.core.step(now, ClientInput::Message(address, message), &mut self.effects);
                }
                match progress {
                    Progress::Messages => {}
                    Progress::Up(cell) => match unwanted(&mut self.cell, cell, address) {
                        None => self.core.step(now, ClientInput::Connected(address), &mut self.effects),
                        Some(fault) => {
                            gone.push((address, fault));
                            break;
                        }
                    },
                    Progress::Gone(reason) => {
                        gone.push((address, Fault::Broken(address, reason)));
                        break;
                    }
                }
            }
        }
        self.lose(gone);
        busy
    }

    fn take_renewals(&mut self, cx: &mut Context) -> bool {
        let mut busy = false;
        while let Some(lifeline) = &mut self.lifeline
            && let Poll::Ready(progress) = lifeline.poll_input(cx, &mut self.arrived)
        {
            busy = true;
            match progress {
                Progress::Messages => self.renewed(),
                Progress::Up(cell) => self.hang_on(cell),
                Progress::Gone(_) => {
                    self.arrived.clear();
                    self.lifeline = None;
                }
            }
        }
        busy
    }

    /// The lifeline has something to tell.
    fn renewed(&mut self) {
        let Some(lifeline) = &mut self.lifeline else { return };
        let now = clock::now();
        let before = self.renewing;
        for message in self.arrived.drain(..).filter(concerns) {
            self.renewing &= !matches!(message, CellMessage::Renewed { .. });
            self.core.step(now, ClientInput::Message(lifeline.address, message), &mut self.effects);
        }
        if before && !self.renewing {
            lifeline.answered();
            // Replies go to the connection that spoke last: what is large is not to come here.
            if let Some(attach) = attach(&self.core, self.token)
                && let Some(first) = self.connections.get_mut(&lifeline.address)
            {
                first.send(&attach);
            }
        }
    }

    /// The lifeline is up.
    fn hang_on(&mut self, cell: CellId) {
        let Some(lifeline) = &mut self.lifeline else { return };
        let wanted = unwanted(&mut self.cell, cell, lifeline.address).is_none();
        match attach(&self.core, self.token).filter(|_| wanted) {
            Some(attach) => lifeline.begin(clock::now(), &attach),
            None => self.lifeline = None,
        }
    }

    /// Sends a renewal; over a connection of its own as well while the first one is held up by something large and the
    /// last renewal has no answer yet.
    fn renew(&mut self, address: SocketAddr, renewal: &ClientMessage) {
        let unanswered = std::mem::replace(&mut self.renewing, true);
        let Some(connection) = self.connections.get_mut(&address) else { return };
        connection.send(renewal);
        let held_up = connection.is_held_up();
        let hanging = self.lifeline.as_mut().filter(|lifeline| held_up && lifeline.address == address);
        if hanging.is_some_and(|lifeline| lifeline.renew(clock::now(), renewal)) {
            return;
        }
        let dials = held_up && unanswered;
        self.lifeline = dials.then(|| Lifeline::dial(address, self.transport.clone(), renewal.clone()));
    }

    /// There is no connection with that member any more.
    fn disconnect(&mut self, address: SocketAddr) {
        self.connections.remove(&address);
        self.lifeline.take_if(|lifeline| lifeline.address == address);
        self.renewing = false;
    }

    /// One write call per connection that has something to say.
    fn flush(&mut self, cx: &mut Context) -> bool {
        let mut gone = Vec::new();
        for (&address, connection) in &mut self.connections {
            if let Err(reason) = connection.poll_output(cx) {
                gone.push((address, Fault::Broken(address, reason)));
            }
        }
        if self.lifeline.as_mut().is_some_and(|lifeline| lifeline.poll_output(cx).is_err()) {
            self.lifeline = None;
        }
        self.lose(gone)
    }

    fn lose(&mut self, gone: Vec<(SocketAddr, Fault)>) -> bool {
        let lost = !gone.is_empty();
        for (address, fault) in gone {
            self.disconnect(address);
            self.fault = Some(fault);
            self.core.step(clock::now(), ClientInput::Disconnected(address), &mut self.effects);
        }
        lost
    }

    fn take_deadline(&mut self, cx: &mut Context) -> bool {
        let farewell = self.farewell.as_ref().map(|farewell| farewell.until);
        let Some(deadline) = self.core.deadline().into_iter().chain(farewell).min() else { return false };
        let now = clock::now();
        if deadline <= now {
            if farewell.is_some_and(|until| until <= now) {
                self.farewell.iter_mut().for_each(|farewell| farewell.done = true);
            }
            self.core.step(now, ClientInput::Timeout, &mut self.effects);
            return true;
        }
        if self.armed.is_none_or(|armed| deadline < armed || armed <= now) {
            let wait = deadline.since(now).min(SLEEP_MICROS_MAX);
            self.timer.as_mut().reset(Instant::now() + Duration::from_micros(wait));
            // When it rings, which may be before the deadline: then it is set again.
            self.armed = Some(now.plus_micros(wait));
            // Only for its waker: what counts is the clock above.
            let _ = self.timer.as_mut().poll(cx);
        }
        false
    }

    fn perform(&mut self) -> bool {
        // Before any answer is handed out that rests on it.
        let until = self.core.safe_until().map_or(0, |until| until.0);
        self.shared.safe_until.store(until, Ordering::Release);
        let mut effects = std::mem::take(&mut self.effects);
        let busy = !effects.is_empty();
        for effect in effects.drain(..) {
            match effect {
                ClientEffect::Connect(address) => {
                    self.connections.insert(address, Connection::dial(address, self.transport.clone()));
                }
                ClientEffect::Disconnect(address) => self.disconnect(address),
                ClientEffect::Send(address, renewal @ ClientMessage::Renew { .. }) => {
                    self.renew(address, &renewal);
                }
                ClientEffect::Send(address, message) => {
                    if let Some(connection) = self.connections.get_mut(&address) {
                        connection.send(&message);
                    }
                }
                ClientEffect::Done(ticket, result) => self.done(ticket, result),
                ClientEffect::State(state) => self.stand(state),
            }
        }
        if self.effects.is_empty() {
            // Keep the room for the next turn.
            self.effects = effects;
        }
        busy
    }

    fn done(&mut self, ticket: u64, result: Result<Answer, CallError>) {
        if let Some(farewell) = &mut self.farewell
            && farewell.ticket == ticket
        {
            farewell.done = true;
        }
        let Some(waiter) = self.waiters.remove(&ticket) else { return };
        self.admission.leave(&waiter);
        let result = result.map_err(|error| explain(error, self.why()));
        self.answer(waiter, result);
    }

    fn answer(&mut self, waiter: Waiter, result: Result<Answer, Error>) {
        let Err(unwanted) = waiter.reply.send(result) else { return };
        let Some(name) = waiter.lock else { return };
        let (shared, admission) = (&self.shared, &mut self.admission);
        abandoned(shared, &name, &unwanted, |unlock| {
            let (ticket, command) = (shared.ticket(), encode(unlock));
            let (call, _) = Call::new(ticket, ClientInput::Command { ticket, command }, None, false);
            admission.stand_in_line(call);
        });
    }

    fn stand(&mut self, state: SessionState) {
        if let Some(session) = self.core.session() {
            let _ = self.shared.session.set(session);
        }
        let opened = match state {
            SessionState::Opening | SessionState::Jeopardy => None,
            SessionState::Safe => Some(Ok(())),
            SessionState::Lost => Some(Err(self.unopened())),
        };
        // First: who is told that the session is open finds it so, on whatever thread it runs.
        self.state.send_replace(state);
        if let Some(result) = opened
            && let Some(waiter) = self.opened.take()
        {
            let _ = waiter.send(result);
        }
    }

    /// What may be the reason that a call has no answer. While a member of our own cell is there, another's elsewhere
    /// is not.
    fn why(&self) -> Option<&Fault> {
        let reached = self.connections.values().any(Connection::is_up);
        self.fault.as_ref().filter(|fault| match fault {
            Fault::Broken(..) => true,
            Fault::Foreign(_) => !reached,
        })
    }

    fn unopened(&self) -> Error {
        self.core.failure().map_or(Error::Lost, |error| explain(error.clone(), self.why()))
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context) -> Poll<()> {
        let driver = self.get_mut();
        for _ in 0..TURNS_MAX {
            let mut busy = driver.take_orders(cx);
            busy |= driver.take_input(cx);
            busy |= driver.take_renewals(cx);
            busy |= driver.admit();
            busy |= driver.take_deadline(cx);
            busy |= driver.perform();
            busy |= driver.flush(cx);
            if driver.farewell.as_ref().is_some_and(|farewell| farewell.done) {
                return Poll::Ready(());
            }
            if !busy {
                return Poll::Pending;
            }
        }
        // Others on this thread want their turn too.
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Why a replica of `seen` is not spoken to, if it is not. The first cell seen is the session's.
fn unwanted(known: &mut Option<CellId>, seen: CellId, address: SocketAddr) -> Option<Fault> {
    if seen == CellId::default() {
        // A replica that has not joined yet may say who is master. But it may also form another cell while it is
        // connected: a session that knows its cell waits until it has joined.
        return known.map(|_| Fault::Broken(address, "is in no cell yet".to_owned()));
    }
    (*known.get_or_insert(seen) != seen).then_some(Fault::Foreign(address))
}

/// Says on a connection for whom it speaks, once there is a session.
fn attach(core: &Client, token: u128) -> Option<ClientMessage> {
    core.session().map(|session| ClientMessage::Attach { session, token })
}

/// Orders taken from the channel at once.
const ORDERS_TAKEN_MAX: usize = 256;

/// Turns before the thread is yielded: a core that is always busy must not starve its callers.
const TURNS_MAX: usize = 64;

/// How long a session whose last handle is gone is tried to be closed. It expires by itself otherwise.
const FAREWELL_MICROS: u64 = 2_000_000;

/// The timer rings at least this often, so a far deadline cannot overflow it.
const SLEEP_MICROS_MAX: u64 = 60_000_000;
