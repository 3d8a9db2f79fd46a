//! How long nobody can write after the leader was killed.

use super::{Op, Replicas, Work};
use crate::Options;
use crate::failure::{Failure, Result};
use crate::figures::{bounds, median};
use crate::report::{Report, figure};
use std::time::Duration;

pub const TITLE: &str = "failover after kill -9 of the leader, 16 writers";

pub fn measure(system: &mut dyn Replicas, options: &Options, report: &mut Report) {
    let mut gaps = Vec::new();
    for _ in 0..options.kills {
        match gap_ms(system) {
            Ok(gap) => gaps.push(gap),
            Err(failure) => {
                report.failed(&format!("{TITLE}, {}", system.name()), &failure);
                return;
            }
        }
    }
    if let (Some(median), Some((least, worst))) = (median(&gaps), bounds(&gaps)) {
        let figures = [
            figure("kills", gaps.len() as f64, ""),
            figure("median", median, "ms"),
            figure("least", least, "ms"),
            figure("worst", worst, "ms"),
        ];
        report.fact(TITLE, system.name(), &figures);
    }
}

/// The longest time without a success of any client, in a run in which the leader is killed.
fn gap_ms(system: &mut dyn Replicas) -> Result<f64> {
    let work = Work { op: Op::Write, clients: 16, size: 100, secs: SECS, has_kill: true };
    let load = system.load(&work)?.ok_or_else(|| Failure::new("it cannot write"))?;
    let running = std::thread::spawn(load);
    std::thread::sleep(KILL_AFTER);
    // Asked now: under a load, or on a busy machine, it may have changed.
    let leader = system.leader()?;
    system.kill(leader)?;
    let sample = running.join().map_err(|_| Failure::new("the load ended early"))??;
    system.restart(leader)?;
    Ok(sample.gap_us_max / 1000.0)
}

/// The load is under way by then.
const KILL_AFTER: Duration = Duration::from_millis(1500);

/// Long enough for all of them to go on before it ends; clients that are held up are waited for in any case.
const SECS: f64 = 5.0;
