//! [`Question`]: what `kumo plan` was asked, checked.

use super::Plan;
use super::arithmetic::MACHINES_MAX;
use crate::failure::Failure;
use kumo_cluster::COPIES;
use kumo_paxos::VOTERS_MAX;
use std::ops::RangeInclusive;

pub struct Question {
    /// Above 0 and below 1.
    pub rate: f64,
    pub replicas: u32,
    pub store: Option<Store>,
    pub simulation: Option<Simulation>,
}

pub struct Store {
    pub servers: u32,
    /// At most as many as servers.
    pub copies: u32,
    pub repair_seconds: f64,
    pub period_seconds: f64,
    /// Of the repair in the period; at most 1.
    pub repair_share: f64,
}

pub struct Simulation {
    pub trials: u64,
    pub seed: u64,
}

impl Question {
    pub fn new(plan: &Plan) -> Result<Question, Failure> {
        Ok(Question {
            rate: rate(&plan.rate)?,
            replicas: machines("--replicas", &plan.replicas)?,
            store: store(plan)?,
            simulation: simulation(plan)?,
        })
    }

    /// What the asker should know about the numbers.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.replicas as usize > VOTERS_MAX {
            let unmeasured = match self.simulation {
                Some(_) => ": one of this size was calculated, and cannot be run",
                None => "",
            };
            notes.push(format!("note: a cell of kumo has at most {VOTERS_MAX} voters{unmeasured}"));
        }
        if self.replicas.is_multiple_of(2) {
            let fewer = self.replicas - 1;
            notes.push(format!("note: {} replicas may lose no more than {fewer} may", self.replicas));
        }
        if self.store.as_ref().is_some_and(|store| store.copies as usize != COPIES) {
            notes.push(format!("note: kumo's store keeps {COPIES} copies"));
        }
        notes
    }
}

fn store(plan: &Plan) -> Result<Option<Store>, Failure> {
    let Some(servers) = &plan.servers else {
        let alone = [(&plan.copies, "--copies"), (&plan.repair, "--repair")];
        return match alone.iter().find(|(given, _)| given.is_some()) {
            Some((_, name)) => {
                Err(Failure::usage(format!("{name} is of a store: say how many with --servers")))
            }
            None => Ok(None),
        };
    };
    let servers = machines("--servers", servers)?;
    let copies = match &plan.copies {
        Some(copies) => machines("--copies", copies)?,
        None => COPIES as u32,
    };
    if copies > servers {
        return Err(Failure::usage(format!("{copies} copies need at least as many servers, not {servers}")));
    }
    let period_seconds = seconds("--period", &plan.period)?;
    let repair_seconds = match &plan.repair {
        Some(repair) => seconds("--repair", repair)?,
        None => period_seconds,
    };
    if repair_seconds > period_seconds {
        return Err(Failure::usage("--repair is longer than --period, the time that the rate is of"));
    }
    let repair_share = repair_seconds / period_seconds;
    Ok(Some(Store { servers, copies, repair_seconds, period_seconds, repair_share }))
}

fn simulation(plan: &Plan) -> Result<Option<Simulation>, Failure> {
    let trials = number("--trials", &plan.trials, 1..=TRIALS_MAX)?;
    let seed = number("--seed", &plan.seed, 0..=u64::MAX)?;
    Ok(plan.simulate.then_some(Simulation { trials, seed }))
}

/// `0.03` or `3%`.
fn rate(text: &str) -> Result<f64, Failure> {
    let value = match text.strip_suffix('%') {
        Some(percent) => percent.trim_end().parse::<f64>().map(|percent| percent / 100.0),
        None => text.parse(),
    };
    value.ok().filter(|rate| *rate > 0.0 && *rate < 1.0).ok_or_else(|| {
        Failure::usage(format!("--rate {text}: a chance above 0 and below 1, such as 0.03 or 3%"))
    })
}

fn machines(name: &str, text: &str) -> Result<u32, Failure> {
    number(name, text, 1..=u64::from(MACHINES_MAX)).map(|count| count as u32)
}

fn number(name: &str, text: &str, allowed: RangeInclusive<u64>) -> Result<u64, Failure> {
    text.parse().ok().filter(|value| allowed.contains(value)).ok_or_else(|| {
        Failure::usage(format!("{name} {text}: a whole number from {} to {}", allowed.start(), allowed.end()))
    })
}

/// `90s`, `10m`, `4h`, `2d`, or seconds.
fn seconds(name: &str, text: &str) -> Result<f64, Failure> {
    let (digits, unit) = match text.char_indices().last() {
        Some((end, 's')) => (&text[..end], 1.0),
        Some((end, 'm')) => (&text[..end], 60.0),
        Some((end, 'h')) => (&text[..end], 3600.0),
        Some((end, 'd')) => (&text[..end], 86_400.0),
        _ => (text, 1.0),
    };
    let value = digits.parse::<f64>().ok().map(|count| count * unit);
    value
        .filter(|seconds| seconds.is_finite() && *seconds > 0.0)
        .ok_or_else(|| Failure::usage(format!("{name} {text}: a time such as 90s, 10m, 4h or 2d")))
}

/// Trials of a run: a night's work for one core.
const TRIALS_MAX: u64 = 1_000_000_000_000;
