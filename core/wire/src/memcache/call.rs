//! The client's side: [`Call`], a request as a load generator or a tool sends it. Meta is not needed for that.

use super::binary::{MAGIC_REQUEST, Opcode};
use super::decoder::Protocol;
use super::number;
use bytes::{BufMut, BytesMut};

/// Keys have 1 to [`KEY_BYTES_MAX`](super::KEY_BYTES_MAX) bytes; in text, none of them a space or the end of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call<'a> {
    /// At least one key. Answered by `Reply::Value` for each hit, then `Reply::End`.
    Get { keys: &'a [&'a [u8]], cas: bool },
    /// Answered by `Reply::Stored`, `Reply::Exists` or `Reply::NotFound`, the latter two only with a cas.
    Set { key: &'a [u8], flags: u32, expiry: u32, cas: Option<u64>, value: &'a [u8] },
    /// Answered by `Reply::Deleted` or `Reply::NotFound`.
    Delete { key: &'a [u8] },
    /// Answered by `Reply::Number` or `Reply::NotFound`.
    Increment { key: &'a [u8], delta: u64 },
}

impl Call<'_> {
    pub fn write(&self, protocol: Protocol, out: &mut BytesMut) {
        match protocol {
            Protocol::Text => self.write_text(out),
            Protocol::Binary => self.write_binary(out),
        }
    }

    fn write_text(&self, out: &mut BytesMut) {
        match *self {
            Call::Get { keys, cas } => {
                out.put_slice(if cas { b"gets" } else { b"get" });
                for key in keys {
                    put_word(key, out);
                }
            }
            Call::Set { key, flags, expiry, cas, value } => {
                out.put_slice(if cas.is_some() { b"cas" } else { b"set" });
                put_word(key, out);
                for number in [flags.into(), expiry.into(), value.len() as u64].into_iter().chain(cas) {
                    out.put_u8(b' ');
                    number::put(number, out);
                }
                out.put_slice(b"\r\n");
                out.put_slice(value);
            }
            Call::Delete { key } => {
                out.put_slice(b"delete");
                put_word(key, out);
            }
            Call::Increment { key, delta } => {
                out.put_slice(b"incr");
                put_word(key, out);
                out.put_u8(b' ');
                number::put(delta, out);
            }
        }
        out.put_slice(b"\r\n");
    }

    fn write_binary(&self, out: &mut BytesMut) {
        match *self {
            Call::Get { keys: [key], .. } => put_packet(Opcode::GetK, &[], key, &[], 0, out),
            Call::Get { keys, .. } => {
                for key in keys {
                    put_packet(Opcode::GetKQ, &[], key, &[], 0, out);
                }
                // Misses are silent: its answer tells that all keys have been looked up.
                put_packet(Opcode::Noop, &[], &[], &[], 0, out);
            }
            Call::Set { key, flags, expiry, cas, value } => {
                let mut extras = [0; 8];
                extras[..4].copy_from_slice(&flags.to_be_bytes());
                extras[4..].copy_from_slice(&expiry.to_be_bytes());
                put_packet(Opcode::Set, &extras, key, value, cas.unwrap_or(0), out);
            }
            Call::Delete { key } => put_packet(Opcode::Delete, &[], key, &[], 0, out),
            Call::Increment { key, delta } => {
                // No initial value, and an expiry that says not to create the item.
                let mut extras = [0; 20];
                extras[..8].copy_from_slice(&delta.to_be_bytes());
                extras[16..].copy_from_slice(&u32::MAX.to_be_bytes());
                put_packet(Opcode::Increment, &extras, key, &[], 0, out);
            }
        }
    }
}

fn put_word(word: &[u8], out: &mut BytesMut) {
    out.put_u8(b' ');
    out.put_slice(word);
}

/// The layout is that of the header in `binary`.
fn put_packet(opcode: Opcode, extras: &[u8], key: &[u8], value: &[u8], cas: u64, out: &mut BytesMut) {
    out.put_u8(MAGIC_REQUEST);
    out.put_u8(opcode as u8);
    out.put_u16(key.len() as u16);
    out.put_u8(extras.len() as u8);
    out.put_u8(0);
    out.put_u16(0);
    out.put_u32((extras.len() + key.len() + value.len()) as u32);
    out.put_u32(0);
    out.put_u64(cas);
    out.put_slice(extras);
    out.put_slice(key);
    out.put_slice(value);
}
