//! [`Desk`]: operators' requests, each answered when its effect is seen in what was executed, or when it cannot have one.

use super::orders::{Hindrance, is_foreign, lost};
use super::plan::plan;
use super::reign::{Topic, acts};
use super::state::Manager;
use crate::cluster::{authorities, unheard};
use crate::control::{BackupResult, ControlAnswer, ControlRequest, ServerStat, Stat, check_suffix};
use crate::{
    Cluster, Command, ManagerEffect, Message, Mutation, Objection, Order, ServerId, Space, SpaceNumber,
    Table, Usage,
};
use kumo_paxos::Time;
use kumo_session::ConnectionId;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// Who waits for what.
#[derive(Default)]
pub(super) struct Desk {
    waiting: Vec<Waiting>,
    backup: Option<Backup>,
    /// The newest space that a server offered while someone wants to rebuild.
    offered: Option<Space>,
    asked_for_space: Option<Time>,
}

struct Waiting {
    connection: ConnectionId,
    request: ControlRequest,
    since: Time,
    /// Put up as this.
    ordered: Option<Ordered>,
    /// Attached servers that were lost when it was first looked at: the most whose loss it can accept.
    lost: Option<BTreeSet<SocketAddr>>,
}

/// An order put up in a term of ours.
struct Ordered {
    term: u64,
    ticket: u64,
    order: Order,
}

/// A backup under way, and who asked for it.
struct Backup {
    connection: ConnectionId,
    suffix: String,
    /// None: not heard from yet.
    results: BTreeMap<ServerId, Option<BackupResult>>,
    until: Time,
}

impl Desk {
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.backup.is_none()
    }

    /// Some order that we wait for was executed.
    pub fn has_answer(&self, cluster: &Cluster) -> bool {
        let ordered = self.waiting.iter().filter_map(|waiting| waiting.ordered.as_ref());
        ordered.into_iter().any(|ordered| ordered.answer(cluster).is_some())
    }

    /// We do not lead any more: whoever does is to be asked, but not for what may be done already.
    pub fn hand_over(
        &mut self,
        master: Option<SocketAddr>,
        cluster: &Cluster,
        effects: &mut Vec<ManagerEffect>,
    ) {
        for waiting in self.waiting.drain(..) {
            let outcome = waiting.ordered.as_ref().map(|ordered| ordered.answer(cluster));
            let answer = match outcome {
                Some(Some(Ok(()))) => ControlAnswer::Done,
                Some(None) => ControlAnswer::Refused(format!("{LED_ELSEWHERE}; it may be done still")),
                Some(Some(Err(objection))) if objection != Objection::StaleSpace => {
                    ControlAnswer::Refused(objection.to_string())
                }
                // What is lost there may be more.
                _nothing if waiting.accepts_loss() => {
                    ControlAnswer::Refused(format!("{LED_ELSEWHERE}; look again at what is lost"))
                }
                _nothing => ControlAnswer::Master(master),
            };
            effects.push(ManagerEffect::Answer(waiting.connection, answer));
        }
        if let Some(backup) = self.backup.take() {
            let answer = format!("{LED_ELSEWHERE}; there may be copies with this suffix");
            effects.push(ManagerEffect::Answer(backup.connection, ControlAnswer::Refused(answer)));
        }
    }

    /// Nobody waits for answers on this connection any more, and no server there writes a backup.
    pub fn down(&mut self, connection: ConnectionId, server: Option<ServerId>) {
        self.waiting.retain(|waiting| waiting.connection != connection);
        self.backup = self.backup.take().filter(|backup| backup.connection != connection);
        if let (Some(backup), Some(server)) = (&mut self.backup, server) {
            backup.record(server, None, Some("the server was lost".to_owned()));
        }
    }

    pub fn offered(&mut self, space: Space) {
        let rebuilding =
            self.waiting.iter().any(|waiting| matches!(waiting.request, ControlRequest::Rebuild { .. }));
        let newest = self.offered.as_ref().is_none_or(|before| before.number < space.number);
        if rebuilding && newest {
            self.offered = Some(space);
        }
    }

    pub fn backed_up(&mut self, server: ServerId, suffix: &str, path: Option<String>, error: Option<String>) {
        if let Some(backup) = self.backup.as_mut().filter(|backup| backup.suffix == suffix) {
            backup.record(server, path, error);
        }
    }
}

