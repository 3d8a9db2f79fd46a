//! What an operator's wish, or auto-replace, means among the servers that are connected now.

use super::peers::Heard;
use super::reign::{Topic, acts};
use super::state::Manager;
use crate::control::ControlRequest;
use crate::{
    Author, Cluster, Command, Incarnation, ManagerEffect, ManagerNote, MemberState, Objection, Order,
    ServerId, Space, SpaceNumber, stranded,
};
use kumo_paxos::Time;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// Lives to bring in, addresses to take out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wish {
    attach: Vec<ServerId>,
    detach: Vec<SocketAddr>,
}

/// Why there is no order to put up.
pub(super) enum Hindrance {
    /// Something that will pass stands in the way.
    NotYet,
    Refused(String),
}

/// Where a connected life stands.
enum Place {
    /// A member in this very life.
    Member,
    /// An earlier life of it acts in the space: that one must be declared fault first.
    Succeeds,
    Foreign,
    /// It can be attached.
    Outside,
}

impl Manager {
    /// The order that a request comes to; none for what is answered otherwise.
    pub(super) fn meaning(
        &mut self,
        request: &ControlRequest,
        cluster: &Cluster,
    ) -> Option<Result<Order, Hindrance>> {
        let number = cluster.space().number;
        let all_in = |servers: &[SocketAddr], wanted: &BTreeSet<SocketAddr>| {
            !servers.is_empty() && servers.iter().all(|server| wanted.contains(server))
        };
        Some(match request {
            // What waits for the next replace is taken back by its opposite.
            ControlRequest::Attach { servers, replace: false, .. }
                if all_in(servers, cluster.detach_wanted()) =>
            {
                Ok(want(servers.clone(), Vec::new()))
            }
            ControlRequest::Detach { servers, replace: false }
                if all_in(servers, cluster.attach_wanted()) =>
            {
                Ok(want(Vec::new(), servers.clone()))
            }
            ControlRequest::Attach { servers, replace, accept_data_loss } => {
                match self.to_attach(servers, *accept_data_loss, cluster) {
                    Ok(attach) if *replace => self.attach(attach, *accept_data_loss, cluster),
                    Ok(attach) => Ok(want(addresses(&attach), Vec::new())),
                    Err(hindrance) => Err(hindrance),
                }
            }
            ControlRequest::Detach { servers, replace } => match to_detach(servers, cluster.space()) {
                Ok(detach) if *replace => self.replace(Vec::new(), detach, cluster),
                Ok(detach) => Ok(want(Vec::new(), detach)),
                Err(reason) => Err(Hindrance::Refused(reason)),
            },
            ControlRequest::Replace => self.replace(Vec::new(), Vec::new(), cluster),
            ControlRequest::FullReplace => Ok(Order::FullReplace { number }),
            ControlRequest::AutoReplace { on } => Ok(Order::AutoReplace { on: *on }),
            ControlRequest::Pause => Ok(Order::Pause),
            ControlRequest::Resume => Ok(Order::Resume),
            ControlRequest::Cancel => Ok(Order::Cancel { author: Author::Operator }),
            ControlRequest::Rate { bytes } if (1..RATE_BYTES_MIN).contains(bytes) => Err(Hindrance::Refused(
                format!("a rate is at least {RATE_BYTES_MIN} bytes a second; 0: no limit"),
            )),
            ControlRequest::Rate { bytes } => Ok(Order::Rate { bytes: *bytes }),
            ControlRequest::Stat
            | ControlRequest::Plan { .. }
            | ControlRequest::Backup { .. }
            | ControlRequest::Rebuild { .. } => return None,
        })
    }

