//! PFS as a tree to walk through.

use super::Board;
use super::lists::{Given, given, not_understood};
use crate::http::answer::{Answer, Refused, ok};
use axum::extract::State;
use pfs::{Query, Reply, Stat};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listed {
    path: String,
    #[serde(default)]
    index: u64,
    count: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Named {
    path: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Piece {
    path: String,
    #[serde(default)]
    offset: u64,
    length: Option<u64>,
}

pub async fn list(State(board): State<Arc<Board>>, listed: Given<Listed>) -> Answer {
    let Listed { path, index, count } = given(listed)?;
    let count = within("count", count.unwrap_or(COUNT_USUAL), pfs::ENTRIES_MAX)?;
    let query = Query::ReadDir { path: path.clone(), index, count };
    let Reply::Entries { entries, total } = board.seat.ask(query).await? else {
        return Err(not_understood());
    };
    let next = index.saturating_add(entries.len() as u64);
    let next = (next < total && !entries.is_empty()).then_some(next);
    let entries: Vec<Value> =
        entries.iter().map(|entry| described("name", &entry.name, &entry.stat)).collect();
    ok(&json!({ "path": path, "index": index, "total": total, "next": next, "entries": entries }))
}

pub async fn stat(State(board): State<Arc<Board>>, named: Given<Named>) -> Answer {
    let Named { path } = given(named)?;
    let Reply::Stat(stat) = board.seat.ask(Query::Stat { path: path.clone() }).await? else {
        return Err(not_understood());
    };
    ok(&described("path", &path, &stat))
}

pub async fn read(State(board): State<Arc<Board>>, piece: Given<Piece>) -> Answer {
    let Piece { path, offset, length } = given(piece)?;
    let length = within("length", length.unwrap_or(LENGTH_USUAL), LENGTH_MAX)?;
    // One byte more tells whether the file goes on.
    let query = Query::Read { path: path.clone(), offset, length: length + 1 };
    let Reply::Data { bytes, version } = board.seat.ask(query).await? else {
        return Err(not_understood());
    };
    let more = bytes.len() as u64 > length;
    let bytes = &bytes[..bytes.len().min(length as usize)];
    let (bytes, encoding, data) = shown(bytes, more);
    ok(&json!({
        "path": path,
        "offset": offset,
        "length": bytes,
        "version": version.to_string(),
        "more": more,
        "encoding": encoding,
        "data": data,
    }))
}

/// How many of the bytes are shown, and how. Text that was cut within a character ends before it.
fn shown(bytes: &[u8], cut: bool) -> (usize, &'static str, String) {
    let whole = match std::str::from_utf8(bytes) {
        Ok(text) => Some(text),
        Err(error) if cut && error.error_len().is_none() && error.valid_up_to() > 0 => {
            std::str::from_utf8(&bytes[..error.valid_up_to()]).ok()
        }
        Err(_) => None,
    };
    match whole {
        Some(text) => (text.len(), "utf-8", text.to_owned()),
        None => (bytes.len(), "base64", base64(bytes)),
    }
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let byte = |at: usize| u32::from(three.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * place)) as usize & 63];
            text.push(if place <= three.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

fn described(key: &str, name: &str, stat: &Stat) -> Value {
    json!({
        key: name,
        "directory": stat.directory,
        "length": stat.length,
        "version": stat.version.to_string(),
        "created_at": stat.created.0,
        "modified_at": stat.modified.0,
        "ephemeral": stat.ephemeral.map(|session| session.to_string()),
    })
}

fn within(what: &str, given: u64, limit: u64) -> Result<u64, Refused> {
    match (1..=limit).contains(&given) {
        true => Ok(given),
        false => Err(Refused::bad(format!("{what} is 1 to {limit}"))),
    }
}

const COUNT_USUAL: u64 = 100;
const LENGTH_USUAL: u64 = 4096;

/// A look into a file, not a way to fetch it.
const LENGTH_MAX: u64 = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_shown_as_text_and_the_rest_as_base64() {
        assert_eq!(shown("blue".as_bytes(), false), (4, "utf-8", "blue".to_owned()));
        let cut = &"naïve".as_bytes()[..3];
        assert_eq!(shown(cut, true), (2, "utf-8", "na".to_owned()));
        assert_eq!(shown(cut, false).1, "base64");
        assert_eq!(shown(b"\xff\xfe", true).1, "base64");
        assert_eq!(shown(b"", false), (0, "utf-8", String::new()));
    }

    #[test]
    fn base64_is_the_standard_one() {
        for (bytes, text) in [
            (&b""[..], ""),
            (b"f", "Zg=="),
            (b"fo", "Zm8="),
            (b"foo", "Zm9v"),
            (b"\xfb\xff\xbf\0", "+/+/AA=="),
        ] {
            assert_eq!(base64(bytes), text);
        }
    }
}