impl Waiting {
    fn accepts_loss(&self) -> bool {
        matches!(self.request, ControlRequest::Attach { replace: true, accept_data_loss: true, .. })
    }

    /// What was lost since its operator looked, and would be given up with the rest.
    fn lost_since(&mut self, space: &Space) -> Vec<SocketAddr> {
        if !self.accepts_loss() {
            return Vec::new();
        }
        let lost = lost(space);
        let seen = self.lost.get_or_insert_with(|| lost.iter().copied().collect());
        lost.into_iter().filter(|address| !seen.contains(address)).collect()
    }
}

impl Ordered {
    fn answer(&self, cluster: &Cluster) -> Option<Result<(), Objection>> {
        cluster.answer(self.ticket).filter(|_| cluster.term() == self.term)
    }
}

impl Backup {
    /// The first result counts.
    fn record(&mut self, server: ServerId, path: Option<String>, error: Option<String>) {
        if let Some(result @ None) = self.results.get_mut(&server) {
            *result = Some(BackupResult { server: server.address, path, error });
        }
    }
}

impl Manager {
    pub(super) fn asked(
        &mut self,
        now: Time,
        connection: ConnectionId,
        request: ControlRequest,
        effects: &mut Vec<ManagerEffect>,
    ) {
        let answer = if self.reign.is_none() {
            ControlAnswer::Master(self.cell.master.filter(|_| !self.cell.leads))
        } else if self.desk.waiting.len() >= REQUESTS_MAX {
            ControlAnswer::Refused("too many requests are under way".to_owned())
        } else {
            let waiting = Waiting { connection, request, since: now, ordered: None, lost: None };
            self.desk.waiting.push(waiting);
            return;
        };
        effects.push(ManagerEffect::Answer(connection, answer));
    }

    /// Goes through everything that waits.
    pub(super) fn work(&mut self, now: Time, cluster: &Cluster, effects: &mut Vec<ManagerEffect>) {
        for mut waiting in std::mem::take(&mut self.desk.waiting) {
            let led = self.term().is_some();
            let answer = if led { self.serve(now, &mut waiting, cluster, effects) } else { Served::NotYet };
            let answer = match answer {
                Served::NotYet if now.since(waiting.since) <= REQUEST_MICROS => {
                    self.desk.waiting.push(waiting);
                    continue;
                }
                Served::NotYet => ControlAnswer::Refused(self.overdue(led, &waiting, cluster)),
                Served::Elsewhere => continue,
                Served::Answer(answer) => *answer,
            };
            self.withdraw(&waiting);
            effects.push(ManagerEffect::Answer(waiting.connection, answer));
        }
        if !self.desk.waiting.iter().any(|waiting| matches!(waiting.request, ControlRequest::Rebuild { .. }))
        {
            self.desk.offered = None;
            self.desk.asked_for_space = None;
        }
        self.give_up_backups(cluster.space());
        self.end_backup(now, effects);
    }

    /// Says also who must be started.
    pub(super) fn owners_lost(&mut self, cluster: &Cluster) -> String {
        let authorities = self.reign.as_mut().map(|reign| reign.rings(cluster).authorities.clone());
        let names: Vec<String> =
            authorities.iter().flatten().map(|server| server.address.to_string()).collect();
        let who =
            if names.is_empty() { "the one that was lost last".to_owned() } else { names.join(" and ") };
        format!(
            "{}: start {who}, or accept the loss of data by `attach --accept-data-loss`",
            Objection::OwnersLost
        )
    }

