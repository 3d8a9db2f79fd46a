//! [`Fault`]: what can go wrong, and [`Plan`]: what will in one run, drawn from its seed.

use crate::workload::Role;
use lot::Random;
use std::collections::{BTreeMap, BTreeSet};

/// One kind of trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// A process dies; memory is lost, a disk is kept.
    Crash,
    /// One machine dies, or all at once: what was not synced is lost, the last record perhaps torn.
    PowerLoss,
    /// A machine dies and its disk with it.
    DiskLost,
    /// Writes fail until the node has stopped.
    DiskFull,
    /// A process gets no steps for a while.
    Pause,
    /// A process stands still while another one takes its address, then goes on.
    Twin,
    Partition,
    OneWay,
    /// One link between replicas breaks.
    CutLink,
    Loss,
    Duplicate,
    Reorder,
    /// Old messages come again, to whoever listens there now.
    Replay,
    ClockRate,
    ClockJump,
    WallJump,
    /// A client dies and leaves its session behind.
    ClientKill,
    /// A client's connection breaks.
    ClientBreak,
    /// An operator asks the master to step down.
    Transfer,
    /// An operator adds, promotes, removes or replaces a member.
    Membership,
    /// A node is stopped in good order and started again.
    Rolling,
    /// A client gets no steps for a while.
    ClientPause,
    /// An operator ends a client's session.
    SessionKill,
    /// A majority forgot, and an operator has the cell go on from a survivor.
    Recover,
}

impl Fault {
    pub const ALL: [Fault; 24] = [
        Fault::Crash,
        Fault::PowerLoss,
        Fault::DiskLost,
        Fault::DiskFull,
        Fault::Pause,
        Fault::Twin,
        Fault::Partition,
        Fault::OneWay,
        Fault::CutLink,
        Fault::Loss,
        Fault::Duplicate,
        Fault::Reorder,
        Fault::Replay,
        Fault::ClockRate,
        Fault::ClockJump,
        Fault::WallJump,
        Fault::ClientKill,
        Fault::ClientBreak,
        Fault::Transfer,
        Fault::Membership,
        Fault::Rolling,
        Fault::ClientPause,
        Fault::SessionKill,
        Fault::Recover,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Fault::Crash => "crash",
            Fault::PowerLoss => "power-loss",
            Fault::DiskLost => "disk-lost",
            Fault::DiskFull => "disk-full",
            Fault::Pause => "pause",
            Fault::Twin => "twin",
            Fault::Partition => "partition",
            Fault::OneWay => "one-way",
            Fault::CutLink => "cut-link",
            Fault::Loss => "loss",
            Fault::Duplicate => "duplicate",
            Fault::Reorder => "reorder",
            Fault::Replay => "replay",
            Fault::ClockRate => "clock-rate",
            Fault::ClockJump => "clock-jump",
            Fault::WallJump => "wall-jump",
            Fault::ClientKill => "client-kill",
            Fault::ClientBreak => "client-break",
            Fault::Transfer => "transfer",
            Fault::Membership => "membership",
            Fault::Rolling => "rolling",
            Fault::ClientPause => "client-pause",
            Fault::SessionKill => "session-kill",
            Fault::Recover => "recover",
        }
    }

    pub fn named(name: &str) -> Option<Fault> {
        Fault::ALL.into_iter().find(|fault| fault.name() == name)
    }
}

/// One run.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub nodes: usize,
    pub durable: bool,
    /// W of a cell that is there from the start, just formed. `None`: the cell forms itself, with the product's W.
    pub window: Option<u64>,
    /// One more replica that only follows.
    pub extension: bool,
    pub clients: Vec<Role>,
    /// Values of more than 64 KiB, out of band.
    pub large: bool,
    /// The directory in which too much happens has a path as long as paths may be.
    pub deep: bool,
    /// Clocks at double and half speed, and jumping: leases and a client's own certainty mean nothing then.
    pub wild_clocks: bool,
    /// More replicas may forget than the cell can bear: then it may stop, but must not guess.
    pub beyond: bool,
    /// When the trouble ends.
    pub chaos_micros: u64,
    pub session_timeout_micros: u64,
    /// How long a disk may take to sync, usually.
    pub sync_micros_max: u64,
    /// When each kind strikes. Each has its own stream of random numbers: taking one away changes no other.
    pub strikes: BTreeMap<Fault, Vec<u64>>,
}

