//! [`ServerNode`]: the loop of a server: sockets, the storage engine, and the core between them.
//!
//! One turn: read every socket that woke → read the clock, once → step the core for each input → hand what was
//! stored to the kernel (and to the disk, if every write must be there) → send what the core wants sent, one
//! write call a connection. Nothing is answered before it is stored.

use crate::http::{self, HttpConfig};
use crate::hub::{Alarm, Hub};
use crate::metrics::{PUBLISH_MICROS, ServerMetrics, Stopwatch};
use crate::post::{Arrived, Me, Post, Refusals, Target};
use crate::store::faults::FaultWatch;
use crate::store::garbage::{GarbageLimits, GarbageWatch};
use crate::store::kept::{self, Kept};
use crate::store::notes;
use crate::store::outage::OutageWatch;
use crate::store::report::{self, Uptime};
use crate::store::talk;
use crate::store::trouble::TroubleWatch;
use crate::store::voter::Voter;
use crate::{NodeError, clock, entropy};
use kumo_cluster::control::check_suffix;
use kumo_cluster::{
    Answer, Early, Fault, Limits, Message, Reply, Seat, Server, ServerEffect, ServerId, ServerInput,
    ServerNote, ServerSettings, Space,
};
use kumo_link::{Linger, Quiet};
use kumo_paxos::{CellId, Side, Time};
use kumo_store::{Cut, Engine, Opened, Options, Sync};
use std::future::{Future, poll_fn};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc;
use tracing::{debug, error, info, warn};

/// What a server is told at its start.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Where it listens, and its name for the others.
    pub listen: SocketAddr,
    pub managers: Vec<SocketAddr>,
    /// A folder, without a separator at the end: backups are named after it. None: in memory only.
    pub store: Option<PathBuf>,
    pub sync: Sync,
    pub copies_min: usize,
    pub early: Early,
    pub tombstone_age_min: Duration,
    pub garbage: GarbageLimits,
    pub keepalive: Duration,
    /// How long one try to connect may take.
    pub dial_for: Duration,
    pub value_bytes_max: usize,
    pub connections_max: usize,
    /// How long it looks for more before it sleeps, when it has much to do.
    pub linger: Duration,
    /// What can be scraped; none: nothing.
    pub http: Option<HttpConfig>,
}

/// A server: its core, its engine, its sockets. All of it lives in one task.
struct ServerNode {
    config: ServerConfig,
    engine: Engine,
    server: Server<Engine>,
    post: Post,
    refusals: Refusals,
    effects: Vec<ServerEffect>,
    /// Requests of gateways that do not read their answers as fast as they ask.
    deferred: Vec<Arrived>,
    /// Managers may have heard of this life.
    spoke: bool,
    /// The cell may want a replica in this process.
    voter: Voter,
    alarm: Alarm,
    linger: Linger,
    uptime: Uptime,
    backups: mpsc::UnboundedReceiver<(String, Result<String, String>)>,
    backup_done: mpsc::UnboundedSender<(String, Result<String, String>)>,
    /// A turn's writes must be on disk before anything is said.
    always: bool,
    end: Option<Result<(), NodeError>>,
    stopping_until: Option<Time>,
    garbage: GarbageWatch,
    faults: FaultWatch,
    trouble: TroubleWatch,
    outage: OutageWatch,
    metrics: Arc<ServerMetrics>,
    stopwatch: Stopwatch,
    published: Time,
}

/// Runs a server on sockets that are bound already, until `stop` completes or it must end. `stream`: where a replica
/// of the cell is reached, if one runs here.
pub async fn run_server(
    listener: TcpListener,
    stream: TcpListener,
    config: ServerConfig,
    stop: impl Future<Output = ()>,
) -> Result<(), NodeError> {
    let http = config.http.as_ref().map(http::bind).transpose()?;
    let node = ServerNode::open(listener, stream, config)?;
    let _http = http.map(|http| http.serve_probes(node.metrics.clone())).transpose()?;
    node.run(stop).await
}

