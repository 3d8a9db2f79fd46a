//! [`Machine`]: where it is measured, whether it is quiet there, and our priority on it.

use serde_json::{Value, json};
use std::fs;

pub struct Machine {
    cores: usize,
    model: String,
    kernel: String,
    /// Of the last minute, before we did anything.
    load: f64,
    autogroup: Option<Autogroup>,
}

impl Machine {
    /// Looks at it, and raises our priority where that is permitted.
    pub fn take() -> Machine {
        let load = read("/proc/loadavg").split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0);
        let information = read("/proc/cpuinfo");
        let model = information.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
        Machine {
            cores: std::thread::available_parallelism().map_or(1, |cores| cores.get()),
            model: model.unwrap_or("unknown processor").to_owned(),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            load,
            autogroup: Autogroup::raise(),
        }
    }

    /// What a reader of the figures must be told.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!("machine: {} cores, {}, Linux {}", self.cores, self.model, self.kernel)];
        let priority = match &self.autogroup {
            Some(_) => format!("raised to {AUTOGROUP_NICE} for this login session's processes"),
            None => "as it was (no autogroup, or not permitted)".to_owned(),
        };
        lines.push(format!("load average {:.2}, priority {priority}", self.load));
        if self.load > LOAD_QUIET_MAX {
            lines.push("WARNING: the machine is not quiet; take the ratios, and those with care".to_owned());
        }
        if cfg!(debug_assertions) {
            lines.push("WARNING: not a release build; run it with cargo run --release".to_owned());
        }
        lines
    }

    pub fn value(&self) -> Value {
        json!({
            "cores": self.cores,
            "model": self.model,
            "kernel": self.kernel,
            "load": self.load,
            "quiet": self.load <= LOAD_QUIET_MAX,
            "priority_raised": self.autogroup.is_some(),
        })
    }
}

/// The scheduler's group of our login session. Where the kernel shares out time between such groups, `nice` counts
/// only within ours: another session's build would take half of the machine. What it was is restored in the end.
struct Autogroup {
    before: String,
}

impl Autogroup {
    fn raise() -> Option<Autogroup> {
        let enabled = read("/proc/sys/kernel/sched_autogroup_enabled").trim() == "1";
        let before = read(AUTOGROUP).split("nice ").nth(1)?.trim().to_owned();
        (enabled && fs::write(AUTOGROUP, AUTOGROUP_NICE).is_ok()).then_some(Autogroup { before })
    }
}

impl Drop for Autogroup {
    fn drop(&mut self) {
        // The kernel takes one change in a tenth of a second from whoever is not privileged; it may refuse this one.
        let _ = fs::write(AUTOGROUP, &self.before);
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

const AUTOGROUP: &str = "/proc/self/autogroup";
const AUTOGROUP_NICE: &str = "-19";

/// Above it somebody else uses the cores that we measure on.
const LOAD_QUIET_MAX: f64 = 0.5;
