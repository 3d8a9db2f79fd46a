//! Further voters of a cell that two managers formed, found among the servers: two alone cannot lose one. (CELL.md, 3.8)
//!
//! Who is recruited is in the log, who is a member in the cell's configuration. Both are looked at anew at every tick, and
//! one step is taken towards what is wanted: so a new master goes on where the one before it ended.

use super::orders::is_foreign;
use super::peers::Heard;
use super::reign::{Topic, acts};
use super::state::Manager;
use crate::control::VoterStat;
use crate::{
    Cluster, Command, ManagerEffect, ManagerNote, Message, RECRUITED_MAX, Recruit, ReplicaView, Seat, Space,
};
use kumo_paxos::{Change, ReplicaState, Role, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// What a master remembers of recruited voters. Nothing of it is agreed.
#[derive(Default)]
pub(super) struct Voters {
    /// Since when each does not answer.
    down_since: BTreeMap<SocketAddr, Time>,
    /// Since when there are more than wanted.
    surplus_since: Option<Time>,
    /// When each was last told to start.
    told: BTreeMap<SocketAddr, Time>,
    /// Those whose dismissal was put up in this term, and may be executed any time: whoever of them comes meanwhile gets no
    /// vote by being on record still. A change of members overtakes commands, and a voter off the record is taken for a
    /// manager.
    dismissed: BTreeSet<SocketAddr>,
    /// When a change of members was last tried.
    changed: Option<Time>,
    /// The places that servers have, and since when they are these.
    seats: (BTreeSet<SocketAddr>, Time),
}

/// The next step towards what is wanted.
#[derive(Debug)]
enum Step {
    Recruit { voter: SocketAddr, server: SocketAddr },
    Dismiss { voter: SocketAddr },
    Change(Change),
}

/// How recruitment stands.
struct Picture<'a> {
    replicas: &'a [ReplicaView],
    recruited: &'a BTreeMap<SocketAddr, SocketAddr>,
    /// Recruited voters that there should be.
    wanted: usize,
    /// Recruited ones that are lost for good.
    lost: BTreeSet<SocketAddr>,
    /// Servers' replicas that follow the cell and are not on record: they came when nobody wanted them any more.
    strays: BTreeSet<SocketAddr>,
    /// Servers' replicas that vote and are not on record, with the servers: no managers, whatever made them voters.
    unrecorded: BTreeMap<SocketAddr, SocketAddr>,
    /// Recruited ones whose dismissal is under way.
    dismissed: &'a BTreeSet<SocketAddr>,
    /// There have been too many for long enough.
    surplus: bool,
}

impl Manager {
    /// One step towards the voters that are wanted, and a word to those that are not there yet.
    pub(super) fn recruit(&mut self, now: Time, cluster: &Cluster, effects: &mut Vec<ManagerEffect>) {
        // A master whose own lease is out may be no master any more, and hears nobody for its own fault.
        if self.cell.lease_end.is_none_or(|end| now >= end) || self.cell.replicas.is_empty() {
            return;
        }
        let unrecorded = self.unrecorded(now, cluster);
        let wanted = self.wanted_recruits(now, &unrecorded, cluster);
        if wanted == 0 && cluster.recruited().is_empty() && unrecorded.is_empty() {
            return;
        }
        self.watch_voters(now, wanted, cluster);
        let Some(picture) = self.picture(now, wanted, unrecorded, cluster) else { return };
        let step = picture.step(self.candidate(now, &picture, cluster));
        let leaving: BTreeSet<SocketAddr> = picture.leaving().collect();
        if let Some(step) = step {
            self.take_step(now, step, effects);
        }
        self.tell_recruits(now, &leaving, cluster, effects);
    }