    fn withdraw(&mut self, waiting: &Waiting) {
        let term = self.reign.as_mut().and_then(|reign| reign.own());
        if let (Some(term), Some(ordered)) = (term, &waiting.ordered) {
            term.forget(Topic::Order(ordered.ticket));
        }
    }

    fn serve(
        &mut self,
        now: Time,
        waiting: &mut Waiting,
        cluster: &Cluster,
        effects: &mut Vec<ManagerEffect>,
    ) -> Served {
        if waiting.ordered.as_ref().is_some_and(|ordered| ordered.term != cluster.term()) {
            // Of an earlier term of ours: void now, or done and forgotten.
            return refused("another manager led meanwhile; it may have been done".to_owned());
        }
        if let Some(ordered) = &waiting.ordered {
            match ordered.answer(cluster) {
                None => {}
                Some(Ok(())) => return Served::Answer(Box::new(ControlAnswer::Done)),
                Some(Err(Objection::StaleSpace)) => {
                    self.withdraw(waiting);
                    waiting.ordered = None;
                }
                Some(Err(Objection::OwnersLost)) => return refused(self.owners_lost(cluster)),
                Some(Err(objection)) => return refused(objection.to_string()),
            }
        }
        if let Some(doubt) = cluster.doubt().filter(|_| is_about_the_space(&waiting.request)) {
            return match doubt.known_by {
                Some((server, knows)) => refused(format!(
                    "the cell was recovered from a manager that had forgotten hash space {knows}, which {server} has: {REBUILD}"
                )),
                None => Served::NotYet,
            };
        }
        if cluster.risen().is_some() && waiting.ordered.is_none() && waits_for_witnesses(&waiting.request) {
            return Served::NotYet;
        }
        let lost_since = waiting.lost_since(cluster.space());
        if waiting.ordered.is_none() && !lost_since.is_empty() {
            let names: Vec<String> = lost_since.iter().map(SocketAddr::to_string).collect();
            return refused(format!("{} was lost too meanwhile: look again", names.join(" and ")));
        }
        if waiting.ordered.is_none() {
            let order = match &waiting.request {
                ControlRequest::Stat => {
                    return Served::Answer(Box::new(ControlAnswer::Stat(self.stat(now, cluster))));
                }
                ControlRequest::Plan { attach, detach } => return self.planned(now, attach, detach, cluster),
                ControlRequest::Backup { suffix } => {
                    let suffix = suffix.clone();
                    return self.begin_backup(now, waiting.connection, suffix, cluster, effects);
                }
                ControlRequest::Rebuild { accept_data_loss } => {
                    self.rebuilt_from(now, *accept_data_loss, cluster, effects)
                }
                other => self.meaning(other, cluster).unwrap_or(Err(Hindrance::NotYet)),
            };
            match order {
                Ok(order) => waiting.ordered = self.ticketed(order),
                Err(Hindrance::NotYet) => return Served::NotYet,
                Err(Hindrance::Refused(reason)) => return refused(reason),
            }
        }
        let term = self.reign.as_mut().and_then(|reign| reign.own());
        if let (Some(own), Some(Ordered { term, ticket, order })) = (term, &waiting.ordered) {
            let command = Command::Order { term: *term, ticket: *ticket, order: order.clone() };
            own.propose(now, Topic::Order(*ticket), &command, effects);
        }
        Served::NotYet
    }

    fn ticketed(&mut self, order: Order) -> Option<Ordered> {
        let own = self.reign.as_mut()?.own()?;
        Some(Ordered { term: own.number, ticket: own.ticket(), order })
    }

