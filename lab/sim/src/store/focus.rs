//! [`Focus`]: what a run is about. Chance finds most of what is wrong; some of it needs faults that fit together.

use super::fault::{Fault, Plan, QUIET_MICROS};
use super::workload::{Class, Key};
use kumo_cluster::Limits;
use lot::Random;
use std::collections::BTreeMap;

/// A kind of trouble that is sought instead of left to chance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Focus {
    /// Servers come and go under many writes of few keys; disks fill up and links break meanwhile.
    Replace,
    /// A server is cut off together with a gateway that reads there.
    Island,
    /// Islands, and the master dies at the same time.
    Succession,
    /// Servers leave, and are cut off together with a gateway before they know that they are out.
    Departure,
    /// Several servers are lost shortly after one another, and those that are left hear each other late.
    Losses,
    /// Answers get lost, and what is asked again must not count twice.
    Retries,
    /// Servers return to a cluster that has deleted what they have, and forgotten that it did.
    Deletes,
    /// Two managers recruit voters among the servers, and anybody may be lost meanwhile.
    Pair,
    /// Those who order keys change, and what was sent to those before arrives long after, or twice.
    Late,
    /// Servers lose their power in the middle of replaces.
    Power,
    /// Keys are flushed while those who order them change, and what was asked arrives late, or twice.
    Flush,
    /// The power fails everywhere at once, time and again, in the middle of replaces too.
    Blackout,
    /// Servers are lost below the number of copies that every write must have.
    Copies,
    /// One server is slow, so that writes which the others have are sent again under other numbers, and links break.
    Again,
    /// Disks fill up, fail and become well again, in the middle of replaces and losses too.
    Disk,
    /// The same, and records cannot be read for a while.
    Unread,
    /// Managers forget everything, and a new cell takes what servers know, while servers come, go and are lost.
    Rebuild,
    /// All copies of some keys are lost, and an operator gives them up in the middle of trouble.
    Bereft,
}

