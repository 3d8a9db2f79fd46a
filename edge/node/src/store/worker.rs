//! [`Worker`]: the loop of a gateway's worker: memcached clients on one side, servers and managers on the other, and the
//! core between them.
//!
//! One turn: read every socket that woke → take all whole requests out of what arrived → step the core → write the
//! answers, in the order of the requests, and the requests, one write call a connection.

use super::clients::{Clients, LEFT_BYTES_MAX, LEFT_SECONDS_MAX};
use super::failures::FailureWatch;
use super::gateway::{GatewayConfig, Shared};
use super::{notes, talk};
use crate::hub::{Alarm, Happening, Hub};
use crate::metrics::{PUBLISH_MICROS, WorkerMetrics};
use crate::{NodeError, clock, entropy};
use kumo_cluster::{GatewayNote, GatewaySettings};
use kumo_link::{GatewayLink, Linger, Told};
use kumo_paxos::Time;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::mpsc;
use tracing::debug;

/// A client that was let in.
pub type Guest = std::net::TcpStream;

/// A worker: its core, its clients, its sockets. All of it lives in one task, alone on its thread.
pub struct Worker {
    shared: Arc<Shared>,
    link: GatewayLink,
    clients: Clients,
    /// Clients on their way from the door; it ends when the gateway is to end.
    guests: mpsc::UnboundedReceiver<Guest>,
    newcomers: Vec<Guest>,
    /// Those that got here, ever.
    taken: u64,
    happened: Vec<Happening>,
    told: Vec<Told>,
    alarm: Alarm,
    linger: Linger,
    end: Option<Result<(), NodeError>>,
    stopping_until: Option<Time>,
    metrics: Arc<WorkerMetrics>,
    published: Time,
    failures: FailureWatch,
}

impl Worker {
    /// On the runtime that it will run on.
    pub fn open(
        number: usize,
        shared: Arc<Shared>,
        guests: mpsc::UnboundedReceiver<Guest>,
    ) -> Result<Worker, NodeError> {
        let config = &shared.config;
        let noise = entropy::draw()? as u64;
        let mut hub = Hub::new(config.dial_for);
        hub.bound_left(LEFT_BYTES_MAX / config.workers, LEFT_SECONDS_MAX);
        let link = GatewayLink::new(settings(config)?, &config.managers, hub, noise, clock::now());
        let metrics = shared.metrics.workers()[number].clone();
        Ok(Worker {
            link,
            clients: Clients::new(shared.clone(), metrics.clone()),
            guests,
            newcomers: Vec::new(),
            taken: 0,
            happened: Vec::new(),
            told: Vec::new(),
            alarm: Alarm::default(),
            linger: Linger::new(shared.config.linger),
            end: None,
            stopping_until: None,
            metrics,
            published: Time(0),
            failures: FailureWatch::default(),
            shared,
        })
    }

    pub async fn run(mut self) -> Result<(), NodeError> {
        // The loop bounds its own turns; the runtime's way of doing so would make sockets look idle in mid-turn.
        tokio::task::unconstrained(poll_fn(|context| self.turn(context))).await
    }

