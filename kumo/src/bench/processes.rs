//! [`Processes`]: the processor time of those that serve.

use crate::failure::Failure;
use std::time::Duration;

/// Processes named by `--pids`.
pub struct Processes {
    pids: Vec<u32>,
    ticks_per_second: u64,
}

impl Processes {
    pub fn new(pids: &[u32]) -> Result<Processes, Failure> {
        let ticks_per_second = rustix::param::clock_ticks_per_second().max(1);
        let processes = Processes { pids: pids.to_vec(), ticks_per_second };
        // A wrong number is told before the load, not after it.
        processes.cpu()?;
        Ok(processes)
    }

    /// What all of them have used so far, in user and in kernel mode. `None`: there are none.
    pub fn cpu(&self) -> Result<Option<Duration>, Failure> {
        let mut ticks = 0;
        for &pid in &self.pids {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))
                .map_err(|error| Failure::refused(format!("cannot look at process {pid}: {error}")))?;
            ticks += used(&stat)
                .ok_or_else(|| Failure::refused(format!("cannot read the times of process {pid}")))?;
        }
        let micros = ticks * 1_000_000 / self.ticks_per_second;
        Ok((!self.pids.is_empty()).then_some(Duration::from_micros(micros)))
    }
}

/// utime and stime: fields 14 and 15; the second is a name that may hold anything, up to its last parenthesis.
fn used(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ').skip(11);
    let (user, system): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(user + system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_behind_any_name() {
        let stat = "42 (a) b) S 1 42 42 0 -1 4194560 1 2 3 4 500 70 9 9 20 0 1 0 100";
        assert_eq!(used(stat), Some(570));
        assert_eq!(used("42 (a"), None);
    }
}
