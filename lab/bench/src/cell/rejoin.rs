//! How a replica that lost its memory comes back to a cell with much state, and what writers notice.

use super::kumo::Cell;
use super::{MEBIBYTE, MEGABYTE, Op, Replicas, Work};
use crate::Options;
use crate::failure::{Context, Failure, Result};
use crate::process::until;
use crate::report::{Figure, Report, figure};
use std::time::{Duration, Instant};

pub const TITLE: &str = "rejoin of a replica, 16 writers meanwhile";

pub fn measure(cell: &mut Cell, options: &Options, report: &mut Report) {
    match figures(cell, options.state) {
        Ok(figures) => report.fact(TITLE, "kumo", &figures),
        Err(failure) => report.failed(TITLE, &failure),
    }
}

fn figures(cell: &mut Cell, megabytes: u32) -> Result<Vec<Figure>> {
    fill(cell, megabytes)?;
    let (quiet, ()) = longest_gap_ms(cell, |_| Ok(()))?;
    let follower = (cell.leader()? + 1) % 3;
    let before = cell.incarnation(follower)?;
    cell.kill(follower)?;
    let (gap, rejoined) = longest_gap_ms(cell, |cell| {
        let began = Instant::now();
        cell.start_again(follower)?;
        until("the replica votes again", || cell.is_back(follower, &before).then_some(()))?;
        Ok(began.elapsed())
    })?;
    if rejoined > Duration::from_secs_f64(SECS) - BEGIN_AFTER {
        return Err(Failure::new(format!("it took {rejoined:?}, longer than the load")));
    }
    let memory = cell.processes()[follower].memory_bytes()? as f64 / MEBIBYTE;
    Ok(vec![
        figure("state", megabytes.into(), "MB"),
        figure("votes again after", rejoined.as_secs_f64() * 1000.0, "ms"),
        figure("longest write gap", gap, "ms"),
        figure("longest write gap without a rejoin", quiet, "ms"),
        figure("RSS of the replica", memory, "MiB"),
    ])
}

/// Files of a megabyte each.
fn fill(cell: &Cell, megabytes: u32) -> Result<()> {
    let path = cell.folder().path().join("megabyte");
    std::fs::write(&path, vec![b'k'; MEGABYTE]).context(path.display())?;
    let (path, members) = (path.display().to_string(), cell.members());
    for number in 0..megabytes {
        let name = format!("/state/{number}");
        cell.kumo().json(&["fs", "put", "--cell", &members, &name, &path])?;
    }
    Ok(())
}

/// The longest time without a success of any writer while `act` is done.
fn longest_gap_ms<T>(cell: &mut Cell, act: impl FnOnce(&mut Cell) -> Result<T>) -> Result<(f64, T)> {
    let work = Work { op: Op::Write, clients: 16, size: 100, secs: SECS, has_kill: true };
    let load = cell.load(&work)?.ok_or_else(|| Failure::new("it cannot write"))?;
    let running = std::thread::spawn(load);
    std::thread::sleep(BEGIN_AFTER);
    let acted = act(cell)?;
    let sample = running.join().map_err(|_| Failure::new("the load ended early"))??;
    Ok((sample.gap_us_max / 1000.0, acted))
}

/// The load is under way by then.
const BEGIN_AFTER: Duration = Duration::from_millis(1500);

/// Longer than a rejoin takes.
const SECS: f64 = 15.0;