impl ServerNode {
    fn open(
        listener: TcpListener,
        stream: TcpListener,
        config: ServerConfig,
    ) -> Result<ServerNode, NodeError> {
        let address = config.listen;
        let fault = |error| NodeError::Listen { address, error };
        listener.set_nonblocking(true).map_err(fault)?;
        let listener = tokio::net::TcpListener::from_std(listener).map_err(fault)?;
        let engine = match &config.store {
            None => Engine::memory(),
            Some(path) => open_engine(path, config.sync)?,
        };
        let (kept, incarnation) = Kept::begin(&engine)?;
        let id = ServerId { address, incarnation };
        let me = Me { side: Side::Server, id: Some(id), cell: kept.cluster.unwrap_or(CellId(0)) };
        let mut hub = Hub::new(config.dial_for);
        hub.listen(listener, config.connections_max);
        let mut post = Post::new(hub, me, entropy::draw()? as u64);
        let now = clock::now();
        for &manager in &config.managers {
            post.dial(now, Target::Manager(manager));
        }
        let refusals = Refusals::new(&config.managers);
        let (backup_done, backups) = mpsc::unbounded_channel();
        let voter = Voter::new(stream, engine.clone(), config.store.as_deref(), config.linger)?;
        let server = Server::new(settings(&config, id, kept, voter.seat()), engine.clone(), now);
        let store = config.store.as_ref().map_or("memory".into(), |path| path.to_string_lossy());
        info!(%address, ?incarnation, %store, "listening");
        Ok(ServerNode {
            always: config.sync == Sync::Always && config.store.is_some(),
            garbage: GarbageWatch::new(config.garbage),
            trouble: TroubleWatch::default(),
            outage: OutageWatch::default(),
            faults: FaultWatch::default(),
            linger: Linger::new(config.linger),
            config,
            engine,
            server,
            post,
            refusals,
            effects: Vec::new(),
            deferred: Vec::new(),
            spoke: false,
            voter,
            alarm: Alarm::default(),
            uptime: Uptime::new(),
            backups,
            backup_done,
            end: None,
            stopping_until: None,
            metrics: Arc::new(ServerMetrics::new()),
            stopwatch: Stopwatch::new(),
            published: Time(0),
        })
    }

    async fn run(mut self, stop: impl Future<Output = ()>) -> Result<(), NodeError> {
        let mut stop = Quiet::new(stop);
        // The loop bounds its own turns; the runtime's way of doing so would make sockets look idle in mid-turn.
        let end = tokio::task::unconstrained(poll_fn(|context| self.turn(context, &mut stop))).await;
        let synced = self.engine.sync();
        self.voter.end().await;
        // A backup that is under way has a handle too, and nobody waits for it.
        self.engine.close();
        last_word(end, synced.map_err(|fault| store_error(&self.config, &fault)))
    }