    /// The voters, for operators: those that vote, and those that are to.
    pub(super) fn voters(&self, cluster: &Cluster) -> Vec<VoterStat> {
        let recruited = cluster.recruited();
        let votes = self.cell.replicas.iter().filter(|replica| votes(replica));
        let mut voters: Vec<VoterStat> = votes
            .map(|replica| VoterStat {
                address: replica.address,
                server: recruited.get(&replica.address).copied(),
                state: Some(replica.state),
            })
            .collect();
        for (&address, &server) in recruited {
            if !voters.iter().any(|voter| voter.address == address) {
                voters.push(VoterStat { address, server: Some(server), state: None });
            }
        }
        voters
    }

    /// Voters at places of servers that nobody has on record.
    fn unrecorded(&self, now: Time, cluster: &Cluster) -> BTreeMap<SocketAddr, SocketAddr> {
        let voters: BTreeSet<SocketAddr> =
            self.cell.replicas.iter().filter(|replica| votes(replica)).map(at).collect();
        let seats = self.seats(now, cluster.space());
        seats
            .map(|(heard, seat)| (seat.address, heard.alive.server.address))
            .filter(|(seat, _)| voters.contains(seat) && !cluster.recruited().contains_key(seat))
            .collect()
    }

    fn wanted_recruits(
        &self,
        now: Time,
        unrecorded: &BTreeMap<SocketAddr, SocketAddr>,
        cluster: &Cluster,
    ) -> usize {
        let is_servers = |address: &SocketAddr| {
            cluster.recruited().contains_key(address) || unrecorded.contains_key(address)
        };
        let is_manager = |replica: &&ReplicaView| votes(replica) && !is_servers(&replica.address);
        let managers = self.cell.replicas.iter().filter(is_manager).count();
        let space = cluster.space();
        let attached = space.rhs.iter().chain(&space.whs).map(|&index| space.member(index).address);
        let seated = self.seats(now, space).map(|(heard, _)| heard.alive.server.address);
        recruits_wanted(managers, attached.chain(seated).collect::<BTreeSet<_>>().len())
    }

