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
use crate::{NodeError, clock, entropy};
use kumo_cluster::GatewaySettings;
use kumo_link::{GatewayLink, Told};
use kumo_paxos::Time;
use std::future::{Future, poll_fn};
use std::net::{SocketAddr, TcpListener};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tracing::{error, info};

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
    link: GatewayLink,
    clients: Clients,
    happened: Vec<Happening>,
    told: Vec<Told>,
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
        let noise = entropy::draw()? as u64;
        let link = GatewayLink::new(settings(config)?, &config.managers, hub, &foreign, noise, clock::now());
        let metrics = Arc::new(GatewayMetrics::new());
        Ok(GatewayNode {
            link,
            clients: Clients::new(config, metrics.clone()),
            happened: Vec::new(),
            told: Vec::new(),
            alarm: Alarm::default(),
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
            self.link.hub().close_listeners();
            self.stopping_until = Some(clock::now().plus_micros(STOP_MICROS));
        }
        self.link.poll(clock::now(), context, &mut self.happened);
        let now = clock::now();
        self.take_requests(now);
        self.link.step(now, &mut self.told);
        self.tell(now);
        let more = self.link.flush(now);
        self.measure(now);
        if let Some(end) = self.ended(now) {
            return Poll::Ready(end);
        }
        if more {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let deadlines = [self.link.deadline(), self.clients.deadline(), self.stopping_until];
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
            self.metrics.publish(self.link.gateway(), self.clients.open());
        }
    }

    fn take_requests(&mut self, now: Time) {
        let (hub, inputs) = self.link.parts();
        for happening in self.happened.drain(..) {
            match happening {
                Happening::Accepted { id, .. } => self.clients.up(id),
                Happening::Readable(id) => self.clients.read(now, id, hub, inputs),
                Happening::Ended(id) => self.clients.ended(id, hub),
                Happening::Closed { id, .. } => self.clients.down(id, inputs),
                // A gateway dials no client.
                Happening::Dialled(_) => {}
            }
        }
        self.clients.timeout(now, hub, inputs);
    }

    fn tell(&mut self, now: Time) {
        let (hub, inputs) = self.link.parts();
        for told in self.told.drain(..) {
            match told {
                Told::Done { ticket, result } => self.clients.done(now, ticket, result, hub, inputs),
                Told::Note(note) => notes::gateway(&note),
                Told::Refused(reason) => {
                    error!(reason, "the managers refuse this gateway");
                    self.end = Some(Err(NodeError::Refused(reason)));
                }
            }
        }
    }

    fn ended(&mut self, now: Time) -> Option<Result<(), NodeError>> {
        if self.end.is_some() {
            return self.end.take();
        }
        let until = self.stopping_until?;
        let silent = self.link.gateway().in_flight() == 0 && !self.link.hub().has_output();
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