    fn turn<F: Future<Output = ()>>(
        &mut self,
        context: &mut Context,
        stop: &mut Quiet<F>,
    ) -> Poll<Result<(), NodeError>> {
        if self.linger.looks_on(self.post.has_more(), context) {
            return Poll::Pending;
        }
        if self.stopping_until.is_none() && stop.poll(context).is_ready() {
            info!("stopping");
            self.post.hub().close_listeners();
            self.stopping_until = Some(clock::now().plus_micros(STOP_MICROS));
        }
        self.post.poll(clock::now(), context);
        // Read after the last byte of what arrived: the lease is counted from it.
        let now = clock::now();
        self.poll_backups(now, context);
        self.voter.poll(context);
        self.step(now);
        self.store_and_send(now);
        self.post.flush();
        self.measure(now);
        if let Some(end) = self.ended(now) {
            return Poll::Ready(end);
        }
        if self.has_more() {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let deadlines = [self.server.deadline(), self.post.deadline(), self.stopping_until];
        let deadline = deadlines.into_iter().flatten().min();
        if self.linger.stays(now, deadline, self.server.under_way().0 > 0, context) {
            return Poll::Pending;
        }
        if let Some(wanted) = deadline {
            self.alarm.set(now, wanted, context);
        }
        Poll::Pending
    }

    /// Not all was taken, or a gateway whose requests wait has read its answers: nothing else may come that leads to a turn.
    fn has_more(&mut self) -> bool {
        if self.post.has_left() {
            return true;
        }
        let hub = self.post.hub();
        self.deferred.iter().any(|one| match one {
            Arrived::Gateway(id, _) => hub.backlog(*id) <= ANSWER_BYTES_MAX,
            _never_deferred => true,
        })
    }

    /// What was answered in this turn is written now.
    fn measure(&mut self, now: Time) {
        self.stopwatch.written(&self.metrics.latencies);
        if now.since(self.published) >= PUBLISH_MICROS {
            self.published = now;
            self.metrics.publish(now, &self.server);
            self.garbage.look(now, self.server.garbage(), self.server.space());
            self.trouble.look(now, self.engine.trouble());
            if let Some(fault) = self.outage.given_up(now, self.engine.failing()) {
                self.unwritable(&fault);
            }
        }
    }

    fn came(&mut self, now: Time, one: &Arrived) {
        match one {
            Arrived::Gateway(id, message) => {
                self.metrics.heard(message);
                if let Message::Request(request) = message {
                    let operation = self.metrics.asked(&request.operation);
                    self.stopwatch.came(now, (id.0, request.id.seq), operation);
                }
            }
            Arrived::Server(_, message) | Arrived::Manager(_, message) => self.metrics.heard(message),
            Arrived::ServerUp(_)
            | Arrived::ServerDown(_)
            | Arrived::GatewayDown(_)
            | Arrived::ManagerUp(_)
            | Arrived::ManagerDown(_)
            | Arrived::Tool(..)
            | Arrived::Foreign(_)
            | Arrived::Refused(..) => {}
        }
    }

    fn step(&mut self, now: Time) {
        self.server.step(now, ServerInput::Wall(clock::wall()), &mut self.effects);
        let mut answer_bytes = 0;
        for one in std::mem::take(&mut self.deferred) {
            self.take(now, one, &mut answer_bytes);
        }
        while let Some(one) = self.post.next(now) {
            self.linger.heard(now);
            self.take(now, one, &mut answer_bytes);
        }
        if self.server.deadline().is_some_and(|deadline| deadline <= now) {
            talk::to_server(&ServerInput::Timeout);
            self.server.step(now, ServerInput::Timeout, &mut self.effects);
        }
    }

    /// Steps the core for one thing that arrived. `answer_bytes`: of the values in its effects that wait.
    fn take(&mut self, now: Time, one: Arrived, answer_bytes: &mut usize) {
        if let Arrived::Gateway(id, _) = &one
            && self.post.hub().backlog(*id) > ANSWER_BYTES_MAX
        {
            // Its answers pile up: the rest waits until it has read them.
            return self.deferred.push(one);
        }
        self.came(now, &one);
        let input = match one {
            Arrived::ServerUp(id) => ServerInput::ServerUp(id),
            Arrived::ServerDown(id) => ServerInput::ServerDown(id),
            Arrived::Server(id, message) => ServerInput::Server(id, message),
            Arrived::Gateway(id, message) => ServerInput::Gateway(id, message),
            Arrived::GatewayDown(id) => ServerInput::GatewayDown(id),
            Arrived::ManagerUp(address) => {
                self.refusals.withdrawn(address);
                if !self.speak() {
                    return;
                }
                ServerInput::ManagerUp(address)
            }
            Arrived::ManagerDown(address) => ServerInput::ManagerDown(address),
            Arrived::Manager(address, message) => ServerInput::Manager(address, message),
            Arrived::Tool(id, body) => {
                let answer = report::server(&body, &self.server, &self.uptime, &self.metrics, now);
                return self.post.send(id, &answer);
            }
            Arrived::Foreign(_) => return,
            Arrived::Refused(target, reason) => return self.refused(target, reason),
        };
        talk::to_server(&input);
        let before = self.effects.len();
        self.server.step(now, input, &mut self.effects);
        *answer_bytes += self.effects[before..].iter().map(value_bytes).sum::<usize>();
        if *answer_bytes > TURN_BYTES_MAX {
            // Performed in mid-turn, so that what piles up is seen.
            *answer_bytes = 0;
            self.store_and_send(now);
        }
    }

    /// What was put must be where a kill of this process cannot take it, before anybody hears of it.
    fn store_and_send(&mut self, now: Time) {
        if matches!(self.end, Some(Err(_))) {
            self.effects.clear();
        }
        if self.effects.is_empty() {
            return;
        }
        let stored = if self.always { self.engine.commit() } else { self.engine.flush() };
        if let Err(fault) = stored {
            self.unwritable(&fault);
            self.effects.clear();
            return;
        }
        let mut effects = std::mem::take(&mut self.effects);
        for effect in &effects {
            talk::of_server(effect);
            match effect {
                ServerEffect::Server(to, message) => self.post.send_server(*to, message),
                ServerEffect::Gateway(to, message) => {
                    if let Message::Answer { seq, .. } = message {
                        self.stopwatch.answered((to.0, *seq));
                    }
                    self.post.send(*to, message);
                }
                ServerEffect::Manager(to, message) => self.post.send_manager(*to, message),
                ServerEffect::Dial(id) => self.post.dial(now, Target::Server(*id)),
                ServerEffect::Undial(id) => self.post.undial(Target::Server(*id)),
                ServerEffect::KeepSpace(space) => {
                    if !self.keep(space) {
                        // What follows may say that it is in that space.
                        break;
                    }
                }
                ServerEffect::Managers(managers) => {
                    let managers = [managers, &self.config.managers[..]].concat();
                    for manager in self.post.only_managers(now, &managers) {
                        self.server.step(now, ServerInput::ManagerDown(manager), &mut self.effects);
                    }
                }
                ServerEffect::Recruit(recruit) => self.voter.recruit(recruit.clone()),
                ServerEffect::Backup { suffix } => self.backup(suffix.clone()),
                ServerEffect::Note(ServerNote::StoreFault { what }) if !self.faults.is_news(now, what) => {}
                ServerEffect::Note(note) => notes::server(note),
                ServerEffect::Reborn { reason } => {
                    notes::reborn(reason);
                    self.reborn(now);
                    // What else the old life wanted ended with it.
                    break;
                }
                ServerEffect::Exit(reason) => {
                    error!(reason, "the managers refuse this server");
                    self.end = Some(Err(NodeError::Refused(reason.clone())));
                }
            }
        }
        effects.clear();
        effects.append(&mut self.effects);
        self.effects = effects;
    }

    /// Managers are about to hear of this life: the next one must be able to say that it was this one.
    fn speak(&mut self) -> bool {
        let Some(id) = self.post.me().id.filter(|_| !self.spoke) else { return true };
        if let Err(fault) = kept::spoke(&self.engine, id.incarnation) {
            self.unwritable(&fault);
            return false;
        }
        self.spoke = true;
        true
    }

    /// What it is told cannot be kept any more: others have it, and go on without this server.
    fn unwritable(&mut self, fault: &Fault) {
        error!(%fault, "the store cannot be written: this server ends");
        self.end = Some(Err(store_error(&self.config, fault)));
    }

    /// A server whose disk has forgotten its space could be taken for one that never heard of it: it ends instead, and
    /// this is false.
    fn keep(&mut self, space: &Space) -> bool {
        let me = self.post.me();
        if let Err(fault) = kept::adopted(&self.engine, me.id.map(|id| id.incarnation), space) {
            self.unwritable(&fault);
            return false;
        }
        if me.cell == CellId(0) {
            self.post.set_me(Me { cell: space.cluster, ..me });
        }
        true
    }

    /// The process goes on, under another name, on the same store.
    fn reborn(&mut self, now: Time) {
        let (kept, incarnation) = match Kept::begin(&self.engine) {
            Ok(born) => born,
            Err(error) => {
                self.end = Some(Err(error));
                return;
            }
        };
        let id = ServerId { address: self.config.listen, incarnation };
        self.spoke = false;
        self.post.hang_up_all();
        self.post.set_me(Me { side: Side::Server, id: Some(id), cell: kept.cluster.unwrap_or(CellId(0)) });
        let settings = settings(&self.config, id, kept, self.voter.seat());
        self.server = Server::new(settings, self.engine.clone(), now);
    }

    /// A copy of the store beside it, by a thread of its own.
    fn backup(&mut self, suffix: String) {
        let done = self.backup_done.clone();
        let Some(path) = &self.config.store else {
            let _ = done.send((suffix, Err("this server has no store on disk".to_owned())));
            return;
        };
        // Whoever it is that asks: this becomes a path.
        if let Err(why) = check_suffix(&suffix) {
            let _ = done.send((suffix, Err(why.to_owned())));
            return;
        }
        let mut name = path.as_os_str().to_owned();
        name.push("-");
        name.push(&suffix);
        let (destination, engine) = (PathBuf::from(name), self.engine.clone());
        tokio::task::spawn_blocking(move || {
            let result = match engine.backup(&destination, &kept::OF_THIS_SERVER) {
                Ok(_) => Ok(destination.display().to_string()),
                Err(error) => Err(error.to_string()),
            };
            // A node that ended meanwhile does not want to know.
            let _ = done.send((suffix, result));
        });
    }

    fn poll_backups(&mut self, now: Time, context: &mut Context) {
        while let Poll::Ready(Some((suffix, result))) = self.backups.poll_recv(context) {
            notes::backup(&suffix, &result);
            self.server.step(now, ServerInput::BackedUp { suffix, result }, &mut self.effects);
        }
    }

    fn refused(&mut self, target: Target, reason: String) {
        match target {
            // One that belongs to a cluster has records that others need: it dials again, as after any failure.
            Target::Manager(address) if self.post.me().cell != CellId(0) => {
                warn!(manager = %address, reason, "refused");
            }
            Target::Manager(address) => {
                if let Some(said) = self.refusals.refused(address, &reason) {
                    error!(reason = said, "the managers refuse this server");
                    self.end = Some(Err(NodeError::Refused(said)));
                }
            }
            Target::Server(id) => debug!(server = ?id, reason, "refused"),
        }
    }

    fn ended(&mut self, now: Time) -> Option<Result<(), NodeError>> {
        if self.end.is_some() {
            return self.end.take();
        }
        let until = self.stopping_until?;
        (now >= until || !self.post.hub().has_output()).then_some(Ok(()))
    }
}

/// How it ends: a clean end is one after which all is on the disk. What ended it before comes first.
fn last_word(end: Result<(), NodeError>, synced: Result<(), NodeError>) -> Result<(), NodeError> {
    if let (Err(_), Err(reason)) = (&end, &synced) {
        error!(%reason, "the store could not be written out at the end");
    }
    end.and(synced)
}

fn settings(config: &ServerConfig, id: ServerId, kept: Kept, seat: Seat) -> ServerSettings {
    ServerSettings {
        id,
        previous: kept.lives,
        cluster: kept.cluster,
        space: kept.space,
        copies_min: config.copies_min,
        early: config.early,
        value_bytes_max: config.value_bytes_max,
        tombstone_micros_min: config.tombstone_age_min.as_micros() as u64,
        keepalive_micros: config.keepalive.as_micros() as u64,
        courteous: true,
        seat: Some(seat),
        limits: Limits::default(),
        broken: kumo_cluster::Broken::default(),
    }
}

fn open_engine(path: &std::path::Path, sync: Sync) -> Result<Engine, NodeError> {
    let options = Options { sync, ..Options::default() };
    let (engine, opened) =
        Engine::open(path, options).map_err(|error| NodeError::OpenStore(error.to_string()))?;
    let Opened { created, items, tombstones, segments, hinted, cuts } = opened;
    info!(path = %path.display(), created, items, tombstones, segments, hinted, "store opened");
    for Cut { file, offset, bytes } in cuts {
        let file = file.display();
        warn!(%file, offset, bytes, "a crash tore the end of a file, which is cut off; nothing that is known to have been synced is in it");
    }
    Ok(engine)
}

/// Of a value that is answered.
fn value_bytes(effect: &ServerEffect) -> usize {
    match effect {
        ServerEffect::Gateway(
            _,
            Message::Answer { answer: Answer::Reply(Reply::Value { data, .. }), .. },
        ) => data.len(),
        _other => 0,
    }
}

fn store_error(config: &ServerConfig, fault: &Fault) -> NodeError {
    let path = config.store.as_ref().map_or_else(|| "memory".to_owned(), |path| path.display().to_string());
    NodeError::OpenStore(format!("{path}: {fault}"))
}

/// Answers that may wait for one gateway before its next requests do.
const ANSWER_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Values answered in one turn before they are sent.
const TURN_BYTES_MAX: usize = 1024 * 1024;

/// A clean end waits at most so long for what is still to be sent.
const STOP_MICROS: u64 = 200_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_after_which_not_all_is_on_the_disk_is_a_failure() {
        let failed = |what: &str| Err(NodeError::OpenStore(what.to_owned()));
        let said = |end: Result<(), NodeError>| end.map_err(|error| error.to_string());
        assert_eq!(said(last_word(Ok(()), Ok(()))), Ok(()));
        assert_eq!(said(last_word(Ok(()), failed("sync"))), Err("sync".to_owned()));
        assert_eq!(said(last_word(failed("end"), Ok(()))), Err("end".to_owned()));
        assert_eq!(said(last_word(failed("end"), failed("sync"))), Err("end".to_owned()));
    }
}