    /// Servers that are there, are this cluster's, and have a place for a replica.
    fn seats<'a>(&'a self, now: Time, space: &'a Space) -> impl Iterator<Item = (&'a Heard, Seat)> {
        let speaks = move |heard: &&Heard| now.since(heard.at) <= self.peers.silence_micros();
        let ours = self.peers.connected().filter(speaks).filter(|heard| !is_foreign(heard, space));
        ours.filter_map(|heard| Some((heard, heard.alive.seat?)))
            .filter(|(_, seat)| seat.address.port() != 0 && !seat.address.ip().is_unspecified())
    }

    fn watch_voters(&mut self, now: Time, wanted: usize, cluster: &Cluster) {
        let recruited = cluster.recruited();
        let seats: BTreeSet<SocketAddr> =
            self.seats(now, cluster.space()).map(|(_, seat)| seat.address).collect();
        let alive: BTreeSet<SocketAddr> =
            self.cell.replicas.iter().filter(|one| lives(one)).map(at).collect();
        let Some(term) = self.reign.as_mut().and_then(|reign| reign.own()) else { return };
        let voters = &mut term.voters;
        if voters.seats.0 != seats {
            voters.seats = (seats, now);
        }
        let down = |voter: &SocketAddr| recruited.contains_key(voter) && !alive.contains(voter);
        voters.down_since.retain(|voter, _| down(voter));
        for &voter in recruited.keys().filter(|voter| down(voter)) {
            voters.down_since.entry(voter).or_insert(now);
        }
        voters.told.retain(|voter, _| down(voter));
        voters.dismissed.retain(|voter| recruited.contains_key(voter));
        voters.surplus_since = match recruited.len() > wanted {
            true => voters.surplus_since.or(Some(now)),
            false => None,
        };
    }

    fn picture<'a>(
        &'a self,
        now: Time,
        wanted: usize,
        unrecorded: BTreeMap<SocketAddr, SocketAddr>,
        cluster: &'a Cluster,
    ) -> Option<Picture<'a>> {
        let voters = &self.reign.as_ref()?.own_ref()?.voters;
        let patience = self.settings.voter_patience_micros;
        let space = cluster.space();
        let gone = |server: &SocketAddr| {
            let attached = space.members.iter().any(|member| member.address == *server);
            !attached && self.peers.life_at(*server).is_none()
        };
        let lost = |voter: &SocketAddr, server: &SocketAddr| {
            let down = voters.down_since.get(voter).map(|&since| now.since(since));
            down.is_some_and(|down| down > patience || down > GONE_MICROS && gone(server))
        };
        let recruited = cluster.recruited();
        let lost = recruited.iter().filter(|(voter, server)| lost(voter, server)).map(|(&voter, _)| voter);
        let seats: BTreeSet<SocketAddr> = self.seats(now, space).map(|(_, seat)| seat.address).collect();
        let follows = self.cell.replicas.iter().filter(|replica| !votes(replica)).map(at);
        let strays = follows.filter(|one| seats.contains(one) && !recruited.contains_key(one));
        Some(Picture {
            strays: strays.collect(),
            replicas: &self.cell.replicas,
            recruited,
            wanted,
            lost: lost.collect(),
            unrecorded,
            dismissed: &voters.dismissed,
            surplus: voters.surplus_since.is_some_and(|since| now.since(since) > patience),
        })
    }

    /// The server that should run the next replica: on a host with as few voters as possible, with a disk, attached.
    fn candidate(&self, now: Time, picture: &Picture, cluster: &Cluster) -> Option<Step> {
        let space = cluster.space();
        let (_, since) = self.reign.as_ref()?.own_ref()?.voters.seats;
        if now.since(since) < QUIET_MICROS {
            return None;
        }
        // One that follows the cell without being on record is as good as any.
        let taken = |address: SocketAddr| {
            picture.member(address).is_some_and(votes) || picture.recruited.contains_key(&address)
        };
        let crowd = |seat: &Seat| {
            let voters = picture.replicas.iter().filter(|replica| votes(replica)).map(at);
            let all: BTreeSet<SocketAddr> = voters.chain(picture.recruited.keys().copied()).collect();
            all.iter().filter(|voter| voter.ip() == seat.address.ip()).count()
        };
        let free = self.seats(now, space).filter(|(_, seat)| !taken(seat.address));
        let fit = free.filter(|(_, seat)| seat.durable || self.may_forget_one_more(now, picture, space));
        let best = fit.min_by_key(|(heard, seat)| {
            (crowd(seat), !seat.durable, !acts(space, heard.alive.server), seat.address)
        });
        best.map(|(heard, seat)| Step::Recruit { voter: seat.address, server: heard.alive.server.address })
    }

    /// Voters without a disk forget their votes at a restart. Were they half of all, servers restarted together could
    /// stop the cell for good. Managers in memory have accepted that.
    fn may_forget_one_more(&self, now: Time, picture: &Picture, space: &Space) -> bool {
        let forgetful = self.seats(now, space).filter(|(_, seat)| !seat.durable);
        let forgetful = forgetful.filter(|(_, seat)| picture.recruited.contains_key(&seat.address)).count();
        !self.settings.durable || 2 * (forgetful + 1) < picture.voters() + 1
    }

    fn take_step(&mut self, now: Time, step: Step, effects: &mut Vec<ManagerEffect>) {
        let Some(term) = self.reign.as_mut().and_then(|reign| reign.own()) else { return };
        let before = effects.len();
        let (command, note) = match step {
            Step::Change(change) => {
                if term.voters.changed.is_some_and(|at| now.since(at) < CHANGE_MICROS) {
                    return;
                }
                term.voters.changed = Some(now);
                effects.push(ManagerEffect::Change(change.clone()));
                effects.push(ManagerEffect::Note(ManagerNote::Changing { change }));
                return;
            }
            Step::Recruit { voter, server } => (
                Command::Recruit { term: term.number, voter, server },
                ManagerNote::Recruiting { server, voter },
            ),
            Step::Dismiss { voter } => {
                term.voters.dismissed.insert(voter);
                (Command::Dismiss { term: term.number, voter }, ManagerNote::Dismissing { voter })
            }
        };
        term.propose(now, Topic::Recruit, &command, effects);
        if effects.len() > before {
            effects.push(ManagerEffect::Note(note));
        }
    }

    /// Servers are told to start what should run there, until it does.
    fn tell_recruits(
        &mut self,
        now: Time,
        leaving: &BTreeSet<SocketAddr>,
        cluster: &Cluster,
        effects: &mut Vec<ManagerEffect>,
    ) {
        let seats: BTreeMap<SocketAddr, Option<kumo_session::ConnectionId>> =
            self.seats(now, cluster.space()).map(|(heard, seat)| (seat.address, heard.connection)).collect();
        let settings = self.settings.clone();
        let Some(term) = self.reign.as_mut().and_then(|reign| reign.own()) else { return };
        let down = term.voters.down_since.keys().copied();
        for voter in down.filter(|voter| !leaving.contains(voter)).collect::<Vec<_>>() {
            let Some(&Some(connection)) = seats.get(&voter) else { continue };
            if term.voters.told.get(&voter).is_some_and(|&at| now.since(at) < TELL_MICROS) {
                continue;
            }
            term.voters.told.insert(voter, now);
            let recruit = Recruit {
                cell: self.cell.cluster,
                peers: self.cell.members.iter().copied().filter(|peer| *peer != voter).collect(),
                unit_micros: settings.unit_micros,
                session_timeout_micros: settings.session_timeout_micros,
                lease_micros: settings.lease_micros,
                keepalive_micros: settings.keepalive_micros,
                connect_retry_limit: settings.connect_retry_limit,
                connect_timeout_steps: settings.connect_timeout_steps,
                clock_interval_micros: settings.clock_interval_micros,
                replace_delay_micros: settings.replace_delay_micros,
                voter_patience_micros: settings.voter_patience_micros,
            };
            effects.push(ManagerEffect::Send(connection, Message::Recruit(recruit)));
        }
    }
}

