//! The crash model of `kumo plan --simulate`: machines are lost by lot, the simulator's, and the product itself says
//! what is left: a cell's own cores, run in virtual time, and the owners on the store's ring. One seed gives one run.

use super::owners::Owners;
use super::world::{self, Verdict};
use kumo_paxos::VOTERS_MAX;
use lot::Random;

/// In how many of the trials something came out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// Of the cell; none when no cell is so large.
    pub cell: Option<Judged>,
    pub any_up: u64,
    pub all_up: u64,
}

/// What the cell's cores came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Judged {
    pub works: u64,
    pub survives: u64,
    /// Cells that were run: one for every set of machines that was lost in some trial.
    pub runs: u64,
}

/// Machines that are lost with that rate, each by itself, and a cell that has a replica on each.
pub fn cell(replicas: u32, rate: f64, trials: u64, seed: u64) -> Measured {
    let mut lot = Random::new(seed, "replicas");
    let mut verdicts = (replicas as usize <= VOTERS_MAX).then(|| Verdicts::new(replicas, seed));
    let mut measured = Measured { cell: verdicts.as_ref().map(|_| Judged::default()), ..Measured::default() };
    let mut lost = vec![false; replicas as usize];
    for _ in 0..trials {
        lost.fill_with(|| lot.chance(rate));
        measured.any_up += u64::from(lost.contains(&false));
        measured.all_up += u64::from(!lost.contains(&true));
        if let (Some(verdicts), Some(judged)) = (&mut verdicts, &mut measured.cell) {
            let verdict = verdicts.of(&lost);
            judged.works += u64::from(verdict.works);
            judged.survives += u64::from(verdict.survives);
            judged.runs = verdicts.runs;
        }
    }
    measured
}

/// What becomes of a cell, by which machines it lost: each set is tried once, when it first comes up.
struct Verdicts {
    seed: u64,
    /// By the set, a bit for each machine.
    known: Vec<Option<Verdict>>,
    runs: u64,
}

impl Verdicts {
    /// For at most [`VOTERS_MAX`] machines: there are few sets.
    fn new(replicas: u32, seed: u64) -> Verdicts {
        Verdicts { seed, known: vec![None; 1 << replicas], runs: 0 }
    }

    fn of(&mut self, lost: &[bool]) -> Verdict {
        let set = lost.iter().fold(0, |set, &lost| set << 1 | usize::from(lost));
        *self.known[set].get_or_insert_with(|| {
            self.runs += 1;
            // Each in a world of its own: other delays, other clocks.
            let world = Random::new(self.seed, &format!("cell {set}")).word();
            world::lose(lost, world)
        })
    }
}

/// In how many windows some key lost all its copies.
pub fn windows(owners: &Owners, servers: u32, window_rate: f64, trials: u64, seed: u64) -> u64 {
    let mut lot = Random::new(seed, "servers in a window");
    let mut lost = vec![false; servers as usize];
    let mut hits = 0;
    for _ in 0..trials {
        lost.fill_with(|| lot.chance(window_rate));
        let count = lost.iter().filter(|&&lost| lost).count() as u32;
        hits += u64::from(owners.all_lost(&lost, count));
    }
    hits
}

/// In how many whole times some key lost all its copies, when servers are lost one after another, at random moments,
/// and each is as before after `repair_share` of the time.
pub fn times(owners: &Owners, servers: u32, rate: f64, repair_share: f64, trials: u64, seed: u64) -> u64 {
    let mut lot = Random::new(seed, "servers in a period");
    let losses_per_time = -(-rate).ln_1p();
    (0..trials).filter(|_| is_fatal(owners, servers, losses_per_time, repair_share, &mut lot)).count() as u64
}

/// One whole time, after a first repair's length that counts for nothing: it begins with servers away, as any does.
fn is_fatal(
    owners: &Owners,
    servers: u32,
    losses_per_time: f64,
    repair_share: f64,
    lot: &mut Random,
) -> bool {
    let mut lost = vec![false; servers as usize];
    // When who comes back: the first lost is the first back.
    let mut away: std::collections::VecDeque<(f64, usize)> = std::collections::VecDeque::new();
    let mut now = -repair_share;
    loop {
        // Losses are drawn for all servers; one of a server that is away already is none. So the draws need not know
        // who is away.
        now += wait(lot, losses_per_time * f64::from(servers));
        if now >= 1.0 {
            return false;
        }
        while let Some((_, back)) = away.pop_front_if(|(at, _)| *at <= now) {
            lost[back] = false;
        }
        let who = lot.below(u64::from(servers)) as usize;
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

/// Until the next of so many that come at random in one time.
fn wait(lot: &mut Random, per_time: f64) -> f64 {
    -(-lot.unit()).ln_1p() / per_time
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
        let all = Judged { works: trials, survives: trials, runs: 1 };
        assert_eq!(cell(3, 0.0, trials, 1), Measured { cell: Some(all), any_up: trials, all_up: trials });
        let none = Judged { runs: 1, ..Judged::default() };
        assert_eq!(cell(3, 1.0, trials, 1), Measured { cell: Some(none), any_up: 0, all_up: 0 });
        let owners = Owners::new(4, 3);
        assert_eq!(windows(&owners, 4, 0.0, trials, 1), 0);
        assert_eq!(windows(&owners, 4, 1.0, trials, 1), trials);
    }

    #[test]
    fn a_set_of_lost_machines_is_run_once() {
        let judged = cell(3, 0.5, 1000, 1).cell.expect("a cell of three");
        assert_eq!(judged.runs, 8);
    }

    #[test]
    fn no_cell_is_larger_than_kumo_allows() {
        let measured = cell(VOTERS_MAX as u32 + 1, 0.5, 1000, 1);
        assert_eq!(measured.cell, None);
        assert!((900..1000).contains(&measured.any_up) && measured.all_up < 50, "{measured:?}");
    }

    #[test]
    fn what_is_repaired_at_once_is_never_lost() {
        let owners = Owners::new(4, 2);
        assert_eq!(times(&owners, 4, 0.5, 0.0, 1000, 1), 0);
        assert!(times(&owners, 4, 0.5, 1.0, 1000, 1) > 100);
    }
}
