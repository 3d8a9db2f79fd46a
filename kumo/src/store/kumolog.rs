//! `kumolog`: a binary log as text.

use super::shown;
use crate::failure::Failure;
use crate::output::{Format, Out, note, with_data};
use clap::{Args, Command};
use kumo_node::store::binary_log::{Decoded, Entry, Value};
use serde_json::json;
use std::collections::VecDeque;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Print a binary log
#[derive(Args, Clone, Debug)]
pub struct Kumolog {
    /// Go on with what is written from now on, also when the file is rotated
    #[arg(short = 'f', long)]
    follow: bool,
    /// Only the last N events
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=LINES_MAX))]
    lines: Option<u64>,
    /// What -g of a manager, server or gateway names
    #[arg(value_name = "FILE.mpac")]
    file: PathBuf,
    /// How events are printed
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

pub fn command_line() -> Command {
    Kumolog::augment_args(Command::new("kumolog"))
        .version(env!("CARGO_PKG_VERSION"))
        .about("Print a binary log as text")
        .after_help(EXAMPLES)
}

pub fn run(kumolog: Kumolog) -> Result<(), Failure> {
    let out = Out::new(kumolog.format);
    let mut tail = Tail::open(&kumolog.file)?;
    let mut last = VecDeque::new();
    let mut found = |entry: &Entry| match kumolog.lines {
        None => print(entry, &out),
        Some(count) => {
            last.push_back(entry.clone());
            if last.len() as u64 > count {
                last.pop_front();
            }
            Ok(())
        }
    };
    tail.read(&mut found)?;
    if !kumolog.follow {
        tail.end(&mut found)?;
    }
    last.iter().try_for_each(|entry| print(entry, &out))?;
    if !kumolog.follow {
        return Ok(());
    }
    loop {
        std::thread::sleep(FOLLOW_INTERVAL);
        // Looked at before the read: what was written to the old file before it was renamed is read first.
        let rotated = tail.is_rotated(&kumolog.file);
        tail.read(&mut |entry| print(entry, &out))?;
        if rotated && let Ok(next) = Tail::open(&kumolog.file) {
            tail = next;
        }
    }
}

/// A file, read as far as it goes.
struct Tail {
    file: File,
    /// Read, and not decoded yet.
    bytes: Vec<u8>,
    /// Of the first of `bytes`, in the file.
    offset: u64,
    /// Bytes skipped since the last event.
    skipped: u64,
    events: u64,
}

impl Tail {
    fn open(path: &Path) -> Result<Tail, Failure> {
        let file = File::open(path)
            .map_err(|error| Failure::refused(format!("cannot open {}: {error}", path.display())))?;
        Ok(Tail { file, bytes: Vec::new(), offset: 0, skipped: 0, events: 0 })
    }

    /// Hands out all whole events up to the end of the file.
    fn read(&mut self, found: &mut impl FnMut(&Entry) -> Result<(), Failure>) -> Result<(), Failure> {
        let mut more = vec![0; READ_BYTES];
        loop {
            let count = self
                .file
                .read(&mut more)
                .map_err(|error| Failure::refused(format!("cannot read the log: {error}")))?;
            if count == 0 {
                return Ok(());
            }
            self.bytes.extend_from_slice(&more[..count]);
            self.decode(false, found)?;
        }
    }

    /// `last`: nothing follows, so what is incomplete is torn.
    fn decode(
        &mut self,
        last: bool,
        found: &mut impl FnMut(&Entry) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut at = 0;
        while at < self.bytes.len() {
            match Entry::decode(&self.bytes[at..]) {
                Decoded::Entry(entry, used) => {
                    self.tell_skipped(at);
                    self.events += 1;
                    at += used;
                    found(&entry)?;
                }
                Decoded::Incomplete if !last => break,
                Decoded::Incomplete | Decoded::Malformed => {
                    let next = Entry::next_start(&self.bytes[at..]);
                    self.skipped += next as u64;
                    at += next;
                }
            }
        }
        self.bytes.drain(..at);
        self.offset += at as u64;
        Ok(())
    }

    fn tell_skipped(&mut self, at: usize) {
        if self.skipped > 0 {
            let from = self.offset + at as u64 - self.skipped;
            note(format!("kumo: {} bytes at {from} are no events", self.skipped));
            self.skipped = 0;
        }
    }