impl Picture<'_> {
    fn member(&self, address: SocketAddr) -> Option<&ReplicaView> {
        self.replicas.iter().find(|replica| replica.address == address)
    }

    fn voters(&self) -> usize {
        self.replicas.iter().filter(|replica| votes(replica)).count()
    }

    /// A recruited voter that has a vote and is lost.
    fn lost_voter(&self) -> Option<SocketAddr> {
        self.lost.iter().copied().find(|&voter| self.member(voter).is_some_and(votes))
    }

    /// Those that are wanted, and one that takes a lost one's place.
    fn places(&self) -> usize {
        self.wanted + usize::from(self.lost_voter().is_some())
    }

    /// Who is no member costs nothing to let go: one that left the cell, or does not come. Who was let go is until that is
    /// executed, though it has come meanwhile.
    fn leaving(&self) -> impl Iterator<Item = SocketAddr> {
        let too_many = self.recruited.len() > self.places();
        let outside = self.recruited.keys().copied().filter(|&one| self.member(one).is_none());
        let let_go = outside.filter(move |voter| too_many || self.lost.contains(voter));
        self.dismissed.iter().copied().chain(let_go)
    }

    /// What to do next; `candidate`: whom to recruit if somebody is needed.
    fn step(&self, candidate: Option<Step>) -> Option<Step> {
        let all = || self.recruited.keys().copied();
        let seated: Vec<SocketAddr> = all().filter(|&one| self.member(one).is_some_and(votes)).collect();
        let comes = |&one: &SocketAddr| self.member(one).is_some_and(|replica| !votes(replica));
        let comers: Vec<SocketAddr> =
            all().filter(comes).filter(|one| !self.dismissed.contains(one)).collect();
        let (lost_voter, places) = (self.lost_voter(), self.places());
        let too_many = self.recruited.len() > places;
        // What counts managers must know it first. Where the record is full, those on it go on leaving.
        if let Some((&voter, &server)) = self.unrecorded.first_key_value()
            && self.recruited.len() < RECRUITED_MAX
        {
            return Some(Step::Recruit { voter, server });
        }
        if let Some(voter) = self.leaving().next() {
            return Some(Step::Dismiss { voter });
        }
        if let Some(&voter) =
            comers.iter().find(|&voter| self.lost.contains(voter) || too_many && self.surplus)
        {
            return self.bearable(Change::Remove(voter));
        }
        if too_many && self.surplus {
            let victim = lost_voter.or(seated.last().copied())?;
            return self.bearable(Change::Remove(victim));
        }
        if let Some(&comer) = comers.iter().find(|&&comer| self.member(comer).is_some_and(lives)) {
            match lost_voter {
                _ if seated.len() < self.wanted => return self.bearable(Change::Promote(comer)),
                Some(old) => return self.bearable(Change::Replace { old, new: comer }),
                None => {}
            }
        }
        if self.recruited.len() < places {
            return candidate;
        }
        self.strays.first().and_then(|&stray| self.bearable(Change::Remove(stray)))
    }

    /// A change that leaves the cell able to lose one more, or no less able to than before.
    fn bearable(&self, change: Change) -> Option<Step> {
        let (all, alive) =
            (self.voters(), self.replicas.iter().filter(|one| votes(one) && voting(one)).count());
        let counts = |address: SocketAddr| {
            let member = self.member(address).filter(|member| votes(member));
            (usize::from(member.is_some()), usize::from(member.is_some_and(voting)))
        };
        let (next_all, next_alive) = match change {
            Change::Promote(_) => (all + 1, alive + 1),
            Change::Remove(address) => (all - counts(address).0, alive - counts(address).1),
            Change::Replace { old, .. } => (all, alive + 1 - counts(old).1),
            Change::Add(_) | Change::Recover => (all, alive),
        };
        let spare = |all: usize, alive: usize| alive as i64 - (all as i64 / 2 + 1);
        let (before, after) = (spare(all, alive), spare(next_all, next_alive));
        (after >= 0 && after >= before.min(1)).then_some(Step::Change(change))
    }
}

