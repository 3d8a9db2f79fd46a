//! Rounds: every system does the same operation in turn, again and again, so that each has its share of whatever else
//! the machine does.

use crate::failure::{Failure, Result};
use crate::load::Load;
use crate::report::{Report, Row};

/// Who takes part in a contest, and what makes its load anew for each round.
pub struct Contender<'a> {
    pub system: &'static str,
    /// It is compared with those that are not.
    pub is_ours: bool,
    pub load: Box<dyn Fn() -> Result<Load> + 'a>,
}

/// One round that is not counted (caches, compilers and connections warm up), then `repeats` that are.
pub fn contest(title: &str, contenders: &[Contender], repeats: u32, report: &mut Report) {
    let mut rows: Vec<Row> = contenders
        .iter()
        .map(|one| Row { system: one.system, is_ours: one.is_ours, samples: Vec::new() })
        .collect();
    let mut failures: Vec<Option<Failure>> = contenders.iter().map(|_| None).collect();
    for round in 0..=repeats {
        for (index, contender) in contenders.iter().enumerate() {
            if failures[index].is_some() {
                continue; // Once is enough to know.
            }
            match (contender.load)().and_then(|load| load()) {
                Ok(sample) if round > 0 => rows[index].samples.push(sample),
                Ok(_) => {}
                Err(failure) => failures[index] = Some(failure),
            }
        }
    }
    // Half a row would be compared with rounds that were not beside it.
    rows.retain(|row| row.samples.len() == repeats as usize);
    report.contest(title, &rows);
    for (contender, failure) in contenders.iter().zip(&failures) {
        if let Some(failure) = failure {
            report.failed(&format!("{title}, {}", contender.system), failure);
        }
    }
}
