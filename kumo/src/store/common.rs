//! What all programs of the store share: options, the log, the way to the end.

use crate::address;
use crate::failure::Failure;
use clap::Args;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

/// Options of every program.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Common options")]
pub struct Common {
    /// Write the text log there, SIGHUP opens it anew; -: standard output without colours [default: standard output]
    #[arg(short = 'o', long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Write a binary log too, for kumolog; SIGHUP opens it anew, -v does not matter to it
    #[arg(short = 'g', long, value_name = "FILE.mpac")]
    pub binary_log: Option<PathBuf>,
    /// Become a daemon once ready, with the process id in this file until the end; there is no text log then without -o
    #[arg(short = 'd', long, value_name = "PIDFILE")]
    pub daemon: Option<PathBuf>,
    /// Log changes of state too, not only warnings; twice: everything
    #[arg(short = 'v', long, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// The step in which time-outs are counted (-Ci)
    #[arg(long, value_name = "SECONDS", default_value = "0.5", value_parser = interval)]
    pub clock_interval: Duration,
    /// How long one try to connect may take (-Ys); instead of steps
    #[arg(long, value_name = "SECONDS", value_parser = interval)]
    pub connect_timeout: Option<Duration>,
    /// Tries to connect that a silent node is given before a manager takes it for lost (-Yn); servers and gateways
    /// leave that to the managers
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub connect_retry_limit: u32,
    /// Steps that one try to connect may take
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub connect_timeout_steps: u32,
    /// How often nodes tell each other that they live; oftener where leases need it, and at most 60. A manager with less
    /// than 2 gives up a silent server sooner than after -Yn tries, in the same measure, down to 1.9 s
    #[arg(short = 'k', long, value_name = "SECONDS", default_value = "2", value_parser = keep_alive_interval)]
    pub keep_alive_interval: Duration,
    /// Workers of a gateway (-TR): threads with connections of their own, over which clients are spread; every worker
    /// reads and writes, and the larger of -TR and -TW counts. A manager and a server have one, whatever is said
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=WORKERS_MAX))]
    pub read_threads: u16,
    /// The same (-TW)
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=WORKERS_MAX))]
    pub write_threads: u16,
    /// How long it looks for more before it sleeps, when it has much to do; 0: answers take longer and less processor time.
    /// A manager does so only with --memory: else it waits for its disk
    #[arg(long, value_name = "MICROSECONDS", default_value = "150", value_parser = crate::target::linger)]
    pub linger: Duration,
    /// What -d started: says on standard output when it is ready, and leaves its terminal
    #[arg(long, hide = true, requires = "daemon")]
    pub detached: bool,
    /// End when standard input does: who started this process is gone then
    #[arg(long, hide = true)]
    pub exit_on_stdin_eof: bool,
}

impl Common {
    /// Steps that one try to connect may take, as `-Ys` or `--connect-timeout-steps` say.
    pub fn steps(&self) -> u32 {
        match self.connect_timeout {
            None => self.connect_timeout_steps,
            Some(timeout) => {
                let steps = timeout.as_secs_f64() / self.clock_interval.as_secs_f64().max(0.001);
                (steps.ceil() as u32).clamp(1, 1000)
            }
        }
    }

    /// How long one try to connect may take.
    pub fn dial_for(&self) -> Duration {
        self.clock_interval * self.steps()
    }

    /// Every worker reads and writes: the seed's two numbers mean one.
    pub fn workers(&self) -> usize {
        usize::from(self.read_threads.max(self.write_threads))
    }

    /// For a program whose state is one: what was asked for is not silently left undone.
    pub fn only_one_worker(&self, program: &str) {
        let asked = self.workers();
        if asked > 1 {
            tracing::warn!(asked, "a {program} has one worker: -TR and -TW change nothing here");
        }
    }
}

/// A time that passes between two things: not none at all.
pub fn interval(text: &str) -> Result<Duration, String> {
    let time = crate::target::seconds(text)?;
    match time >= INTERVAL_MIN {
        true => Ok(time),
        false => Err(format!("{text} is below 0.01")),
    }
}

/// As [`interval`], within what can be meant.
fn keep_alive_interval(text: &str) -> Result<Duration, String> {
    let time = interval(text)?;
    match time <= KEEP_ALIVE_MAX {
        true => Ok(time),
        false => Err(format!("{text} is above {}", KEEP_ALIVE_MAX.as_secs())),
    }
}

/// An address that is also a name: the others dial it.
pub fn named(text: &str, port: u16) -> Result<SocketAddr, Failure> {
    let address = address::one(text, port)?;
    if address.ip().is_unspecified() || address.port() == 0 {
        return Err(Failure::usage(format!("{address} is no address that others can reach")));
    }
    warn_of_network(address);
    Ok(address)
}

