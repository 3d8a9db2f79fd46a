//! ZooKeeper's frames: what we ask, and what is answered.
//!
//! | offset | size | request            | reply                                  |
//! |      0 |    4 | length of the rest | length of the rest                     |
//! |      4 |    4 | xid, ours          | the same; -1: a watch that we left     |
//! |      8 |    4 | what               | zxid (8 bytes)                         |
//! |     12 |    n | its fields         | error at 16 (4 bytes), then the fields |

use crate::failure::{Context, Failure, Result};
use crate::load::bytes::Reader;

/// The first message of a connection: a new session, please.
pub fn connect(out: &mut Vec<u8>) {
    framed(out, |out| {
        int(out, 0); // Version of the protocol.
        long(out, 0); // Last zxid seen.
        int(out, SESSION_TIMEOUT_MS);
        long(out, 0); // No session yet.
        buffer(out, &[0; 16]); // Nor its password.
        out.push(0); // Not read-only.
    });
}

/// Whether the answer to [`connect`] is a session.
pub fn is_connected(body: &[u8]) -> Result<bool> {
    let mut reader = Reader(body);
    let (_version, timeout, session) = (reader.i32()?, reader.i32()?, reader.i64()?);
    Ok(timeout > 0 && session != 0)
}

pub enum Ask<'a> {
    Create {
        path: &'a str,
        data: &'a [u8],
        is_lock: bool,
    },
    Delete {
        path: &'a str,
    },
    /// Leaves a watch.
    Exists {
        path: &'a str,
    },
    Get {
        path: &'a str,
    },
    Set {
        path: &'a str,
        data: &'a [u8],
    },
    Children {
        path: &'a str,
    },
    Sync {
        path: &'a str,
    },
}

impl Ask<'_> {
    pub fn write(&self, xid: i32, out: &mut Vec<u8>) {
        framed(out, |out| {
            int(out, xid);
            match *self {
                Ask::Create { path, data, is_lock } => {
                    int(out, 1);
                    buffer(out, path.as_bytes());
                    buffer(out, data);
                    int(out, 1); // One access right: all of them, for all.
                    int(out, 31);
                    buffer(out, b"world");
                    buffer(out, b"anyone");
                    int(out, if is_lock { EPHEMERAL_SEQUENTIAL } else { 0 });
                }
                Ask::Delete { path } => {
                    int(out, 2);
                    buffer(out, path.as_bytes());
                    int(out, ANY_VERSION);
                }
                Ask::Exists { path } => {
                    int(out, 3);
                    buffer(out, path.as_bytes());
                    out.push(1);
                }
                Ask::Get { path } => {
                    int(out, 4);
                    buffer(out, path.as_bytes());
                    out.push(0);
                }
                Ask::Set { path, data } => {
                    int(out, 5);
                    buffer(out, path.as_bytes());
                    buffer(out, data);
                    int(out, ANY_VERSION);
                }
                Ask::Children { path } => {
                    int(out, 8);
                    buffer(out, path.as_bytes());
                    out.push(0);
                }
                Ask::Sync { path } => {
                    int(out, 9);
                    buffer(out, path.as_bytes());
                }
            }
        });
    }
}

/// The body of the frame at the front and the frame's length; `None`: it is not whole yet.
pub fn body(input: &[u8]) -> Result<Option<(&[u8], usize)>> {
    let Some((length, rest)) = input.split_first_chunk::<4>() else { return Ok(None) };
    let length = u32::from_be_bytes(*length) as usize;
    if length > FRAME_BYTES_MAX {
        return Err(Failure::new(format!("ZooKeeper sends a frame of {length} bytes")));
    }
    Ok(rest.get(..length).map(|body| (body, 4 + length)))
}

/// A reply, less its frame.
pub struct Reply<'a> {
    pub xid: i32,
    pub error: i32,
    pub fields: Reader<'a>,
}

