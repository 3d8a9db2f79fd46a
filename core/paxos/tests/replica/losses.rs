//! Nothing stalls when any single message of any type is lost once (and most of them are not even waited for).

use crate::world::{Filter, World, address};
use kumo_paxos::{Message, Role};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// The name of every kind of message.
fn kind(message: &Message) -> &'static str {
    match message {
        Message::Collect { .. } => "collect",
        Message::Last { .. } => "last",
        Message::Begin { .. } => "begin",
        Message::Accept { .. } => "accept",
        Message::Success { .. } => "success",
        Message::Refuse { .. } => "refuse",
        Message::Heartbeat(_) => "heartbeat",
        Message::Grant { .. } => "grant",
        Message::CatchUp { .. } => "catch-up",
        Message::Decided { .. } => "decided",
        Message::TooFar { .. } => "too far",
        Message::SnapshotAsk { .. } => "snapshot ask",
        Message::SnapshotPart { .. } => "snapshot part",
        Message::Offer { .. } => "offer",
        Message::Held { .. } => "held",
        Message::Fetch { .. } => "fetch",
        Message::Chunk { .. } => "chunk",
        Message::Ask { .. } => "ask",
        Message::New { .. } => "new",
        Message::Formed { .. } => "formed",
        Message::Over { .. } => "over",
        Message::Release { .. } => "release",
    }
}

/// All kinds but those of a snapshot, which the host sends: its tests lose them.
const KINDS: [&str; 20] = [
    "collect",
    "last",
    "begin",
    "accept",
    "success",
    "refuse",
    "heartbeat",
    "grant",
    "catch-up",
    "decided",
    "too far",
    "offer",
    "held",
    "fetch",
    "chunk",
    "ask",
    "new",
    "formed",
    "over",
    "release",
];

type Counts = Rc<RefCell<BTreeMap<&'static str, usize>>>;

