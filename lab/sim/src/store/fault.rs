//! [`Fault`]: what can happen to a store cluster, and [`Plan`]: what will in one run, drawn from its seed.

use super::focus::Focus;
use super::workload::{Class, Key};
use kumo_cluster::Limits;
use lot::Random;
use std::collections::{BTreeMap, BTreeSet};

/// One kind of trouble, or of an operator's wish: both come at any moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// A server's process dies; its store is kept.
    ServerCrash,
    /// A server dies and its disk with it.
    DiskLost,
    /// A server takes no writes for a while.
    DiskFull,
    ServerPause,
    ManagerCrash,
    ManagerPause,
    GatewayCrash,
    GatewayPause,
    /// All servers, or all there is, stop at once and start again.
    Outage,
    Partition,
    OneWay,
    /// Two nodes cannot reach each other.
    CutPair,
    /// One connection breaks.
    BreakLink,
    /// What a host sends and gets takes long.
    Slow,
    ClockRate,
    WallJump,
    /// What was sent on a connection arrives long after it was given up.
    Late,
    /// For a while what is sent on a connection arrives twice.
    Echo,
    /// A server's host loses its power: what its disk was not made to keep is gone.
    PowerLost,
    /// For a while some of a server's writes find no room on its disk.
    DiskScarce,
    /// For a while some of a server's writes fail, and it ends when it cannot store what it would tell of.
    DiskFails,
    Attach,
    Detach,
    Replace,
    FullReplace,
    Cancel,
    PauseJob,
    Rate,
    AutoReplace,
    /// Somebody deletes all keys that begin alike, through a gateway.
    Flush,
    /// All servers, or all there is, lose their power at once, or are killed; their disks come back.
    Blackout,
    /// For a while a server cannot read some of its records.
    DiskUnread,
    /// All managers stop and lose their disks; an operator lets the cell that they form anew take what servers know.
    Forgotten,
    /// All who own a key lose their disks at once.
    CopiesLost,
}

impl Fault {
    pub const ALL: [Fault; 34] = [
        Fault::ServerCrash,
        Fault::DiskLost,
        Fault::DiskFull,
        Fault::ServerPause,
        Fault::ManagerCrash,
        Fault::ManagerPause,
        Fault::GatewayCrash,
        Fault::GatewayPause,
        Fault::Outage,
        Fault::Partition,
        Fault::OneWay,
        Fault::CutPair,
        Fault::BreakLink,
        Fault::Slow,
        Fault::ClockRate,
        Fault::WallJump,
        Fault::Late,
        Fault::Echo,
        Fault::PowerLost,
        Fault::DiskScarce,
        Fault::DiskFails,
        Fault::Attach,
        Fault::Detach,
        Fault::Replace,
        Fault::FullReplace,
        Fault::Cancel,
        Fault::PauseJob,
        Fault::Rate,
        Fault::AutoReplace,
        Fault::Flush,
        Fault::Blackout,
        Fault::DiskUnread,
        Fault::Forgotten,
        Fault::CopiesLost,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Fault::ServerCrash => "server-crash",
            Fault::DiskLost => "disk-lost",
            Fault::DiskFull => "disk-full",
            Fault::ServerPause => "server-pause",
            Fault::ManagerCrash => "manager-crash",
            Fault::ManagerPause => "manager-pause",
            Fault::GatewayCrash => "gateway-crash",
            Fault::GatewayPause => "gateway-pause",
            Fault::Outage => "outage",
            Fault::Partition => "partition",
            Fault::OneWay => "one-way",
            Fault::CutPair => "cut-pair",
            Fault::BreakLink => "break-link",
            Fault::Slow => "slow",
            Fault::ClockRate => "clock-rate",
            Fault::WallJump => "wall-jump",
            Fault::Late => "late",
            Fault::Echo => "echo",
            Fault::PowerLost => "power-lost",
            Fault::DiskScarce => "disk-scarce",
            Fault::DiskFails => "disk-fails",
            Fault::DiskUnread => "disk-unread",
            Fault::Forgotten => "forgotten",
            Fault::CopiesLost => "copies-lost",
            Fault::Attach => "attach",
            Fault::Detach => "detach",
            Fault::Replace => "replace",
            Fault::FullReplace => "full-replace",
            Fault::Cancel => "cancel",
            Fault::PauseJob => "pause-job",
            Fault::Rate => "rate",
            Fault::AutoReplace => "auto-replace",
            Fault::Flush => "flush",
            Fault::Blackout => "blackout",
        }
    }

    pub fn named(name: &str) -> Option<Fault> {
        Fault::ALL.into_iter().find(|fault| fault.name() == name)
    }

    /// Somebody's wish: it counts when it was done.
    pub fn is_wish(self) -> bool {
        (Fault::Attach..=Fault::Flush).contains(&self)
    }

    /// Strikes in any run. The others come with a focus only: a seed without one means what it always meant.
    pub fn is_chance(self) -> bool {
        self <= Fault::AutoReplace
    }
}

