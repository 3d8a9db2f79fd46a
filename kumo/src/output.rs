//! [`Out`]: what commands print, as text for people or as JSON for programs.

use crate::failure::Failure;
use pfs::UnixMillis;
use serde_json::{Value, json};
use std::io::{IsTerminal, Write};

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    Text,
    Json,
}

/// Standard output in the format that was asked for.
pub struct Out {
    format: Format,
}

impl Out {
    pub fn new(format: Format) -> Out {
        Out { format }
    }

    pub fn is_json(&self) -> bool {
        self.format == Format::Json
    }

    /// One result: the value as a line of JSON, or the text, which may be empty.
    pub fn result(&self, value: Value, text: impl FnOnce() -> String) -> Result<(), Failure> {
        let mut line = match self.format {
            Format::Json => value.to_string(),
            Format::Text => text(),
        };
        if !line.is_empty() && !line.ends_with('\n') {
            line.push('\n');
        }
        self.bytes(line.as_bytes())
    }

    /// Bytes as they are.
    pub fn bytes(&self, bytes: &[u8]) -> Result<(), Failure> {
        let mut out = std::io::stdout().lock();
        out.write_all(bytes)?;
        out.flush()?;
        Ok(())
    }

    /// A message's bytes as they are; on a terminal the prompt comes on a line of its own.
    pub fn message(&self, bytes: &[u8]) -> Result<(), Failure> {
        self.bytes(bytes)?;
        if std::io::stdout().is_terminal() && !bytes.ends_with(b"\n") {
            self.bytes(b"\n")?;
        }
        Ok(())
    }
}

/// A line on standard error. When nobody can read it there, there is nowhere left to say so.
pub fn note(line: impl std::fmt::Display) {
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// The terminal shows lines, and nothing can be drawn on it.
pub fn is_dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}

/// A name or a line as it can be shown: what would command the terminal, or turn what stands behind it around, is
/// written as an escape instead.
pub fn visible(text: &str) -> String {
    let commands = |c: char| {
        c.is_control()
            || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}')
    };
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match commands(c) {
            true => shown.extend(c.escape_default()),
            false => shown.push(c),
        }
    }
    shown
}

/// Adds `data` and how it is written to a JSON object: as text if it is text.
pub fn with_data(mut object: Value, data: &[u8]) -> Value {
    let (encoding, text) = match std::str::from_utf8(data) {
        Ok(text) => ("utf-8", text.to_owned()),
        Err(_) => ("base64", base64(data)),
    };
    object["encoding"] = json!(encoding);
    object["data"] = json!(text);
    object
}

/// Columns wide enough for their longest cell, each cell [`visible`]; the first row is the heading.
pub fn table(rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(|cell| visible(cell)).collect()).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}")).collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// A row of a table.
pub fn row<const N: usize>(cells: [&dyn std::fmt::Display; N]) -> Vec<String> {
    cells.iter().map(|cell| cell.to_string()).collect()
}

/// `2026-01-31T23:59:59Z`.
pub fn time(time: UnixMillis) -> String {
    let seconds = time.0 / 1000;
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Year, month and day of a day since 1970, counted in eras of 400 years that start in March.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + next, month, day)
}

fn base64(data: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(data.len().div_ceil(3) * 4);
    for group in data.chunks(3) {
        let bits = (0..3).fold(0u32, |bits, index| bits << 8 | u32::from(*group.get(index).unwrap_or(&0)));
        for digit in 0..4 {
            match digit <= group.len() {
                true => text.push(char::from(DIGITS[(bits >> (18 - 6 * digit) & 63) as usize])),
                false => text.push('='),
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_the_usual_one() {
        for (data, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")] {
            assert_eq!(base64(data.as_bytes()), text);
        }
    }

    #[test]
    fn times_are_printed_as_people_write_them() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400_000, "2000-02-29T00:00:00Z"),
            (1_767_225_599_999, "2025-12-31T23:59:59Z"),
        ] {
            assert_eq!(time(UnixMillis(millis)), text);
        }
    }

    #[test]
    fn a_name_cannot_command_the_terminal() {
        assert_eq!(visible("plain 雲 a\\b"), "plain 雲 a\\b");
        assert_eq!(visible("\u{1b}[31mred\r\n\u{9b}2J\u{202e}"), "\\u{1b}[31mred\\r\\n\\u{9b}2J\\u{202e}");
        assert_eq!(table(&[row([&"a\tb", &"c"])]), "a\\tb  c\n");
    }

    #[test]
    fn columns_line_up() {
        let rows = [row([&"ID", &"NAME"]), row([&100, &"a"])];
        assert_eq!(table(&rows), "ID   NAME\n100  a\n");
    }
}