/// Counts what passes, and loses one message: the so-manieth of its kind.
fn lossy(lost: Option<(&'static str, usize)>, counts: &Counts) -> Filter {
    let counts = counts.clone();
    Box::new(move |_, _, message| {
        let mut counts = counts.borrow_mut();
        let count = counts.entry(kind(message)).or_default();
        *count += 1;
        lost != Some((kind(message), *count))
    })
}

/// A cell's life from its forming to its recovery, in which one message is lost. What must be reached is
/// reached in time, or the run fails.
struct Life {
    world: World,
    lost: Option<(&'static str, usize)>,
    proposed: usize,
}

impl Life {
    fn new(lost: Option<(&'static str, usize)>, counts: &Counts) -> Life {
        let world = World { filter: Some(lossy(lost, counts)), ..World::default() };
        Life { world, lost, proposed: 0 }
    }

    fn reach(&mut self, what: &str, millis: u64, reached: impl Fn(&World) -> bool) {
        for _ in 0..millis / 5 {
            if reached(&self.world) {
                return;
            }
            self.world.run(5);
        }
        panic!("{what} is not reached without {:?}\n{}", self.lost, self.world.out);
    }

    fn master(&mut self) -> u16 {
        self.reach("a master", 5000, |world| world.master().is_some());
        self.world.master().expect("just seen")
    }

    /// Proposes, and sees it executed by these.
    fn decide(&mut self, command: &str, ids: &[u16]) {
        let master = self.master();
        self.world.command(&command.replace("MASTER", &master.to_string()));
        self.proposed += 1;
        let proposed = self.proposed;
        self.reach(&format!("{command:?} at {ids:?}"), 1500, |world| {
            ids.iter()
                .all(|id| world.processes.get(id).is_some_and(|process| process.executed.len() >= proposed))
        });
    }

    /// An operator asks for a change of 4, and asks again when told that it cannot be made yet.
    fn change(&mut self, change: &str, made: impl Fn(&World) -> bool) {
        for _ in 0..10 {
            let master = self.master();
            self.world.commands(&format!("{change} {master} 4; run 300"));
            if made(&self.world) {
                return;
            }
        }
        panic!("{change} is not made without {:?}\n{}", self.lost, self.world.out);
    }

    fn votes(&mut self, id: u16) {
        self.reach(&format!("a vote of {id}"), 5000, |world| {
            world.processes.get(&id).is_some_and(|process| process.replica.agreement().votes())
        });
    }

    fn forms_and_decides(&mut self) {
        self.world.commands("start 1 2 3");
        self.decide("propose MASTER a", &[1, 2, 3]);
        self.decide("large MASTER 700", &[1, 2, 3]);
    }

    /// Mastership is handed on, and taken from one that is cut off and finds out when it is back.
    fn masters_change(&mut self) {
        let first = self.master();
        self.world.commands(&format!("transfer {first}"));
        self.reach("another master", 5000, |world| world.master().is_some_and(|master| master != first));
        self.decide("propose MASTER b", &[1, 2, 3]);
        let cut = self.master();
        let others: Vec<u16> = (1..=3).filter(|id| *id != cut).collect();
        self.world.paused.insert(cut);
        self.reach("a master of the others", 5000, |world| {
            others.iter().any(|id| world.processes[id].replica.is_master().is_some())
        });
        self.world.paused.clear();
        self.reach("one master", 5000, |world| {
            world.processes[&cut].replica.is_master().is_none() && world.master().is_some()
        });
        self.decide("propose MASTER c", &[1, 2, 3]);
    }

    /// An extension joins, becomes a voter, and is removed.
    fn members_change(&mut self) {
        self.world.commands("extension 4 knowing 1 2 3");
        let role = |world: &World| {
            let configuration = world.processes[&1].replica.configuration()?;
            configuration.at(address(4)).map(|member| member.role)
        };
        self.reach("an extension", 5000, move |world| role(world) == Some(Role::Extension));
        self.decide("propose MASTER d", &[1, 2, 3, 4]);
        self.change("promote", move |world| role(world) == Some(Role::Core));
        self.votes(4);
        self.change("remove", move |world| role(world).is_none());
        self.reach("4 leaving", 5000, |world| !world.processes.contains_key(&4));
    }

    /// With one down every message counts; it comes back empty, and so late that it needs a snapshot.
    fn one_falls_behind(&mut self) {
        self.world.commands("crash 3");
        self.decide("large MASTER 300", &[1, 2]);
        for _ in 0..ENTRIES_FAR {
            let master = self.master();
            self.world.command(&format!("propose {master} e"));
            self.proposed += 1;
        }
        self.decide("propose MASTER f", &[1, 2]);
        self.world.commands("restart 3 knowing 1 2 3");
        self.votes(3);
        self.decide("propose MASTER g", &[1, 2, 3]);
        // A voter that missed a little asks for it.
        self.world.commands("pause 3; run 50");
        self.decide("propose MASTER h", &[1, 2]);
        self.world.commands("run 200; resume 3");
        self.decide("propose MASTER i", &[1, 2, 3]);
    }

    /// Two forget, the third goes on when told to, and takes them in again.
    fn the_cell_is_recovered(&mut self) {
        self.world.commands("crash 1; crash 2; restart 1 knowing 1 2 3; restart 2 knowing 1 2 3; run 1500");
        self.world.commands("recover 3");
        self.reach("the end of those that forgot", 5000, |world| {
            !world.processes.contains_key(&1) && !world.processes.contains_key(&2)
        });
        self.world.commands("restart 1 knowing 1 2 3; restart 2 knowing 1 2 3");
        self.votes(1);
        self.votes(2);
        self.decide("propose MASTER j", &[1, 2, 3]);
    }

    fn live(&mut self) {
        self.forms_and_decides();
        self.masters_change();
        self.members_change();
        self.one_falls_behind();
        self.the_cell_is_recovered();
    }
}

fn live(lost: Option<(&'static str, usize)>) -> BTreeMap<&'static str, usize> {
    let counts = Counts::default();
    Life::new(lost, &counts).live();
    counts.take()
}

#[test]
fn nothing_stalls_when_a_single_message_is_lost() {
    let seen = live(None);
    let kinds: BTreeSet<&str> = seen.keys().copied().collect();
    assert_eq!(kinds, BTreeSet::from(KINDS), "each kind occurs, or losing it shows nothing");
    for (kind, count) in seen {
        for lost in 1..=count.min(LOST_MAX) {
            live(Some((kind, lost)));
        }
    }
}

/// Entries after which the oldest are kept no more.
const ENTRIES_FAR: usize = 4800;

/// How many of a kind are lost, one in each run: those of the first phases, and all of a kind that is rare.
const LOST_MAX: usize = 3;

#[test]
fn what_is_lost_is_sent_again_before_an_election() {
    for kind in ["begin", "accept", "offer", "held", "fetch", "chunk"] {
        let counts = Counts::default();
        let mut life = Life::new(None, &counts);
        life.world.commands("start 1 2 3; run 1500; crash 3; run 500");
        let before = counts.borrow().get(kind).copied().unwrap_or(0);
        // With one of three down, each of these is needed.
        life.world.filter = Some(lossy(Some((kind, before + 1)), &counts));
        let (master, round) = (life.master(), life.world.processes[&1].replica.is_master());
        life.world.command(&format!("large {master} 100"));
        life.reach(kind, 300, |world| world.processes[&master].executed.len() == 1);
        assert!(counts.borrow()[kind] > before + 1, "{kind} is sent again");
        assert_eq!(life.world.processes[&1].replica.is_master(), round, "{kind}");
    }
}
