//! The text log: one line per event, structured fields, on standard error.

use tracing_subscriber::filter::LevelFilter;

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

/// Sends the text log to standard error, from `level` up. A second call changes nothing.
pub fn init(level: Level) {
    let level = match level {
        Level::Error => LevelFilter::ERROR,
        Level::Warn => LevelFilter::WARN,
        Level::Info => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
    };
    // An error means that a subscriber is set already, by the host program: its choice stands.
    let _ = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_target(false)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .with_writer(std::io::stderr)
        .try_init();
}