impl<'a> Reply<'a> {
    pub fn read(body: &'a [u8]) -> Result<Reply<'a>> {
        let mut fields = Reader(body);
        let (xid, _zxid, error) = (fields.i32()?, fields.i64()?, fields.i32()?);
        Ok(Reply { xid, error, fields })
    }
}

/// A string or a value: its length, and its bytes.
pub fn piece<'a>(fields: &mut Reader<'a>) -> Result<&'a [u8]> {
    let length = usize::try_from(fields.i32()?).context("ZooKeeper sends a negative length")?;
    fields.take(length)
}

pub fn text<'a>(fields: &mut Reader<'a>) -> Result<&'a str> {
    std::str::from_utf8(piece(fields)?).context("ZooKeeper sends a path")
}

/// The length of the data, out of a znode's stat.
pub fn data_length(fields: &mut Reader) -> Result<i32> {
    // czxid, mzxid, ctime, mtime; version, cversion, aversion; ephemeral owner.
    fields.take(4 * 8 + 3 * 4 + 8)?;
    fields.i32()
}

fn framed(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    int(out, 0);
    write(out);
    let length = (out.len() - start - 4) as u32;
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

fn int(out: &mut Vec<u8>, number: i32) {
    out.extend_from_slice(&number.to_be_bytes());
}

fn long(out: &mut Vec<u8>, number: i64) {
    out.extend_from_slice(&number.to_be_bytes());
}

fn buffer(out: &mut Vec<u8>, bytes: &[u8]) {
    int(out, bytes.len() as i32);
    out.extend_from_slice(bytes);
}

/// The xid of a watch's message.
pub const WATCH: i32 = -1;

pub const NO_NODE: i32 = -101;
pub const NODE_EXISTS: i32 = -110;

/// Longer than any client is silent in a run.
const SESSION_TIMEOUT_MS: i32 = 30_000;

const ANY_VERSION: i32 = -1;
const EPHEMERAL_SEQUENTIAL: i32 = 3;

/// ZooKeeper's own limit is 1 MiB.
const FRAME_BYTES_MAX: usize = 4 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_as_the_protocol_says() {
        let mut out = Vec::new();
        Ask::Set { path: "/a", data: b"xyz" }.write(7, &mut out);
        let expected = [
            &[0, 0, 0, 25, 0, 0, 0, 7, 0, 0, 0, 5, 0, 0, 0, 2][..],
            b"/a",
            &[0, 0, 0, 3],
            b"xyz",
            &[255, 255, 255, 255],
        ];
        assert_eq!(out, expected.concat());
        out.clear();
        Ask::Get { path: "/a" }.write(8, &mut out);
        assert_eq!(out, [&[0, 0, 0, 15, 0, 0, 0, 8, 0, 0, 0, 4, 0, 0, 0, 2][..], b"/a", &[0]].concat());
        out.clear();
        connect(&mut out);
        assert_eq!(out.len(), 4 + 4 + 8 + 4 + 8 + 4 + 16 + 1);
        out.clear();
        Ask::Create { path: "/l", data: b"", is_lock: true }.write(9, &mut out);
        assert!(out.ends_with(&[0, 0, 0, 6, b'a', b'n', b'y', b'o', b'n', b'e', 0, 0, 0, 3]));
    }

    #[test]
    fn a_frame_is_whole_or_not_yet_there() {
        let frame = [0, 0, 0, 2, 9, 8];
        for length in 0..frame.len() {
            assert_eq!(body(&frame[..length]).unwrap(), None);
        }
        assert_eq!(body(&frame).unwrap(), Some((&[9, 8][..], 6)));
        assert!(body(&[255; 4]).is_err(), "longer than any reply");
    }

    #[test]
    fn a_reply_that_ends_too_early_is_refused() {
        let bytes = [0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, b'h', b'i'];
        let mut reply = Reply::read(&bytes).unwrap();
        assert_eq!((reply.xid, reply.error), (7, 0));
        assert_eq!(text(&mut reply.fields).unwrap(), "hi");
        for length in 0..16 {
            assert!(Reply::read(&bytes[..length]).is_err());
        }
        let mut cut = Reply::read(&bytes[..21]).unwrap();
        assert!(piece(&mut cut.fields).is_err());
        assert!(piece(&mut Reader(&[255, 255, 255, 255])).is_err(), "no negative lengths");
    }
}