    fn stat(&self, now: Time, cluster: &Cluster) -> Stat {
        let servers = self.peers.servers().map(|heard| ServerStat {
            server: heard.alive.server,
            connected: heard.connection.is_some(),
            heard_ms: now.since(heard.at) / 1000,
            space: heard.alive.space,
            usage: heard.alive.usage,
            progress: heard.alive.progress,
            gets: heard.alive.gets,
            sets: heard.alive.sets,
            deletes: heard.alive.deletes,
            foreign: is_foreign(heard, cluster.space()),
            full: heard.alive.full,
        });
        Stat {
            space: cluster.space().clone(),
            servers: servers.collect(),
            auto_replace: cluster.auto_replace(),
            attach_wanted: cluster.attach_wanted().iter().copied().collect(),
            detach_wanted: cluster.detach_wanted().iter().copied().collect(),
            gateways: cluster.gateways().len() as u64,
            managers: self.cell.members.clone(),
            master: self.cell.master,
            voters: self.voters(cluster),
            loss_accepted: cluster.loss_accepted(),
        }
    }

    fn planned(
        &mut self,
        now: Time,
        attach: &[SocketAddr],
        detach: &[SocketAddr],
        cluster: &Cluster,
    ) -> Served {
        let space = cluster.space();
        let would_be = |why: String| refused(format!("the order would be refused: {why}"));
        if attach.len() + detach.len() > crate::MEMBERS_MAX {
            return would_be(Objection::TooManyServers.to_string());
        }
        if let Some(why) = self.objection(attach, detach, cluster) {
            return would_be(why);
        }
        let outside = self.outside(now, space).into_iter().map(|server| server.address);
        let all = attach.is_empty() && detach.is_empty();
        let comes =
            |address: &SocketAddr| all || !space.rhs.is_empty() && cluster.attach_wanted().contains(address);
        let attach: Vec<SocketAddr> = outside.filter(comes).chain(attach.iter().copied()).collect();
        let detach: Vec<SocketAddr> = cluster.detach_wanted().iter().chain(detach).copied().collect();
        let usage = |address| self.peers.life_at(address).map_or(Usage::default(), |heard| heard.alive.usage);
        match plan(space, &attach, &detach, usage) {
            Ok(plan) => Served::Answer(Box::new(ControlAnswer::Plan(plan))),
            Err(objection) => would_be(objection.to_string()),
        }
    }

    fn begin_backup(
        &mut self,
        now: Time,
        connection: ConnectionId,
        suffix: String,
        cluster: &Cluster,
        effects: &mut Vec<ManagerEffect>,
    ) -> Served {
        if let Err(why) = check_suffix(&suffix) {
            return refused(why.to_owned());
        }
        if self.desk.backup.is_some() {
            return refused("a backup is under way".to_owned());
        }
        let space = cluster.space();
        let mut results = BTreeMap::new();
        // What counts is what is read: who only catches up has a part of it, and who has left may have anything.
        for server in space.rhs.iter().map(|&index| space.server(index)) {
            let connection = self.peers.heard(&server).and_then(|heard| heard.connection);
            let Some(to) = connection.filter(|_| acts(space, server)) else {
                let why =
                    if acts(space, server) { "the server is not connected" } else { "the server is fault" };
                let error = Some(why.to_owned());
                results.insert(server, Some(BackupResult { server: server.address, path: None, error }));
                continue;
            };
            results.insert(server, None);
            effects.push(ManagerEffect::Send(to, Message::Backup { suffix: suffix.clone() }));
        }
        if results.values().all(Option::is_some) {
            return refused("no attached server is connected".to_owned());
        }
        let until = now.plus_micros(BACKUP_MICROS);
        self.desk.backup = Some(Backup { connection, suffix, results, until });
        Served::Elsewhere
    }

    /// Nothing is heard any more of those that were lost, or whose next life is here.
    fn give_up_backups(&mut self, space: &Space) {
        let Some(backup) = &mut self.desk.backup else { return };
        let waits = backup.results.iter().filter(|(_, result)| result.is_none()).map(|(&server, _)| server);
        for server in waits.collect::<Vec<_>>() {
            let connected = self.peers.heard(&server).is_some_and(|heard| heard.connection.is_some());
            if !connected || !acts(space, server) {
                backup.record(server, None, Some("the server was lost".to_owned()));
            }
        }
    }