impl Plan {
    pub fn new(seed: u64, without: &BTreeSet<Fault>) -> Plan {
        let mut random = Random::new(seed, "plan");
        let nodes = [1, 3, 3, 3, 3, 3, 5, 5][random.below(8) as usize];
        let chaos_micros = random.between(4_500_000, 10_000_000);
        let mut plan = Plan {
            seed,
            nodes,
            durable: random.permille(400),
            window: WINDOWS[Random::new(seed, "window").below(WINDOWS.len() as u64) as usize],
            extension: random.permille(200),
            clients: Vec::new(),
            large: random.permille(150),
            deep: false,
            wild_clocks: random.permille(200),
            beyond: random.permille(100),
            chaos_micros,
            session_timeout_micros: random.between(1_500_000, 4_000_000),
            sync_micros_max: [500, 2_000, 20_000][random.below(3) as usize],
            strikes: BTreeMap::new(),
        };
        let theme = random.below(Role::PLAIN.len() as u64) as usize;
        for index in 0..random.between(4, 8) as usize {
            // Half of the clients do related things, so that they meet.
            let role = if index % 2 == 0 { theme + index / 2 % 2 } else { random.below(9) as usize };
            plan.clients.push(Role::PLAIN[role % Role::PLAIN.len()]);
        }
        // Who takes needs somebody who gives.
        if plan.clients.iter().any(|role| matches!(role, Role::Consume | Role::Receive)) {
            plan.clients.push(Role::Produce);
        }
        if plan.clients.contains(&Role::Watch) {
            plan.clients.push(Role::Change);
        }
        let intensity = random.between(100, 450);
        for fault in Fault::ALL {
            let mut random = Random::new(seed, fault.name());
            // What is for few runs only is likely in them.
            let chosen = random.permille(if fault == Fault::Recover { 500 } else { intensity });
            let count = random.between(1, if fault == Fault::Recover { 2 } else { 6 });
            let times = (0..count).map(|_| random.between(QUIET_MICROS, chaos_micros)).collect();
            if chosen && plan.fits(fault) && !without.contains(&fault) {
                plan.strikes.insert(fault, times);
            }
        }
        plan
    }

    /// In two runs of three, clients of the later kinds take the place of some. They are drawn from a stream of
    /// their own: a plain run is what its seed was before there were any.
    pub fn widen(&mut self) {
        let mut random = Random::new(self.seed, "later clients");
        let later: &[Role] = match random.below(100) {
            0..10 => &[Role::Tree; 4],
            10..36 => &[Role::Tree; 2],
            36..52 => &[
                Role::Observe,
                Role::Observe,
                Role::Change,
                Role::Contend,
                Role::Contend,
                Role::Produce,
                Role::Consume,
            ],
            52..66 => &[Role::Flood, Role::Lag, Role::Lag],
            _ => return,
        };
        self.deep = random.permille(750);
        self.clients.truncate(PLAIN_BESIDE);
        self.clients.extend(later);
    }

    /// Whether that trouble can strike such a cell.
    fn fits(&self, fault: Fault) -> bool {
        match fault {
            Fault::PowerLoss | Fault::DiskLost | Fault::DiskFull => self.durable,
            Fault::Twin => !self.durable,
            Fault::ClockJump => self.wild_clocks,
            Fault::Recover => self.beyond,
            Fault::Crash
            | Fault::Pause
            | Fault::Partition
            | Fault::OneWay
            | Fault::CutLink
            | Fault::Loss
            | Fault::Duplicate
            | Fault::Reorder
            | Fault::Replay
            | Fault::ClockRate
            | Fault::WallJump
            | Fault::ClientKill
            | Fault::ClientBreak
            | Fault::Transfer
            | Fault::Membership
            | Fault::Rolling
            | Fault::ClientPause
            | Fault::SessionKill => true,
        }
    }
}

/// Small windows are filled often, and a change of members crosses few no-ops: more happens around the boundary.
const WINDOWS: [Option<u64>; 6] = [None, Some(3), Some(8), Some(16), Some(32), Some(100)];
/// Clients of the first kinds in a run with later ones.
const PLAIN_BESIDE: usize = 4;
/// Before this a cell forms undisturbed.
const QUIET_MICROS: u64 = 1_200_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct_and_found() {
        for fault in Fault::ALL {
            assert_eq!(Fault::named(fault.name()), Some(fault));
        }
        assert_eq!(Fault::named("rain"), None);
    }

    #[test]
    fn leaving_one_fault_out_moves_no_other() {
        for seed in 0..200 {
            let whole = Plan::new(seed, &BTreeSet::new());
            for fault in whole.strikes.keys() {
                let mut rest = whole.strikes.clone();
                rest.remove(fault);
                assert_eq!(Plan::new(seed, &BTreeSet::from([*fault])).strikes, rest);
            }
        }
    }

    #[test]
    fn every_fault_and_role_is_drawn() {
        let mut plans: Vec<Plan> = (0..500).map(|seed| Plan::new(seed, &BTreeSet::new())).collect();
        for role in Role::PLAIN {
            assert!(plans.iter().any(|plan| plan.clients.contains(&role)), "{role:?}");
        }
        plans.iter_mut().for_each(Plan::widen);
        for fault in Fault::ALL {
            assert!(plans.iter().any(|plan| plan.strikes.contains_key(&fault)), "{fault:?}");
        }
        for role in Role::LATER {
            assert!(plans.iter().any(|plan| plan.clients.contains(&role)), "{role:?}");
        }
    }
}
