//! The text log: one line per event, structured fields, on a standard stream or in a file.

use std::fs::File;
use std::io::IsTerminal;
use std::sync::Mutex;
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
    File(File),
    Nowhere,
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
        Output::File(file) => BoxMakeWriter::new(Mutex::new(file)),
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
