//! The crash model of `kumo plan --simulate`: machines are lost by lot, and the rules of the product say what is left:
//! the majority rule of the agreement, and the owners on the store's ring. One seed gives one run.

use super::owners::Owners;
use kumo_paxos::{Configuration, Incarnation, Member, ReplicaId, Role};
use std::net::{Ipv4Addr, SocketAddr};

/// In how many of the trials something came out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    pub works: u64,
    pub survives: u64,
    pub all_up: u64,
}

/// A cell whose replicas are lost with that rate, each by itself.
pub fn cell(replicas: u32, rate: f64, trials: u64, seed: u64) -> Measured {
    let configuration = configuration(replicas);
    let mut lot = Lot::new(seed);
    let mut up = vec![true; replicas as usize];
    let mut measured = Measured::default();
    for _ in 0..trials {
        up.fill_with(|| !lot.falls(rate));
        // Incarnations count from 0 here.
        measured.works += u64::from(configuration.majority(|one| up[one.0 as usize]));
        measured.survives += u64::from(up.contains(&true));
        measured.all_up += u64::from(!up.contains(&false));
    }
    measured
}

/// In how many windows some key lost all its copies.
pub fn windows(owners: &Owners, servers: u32, window_rate: f64, trials: u64, seed: u64) -> u64 {
    let mut lot = Lot::new(seed);
    let mut lost = vec![false; servers as usize];
    let mut hits = 0;
    for _ in 0..trials {
        lost.fill_with(|| lot.falls(window_rate));
        let count = lost.iter().filter(|&&lost| lost).count() as u32;
        hits += u64::from(owners.all_lost(&lost, count));
    }
    hits
}

/// In how many whole times some key lost all its copies, when servers are lost one after another, at random moments,
/// and each is as before after `repair_share` of the time.
pub fn times(owners: &Owners, servers: u32, rate: f64, repair_share: f64, trials: u64, seed: u64) -> u64 {
    let mut lot = Lot::new(seed);
    let losses_per_time = -(-rate).ln_1p();
    (0..trials).filter(|_| is_fatal(owners, servers, losses_per_time, repair_share, &mut lot)).count() as u64
}

/// One whole time, after a first repair's length that counts for nothing: it begins with servers away, as any does.
fn is_fatal(owners: &Owners, servers: u32, losses_per_time: f64, repair_share: f64, lot: &mut Lot) -> bool {
    let mut lost = vec![false; servers as usize];
    // When who comes back: the first lost is the first back.
    let mut away: std::collections::VecDeque<(f64, usize)> = std::collections::VecDeque::new();
    let mut now = -repair_share;
    loop {
        // Losses are drawn for all servers; one of a server that is away already is none. So the draws need not know
        // who is away.
        now += lot.wait(losses_per_time * f64::from(servers));
        if now >= 1.0 {
            return false;
        }
        while let Some((_, back)) = away.pop_front_if(|(at, _)| *at <= now) {
            lost[back] = false;
        }
        let who = lot.below(servers) as usize;
        if lost[who] {
            continue;
        }
        lost[who] = true;
        away.push_back((now + repair_share, who));
        if now >= 0.0 && owners.all_lost(&lost, away.len() as u32) {
            return true;
        }
    }
}

fn configuration(replicas: u32) -> Configuration {
    let members = (0..replicas)
        .map(|index| Member {
            id: ReplicaId(index),
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            incarnation: Incarnation(u128::from(index)),
            role: Role::Core,
        })
        .collect();
    Configuration { version: 1, next_id: ReplicaId(replicas), members }
}

/// Numbers fixed by a seed (splitmix64).
struct Lot {
    state: u64,
}

impl Lot {
    fn new(seed: u64) -> Lot {
        Lot { state: seed }
    }

    fn word(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 up to but not including 1.
    fn unit(&mut self) -> f64 {
        (self.word() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn falls(&mut self, rate: f64) -> bool {
        self.unit() < rate
    }

    fn below(&mut self, bound: u32) -> u32 {
        ((u128::from(self.word()) * u128::from(bound)) >> 64) as u32
    }

    /// Until the next of so many that come at random in one time.
    fn wait(&mut self, per_time: f64) -> f64 {
        -(-self.unit()).ln_1p() / per_time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_gives_one_run() {
        assert_eq!(cell(5, 0.1, 1000, 7), cell(5, 0.1, 1000, 7));
        assert_ne!(cell(5, 0.1, 1000, 7), cell(5, 0.1, 1000, 8));
    }

    #[test]
    fn nobody_lost_and_everybody_lost() {
        let trials = 100;
        assert_eq!(cell(3, 0.0, trials, 1), Measured { works: trials, survives: trials, all_up: trials });
        assert_eq!(cell(3, 1.0, trials, 1), Measured::default());
        let owners = Owners::new(4, 3);
        assert_eq!(windows(&owners, 4, 0.0, trials, 1), 0);
        assert_eq!(windows(&owners, 4, 1.0, trials, 1), trials);
    }

    #[test]
    fn what_is_repaired_at_once_is_never_lost() {
        let owners = Owners::new(4, 2);
        assert_eq!(times(&owners, 4, 0.5, 0.0, 1000, 1), 0);
        assert!(times(&owners, 4, 0.5, 1.0, 1000, 1) > 100);
    }
}
