//! What the clients of a run do, and the bytes they write: every value says who wrote it, so that whatever is
//! read later can be traced to one call.

mod events;
mod trees;
mod worker;

pub use trees::{TREES, tree_paths, tree_root};
pub use worker::{Role, Setting, Worker};

use crate::history::ClientNumber;
use bytes::{BufMut, Bytes, BytesMut};

/// Files that hold one value each; checked for linearizability.
pub const REGISTERS: &str = "/r/";
/// Files that are only appended to.
pub const APPENDS: &str = "/a/";
/// Files with one writer each.
pub const OWN: &str = "/o/";
/// Files written only under a lock's fencing number.
pub const FENCED: &str = "/f/";
/// The directory whose events are watched.
pub const WATCHED: &str = "/e";
/// A lock that whoever has it keeps, so that others wait for it.
pub const KEPT: &str = "kept";
pub const REGISTER_FILES: u64 = 3;
pub const APPEND_FILES: u64 = 2;
pub const LOCKS: u64 = 2;
/// Queues that are only waited on, and queues that are received from.
pub const WAIT_QUEUES: [&str; 2] = ["wait-0", "wait-1"];
pub const RECEIVE_QUEUES: [&str; 1] = ["receive-0"];

/// The directory in which more happens than is kept for who does not ask. With a path as long as paths may be, a
/// few hundred events are too many bytes; otherwise it takes as many events as are kept.
pub fn flood_folder(deep: bool) -> String {
    let depth = if deep { 15 } else { 0 };
    format!("/w{}", format!("/{}", "x".repeat(254)).repeat(depth))
}

/// Bytes of a [`Token`].
pub const TOKEN_BYTES: usize = 16;

/// One append or one message: who made it, and which of its own it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Token {
    pub client: ClientNumber,
    pub number: u64,
}

impl Token {
    pub fn bytes(self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(TOKEN_BYTES);
        bytes.put_u64(u64::from(self.client.0));
        bytes.put_u64(self.number);
        bytes.freeze()
    }
}

/// The tokens in a file or message. Padding after them is left out.
pub fn tokens_of(bytes: &[u8]) -> Result<Vec<Token>, String> {
    let words = words_of(bytes, TOKEN_BYTES)?;
    Ok(words.chunks(2).map(|pair| Token { client: ClientNumber(pair[0] as u32), number: pair[1] }).collect())
}

/// One write under a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fenced {
    pub number: u64,
    pub client: ClientNumber,
    /// Which write under this grant.
    pub step: u64,
}

impl Fenced {
    pub fn bytes(self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(FENCED_BYTES);
        bytes.put_u64(self.number);
        bytes.put_u64(u64::from(self.client.0));
        bytes.put_u64(self.step);
        bytes.freeze()
    }
}

pub fn fenced_of(bytes: &[u8]) -> Result<Vec<Fenced>, String> {
    let words = words_of(bytes, FENCED_BYTES)?;
    let read = |part: &[u64]| Fenced { number: part[0], client: ClientNumber(part[1] as u32), step: part[2] };
    Ok(words.chunks(3).map(read).collect())
}

const FENCED_BYTES: usize = 24;

fn words_of(bytes: &[u8], size: usize) -> Result<Vec<u64>, String> {
    if !bytes.len().is_multiple_of(size) {
        return Err(format!("{} bytes are not whole pieces of {size}", bytes.len()));
    }
    let word = |chunk: &[u8]| chunk.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
    Ok(bytes.chunks(8).map(word).collect())
}

/// The content of a file that holds `value`, `length` bytes long (at least 16): every byte follows from these two.
pub fn value_bytes(value: u64, length: usize) -> Bytes {
    let mut bytes = Vec::with_capacity(length.max(16));
    bytes.extend(value.to_be_bytes());
    bytes.extend((length.max(16) as u64).to_be_bytes());
    bytes.extend((16..length).map(|place| filler(value, place)));
    bytes.into()
}

fn filler(value: u64, place: usize) -> u8 {
    (value as usize + place) as u8
}

/// The value that a file holds, if it holds one value and all of it.
pub fn value_of(bytes: &[u8]) -> Result<u64, String> {
    let (Some(value), Some(length)) = (bytes.get(..8), bytes.get(8..16)) else {
        return Err(format!("{} bytes hold no value", bytes.len()));
    };
    let number = |part: &[u8]| part.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
    let (value, length) = (number(value), number(length));
    let filled = (16..).zip(&bytes[16..]).all(|(place, byte)| *byte == filler(value, place));
    match length == bytes.len() as u64 && filled {
        true => Ok(value),
        false => Err(format!("a torn value: {} of {length} bytes of {value}", bytes.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_recognised_and_half_of_it_is_not() {
        let token = Token { client: ClientNumber(3), number: 9 };
        assert_eq!(tokens_of(&[token.bytes(), token.bytes()].concat()), Ok(vec![token, token]));
        tokens_of(&token.bytes()[1..]).unwrap_err();
        assert_eq!(value_of(&value_bytes(77, 100)), Ok(77));
        assert_eq!(value_of(&value_bytes(77, 0)), Ok(77));
        value_of(&value_bytes(77, 100)[..60]).unwrap_err();
        value_of(&[value_bytes(77, 100), value_bytes(78, 100)].concat()).unwrap_err();
    }
}
