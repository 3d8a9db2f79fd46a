//! The text log: one line per event, structured fields, on a standard stream or in a file.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tracing::{info, warn};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::writer::BoxMakeWriter;

/// From which level on lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// A person must act.
    Error,
    Warn,
    /// Changes of state.
    Info,
    Debug,
}

/// Where lines go. Colours are for terminals only.
#[derive(Debug)]
pub enum Output {
    Error,
    Standard,
    /// Standard output without colours, terminal or not.
    Plain,
    File(LogFile),
    Nowhere,
}

/// A file that lines are added to.
#[derive(Debug)]
pub struct LogFile {
    path: PathBuf,
    file: Mutex<File>,
}

impl LogFile {
    /// What is in the file stays there.
    pub fn open(path: &Path) -> io::Result<LogFile> {
        Ok(LogFile { path: path.to_owned(), file: Mutex::new(append(path)?) })
    }

    fn file(&self) -> MutexGuard<'_, File> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Write for &LogFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.file().write(line)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file().flush()
    }
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

/// The text log of this process, if it is a file.
static FILE: OnceLock<Arc<LogFile>> = OnceLock::new();

/// Opens the file of the text log anew: the old one was renamed.
pub fn reopen() {
    let Some(log) = FILE.get() else { return };
    // Both lines are written when the lock is free again: they are for the file that it guards.
    let opened = append(&log.path).map(|file| *log.file() = file);
    match opened {
        Ok(()) => info!(path = %log.path.display(), "text log reopened"),
        Err(error) => warn!(path = %log.path.display(), %error, "text log cannot be reopened"),
    }
}

/// Sends the text log to `output`, from `level` up. A second call changes nothing.
pub fn init(level: Level, output: Output) {
    let level = match level {
        Level::Error => LevelFilter::ERROR,
        Level::Warn => LevelFilter::WARN,
        Level::Info => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
    };
    let colours = match &output {
        Output::Error => std::io::stderr().is_terminal(),
        Output::Standard => std::io::stdout().is_terminal(),
        Output::Plain | Output::File(_) | Output::Nowhere => false,
    };
    let writer = match output {
        Output::Error => BoxMakeWriter::new(std::io::stderr),
        Output::Standard | Output::Plain => BoxMakeWriter::new(std::io::stdout),
        Output::File(file) => {
            let file = Arc::new(file);
            // Of a second call the subscriber is not taken either.
            let _ = FILE.set(file.clone());
            BoxMakeWriter::new(file)
        }
        Output::Nowhere => BoxMakeWriter::new(std::io::sink),
    };
    // An error means that a subscriber is set already, by the host program: its choice stands.
    let _ = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_target(false)
        .with_ansi(colours)
        .with_writer(writer)
        .try_init();
}