    fn end_backup(&mut self, now: Time, effects: &mut Vec<ManagerEffect>) {
        let over = |backup: &Backup| now >= backup.until || backup.results.values().all(Option::is_some);
        let Some(backup) = self.desk.backup.take_if(|backup| over(backup)) else { return };
        let late = |server: ServerId| BackupResult {
            server: server.address,
            path: None,
            error: Some("no answer in time".to_owned()),
        };
        let results = backup.results.into_iter();
        let results = results.map(|(server, result)| result.unwrap_or_else(|| late(server))).collect();
        effects.push(ManagerEffect::Answer(backup.connection, ControlAnswer::Backup(results)));
    }

    /// A server that another cell than this one leads.
    fn led_elsewhere(&self) -> Option<SocketAddr> {
        self.peers.connected().find(|heard| heard.alive.leased).map(|heard| heard.alive.server.address)
    }

    fn overdue(&mut self, led: bool, waiting: &Waiting, cluster: &Cluster) -> String {
        if !led {
            return "the managers have not agreed on a master in time".to_owned();
        }
        if let Some(why) = self.in_doubt(cluster).filter(|_| waiting.ordered.is_none()) {
            return why.to_owned();
        }
        if cluster.risen().is_some() && waiting.ordered.is_none() && waits_for_witnesses(&waiting.request) {
            return self.unwitnessed(cluster);
        }
        match (&waiting.ordered, &waiting.request, self.led_elsewhere()) {
            (Some(_), _, _) => "the managers have not agreed in time; it may still be done".to_owned(),
            (None, ControlRequest::Rebuild { .. }, Some(server)) => format!(
                "the cell that {server} belongs to still leads it: stop these managers and start them one after the other, they find it again"
            ),
            (None, ControlRequest::Rebuild { .. }, None) => self.rebuild_waits_for(),
            (None, _, _) => {
                "a server has restarted, and its earlier life is not declared fault yet".to_owned()
            }
        }
    }

    fn rebuild_waits_for(&self) -> String {
        let missing: Vec<String> =
            self.missing(self.desk.offered.as_ref()).iter().map(SocketAddr::to_string).collect();
        if missing.is_empty() {
            return "no server has sent its hash space in time".to_owned();
        }
        format!(
            "the newest hash space names servers that are not connected: {}; start them, or rebuild with \
             --accept-data-loss and lose what only they know",
            missing.join(", ")
        )
    }

    /// Who acts in that space, or was the last that was lost of keys for which none acts, and is not connected, neither in
    /// that life nor in a later one on the same store.
    fn missing(&self, space: Option<&Space>) -> Vec<SocketAddr> {
        let Some(space) = space else { return Vec::new() };
        let there = |id: ServerId| {
            self.peers.life_at(id.address).is_some_and(|heard| {
                heard.alive.server == id || heard.alive.previous.contains(&id.incarnation)
            })
        };
        let lost_last = authorities(space, &Table::new(space));
        let indexes = (0..space.members.len() as u16)
            .filter(|index| lost_last.contains(index) || acts(space, space.server(*index)));
        indexes.map(|index| space.server(index)).filter(|&id| !there(id)).map(|id| id.address).collect()
    }