    /// Why the order that a plan is about would be refused. Servers that are named and not there are taken for such as
    /// will be: people plan before they buy.
    pub(super) fn objection(
        &mut self,
        attach: &[SocketAddr],
        detach: &[SocketAddr],
        cluster: &Cluster,
    ) -> Option<String> {
        let space = cluster.space();
        if space.job.is_some() {
            return Some(Objection::JobRuns.to_string());
        }
        if let Some(why) = (!detach.is_empty()).then(|| to_detach(detach, space).err()).flatten() {
            return Some(why);
        }
        let (there, absent): (Vec<SocketAddr>, Vec<SocketAddr>) =
            attach.iter().partition(|&&address| self.peers.life_at(address).is_some());
        let all = attach.is_empty() && detach.is_empty();
        let lives = match there.is_empty() && !all {
            true => Ok(Vec::new()),
            false => self.to_attach(&there, false, cluster),
        };
        let lives = match lives {
            // What waits for the next replace comes without an attach, too.
            Err(Hindrance::Refused(_)) if all && is_anything_wanted(cluster) => Ok(Vec::new()),
            other => other,
        };
        let order = lives.and_then(|mut lives| {
            lives.extend(absent.into_iter().map(unborn));
            self.replace(lives, detach.to_vec(), cluster)
        });
        match order.map(|order| cluster.rehearse(order)) {
            Err(Hindrance::Refused(why)) => Some(why),
            Ok(Err(Objection::OwnersLost)) => Some(self.owners_lost(cluster)),
            // It would be done in a moment.
            Err(Hindrance::NotYet) | Ok(Ok(()) | Err(Objection::Unwitnessed)) => None,
            Ok(Err(objection)) => Some(objection.to_string()),
        }
    }

    /// Gives up a replace that cannot end: what is wanted now follows, in another one. An operator's pause is respected.
    pub(super) fn cancel_hopeless(&mut self, now: Time, cluster: &Cluster, effects: &mut Vec<ManagerEffect>) {
        let space = cluster.space();
        if !cluster.auto_replace() || space.job.is_none_or(|job| job.paused) {
            return;
        }
        let Some(reign) = self.reign.as_mut() else { return };
        if !reign.rings(cluster).hopeless {
            return;
        }
        let Some(term) = reign.own() else { return };
        let number = space.number;
        let ticket = match term.cancelled {
            Some((at, ticket)) if at == number => ticket,
            _ => {
                effects.push(ManagerEffect::Note(ManagerNote::Hopeless { lost: stranded(space) }));
                term.ticket()
            }
        };
        term.cancelled = Some((number, ticket));
        let order = Order::Cancel { author: Author::AutoReplace };
        let command = Command::Order { term: term.number, ticket, order };
        term.propose(now, Topic::Cancel, &command, effects);
    }

    /// Brings in who waits, and takes out who is lost, after some time in which nothing changed. Who comes and goes all the
    /// time does not put that off for ever: then what has not changed for so long is done without it.
    pub(super) fn auto_replace(&mut self, now: Time, cluster: &Cluster, effects: &mut Vec<ManagerEffect>) {
        self.note_refusal(cluster, effects);
        let space = cluster.space();
        let may_begin = space.settled() && space.job.is_none() && cluster.risen().is_none();
        let wanted = cluster.auto_replace() && may_begin;
        // Whoever restarted will be lost in a moment, and can be attached then.
        let restarted =
            wanted && self.peers.connected().any(|heard| matches!(place(heard, space), Place::Succeeds));
        let wish = (wanted && !restarted).then(|| self.wish(now, 0, cluster)).flatten();
        let steady_micros = self.settings.replace_delay_micros.max(STEADY_MICROS_MIN);
        let steady = wanted.then(|| self.wish(now, steady_micros, cluster)).flatten();
        if wanted {
            self.note_left_out(now, cluster, effects);
        }
        let delay = self.settings.replace_delay_micros;
        let Some(term) = self.reign.as_mut().and_then(|reign| reign.own()) else { return };
        let restless = wish.is_some() || restarted;
        term.restless_since = restless.then(|| term.restless_since.unwrap_or(now));
        let quiet = term.is_quiet(now, delay, wish.as_ref());
        let long = RESTLESS_TIMES.saturating_mul(steady_micros);
        let overdue = term.restless_since.is_some_and(|since| now.since(since) >= long);
        let Some(Wish { attach, detach }) = wish.filter(|_| quiet).or(steady.filter(|_| overdue)) else {
            return;
        };
        // It counts from here again: what was refused is not asked for at every tick.
        term.restless_since = Some(now);
        if let Some((_, since)) = &mut term.quiet {
            *since = now;
        }
        if self.would_differ(&attach, cluster) {
            self.note_difference(effects);
            return;
        }
        let (number, above) = (space.number, self.peers.stamped_upto(&attach));
        let author = Author::AutoReplace;
        let order = Order::Replace { number, above, attach, detach, accept_loss: false, author };
        let Some(term) = self.reign.as_mut().and_then(|reign| reign.own()) else { return };
        let ticket = term.ticket();
        term.auto = Some(ticket);
        term.propose(now, Topic::Auto, &Command::Order { term: term.number, ticket, order }, effects);
    }

