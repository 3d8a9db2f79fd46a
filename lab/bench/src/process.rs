//! [`Process`]: a server or a load as a child of ours; and the folder and the addresses it is given.
//! None outlives the run.

use crate::failure::{Context, Failure, Result};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

pub struct Process {
    name: String,
    log: PathBuf,
    child: Child,
}

impl Process {
    /// Starts it with its log in `folder`.
    pub fn start(name: &str, command: &mut Command, folder: &Path) -> Result<Process> {
        let log = folder.join(format!("{name}.log"));
        let file = File::options().create(true).append(true).open(&log).context(log.display())?;
        let errors = file.try_clone().context(log.display())?;
        let child = command.stdin(Stdio::null()).stdout(file).stderr(errors).spawn().context(name)?;
        Ok(Process { name: name.to_owned(), log, child })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_raw(self.pid() as i32).expect("a child has a process id");
        kill_process(pid, signal).context(format!("signal {}", self.name))
    }

    /// kill -9, and not there any more afterwards.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill().context(format!("kill {}", self.name))?;
        self.child.wait().map(drop).context(format!("wait for {}", self.name))
    }

    /// SIGTERM, and not there any more afterwards.
    pub fn terminate(&mut self) -> Result<()> {
        self.signal(Signal::TERM)?;
        let what = format!("{} ends after SIGTERM", self.name);
        until(&what, || self.child.try_wait().ok().flatten()).map(drop)
    }

    /// Fails, with the end of the log, when it has ended by itself.
    pub fn check(&mut self) -> Result<()> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => {
                let log = std::fs::read_to_string(&self.log).unwrap_or_default();
                let lines: Vec<&str> = log.lines().rev().take(LOG_LINES_SHOWN).collect();
                let end: Vec<&str> = lines.into_iter().rev().collect();
                Err(Failure::new(format!("{} ended ({status}): {}", self.name, end.join(" / "))))
            }
            Err(error) => Err(Failure::new(format!("{}: {error}", self.name))),
        }
    }

    /// Resident memory.
    pub fn memory_bytes(&self) -> Result<u64> {
        let path = format!("/proc/{}/status", self.pid());
        let status = std::fs::read_to_string(&path).context(&path)?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
        Ok(kilobytes.ok_or_else(|| Failure::new(format!("{path} tells no VmRSS")))? * 1024)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A command whose process ends with ours, however ours ends: `setpriv` asks the kernel for that, and then becomes it.
/// It is to be started by a thread that lives as long, since the kernel looks at that.
pub fn held(program: impl AsRef<OsStr>) -> Command {
    if !Path::new(SETPRIV).exists() {
        return Command::new(program);
    }
    let mut command = Command::new(SETPRIV);
    command.args(["--pdeathsig", "KILL"]).arg(program);
    command
}

/// The processor time that processes have used so far, in user and in kernel mode.
pub fn cpu(pids: &[u32]) -> Result<Duration> {
    let mut ticks = 0;
    for pid in pids {
        let path = format!("/proc/{pid}/stat");
        let stat = std::fs::read_to_string(&path).context(&path)?;
        ticks += ticks_used(&stat).ok_or_else(|| Failure::new(format!("{path} tells no times")))?;
    }
    Ok(Duration::from_micros(ticks * 1_000_000 / rustix::param::clock_ticks_per_second().max(1)))
}

/// utime and stime: fields 14 and 15; the second is a name that may hold anything, up to its last parenthesis.
fn ticks_used(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ').skip(11);
    let (user, system): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(user + system)
}

/// A folder of this run's own, removed with it.
pub struct Folder(PathBuf);

impl Folder {
    /// In `base`, where what runs left behind that were killed is removed first.
    pub fn new(base: &Path, name: &str) -> Result<Folder> {
        std::fs::create_dir_all(base).context(base.display())?;
        for entry in std::fs::read_dir(base).context(base.display())?.flatten() {
            let found = entry.file_name();
            let pid = found.to_str().and_then(|found| found.strip_prefix(PREFIX)?.split('-').next());
            if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
        let path = base.join(format!("{PREFIX}{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).context(path.display())?;
        Ok(Folder(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Addresses on a loopback address of this process's own. Nobody dials from there, so a port stays free while the
/// process that listens on it is dead.
pub fn free_addresses(count: usize) -> Result<Vec<SocketAddr>> {
    // The kernel may give a port again that whoever got it has not bound yet.
    static GIVEN: Mutex<BTreeSet<SocketAddr>> = Mutex::new(BTreeSet::new());
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    let host = Ipv4Addr::new(127, 64 + high % 64, middle, low);
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut fresh = Vec::new();
    while fresh.len() < count {
        let listener = TcpListener::bind((host, 0)).context("find a free port")?;
        let address = listener.local_addr().context("find a free port")?;
        if given.insert(address) {
            fresh.push(address);
        }
    }
    Ok(fresh)
}

/// Asks again until there is an answer.
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> Result<T> {
    try_until(what, || Ok(look()))
}

/// As [`until`], and gives up when looking fails.
pub fn try_until<T>(what: &str, mut look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let limit = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        if Instant::now() >= limit {
            return Err(Failure::new(format!("not within {} s: {what}", PATIENCE.as_secs())));
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
}

const SETPRIV: &str = "/usr/bin/setpriv";

/// What our folders' names begin with; our process id follows.
const PREFIX: &str = "kumo-bench-";

/// How long a condition may take to become true: a JVM on a busy machine included.
const PATIENCE: Duration = Duration::from_secs(120);

/// Often enough to time a fault by, seldom enough not to be a load itself.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Lines of a log that a failure shows.
const LOG_LINES_SHOWN: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_behind_any_name() {
        let stat = "42 (a) b) S 1 42 42 0 -1 4194560 1 2 3 4 500 70 9 9 20 0 1 0 100";
        assert_eq!(ticks_used(stat), Some(570));
        assert_eq!(ticks_used("42 (a"), None);
    }

    #[test]
    fn addresses_are_given_once() {
        let addresses = free_addresses(20).unwrap();
        assert_eq!(addresses.iter().collect::<BTreeSet<_>>().len(), 20);
    }
}