impl Focus {
    pub const ALL: [Focus; 18] = [
        Focus::Replace,
        Focus::Island,
        Focus::Succession,
        Focus::Departure,
        Focus::Losses,
        Focus::Retries,
        Focus::Deletes,
        Focus::Pair,
        Focus::Late,
        Focus::Power,
        Focus::Flush,
        Focus::Blackout,
        Focus::Copies,
        Focus::Again,
        Focus::Disk,
        Focus::Unread,
        Focus::Rebuild,
        Focus::Bereft,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Focus::Replace => "replace",
            Focus::Island => "island",
            Focus::Succession => "succession",
            Focus::Departure => "departure",
            Focus::Losses => "losses",
            Focus::Retries => "retries",
            Focus::Deletes => "deletes",
            Focus::Pair => "pair",
            Focus::Late => "late",
            Focus::Power => "power",
            Focus::Flush => "flush",
            Focus::Blackout => "blackout",
            Focus::Copies => "copies",
            Focus::Again => "again",
            Focus::Disk => "disk",
            Focus::Unread => "unread",
            Focus::Rebuild => "rebuild",
            Focus::Bereft => "bereft",
        }
    }

    pub fn named(name: &str) -> Option<Focus> {
        Focus::ALL.into_iter().find(|focus| focus.name() == name)
    }

    /// What must happen in every run about it, on average.
    pub fn aims(self) -> &'static [Fault] {
        match self {
            Focus::Replace => &[Fault::Attach, Fault::Detach, Fault::DiskFull],
            Focus::Island => &[Fault::Partition],
            Focus::Succession => &[Fault::Partition, Fault::ManagerCrash],
            Focus::Departure => &[Fault::Partition, Fault::Detach],
            Focus::Losses => &[Fault::ServerCrash, Fault::ServerPause],
            Focus::Retries => &[Fault::ServerCrash, Fault::BreakLink],
            Focus::Deletes => &[Fault::ServerCrash, Fault::CutPair],
            Focus::Pair => &[Fault::ManagerCrash, Fault::ServerCrash],
            Focus::Late => &[Fault::Late, Fault::Echo],
            Focus::Power => &[Fault::PowerLost],
            Focus::Flush => &[Fault::Flush, Fault::ServerCrash],
            Focus::Blackout => &[Fault::Blackout],
            Focus::Copies => &[Fault::ServerCrash, Fault::ServerPause],
            Focus::Again => &[Fault::Slow, Fault::BreakLink],
            Focus::Disk => &[Fault::DiskFull, Fault::DiskScarce, Fault::DiskFails],
            Focus::Unread => &[Fault::DiskUnread],
            Focus::Rebuild => &[Fault::Forgotten, Fault::ServerCrash],
            Focus::Bereft => &[Fault::CopiesLost, Fault::ServerCrash],
        }
    }

    /// Aims the plan at it.
    pub fn aim(self, plan: &mut Plan) {
        let mut aim = Aim { random: Random::new(plan.seed, self.name()), strikes: BTreeMap::new() };
        plan.chaos_micros = aim.random.between(12_000_000, 16_000_000);
        plan.callers = 8;
        plan.pause_micros = 60_000;
        plan.request_micros = 30_000_000;
        plan.spread = [true, true];
        plan.servers_first = plan.servers;
        let end = plan.chaos_micros;
        match self {
            Focus::Replace => {
                plan.servers = 4 + aim.random.below(2) as usize;
                plan.servers_first = 3;
                plan.late_permille = 40;
                plan.named = true;
                let wishes = [Fault::Attach, Fault::Detach, Fault::Attach, Fault::Detach];
                aim.each(&wishes, 4, end);
                aim.each(&[Fault::AutoReplace, Fault::DiskFull, Fault::BreakLink, Fault::Slow], 4, end);
                aim.each(&[Fault::ServerCrash, Fault::CutPair, Fault::Cancel], 2, end);
                plan.keys = keys(&[Class::Register, Class::Log, Class::Counter], 8);
            }
            Focus::Island => {
                (plan.islands, plan.patience_micros) = (true, SHORT_PATIENCE_MICROS);
                // Many callers: those whose writes wait for the mainland ask nothing.
                plan.callers = 20;
                aim.each(&[Fault::Partition], 5, end);
                aim.each(&[Fault::BreakLink, Fault::Slow], 2, end);
                aim.each(&[Fault::Attach, Fault::AutoReplace], 2, end);
                plan.keys = keys(&[Class::Register], 10);
            }
            Focus::Succession => {
                (plan.islands, plan.patience_micros) = (true, SHORT_PATIENCE_MICROS);
                aim.together(&[Fault::Partition, Fault::ManagerCrash], 4, 400_000, end);
                aim.together(&[Fault::Partition, Fault::ManagerPause], 2, 400_000, end);
                aim.each(&[Fault::Slow, Fault::Attach], 3, end);
                plan.keys = keys(&[Class::Register], 4);
            }
            Focus::Departure => {
                plan.servers = 4 + aim.random.below(2) as usize;
                plan.servers_first = plan.servers;
                (plan.islands, plan.named) = (true, true);
                plan.patience_micros = SHORT_PATIENCE_MICROS;
                aim.together(&[Fault::Slow, Fault::Detach, Fault::Partition], 5, 500_000, end);
                aim.each(&[Fault::AutoReplace], 3, end);
                plan.keys = keys(&[Class::Register], 4);
            }
            Focus::Losses => {
                plan.servers = 5 + aim.random.below(2) as usize;
                plan.servers_first = plan.servers;
                plan.late_permille = 40;
                let losses = [Fault::ServerCrash, Fault::ServerPause, Fault::ServerCrash, Fault::CutPair];
                aim.together(&losses, 3, 700_000, end);
                aim.each(&[Fault::Slow, Fault::Attach, Fault::AutoReplace], 3, end);
                // Many, so that what a loss left behind is not written over before it is looked at.
                plan.keys = keys(&[Class::Register, Class::Log, Class::Counter], 150);
            }
            Focus::Retries => {
                aim.each(&[Fault::ServerCrash, Fault::BreakLink, Fault::Slow, Fault::Attach], 4, end);
                aim.each(&[Fault::AutoReplace, Fault::Detach], 2, end);
                // A gateway does not hear what became of its requests, and then nobody knows.
                plan.islands = true;
                aim.together(&[Fault::Partition, Fault::Partition, Fault::Outage], 3, 300_000, end);
                plan.keys = keys(&[Class::Counter, Class::Log], 8);
            }
            Focus::Deletes => {
                plan.tombstone_micros = 0;
                plan.late_permille = 40;
                aim.each(&[Fault::ServerCrash, Fault::Attach, Fault::Detach, Fault::CutPair], 4, end);
                aim.each(&[Fault::AutoReplace, Fault::FullReplace, Fault::Slow], 3, end);
                plan.keys = keys(&[Class::Register], 4);
            }
            Focus::Pair => {
                plan.managers = 2;
                plan.chaos_micros = aim.random.between(14_000_000, 24_000_000);
                plan.servers_first = [plan.servers, 2][aim.random.below(2) as usize];
                let end = plan.chaos_micros;
                aim.each(&[Fault::ManagerCrash, Fault::ServerCrash, Fault::Attach], 3, end);
                aim.each(
                    &[Fault::Partition, Fault::ManagerPause, Fault::ServerPause, Fault::CutPair],
                    2,
                    end,
                );
                // Both, and more copies are lost than the store promises to bear.
                let rare = [Fault::Outage, Fault::Outage, Fault::DiskLost][aim.random.below(3) as usize];
                aim.each(&[rare, Fault::OneWay, Fault::Detach, Fault::Slow], 1, end);
                aim.together(&[Fault::ManagerCrash, Fault::ServerCrash], 2, 300_000, end);
                plan.keys = keys(&[Class::Register, Class::Log, Class::Counter], 8);
            }
            Focus::Late => {
                plan.servers = 4 + aim.random.below(2) as usize;
                plan.named = true;
                plan.tombstone_micros = 0;
                aim.each(&[Fault::Late, Fault::Late, Fault::Echo], 8, end);
                aim.each(&[Fault::Attach, Fault::Detach, Fault::BreakLink], 5, end);
                aim.each(&[Fault::AutoReplace, Fault::ServerCrash], 2, end);
                plan.keys = keys(&[Class::Register, Class::Counter, Class::Log], 6);
            }
            Focus::Power => {
                plan.servers = 4 + aim.random.below(2) as usize;
                plan.servers_first = 3 + aim.random.below(2) as usize;
                // No crashes: with them it is too often the last owner that has lost something.
                aim.each(&[Fault::PowerLost], 6, end);
                aim.each(&[Fault::Attach, Fault::Detach, Fault::AutoReplace], 3, end);
                aim.each(&[Fault::BreakLink, Fault::Slow], 2, end);
                plan.keys = keys(&[Class::Register, Class::Log, Class::Counter], 20);
            }
            Focus::Flush => {
                plan.tombstone_micros = 0;
                plan.islands = true;
                aim.each(&[Fault::Flush], 10, end);
                aim.together(&[Fault::Flush, Fault::ServerCrash], 3, 300_000, end);
                aim.together(&[Fault::Flush, Fault::Attach], 3, 300_000, end);
                aim.each(&[Fault::Late, Fault::Echo, Fault::BreakLink, Fault::Slow], 4, end);
                aim.each(&[Fault::Detach, Fault::AutoReplace, Fault::Partition], 2, end);
                aim.each(&[Fault::GatewayCrash, Fault::DiskFull], 1, end);
                plan.keys = keys(&[Class::Register, Class::Log, Class::Counter, Class::Fleeting], 12);
            }
            Focus::Blackout => {
                plan.servers = 3 + aim.random.below(3) as usize;
                plan.servers_first = 3;
                plan.sync_always = aim.random.permille(400);
                aim.each(&[Fault::Blackout], 3, end);
                aim.each(&[Fault::Attach, Fault::AutoReplace], 3, end);
                aim.each(&[Fault::Detach, Fault::ServerCrash, Fault::BreakLink, Fault::Slow], 1, end);
                plan.keys = keys(&[Class::Register, Class::Log, Class::Counter], 15);
            }
            Focus::Copies => {
                plan.servers = 3 + aim.random.below(2) as usize;
                plan.servers_first = plan.servers;
                plan.copies_min = 2 + aim.random.below(2) as usize;
                // Who counts copies must find those of deletes too.
                plan.tombstone_micros = 600_000_000;
                aim.together(&[Fault::ServerCrash, Fault::ServerCrash, Fault::ServerPause], 3, 700_000, end);
                aim.each(&[Fault::ServerCrash, Fault::Attach, Fault::CutPair], 2, end);
                aim.each(&[Fault::AutoReplace, Fault::BreakLink, Fault::Slow], 2, end);
                plan.keys = keys(&[Class::Register, Class::Log, Class::Counter], 9);
            }
            Focus::Again => {
                (plan.servers, plan.servers_first) = (3, 3);
                (plan.callers, plan.pause_micros) = (60, 5_000);
                let held_max = aim.random.between(1, 6) as usize;
                plan.limits = Limits { held_max, resent_max: 1, ..Limits::default() };
                aim.each(&[Fault::BreakLink], 600, end);
                aim.each(&[Fault::Late], 60, end);
                aim.each(&[Fault::Slow], 15, end);
                plan.keys = keys(&[Class::Register], 16);
            }
            Focus::Disk | Focus::Unread => {
                plan.buffered = true;
                plan.servers = 3 + aim.random.below(3) as usize;
                plan.servers_first = 3 + aim.random.below(plan.servers as u64 - 2) as usize;
                plan.sync_always = aim.random.permille(300);
                if self == Focus::Unread {
                    aim.each(&[Fault::DiskUnread], 4, end);
                }
                aim.each(&[Fault::DiskFull, Fault::DiskScarce, Fault::DiskFails], 4, end);
                aim.together(&[Fault::DiskFails, Fault::Attach], 2, 300_000, end);
                aim.together(&[Fault::DiskScarce, Fault::ServerCrash], 1, 300_000, end);
                aim.each(&[Fault::Attach, Fault::AutoReplace, Fault::Detach], 2, end);
                aim.each(&[Fault::FullReplace, Fault::BreakLink, Fault::Slow], 1, end);
                let classes = [Class::Register, Class::Log, Class::Counter, Class::Fleeting];
                plan.keys = keys(&classes, 12);
            }
            Focus::Rebuild => {
                plan.chaos_micros = aim.random.between(16_000_000, 24_000_000);
                plan.servers = 3 + aim.random.below(3) as usize;
                plan.servers_first = 2 + aim.random.below(plan.servers as u64 - 1) as usize;
                plan.late_permille = 40;
                let end = plan.chaos_micros;
                aim.each(&[Fault::Forgotten], 2, end);
                aim.together(&[Fault::Forgotten, Fault::ServerCrash, Fault::ServerPause], 2, 2_000_000, end);
                aim.together(&[Fault::Forgotten, Fault::Attach], 2, 500_000, end);
                aim.each(&[Fault::ServerCrash, Fault::Attach, Fault::AutoReplace, Fault::Detach], 2, end);
                aim.each(&[Fault::CutPair, Fault::ManagerCrash, Fault::GatewayCrash, Fault::Slow], 1, end);
                aim.each(&[Fault::Late, Fault::BreakLink], 2, end);
                plan.keys = keys(&[Class::Register, Class::Log, Class::Counter], 12);
                aim.forsake(plan);
            }
            Focus::Bereft => {
                plan.chaos_micros = aim.random.between(16_000_000, 24_000_000);
                plan.servers = 4 + aim.random.below(3) as usize;
                plan.servers_first = plan.servers - aim.random.below(2) as usize;
                let end = plan.chaos_micros;
                // Who was lost before has older copies, which are not to come back.
                aim.together(&[Fault::ServerCrash, Fault::ServerCrash, Fault::CopiesLost], 4, 3_000_000, end);
                aim.each(&[Fault::ServerCrash, Fault::Attach, Fault::BreakLink, Fault::Slow], 2, end);
                aim.each(&[Fault::AutoReplace, Fault::Detach, Fault::ManagerCrash, Fault::Late], 1, end);
                plan.keys = keys(&[Class::Register, Class::Log, Class::Counter], 18);
            }
        }
        plan.strikes = aim.strikes;
    }
}