    /// Nobody waits for the answer to what auto-replace put up: why it was void is said here, once a term.
    fn note_refusal(&mut self, cluster: &Cluster, effects: &mut Vec<ManagerEffect>) {
        let Some(term) = self.reign.as_mut().and_then(|reign| reign.own()) else { return };
        let Some(answer) = term.auto.and_then(|ticket| cluster.answer(ticket)) else { return };
        term.auto = None;
        match answer {
            // It is decided anew, on the space that there is.
            Ok(()) | Err(Objection::StaleSpace) => {}
            Err(objection) if term.objections.contains(&objection) => {}
            Err(objection) => {
                term.objections.push(objection);
                effects.push(ManagerEffect::Note(ManagerNote::AutoRefused { objection }));
            }
        }
    }

    /// Who could be attached, and is left to an operator: said when it comes to be so.
    fn note_left_out(&mut self, now: Time, cluster: &Cluster, effects: &mut Vec<ManagerEffect>) {
        let outside = self.outside(now, cluster.space()).into_iter();
        let left_out: BTreeMap<ServerId, ManagerNote> =
            outside.filter_map(|life| Some((life, self.left_out(life, cluster)?))).collect();
        let Some(term) = self.reign.as_mut().and_then(|reign| reign.own()) else { return };
        let new = left_out.iter().filter(|&(life, note)| term.left_out.get(life) != Some(note));
        effects.extend(new.map(|(_, note)| ManagerEffect::Note(note.clone())));
        term.left_out = left_out;
    }

    /// Why auto-replace does not attach it. Who was taken out may have begun another life without having ended, when it
    /// was not heard for long; on the same store that cannot be told from one that was started again.
    fn left_out(&self, server: ServerId, cluster: &Cluster) -> Option<ManagerNote> {
        let mut out = cluster.taken_out().iter().filter(|out| out.address == server.address);
        let previous = self.peers.heard(&server).map_or(&[][..], |heard| &heard.alive.previous);
        if out.any(|out| *out == server || previous.contains(&out.incarnation)) {
            return Some(ManagerNote::TakenOut { server });
        }
        self.would_forget(server, cluster.space()).then_some(ManagerNote::Restored { server })
    }

    /// Once a term.
    fn note_difference(&mut self, effects: &mut Vec<ManagerEffect>) {
        let Some(term) = self.reign.as_mut().and_then(|reign| reign.own()) else { return };
        if !std::mem::replace(&mut term.differ_noted, true) {
            effects.push(ManagerEffect::Note(ManagerNote::StoresDiffer));
        }
    }

    /// With lives that have been there for so long alone: of the others it is not known whether they stay.
    fn wish(&self, now: Time, steady_micros: u64, cluster: &Cluster) -> Option<Wish> {
        let space = cluster.space();
        if self.may_be_rebuilt(space) {
            return None;
        }
        let stays = |life: &ServerId| {
            self.peers.heard(life).is_some_and(|heard| now.since(heard.since) >= steady_micros)
        };
        let mut attach = self.outside(now, space);
        attach.retain(|life| stays(life) && self.left_out(*life, cluster).is_none());
        let coming = addresses(&attach);
        let detach: Vec<SocketAddr> =
            lost(space).into_iter().filter(|address| !coming.contains(address)).collect();
        let nothing = attach.is_empty() && detach.is_empty() && !has_returned(space);
        (!nothing).then_some(Wish { attach, detach })
    }

    /// Connected lives that can be attached. One that is silent would be lost again at once.
    pub(super) fn outside(&self, now: Time, space: &Space) -> Vec<ServerId> {
        let speaks = |heard: &&Heard| now.since(heard.at) <= self.peers.silence_micros();
        let lives = self.peers.connected().filter(speaks);
        let lives = lives.filter(|heard| matches!(place(heard, space), Place::Outside));
        lives.map(|heard| heard.alive.server).collect()
    }