    /// Asks the server that holds the newest space for it.
    fn rebuilt_from(
        &mut self,
        now: Time,
        accept_data_loss: bool,
        cluster: &Cluster,
        effects: &mut Vec<ManagerEffect>,
    ) -> Result<Order, Hindrance> {
        if !cluster.space().members.is_empty() {
            return Err(Hindrance::Refused(Objection::NotEmpty.to_string()));
        }
        // Two cells would manage one hash space. A lease of managers that are gone runs out in a moment.
        if self.led_elsewhere().is_some() {
            return Err(Hindrance::NotYet);
        }
        let holders = self.peers.connected().filter(|heard| {
            let foreign = heard.alive.cluster.is_some_and(|cluster_id| cluster_id != cluster.space().cluster);
            foreign && heard.alive.space > SpaceNumber(0)
        });
        let Some(newest) = holders.max_by_key(|heard| heard.alive.space) else {
            return Err(Hindrance::Refused("no connected server holds a hash space".to_owned()));
        };
        if let Some(space) = self.desk.offered.as_ref().filter(|space| space.number >= newest.alive.space) {
            let waits = !accept_data_loss && !self.settings.broken.is(Mutation::RebuiltTooSoon);
            if waits && !self.missing(Some(space)).is_empty() {
                return Err(Hindrance::NotYet);
            }
            let mut space = space.clone();
            if accept_data_loss && !self.missing(Some(&space)).is_empty() {
                // What the missing ones know may be of a rebuild that nobody here has heard of.
                space.number.0 = space.number.0.saturating_add(unheard(self.settings.life));
            }
            return Ok(Order::Rebuild { space });
        }
        if let (Some(connection), true) =
            (newest.connection, self.desk.asked_for_space.is_none_or(|at| now.since(at) >= ASK_AGAIN_MICROS))
        {
            self.desk.asked_for_space = Some(now);
            let above = SpaceNumber(newest.alive.space.0 - 1);
            effects.push(ManagerEffect::Send(connection, Message::WantSpace { above }));
        }
        Err(Hindrance::NotYet)
    }
}

/// What became of a request for now.
enum Served {
    Answer(Box<ControlAnswer>),
    NotYet,
    /// It waits as something else.
    Elsewhere,
}

fn refused(reason: String) -> Served {
    Served::Answer(Box::new(ControlAnswer::Refused(reason)))
}

/// It cannot be told or done as long as the space is in doubt.
fn is_about_the_space(request: &ControlRequest) -> bool {
    match request {
        ControlRequest::Stat | ControlRequest::Backup { .. } | ControlRequest::AutoReplace { .. } => false,
        ControlRequest::Attach { .. }
        | ControlRequest::Detach { .. }
        | ControlRequest::Replace
        | ControlRequest::FullReplace
        | ControlRequest::Plan { .. }
        | ControlRequest::Pause
        | ControlRequest::Resume
        | ControlRequest::Cancel
        | ControlRequest::Rate { .. }
        | ControlRequest::Rebuild { .. } => true,
    }
}

/// It begins a replace. Who gives up what is lost may have nobody left to wait for.
fn waits_for_witnesses(request: &ControlRequest) -> bool {
    match request {
        ControlRequest::Attach { replace, accept_data_loss, .. } => *replace && !accept_data_loss,
        ControlRequest::Detach { replace, .. } => *replace,
        ControlRequest::Replace | ControlRequest::FullReplace => true,
        ControlRequest::Stat
        | ControlRequest::Plan { .. }
        | ControlRequest::Backup { .. }
        | ControlRequest::AutoReplace { .. }
        | ControlRequest::Pause
        | ControlRequest::Resume
        | ControlRequest::Cancel
        | ControlRequest::Rate { .. }
        | ControlRequest::Rebuild { .. } => false,
    }
}

/// What is left to do when the cell has forgotten how the data lie.
const REBUILD: &str =
    "stop all managers, move their --data folders away, start them, and order `kumoctl MANAGER rebuild`";

const LED_ELSEWHERE: &str = "another manager leads now";

/// Operators' requests under way at once.
const REQUESTS_MAX: usize = 64;

/// A request that had no effect for so long is refused.
const REQUEST_MICROS: u64 = 15_000_000;

/// A server has so long to write a copy of its store.
const BACKUP_MICROS: u64 = 600_000_000;

const ASK_AGAIN_MICROS: u64 = 1_000_000;