    /// What is left is torn, though whole events may follow in it.
    fn end(&mut self, found: &mut impl FnMut(&Entry) -> Result<(), Failure>) -> Result<(), Failure> {
        self.decode(true, found)?;
        if self.events == 0 && self.skipped > 0 {
            return Err(Failure::refused("that is no binary log: there is no event in it"));
        }
        self.tell_skipped(0);
        Ok(())
    }

    /// The name stands for another file now, or the file was cut.
    fn is_rotated(&self, path: &Path) -> bool {
        let (Ok(there), Ok(open)) = (std::fs::metadata(path), self.file.metadata()) else { return false };
        let read = self.offset + self.bytes.len() as u64;
        (there.ino(), there.dev()) != (open.ino(), open.dev()) || open.len() < read
    }
}

fn print(entry: &Entry, out: &Out) -> Result<(), Failure> {
    let fields: serde_json::Map<String, serde_json::Value> = match out.is_json() {
        true => entry.fields.iter().map(|(name, value)| (name.clone(), json_of(value))).collect(),
        false => Default::default(),
    };
    let value = json!({ "time": entry.unix_millis, "event": entry.name, "fields": fields });
    out.result(value, || {
        let mut line = format!("{} {}", shown::moment(entry.unix_millis), entry.name);
        for (name, value) in &entry.fields {
            line += &format!(" {}={}", name.replace(' ', "_"), text_of(value));
        }
        line
    })
}

/// Text that needs quotes has them; bytes are always quoted, with escapes for what is no ASCII.
fn text_of(value: &Value) -> String {
    match value {
        Value::Nothing => "-".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(value) => value.to_string(),
        Value::Negative(value) => value.to_string(),
        Value::Text(text) if text.is_empty() || text.contains([' ', '"', '=', '\n', '\\']) => {
            format!("{text:?}")
        }
        Value::Text(text) => text.escape_debug().to_string(),
        Value::Bytes(bytes) => format!("\"{}\"", bytes.escape_ascii()),
        Value::List(values) => {
            format!("[{}]", values.iter().map(text_of).collect::<Vec<_>>().join(","))
        }
    }
}

fn json_of(value: &Value) -> serde_json::Value {
    match value {
        Value::Nothing => serde_json::Value::Null,
        Value::Bool(value) => json!(value),
        Value::Number(value) => json!(value),
        Value::Negative(value) => json!(value),
        Value::Text(text) => json!(text),
        Value::Bytes(bytes) => with_data(json!({}), bytes),
        Value::List(values) => values.iter().map(json_of).collect(),
    }
}

const READ_BYTES: usize = 64 * 1024;

const FOLLOW_INTERVAL: Duration = Duration::from_millis(200);

/// All are held in memory until the end of the file is known.
const LINES_MAX: u64 = 1_000_000;

const EXAMPLES: &str = "\
Examples:
  kumolog manager.mpac
  kumolog -f -n 10 gateway.mpac
  kumolog --format json gateway.mpac         keys and values of failed requests, to replay them";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_file_gives_all_whole_events() {
        let entry = |number: u64| Entry {
            unix_millis: number,
            name: "sample".to_owned(),
            fields: vec![("key".to_owned(), Value::Bytes(b"a\0b".to_vec()))],
        };
        let mut bytes = b"noise".to_vec();
        bytes.extend(entry(1).encode());
        bytes.extend(&entry(2).encode()[..9]);
        bytes.extend(entry(3).encode());
        bytes.extend(&entry(4).encode()[..12]);
        let path = std::env::temp_dir().join(format!("kumo-log-{}", std::process::id()));
        std::fs::write(&path, &bytes).unwrap();
        let mut tail = Tail::open(&path).unwrap();
        assert!(!tail.is_rotated(&path));
        let mut seen = Vec::new();
        let mut found = |entry: &Entry| {
            seen.push(entry.unix_millis);
            Ok(())
        };
        tail.read(&mut found).unwrap();
        tail.end(&mut found).unwrap();
        assert_eq!(seen, [1, 3]);
        std::fs::write(&path, b"").unwrap();
        assert!(tail.is_rotated(&path));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn fields_are_one_line_whatever_is_in_them() {
        assert_eq!(text_of(&Value::Bytes(b"a\n\"\xff".to_vec())), r#""a\n\"\xff""#);
        assert_eq!(text_of(&Value::text("two words")), "\"two words\"");
        assert_eq!(text_of(&Value::List(vec![1u64.into(), Value::text("x")])), "[1,x]");
    }
}