    fn to_attach(
        &self,
        named: &[SocketAddr],
        accept_loss: bool,
        cluster: &Cluster,
    ) -> Result<Vec<ServerId>, Hindrance> {
        let space = cluster.space();
        if named.is_empty() {
            return self.all_to_attach(accept_loss, cluster);
        }
        let mut lives = Vec::new();
        for address in named.iter().collect::<BTreeSet<_>>() {
            let Some(heard) = self.peers.life_at(*address) else {
                return Err(Hindrance::Refused(format!("no server is connected with the address {address}")));
            };
            match place(heard, space) {
                Place::Outside => lives.push(heard.alive.server),
                Place::Succeeds => return Err(Hindrance::NotYet),
                Place::Member => return Err(Hindrance::Refused(format!("{address} is attached already"))),
                Place::Foreign => {
                    let reason = format!(
                        "the store of {address} is another cluster's: it can be attached when it is started with an \
                         empty one"
                    );
                    return Err(Hindrance::Refused(reason));
                }
            }
        }
        Ok(lives)
    }

    /// Who accepts a loss may do so with the servers that are left.
    fn all_to_attach(&self, accept_loss: bool, cluster: &Cluster) -> Result<Vec<ServerId>, Hindrance> {
        let space = cluster.space();
        let mut lives = Vec::new();
        for heard in self.peers.connected() {
            let server = heard.alive.server;
            match place(heard, space) {
                Place::Outside => lives.push(server),
                Place::Succeeds => return Err(Hindrance::NotYet),
                Place::Member | Place::Foreign => {}
            }
        }
        if self.may_be_rebuilt(space) {
            let reason = "connected servers belong to another cluster: if this cell takes the place of one that is lost, \
                          `rebuild` takes over the hash space that they hold; to begin without them, name the servers \
                          to attach";
            return Err(Hindrance::Refused(reason.to_owned()));
        }
        let goes_on = has_returned(space) || (accept_loss && !lost(space).is_empty());
        if lives.is_empty() && !goes_on {
            let mut connected = self.peers.connected().peekable();
            let reason = match connected.peek().is_some() {
                true if connected.any(|heard| is_foreign(heard, space)) => {
                    "nothing to attach: connected servers that are not attached have stores of another cluster"
                }
                true => "nothing to attach: every connected server is attached",
                false => "nothing to attach: no server is connected",
            };
            return Err(Hindrance::Refused(reason.to_owned()));
        }
        Ok(lives)
    }

    /// There is no ring, and somebody holds one of another cell: it may be this cluster's, whose managers have lost their
    /// memory. A ring of the others would hide what is stored, and could not be given up for the one before.
    fn may_be_rebuilt(&self, space: &Space) -> bool {
        space.members.is_empty() && self.peers.connected().any(|heard| is_foreign(heard, space))
    }

    /// Whoever is back with what is to be given up leads it again first: that is no loss.
    fn attach(
        &mut self,
        attach: Vec<ServerId>,
        accept_loss: bool,
        cluster: &Cluster,
    ) -> Result<Order, Hindrance> {
        if !accept_loss {
            return self.replace(attach, Vec::new(), cluster);
        }
        if !self.returning(cluster).is_empty() {
            return Err(Hindrance::NotYet);
        }
        let attach = self.with_wanted(attach, cluster);
        let coming = addresses(&attach);
        let lost = lost(cluster.space()).into_iter();
        let detach = lost.filter(|address| !coming.contains(address)).collect();
        self.rearranged(attach, detach, accept_loss, cluster)
    }

    fn replace(
        &self,
        attach: Vec<ServerId>,
        detach: Vec<SocketAddr>,
        cluster: &Cluster,
    ) -> Result<Order, Hindrance> {
        self.rearranged(self.with_wanted(attach, cluster), detach, false, cluster)
    }

    /// `attach` are all that come, those that were wanted before too.
    fn rearranged(
        &self,
        attach: Vec<ServerId>,
        detach: Vec<SocketAddr>,
        accept_loss: bool,
        cluster: &Cluster,
    ) -> Result<Order, Hindrance> {
        if self.would_differ(&attach, cluster) {
            return Err(Hindrance::Refused(DIFFERENT.to_owned()));
        }
        let above = self.peers.stamped_upto(&attach);
        let (number, author) = (cluster.space().number, Author::Operator);
        Ok(Order::Replace { number, above, attach, detach, accept_loss, author })
    }