/// One run.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    /// Two of them recruit further voters among the servers.
    pub managers: usize,
    /// Servers that ever are, and how many of them are there for the first attach.
    pub servers: usize,
    pub servers_first: usize,
    pub keys: Vec<Key>,
    pub callers: usize,
    /// Between two calls of one caller.
    pub pause_micros: u64,
    /// Gateways that read at any owner.
    pub spread: [bool; GATEWAYS],
    /// All tries of one call together.
    pub request_micros: u64,
    /// A collected tombstone is at least this old.
    pub tombstone_micros: u64,
    /// Copies below which writes are refused.
    pub copies_min: usize,
    /// Servers have everything safe on their disks before they say anything of it.
    pub sync_always: bool,
    /// Messages that others, on other connections, overtake by far.
    pub late_permille: u64,
    /// A server gathers what arrives for up to this long, and takes it in one turn: what it wants done is done at its end.
    /// 0: each message has a turn.
    pub turn_micros: u64,
    /// How much servers do at once.
    pub limits: Limits,
    /// Partitions cut a server or two off, and a gateway with them.
    pub islands: bool,
    /// Operators name the servers that they mean.
    pub named: bool,
    /// How long a connection bears a cut: between these.
    pub patience_micros: (u64, u64),
    /// When the trouble ends.
    pub chaos_micros: u64,
    /// What a server's process has not handed to its system is lost with it.
    pub buffered: bool,
    /// Servers tell of what their disks did not store, and go on: a rule of the shell is left out.
    pub heedless: bool,
    /// When the operator of a rebuild that leads to nothing goes on without those who are missing.
    pub forsakes_after: Option<u64>,
    /// Rates of clocks: between these.
    pub rate_permille: (u64, u64),
    /// When each kind strikes. Each has its own stream of random numbers: taking one away changes no other.
    pub strikes: BTreeMap<Fault, Vec<u64>>,
}

impl Plan {
    pub fn new(seed: u64, without: &BTreeSet<Fault>, focus: Option<Focus>) -> Plan {
        let mut random = Random::new(seed, "store plan");
        let servers = [3, 3, 4, 4, 5, 5, 6][random.below(7) as usize];
        let servers_first = match random.permille(600) {
            true => servers,
            false => random.between(1, servers as u64) as usize,
        };
        let classes = [Class::Register, Class::Register, Class::Counter, Class::Log, Class::Fleeting];
        let keys = (0..random.between(5, 14) as usize).map(|index| {
            // The first ones are one of each.
            let class = classes.get(index + 1).copied();
            Key::new(index, class.unwrap_or(classes[random.below(5) as usize]))
        });
        let keys = keys.collect();
        let callers = random.between(3, 8) as usize;
        let chaos_micros = random.between(9_000_000, 22_000_000);
        let mut plan = Plan {
            seed,
            managers: MANAGERS,
            servers,
            servers_first,
            keys,
            callers,
            pause_micros: callers as u64 * random.between(20_000, 60_000),
            spread: [random.permille(500), random.permille(300)],
            request_micros: [3_000_000, 10_000_000, 30_000_000][random.below(3) as usize],
            tombstone_micros: [0, 200_000, 2_000_000, 60_000_000][random.below(4) as usize],
            late_permille: [0, 5, 40][random.below(3) as usize],
            // Of a stream of its own: older seeds are what they were.
            turn_micros: [0, 0, 2_000, 20_000][Random::new(seed, "store turns").below(4) as usize],
            limits: Limits::default(),
            copies_min: 1,
            sync_always: false,
            islands: false,
            patience_micros: PATIENCE_MICROS,
            named: false,
            buffered: false,
            heedless: false,
            forsakes_after: None,
            rate_permille: RATE_PERMILLE,
            chaos_micros,
            strikes: BTreeMap::new(),
        };
        let intensity = random.between(80, 400);
        for fault in Fault::ALL.into_iter().filter(|fault| fault.is_chance()) {
            let mut random = Random::new(seed, fault.name());
            let chosen = random.permille(if fault.is_wish() { intensity + 150 } else { intensity });
            let count = random.between(1, 4);
            let times = (0..count).map(|_| random.between(QUIET_MICROS, chaos_micros)).collect();
            if chosen {
                plan.strikes.insert(fault, times);
            }
        }
        if let Some(focus) = focus {
            focus.aim(&mut plan);
        }
        plan.strikes.retain(|fault, _| !without.contains(fault));
        plan
    }

    /// Servers do little at once, and go on later with the rest, as those of a product do that has many keys and callers.
    pub fn narrow(&mut self) {
        let mut random = Random::new(self.seed, "store limits");
        let mut few = || random.between(1, 4) as usize;
        self.limits = Limits {
            held_max: few(),
            resent_max: few(),
            queued_max: few(),
            settled_max: few(),
            // Above what comes while a part is on its way: whoever looks at fewer never gets to their end.
            ids_looked_max: 16 * few(),
            marks_asked_max: few(),
            bucket_records_max: few(),
            bucket_held_max: few(),
            dropped_max: few(),
            flushed_max: few(),
            swept_max: few(),
            changed_max: few(),
        };
    }
}

/// Managers of a cluster unless a run is about two, and gateways.
const MANAGERS: usize = 3;
pub const GATEWAYS: usize = 2;
/// Leases hold while every clock's rate is within a tenth of what it should be: one may be slow beside one that is fast.
const RATE_PERMILLE: (u64, u64) = (900, 1100);
/// How long a connection bears a cut.
const PATIENCE_MICROS: (u64, u64) = (200_000, 6_000_000);
/// Before this the cluster forms and is attached undisturbed.
pub const QUIET_MICROS: u64 = 2_500_000;

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
        for seed in 0..100 {
            let whole = Plan::new(seed, &BTreeSet::new(), None);
            for fault in whole.strikes.keys() {
                let mut rest = whole.strikes.clone();
                rest.remove(fault);
                assert_eq!(Plan::new(seed, &BTreeSet::from([*fault]), None).strikes, rest);
            }
        }
    }

    #[test]
    fn every_fault_is_drawn() {
        let plans: Vec<Plan> = (0..300).map(|seed| Plan::new(seed, &BTreeSet::new(), None)).collect();
        for fault in Fault::ALL.into_iter().filter(|fault| fault.is_chance()) {
            assert!(plans.iter().any(|plan| plan.strikes.contains_key(&fault)), "{fault:?}");
        }
    }
}
