//! [`GatewayNode`]: the loop of a gateway: memcached clients on one side, servers and managers on the other, and the
//! core between them.
//!
//! One turn: read every socket that woke → take all whole requests out of what arrived → step the core → write the
//! answers, in the order of the requests, and the requests, one write call a connection.

use super::clients::Clients;
use super::notes;
use crate::http::{self, HttpConfig};
use crate::hub::{Alarm, Happening, Hub};
use crate::metrics::{GatewayMetrics, PUBLISH_MICROS};
use crate::post::{Arrived, Me, Post, Target};
use crate::{NodeError, clock, entropy};
use kumo_cluster::{Gateway, GatewayEffect, GatewayInput, GatewayNote, GatewaySettings};
use kumo_paxos::{CellId, Side, Time};
use std::future::{Future, poll_fn};
use std::net::{SocketAddr, TcpListener};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tracing::{error, info, warn};

/// What a gateway is told at its start.
#[derive(Clone, Debug)]
pub struct GatewayConfig {
    pub managers: Vec<SocketAddr>,
    pub get_retry_max: u32,
    pub set_retry_max: u32,
    pub delete_retry_max: u32,
    pub renew_threshold: u32,
    /// One try's patience, and that of all tries together.
    pub try_for: Duration,
    pub request_for: Duration,
    pub early_set: bool,
    pub early_delete: bool,
    pub spread_reads: bool,
    pub keepalive: Duration,
    pub key_prefix: Vec<u8>,
    pub value_bytes_max: usize,
    pub connections_max: usize,
    pub allow_flush: bool,
    /// What can be scraped; none: nothing.
    pub http: Option<HttpConfig>,
}

/// A gateway: its core, its clients, its sockets. All of it lives in one task.
struct GatewayNode {
    gateway: Gateway,
    post: Post,
    clients: Clients,
    arrived: Vec<Arrived>,
    effects: Vec<GatewayEffect>,
    inputs: Vec<GatewayInput>,
    alarm: Alarm,
    end: Option<Result<(), NodeError>>,
    stopping_until: Option<Time>,
    metrics: Arc<GatewayMetrics>,
    published: Time,
}

/// Runs a gateway on sockets that are bound already, until `stop` completes or it must end.
pub async fn run_gateway(
    listeners: Vec<TcpListener>,
    config: GatewayConfig,
    stop: impl Future<Output = ()>,
) -> Result<(), NodeError> {
    let http = config.http.as_ref().map(http::bind).transpose()?;
    let node = GatewayNode::open(listeners, &config)?;
    let _http = http.map(|http| http.serve_probes(node.metrics.clone())).transpose()?;
    node.run(stop).await
}

impl GatewayNode {
    fn open(listeners: Vec<TcpListener>, config: &GatewayConfig) -> Result<GatewayNode, NodeError> {
        let mut hub = Hub::new(config.connections_max);
        let mut foreign = Vec::new();
        for listener in listeners {
            let address = listener.local_addr().map_err(NodeError::Socket)?;
            listener.set_nonblocking(true).map_err(NodeError::Socket)?;
            let listener = tokio::net::TcpListener::from_std(listener).map_err(NodeError::Socket)?;
            info!(%address, "listening for memcached clients");
            foreign.push(hub.listen(listener, true));
        }
        let me = Me { side: Side::Gateway, id: None, cell: CellId(0) };
        let mut post = Post::new(hub, me, entropy::draw()? as u64);
        foreign.into_iter().for_each(|listener| post.foreign(listener));
        let now = clock::now();
        for &manager in &config.managers {
            post.dial(now, Target::Manager(manager));
        }
        let metrics = Arc::new(GatewayMetrics::new());
        Ok(GatewayNode {
            gateway: Gateway::new(settings(config)?, now),
            post,
            clients: Clients::new(config, metrics.clone()),
            arrived: Vec::new(),
            effects: Vec::new(),
            inputs: Vec::new(),
            alarm: Alarm::new(),
            end: None,
            stopping_until: None,
            metrics,
            published: Time(0),
        })
    }

    async fn run(mut self, stop: impl Future<Output = ()>) -> Result<(), NodeError> {
        let mut stop = pin!(stop);
        // The loop bounds its own turns; the runtime's way of doing so would make sockets look idle in mid-turn.
        tokio::task::unconstrained(poll_fn(|context| self.turn(context, stop.as_mut()))).await
    }

