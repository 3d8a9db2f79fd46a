//! How a program of the store becomes a daemon (`-d PIDFILE`): it starts itself once more, detached, and waits until that
//! one is ready or says why not.

use crate::failure::Failure;
use crate::output::note;
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Starts this very command line in the background. When it is not ready, its one line is said, and its status is ours.
pub fn launch() -> Result<(), Failure> {
    let cannot = |error: io::Error| Failure::refused(format!("cannot become a daemon: {error}"));
    let mut arguments = std::env::args_os();
    let mut command = Command::new(std::env::current_exe().map_err(cannot)?);
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    command.args(arguments).arg("--detached");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(cannot)?;
    let mut said = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut said).map_err(cannot)?;
    }
    if said.trim_end() == READY {
        return Ok(());
    }
    let mut line = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        stderr.read_to_string(&mut line).map_err(cannot)?;
    }
    note(line.trim_end());
    let status = child.wait().map_err(cannot)?;
    Err(Failure::Status(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}

/// Without a controlling terminal nobody's Ctrl-C or hangup is ours.
pub fn leave_session() {
    // An error means that this process leads a session already.
    let _ = rustix::process::setsid();
}

/// Tells whoever waits in [`launch`], and lets go of its streams.
pub fn say_ready() -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{READY}")?;
    out.flush()?;
    let nothing = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    dup2_stdin(&nothing)?;
    dup2_stdout(&nothing)?;
    dup2_stderr(&nothing)?;
    Ok(())
}

/// The file with our process id, ours as long as we hold its lock: one that was left behind has no lock, whoever has
/// that id now.
#[derive(Debug)]
pub struct PidFile {
    path: PathBuf,
    _locked: File,
}

impl PidFile {
    pub fn take(path: &Path) -> Result<PidFile, Failure> {
        let cannot = |error: io::Error| Failure::refused(format!("cannot write {}: {error}", path.display()));
        loop {
            let mut file = OpenOptions::new()
                .create(true)
                .truncate(false)
                .read(true)
                .write(true)
                .open(path)
                .map_err(cannot)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(held(path, file)),
                Err(TryLockError::Error(error)) => return Err(cannot(error)),
            }
            // Its owner may have ended and removed it since we opened it.
            let there = std::fs::metadata(path).ok();
            let same = file.metadata().map_err(cannot)?;
            if there.is_none_or(|there| there.ino() != same.ino() || there.dev() != same.dev()) {
                continue;
            }
            file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).map_err(cannot)?;
            return Ok(PidFile { path: path.to_owned(), _locked: file });
        }
    }
}

fn held(path: &Path, mut file: File) -> Failure {
    let mut text = String::new();
    // It may be empty: its owner is about to write.
    let _ = file.read_to_string(&mut text);
    let pid = text.trim();
    Failure::refused(format!("{} belongs to a running process ({pid})", path.display()))
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // Removed while it is locked: nobody else can have taken it.
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "pid file not removed");
        }
    }
}

/// The line that says so.
const READY: &str = "ready";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pid_file_is_ones_own_until_the_end() {
        let path = std::env::temp_dir().join(format!("kumo-pid-{}", std::process::id()));
        // Left behind by a process that is gone.
        std::fs::write(&path, "1\n").unwrap();
        let own = PidFile::take(&path).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{}\n", std::process::id()));
        assert!(
            matches!(PidFile::take(&path), Err(Failure::Line(line, 1)) if line.contains("running process"))
        );
        drop(own);
        assert!(!path.exists());
        drop(PidFile::take(&path).unwrap());
    }
}