pub fn warn_of_network(address: SocketAddr) {
    if !address.ip().is_loopback() {
        tracing::warn!(%address, "plain text on a network: keep it to machines you trust");
    }
}

/// The path of a folder in a form to which a suffix can be added: what is named `db/` or `.` has others beside it, not in
/// it.
pub fn plain(path: PathBuf) -> PathBuf {
    let plain: PathBuf = path.components().collect();
    match plain.file_name() {
        Some(_) => plain,
        // Of a folder that is not there nothing is known: it is refused where it is used.
        None => plain.canonicalize().unwrap_or(plain),
    }
}

/// As [`plain`], from the root on: what is said of it is read on other hosts, where nobody knows the folder that this
/// process works in.
pub fn absolute(path: PathBuf) -> Result<PathBuf, Failure> {
    let path = plain(path);
    std::path::absolute(&path).map_err(|error| {
        Failure::refused(format!("{}: no path from the root can be told of it: {error}", path.display()))
    })
}

/// The managers that `-m` and `-p` name, each once. From one the others are learned.
pub fn managers(manager: &str, more: &[String]) -> Result<Vec<SocketAddr>, Failure> {
    let named = std::iter::once(manager).chain(more.iter().map(String::as_str));
    let looked_up = named.map(|text| {
        let found = address::one(text, MANAGER_PORT);
        if let Err(Failure::Line(reason, _)) = &found {
            tracing::warn!(manager = text, reason, "a manager is left out");
        }
        found
    });
    let mut managers = Vec::new();
    for address in address::known(looked_up)? {
        if !managers.contains(&address) {
            managers.push(address);
        }
    }
    Ok(managers)
}

pub fn bind(address: SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            Failure::refused(format!("address {address} is taken by another process"))
        }
        _ => Failure::refused(format!("cannot listen on {address}: {error}")),
    })
}

/// Below, a process would do nothing else.
const INTERVAL_MIN: Duration = Duration::from_millis(10);

/// A minute of silence is as good as an end, whatever is set.
const KEEP_ALIVE_MAX: Duration = Duration::from_secs(60);

/// Each is a gateway of its own to managers and servers: more would cost connections, not bring speed.
const WORKERS_MAX: i64 = 256;

pub const MANAGER_PORT: u16 = 19700;
pub const CONTROL_PORT: u16 = 19799;
pub const SERVER_PORT: u16 = 19800;

#[cfg(test)]
mod tests {
    use super::*;
    use clap::FromArgMatches;

    #[test]
    fn the_linger_that_is_shown_is_the_one_that_is_meant() {
        let command = Common::augment_args(clap::Command::new("kumo"));
        let common = Common::from_arg_matches(&command.get_matches_from(["kumo"])).unwrap();
        assert_eq!(common.linger, kumo_node::LINGER);
        assert_eq!(crate::target::linger("0"), Ok(Duration::ZERO));
        assert!(crate::target::linger("10001").is_err() && crate::target::linger("-1").is_err());
    }

    #[test]
    fn a_folder_is_named_so_that_others_are_beside_it() {
        for (given, name) in [
            ("db", "db"),
            ("db/", "db"),
            ("db//", "db"),
            ("db/.", "db"),
            ("./db/", "./db"),
            ("../db/", "../db"),
            ("/var//lib/kumo/", "/var/lib/kumo"),
            ("/", "/"),
        ] {
            // Not as paths, which are equal with a slash at the end and without.
            assert_eq!(plain(given.into()).as_os_str(), name, "{given}");
        }
        let here = std::env::current_dir().unwrap().canonicalize().unwrap();
        assert_eq!(plain(".".into()), here);
        assert_eq!(plain("./".into()), here);
        assert_eq!(plain("..".into()), here.parent().unwrap());
    }

    #[test]
    fn a_path_that_others_read_is_from_the_root_on() {
        let here = std::env::current_dir().unwrap();
        for (given, name) in
            [("db/", here.join("db")), ("./db", here.join("db")), ("/var//kumo/", "/var/kumo".into())]
        {
            assert_eq!(absolute(given.into()).unwrap().as_os_str(), name, "{given}");
        }
        assert!(absolute("".into()).is_err());
    }

    #[test]
    fn a_keep_alive_interval_is_one_that_can_be_meant() {
        assert_eq!(keep_alive_interval("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(keep_alive_interval("60"), Ok(Duration::from_secs(60)));
        assert_eq!(keep_alive_interval("60.5"), Err("60.5 is above 60".to_owned()));
        assert_eq!(keep_alive_interval("0"), Err("0 is below 0.01".to_owned()));
    }
}