    /// It brings records of no cluster, a merged backup, and would be made equal to those that have a ring already:
    /// what only it holds would be gone. An operator may want that.
    fn would_forget(&self, life: ServerId, space: &Space) -> bool {
        let alive = self.peers.heard(&life).map(|heard| &heard.alive);
        let brings = alive.is_some_and(|alive| alive.cluster.is_none() && alive.stamped > SpaceNumber(0));
        brings && !space.rhs.is_empty()
    }

    /// They would be the first ring, which is made without a copy, and do not hold the same.
    fn would_differ(&self, attach: &[ServerId], cluster: &Cluster) -> bool {
        cluster.space().rhs.is_empty() && self.peers.differ(attach)
    }

    /// Adds those that were to be attached by the next replace, and are there. Not to the first ring: who names its
    /// servers may do so because the others' stores differ.
    fn with_wanted(&self, mut attach: Vec<ServerId>, cluster: &Cluster) -> Vec<ServerId> {
        let space = cluster.space();
        if space.rhs.is_empty() && !attach.is_empty() {
            return attach;
        }
        let wanted = cluster.attach_wanted().iter().filter_map(|&address| self.peers.life_at(address));
        for heard in wanted.filter(|heard| matches!(place(heard, space), Place::Outside)) {
            if !attach.contains(&heard.alive.server) {
                attach.push(heard.alive.server);
            }
        }
        attach
    }
}

fn place(heard: &Heard, space: &Space) -> Place {
    let server = heard.alive.server;
    if space.index_of(server).is_some() {
        return Place::Member;
    }
    if is_foreign(heard, space) {
        return Place::Foreign;
    }
    let succeeds =
        space.members.iter().any(|member| member.address == server.address && acts(space, member.id()));
    if succeeds { Place::Succeeds } else { Place::Outside }
}

/// Its store belongs to another cluster.
pub(super) fn is_foreign(heard: &Heard, space: &Space) -> bool {
    heard.alive.cluster.is_some_and(|cluster| cluster != space.cluster)
}

fn to_detach(named: &[SocketAddr], space: &Space) -> Result<Vec<SocketAddr>, String> {
    let attached: Vec<SocketAddr> = space.rhs.iter().map(|&index| space.member(index).address).collect();
    if let Some(stranger) = named.iter().find(|address| !attached.contains(address)) {
        return Err(not_attached(*stranger, space));
    }
    let detach = if named.is_empty() { lost(space) } else { named.to_vec() };
    if detach.is_empty() {
        return Err("nothing to detach: no attached server is fault".to_owned());
    }
    Ok(detach)
}

/// Why it cannot be detached.
fn not_attached(address: SocketAddr, space: &Space) -> String {
    let comes = space.whs.iter().any(|&index| space.member(index).address == address);
    match comes {
        true => format!("{address} is being attached: `job cancel` takes that back"),
        false => format!("{address} is not attached"),
    }
}

fn is_anything_wanted(cluster: &Cluster) -> bool {
    !cluster.attach_wanted().is_empty() || !cluster.detach_wanted().is_empty()
}

/// The life of a server that is not there yet.
fn unborn(address: SocketAddr) -> ServerId {
    ServerId { address, incarnation: Incarnation::default() }
}

fn want(attach: Vec<SocketAddr>, detach: Vec<SocketAddr>) -> Order {
    Order::Want { attach, detach }
}

/// Attached servers that are fault.
pub(super) fn lost(space: &Space) -> Vec<SocketAddr> {
    let members = space.rhs.iter().map(|&index| space.member(index));
    members.filter(|member| !acts(space, member.id())).map(|member| member.address).collect()
}

fn has_returned(space: &Space) -> bool {
    space.members.iter().any(|member| matches!(member.state, MemberState::Returned { .. }))
}

fn addresses(servers: &[ServerId]) -> Vec<SocketAddr> {
    servers.iter().map(|server| server.address).collect()
}

/// So many times the quiet time auto-replace waits for it to come.
const RESTLESS_TIMES: u64 = 10;

/// However short the quiet time: one that was started a moment ago may end at once.
const STEADY_MICROS_MIN: u64 = 1_000_000;

/// A server counts what it may send twenty times a second: of less it never gets a byte.
const RATE_BYTES_MIN: u64 = 20;

/// The first ring is made without a copy: what one of them has would be missing at the others.
const DIFFERENT: &str = "the servers' stores differ, and nothing is attached yet: attach the one whose store counts \
                         first, by its address, then the others";