/// Voters that managers want among so many servers: one for one or two, three for more; none unless there are just
/// two managers.
pub fn recruits_wanted(managers: usize, servers: usize) -> usize {
    match (managers, servers) {
        (2, 1 | 2) => 1,
        (2, 3..) => 3,
        (_, _) => 0,
    }
}

fn at(replica: &ReplicaView) -> SocketAddr {
    replica.address
}

/// It has a vote, or had one in the generation before a recovery.
fn votes(replica: &ReplicaView) -> bool {
    match replica.role {
        Role::Core | Role::Returning => true,
        Role::Extension => false,
    }
}

fn voting(replica: &ReplicaView) -> bool {
    replica.state == ReplicaState::Voting
}

fn lives(replica: &ReplicaView) -> bool {
    match replica.state {
        ReplicaState::Voting | ReplicaState::Learning => true,
        ReplicaState::Down => false,
    }
}

/// Between two words to a server that should run a replica: longer than starting one takes.
const TELL_MICROS: u64 = 2_000_000;

/// Between two tries to change the members: one that is refused is so for a reason that lasts a moment.
const CHANGE_MICROS: u64 = 500_000;

/// Servers are chosen among when none has come or gone for so long: the best may be the last to start.
const QUIET_MICROS: u64 = 2_000_000;

/// A server that is neither attached nor connected for so long has left.
const GONE_MICROS: u64 = 3_000_000;