    fn turn<F: Future<Output = ()>>(
        &mut self,
        context: &mut Context,
        stop: Pin<&mut F>,
    ) -> Poll<Result<(), NodeError>> {
        if self.stopping_until.is_none() && stop.poll(context).is_ready() {
            info!("stopping");
            self.post.hub().close_listeners();
            self.stopping_until = Some(clock::now().plus_micros(STOP_MICROS));
        }
        self.post.poll(clock::now(), context, &mut self.arrived);
        let now = clock::now();
        self.take_arrived(now);
        self.step(now);
        self.perform(now);
        self.post.flush(now, &mut self.arrived);
        self.measure(now);
        if let Some(end) = self.ended(now) {
            return Poll::Ready(end);
        }
        if !self.arrived.is_empty() || !self.inputs.is_empty() {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let deadlines =
            [self.gateway.deadline(), self.post.deadline(), self.clients.deadline(), self.stopping_until];
        if let Some(wanted) = deadlines.into_iter().flatten().min() {
            self.alarm.set(now, wanted, context);
        }
        Poll::Pending
    }

    /// What was answered in this turn is written now.
    fn measure(&mut self, now: Time) {
        self.clients.written();
        if now.since(self.published) >= PUBLISH_MICROS {
            self.published = now;
            self.metrics.publish(&self.gateway, self.clients.open());
        }
    }

    fn take_arrived(&mut self, now: Time) {
        let mut arrived = std::mem::take(&mut self.arrived);
        for one in arrived.drain(..) {
            match one {
                Arrived::Server(id, message) => self.inputs.push(GatewayInput::Server(id, message)),
                Arrived::Foreign(happening) => self.client(now, happening),
                Arrived::ServerUp(id) => self.inputs.push(GatewayInput::ServerUp(id)),
                Arrived::ServerDown(id) => self.inputs.push(GatewayInput::ServerDown(id)),
                Arrived::ManagerUp(address) => self.inputs.push(GatewayInput::ManagerUp(address)),
                Arrived::ManagerDown(address) => self.inputs.push(GatewayInput::ManagerDown(address)),
                Arrived::Manager(address, message) => {
                    self.inputs.push(GatewayInput::Manager(address, message));
                }
                // Nobody of the store dials a gateway.
                Arrived::Gateway(..) | Arrived::GatewayDown(_) | Arrived::Tool(..) => {}
                Arrived::Refused(Target::Manager(address), reason) => {
                    self.end = Some(Err(NodeError::Refused(format!("manager {address}: {reason}"))));
                }
                Arrived::Refused(Target::Server(id), reason) => {
                    warn!(server = %id.address, reason, "refused");
                }
            }
        }
        self.arrived = arrived;
        self.clients.timeout(now, self.post.hub(), &mut self.inputs);
    }

    fn client(&mut self, now: Time, happening: Happening) {
        match happening {
            Happening::Accepted { id, .. } => self.clients.up(id),
            Happening::Readable(id) => self.clients.read(now, id, self.post.hub(), &mut self.inputs),
            Happening::Ended(id) => self.clients.ended(id, self.post.hub()),
            Happening::Closed { id, .. } => self.clients.down(id, &mut self.inputs),
            // A gateway dials no client.
            Happening::Dialled(_) => {}
        }
    }

    fn step(&mut self, now: Time) {
        for input in self.inputs.drain(..) {
            self.gateway.step(now, input, &mut self.effects);
        }
        if self.gateway.deadline().is_some_and(|deadline| deadline <= now) {
            self.gateway.step(now, GatewayInput::Timeout, &mut self.effects);
        }
    }

    fn perform(&mut self, now: Time) {
        let mut effects = std::mem::take(&mut self.effects);
        for effect in effects.drain(..) {
            match effect {
                GatewayEffect::Server(to, message) => self.post.send_server(to, &message),
                GatewayEffect::Done { ticket, result } => {
                    self.clients.done(now, ticket, result, self.post.hub(), &mut self.inputs);
                }
                GatewayEffect::Manager(to, message) => self.post.send_manager(to, &message),
                GatewayEffect::Dial(id) => self.post.dial(now, Target::Server(id)),
                GatewayEffect::Undial(id) => self.post.undial(Target::Server(id)),
                GatewayEffect::Managers(managers) => {
                    for manager in managers {
                        self.post.dial(now, Target::Manager(manager));
                    }
                }
                GatewayEffect::Note(note) => self.note(&note),
                GatewayEffect::Exit(reason) => {
                    error!(reason, "the managers refuse this gateway");
                    self.end = Some(Err(NodeError::Refused(reason)));
                }
            }
        }
        self.effects = effects;
    }

    fn note(&mut self, note: &GatewayNote) {
        if let GatewayNote::Adopted { space } = note {
            let me = self.post.me();
            self.post.set_me(Me { cell: space.cluster, ..me });
        }
        notes::gateway(note);
    }

    fn ended(&mut self, now: Time) -> Option<Result<(), NodeError>> {
        if self.end.is_some() {
            return self.end.take();
        }
        let until = self.stopping_until?;
        let silent = self.gateway.in_flight() == 0 && !self.post.hub().has_output();
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
        early_set: config.early_set,
        early_delete: config.early_delete,
        spread_reads: config.spread_reads,
        keepalive_micros: config.keepalive.as_micros() as u64,
    })
}

/// A clean end waits at most so long for requests under way.
const STOP_MICROS: u64 = 1_000_000;