    fn turn(&mut self, context: &mut Context) -> Poll<Result<(), NodeError>> {
        if self.linger.looks_on(self.link.has_more(), context) {
            return Poll::Pending;
        }
        let open = self.take_in(context);
        self.link.poll(clock::now(), context, &mut self.happened);
        let now = clock::now();
        if !self.happened.is_empty() || !self.link.parts().1.is_empty() {
            self.linger.heard(now);
        }
        self.take_requests(now);
        if !open && self.stopping_until.is_none() {
            // What arrived until now is answered; nothing more is read.
            self.clients.end_all(self.link.hub());
            self.stopping_until = Some(now.plus_micros(STOP_MICROS));
        }
        talk::to_gateway(self.link.parts().1);
        self.link.step(now, &mut self.told);
        self.tell(now);
        let more = self.link.flush() || self.clients.has_more(self.link.hub());
        self.measure(now);
        if let Some(end) = self.ended(now) {
            return Poll::Ready(end);
        }
        if more {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let deadlines = [self.link.deadline(), self.clients.deadline(), self.stopping_until];
        let deadline = deadlines.into_iter().flatten().min();
        if self.linger.stays(now, deadline, self.link.gateway().in_flight() > 0, context) {
            return Poll::Pending;
        }
        if let Some(wanted) = deadline {
            self.alarm.set(now, wanted, context);
        }
        Poll::Pending
    }

    /// Clients that were let in since the last turn. False: the door is gone, and nobody is on the way from it.
    fn take_in(&mut self, context: &mut Context) -> bool {
        match self.guests.poll_recv_many(context, &mut self.newcomers, GUESTS_PER_TURN) {
            Poll::Pending => return true,
            Poll::Ready(0) => return false,
            // There may be more of them.
            Poll::Ready(_) => context.waker().wake_by_ref(),
        }
        for guest in self.newcomers.drain(..) {
            self.taken += 1;
            let (hub, inputs) = self.link.parts();
            match hub.take_in(guest) {
                Ok(id) => self.clients.up(id, inputs),
                Err(error) => debug!(%error, "a client was gone before it was served"),
            }
        }
        true
    }

    /// What was answered in this turn is written now.
    fn measure(&mut self, now: Time) {
        self.clients.written();
        self.metrics.left.set(self.taken - self.link.hub().clients() as u64);
        if now.since(self.published) >= PUBLISH_MICROS {
            self.published = now;
            self.metrics.publish(self.link.gateway());
        }
    }

    fn take_requests(&mut self, now: Time) {
        let (hub, inputs) = self.link.parts();
        for happening in self.happened.drain(..) {
            match happening {
                Happening::Readable(id) => self.clients.read(now, id, hub, inputs),
                Happening::Ended(id) => self.clients.ended(id, hub),
                Happening::Closed { id, .. } => self.clients.down(id, inputs),
                // A worker listens to nobody and dials no client.
                Happening::Accepted { .. } | Happening::Dialled(_) => {}
            }
        }
        self.clients.timeout(now, hub, inputs);
    }

    fn tell(&mut self, now: Time) {
        let (hub, inputs) = self.link.parts();
        for told in self.told.drain(..) {
            match told {
                Told::Done { ticket, result } => {
                    talk::answered(ticket, &result);
                    self.clients.done(now, ticket, result, hub, inputs);
                }
                Told::Note(note) => {
                    if let GatewayNote::Adopted { space } = &note
                        && !space.members.is_empty()
                        && let Err(error) = self.shared.belong(space.cluster)
                    {
                        // No server is dialled before this turn ends.
                        self.end = Some(Err(error));
                    }
                    if let GatewayNote::Failed { key, operation, error } = &note {
                        let named = self.failures.failed(operation, error);
                        notes::failed(key, operation, error, named);
                    } else if self.shared.is_news(&note) {
                        notes::gateway(&note);
                    }
                }
                Told::Refused(reason) => self.end = Some(Err(NodeError::Refused(reason))),
            }
        }
        self.failures.look(now);
    }

    fn ended(&mut self, now: Time) -> Option<Result<(), NodeError>> {
        if self.end.is_some() {
            return self.end.take();
        }
        let until = self.stopping_until?;
        let in_flight = self.link.gateway().in_flight();
        let silent = self.clients.is_empty() && in_flight == 0 && !self.link.hub().has_output();
        (now >= until || silent).then_some(Ok(()))
    }
}

fn settings(config: &GatewayConfig) -> Result<GatewaySettings, NodeError> {
    Ok(GatewaySettings {
        nonce: entropy::draw()?,
        cluster: None,
        get_retry_max: config.get_retry_max,
        set_retry_max: config.set_retry_max,
        delete_retry_max: config.delete_retry_max,
        renew_threshold: config.renew_threshold,
        try_micros: config.try_for.as_micros() as u64,
        request_micros: config.request_for.as_micros() as u64,
        early: config.early,
        spread_reads: config.spread_reads,
        keepalive_micros: config.keepalive.as_micros() as u64,
        workers: config.workers,
    })
}

/// Clients taken in before those that are here have their turn.
const GUESTS_PER_TURN: usize = 64;

/// A clean end waits at most so long for requests under way: longer than it takes until a killed server is given up.
const STOP_MICROS: u64 = 3_000_000;