/// Strikes as they are set.
struct Aim {
    random: Random,
    strikes: BTreeMap<Fault, Vec<u64>>,
}

impl Aim {
    /// Each of them so often, at any time.
    fn each(&mut self, faults: &[Fault], count: u64, end: u64) {
        for fault in faults {
            for _ in 0..count {
                let time = self.random.between(QUIET_MICROS, end);
                self.strikes.entry(*fault).or_default().push(time);
            }
        }
    }

    /// Of some runs about rebuilds, by a stream of its own: shortly before the managers forget everything a server is found
    /// lost, and those who know it are lost as well, some with their disks.
    fn forsake(&mut self, plan: &mut Plan) {
        let mut random = Random::new(plan.seed, "forsaken");
        if !random.permille(FORSAKEN_PERMILLE) {
            return;
        }
        plan.forsakes_after = Some(random.between(300_000, 3_000_000));
        // Few, so that all who know of the newest ring may be lost.
        (plan.servers, plan.servers_first) = (3, random.between(2, 3) as usize);
        let forgotten = self.strikes.get(&Fault::Forgotten).cloned().unwrap_or_default();
        for time in forgotten {
            let before = time.saturating_sub(random.between(2_200_000, 4_500_000)).max(QUIET_MICROS);
            self.strikes.entry(Fault::ServerPause).or_default().push(before);
            let often = [(Fault::ServerCrash, 700), (Fault::DiskLost, 500), (Fault::DiskLost, 200)];
            for (fault, permille) in often {
                if random.permille(permille) {
                    self.strikes.entry(fault).or_default().push(time + random.between(1_000, 600_000));
                }
            }
        }
    }

    /// All of them within a short time, so often.
    fn together(&mut self, faults: &[Fault], count: u64, within: u64, end: u64) {
        for _ in 0..count {
            let time = self.random.between(QUIET_MICROS, end);
            for fault in faults {
                let time = time + self.random.below(within);
                self.strikes.entry(*fault).or_default().push(time);
            }
        }
    }
}

/// Runs about rebuilds in which an operator may go on without those who are missing.
const FORSAKEN_PERMILLE: u64 = 300;
/// A connection breaks well before a lease runs out.
const SHORT_PATIENCE_MICROS: (u64, u64) = (100_000, 700_000);

fn keys(classes: &[Class], count: usize) -> Vec<Key> {
    (0..count).map(|index| Key::new(index, classes[index % classes.len()])).collect()
}
