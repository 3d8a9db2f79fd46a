//! [`Http2`]: unary gRPC calls over one HTTP/2 connection, one at a time (RFC 9113).
//!
//! Headers of answers are not decompressed: a call that succeeded has a message, one that failed has none.
//!
//! | offset | size | field of a frame   |
//! |      0 |    3 | length of the rest |
//! |      3 |    1 | kind               |
//! |      4 |    1 | flags              |
//! |      5 |    4 | stream             |

use crate::failure::{Failure, Result};
use crate::load::bytes::Reader;

pub struct Http2 {
    /// Of the next call.
    stream: u32,
    /// What has come of the answer under way.
    answer: Vec<u8>,
    /// Bytes that the server takes from us, on all streams together.
    window: i64,
    /// Bytes that came since we last told the server so.
    received: u32,
}

pub enum Received {
    /// Something about the connection.
    Nothing,
    /// The message of the call's answer.
    Answer(Vec<u8>),
}

impl Http2 {
    pub fn new() -> Http2 {
        Http2 { stream: 1, answer: Vec::new(), window: WINDOW_BYTES, received: 0 }
    }

    /// Greets.
    pub fn open(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        let window = [&[0, INITIAL_WINDOW_SIZE][..], &RECEIVE_BYTES.to_be_bytes()].concat();
        frame(out, SETTINGS, 0, 0, &window);
        frame(out, WINDOW_UPDATE, 0, 0, &RECEIVE_BYTES.to_be_bytes());
    }

    /// Sends a request. The one before must have been answered.
    pub fn call(&mut self, path: &str, message: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let length = PREFIX_BYTES + message.len();
        if length > FRAME_BYTES_MAX || (length as i64) > self.window {
            return Err(Failure::new(format!("etcd's window has no room for {length} bytes")));
        }
        self.window -= length as i64;
        self.answer.clear();
        // The static table's ":method: POST" and ":scheme: http"; the rest as it is, not to be remembered.
        let mut headers = vec![0x83, 0x86];
        for (name, value) in [
            (":path", path),
            (":authority", "etcd"),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
        ] {
            headers.push(0);
            for text in [name, value] {
                headers.push(text.len() as u8);
                headers.extend_from_slice(text.as_bytes());
            }
        }
        frame(out, HEADERS, END_HEADERS, self.stream, &headers);
        // Not compressed, and its length.
        let mut data = vec![0];
        data.extend_from_slice(&(message.len() as u32).to_be_bytes());
        data.extend_from_slice(message);
        frame(out, DATA, END_STREAM, self.stream, &data);
        Ok(())
    }

    /// Takes the frame at the front, and its length; `None`: it is not whole yet.
    pub fn hear(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<Option<(Received, usize)>> {
        let Some(header) = input.get(..HEADER_BYTES) else { return Ok(None) };
        let length = u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
        let (kind, flags) = (header[3], header[4]);
        let stream = u32::from_be_bytes([header[5] & 0x7F, header[6], header[7], header[8]]);
        if length > FRAME_BYTES_MAX {
            return Err(Failure::new(format!("etcd sends a frame of {length} bytes")));
        }
        let Some(body) = input.get(HEADER_BYTES..HEADER_BYTES + length) else { return Ok(None) };
        let is_ours = stream == self.stream;
        match kind {
            DATA => self.data(body, flags, is_ours, out)?,
            SETTINGS if flags & ACK == 0 => frame(out, SETTINGS, ACK, 0, &[]),
            PING if flags & ACK == 0 => frame(out, PING, ACK, 0, body),
            WINDOW_UPDATE if stream == 0 => self.window += i64::from(Reader(body).u32()? & 0x7FFF_FFFF),
            RST_STREAM if is_ours => return Err(Failure::new("etcd ends a call early")),
            GOAWAY => return Err(Failure::new("etcd ends the connection")),
            // Headers, which we do not read; and what is for other kinds of clients.
            _ => {}
        }
        let ends = is_ours && matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0;
        let received = if ends { Received::Answer(self.ended()?) } else { Received::Nothing };
        Ok(Some((received, HEADER_BYTES + length)))
    }

    fn data(&mut self, body: &[u8], flags: u8, is_ours: bool, out: &mut Vec<u8>) -> Result<()> {
        self.received += body.len() as u32;
        if self.received >= RECEIVE_BYTES / 2 {
            frame(out, WINDOW_UPDATE, 0, 0, &std::mem::take(&mut self.received).to_be_bytes());
        }
        let mut reader = Reader(body);
        if flags & PADDED != 0 {
            let padding = usize::from(reader.u8()?);
            let length = reader.0.len().checked_sub(padding);
            reader = Reader(reader.take(length.ok_or_else(|| Failure::new("etcd sends only padding"))?)?);
        }
        if is_ours {
            self.answer.extend_from_slice(reader.0);
        }
        Ok(())
    }

    /// The whole answer of the call, whose stream is over.
    fn ended(&mut self) -> Result<Vec<u8>> {
        self.stream += 2;
        if self.answer.is_empty() {
            return Err(Failure::new("etcd refuses"));
        }
        let mut reader = Reader(&self.answer);
        let (compressed, length) = (reader.u8()?, reader.u32()? as usize);
        if compressed != 0 || reader.0.len() != length {
            return Err(Failure::new("etcd answers with something else than one plain message"));
        }
        Ok(reader.0.to_vec())
    }
}

fn frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, body: &[u8]) {
    out.extend_from_slice(&(body.len() as u32).to_be_bytes()[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(body);
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;

const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;

/// The setting of how much each stream may send us.
const INITIAL_WINDOW_SIZE: u8 = 4;

const HEADER_BYTES: usize = 9;

/// What stands before a gRPC message.
const PREFIX_BYTES: usize = 5;

/// The protocol's, unless both sides agree on more.
const FRAME_BYTES_MAX: usize = 16_384;

/// The protocol's, before the server grants more.
const WINDOW_BYTES: i64 = 65_535;

/// What we let the server send, far above our answers.
const RECEIVE_BYTES: u32 = 16 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(kind: u8, flags: u8, stream: u32, body: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        frame(&mut out, kind, flags, stream, body);
        out
    }

    #[test]
    fn a_call_is_headers_and_one_message() {
        let (mut http, mut out) = (Http2::new(), Vec::new());
        http.call("/a/B", b"xyz", &mut out).unwrap();
        assert_eq!(out[3..9], [HEADERS, END_HEADERS, 0, 0, 0, 1]);
        assert!(out.ends_with(&[0, 0, 8, DATA, END_STREAM, 0, 0, 0, 1, 0, 0, 0, 0, 3, b'x', b'y', b'z']));
        assert!(http.call("/a/B", &[0; 16_380], &mut out).is_err(), "more than a frame");
    }

    #[test]
    fn an_answer_comes_in_parts_and_ends_with_its_trailers() {
        let (mut http, mut out) = (Http2::new(), Vec::new());
        http.call("/a", b"", &mut out).unwrap();
        out.clear();
        let parts = [
            framed(SETTINGS, 0, 0, &[]),
            framed(HEADERS, END_HEADERS, 1, &[0x88]),
            framed(DATA, 0, 1, &[0, 0, 0, 0, 2]),
            framed(PING, 0, 0, &[7; 8]),
            framed(DATA, PADDED, 1, &[1, b'h', b'i', 0]),
        ];
        for part in &parts {
            for length in 0..part.len() {
                assert!(http.hear(&part[..length], &mut out).unwrap().is_none());
            }
            let (received, taken) = http.hear(part, &mut out).unwrap().unwrap();
            assert!(matches!(received, Received::Nothing) && taken == part.len());
        }
        assert_eq!(out, [framed(SETTINGS, ACK, 0, &[]), framed(PING, ACK, 0, &[7; 8])].concat());
        let trailers = framed(HEADERS, END_HEADERS | END_STREAM, 1, &[0x88]);
        let (received, _) = http.hear(&trailers, &mut out).unwrap().unwrap();
        assert!(matches!(received, Received::Answer(answer) if answer == b"hi"));
    }

    #[test]
    fn a_refusal_and_a_cut_answer_are_failures() {
        for part in [
            framed(HEADERS, END_HEADERS | END_STREAM, 1, &[0x88]),
            framed(DATA, END_STREAM, 1, &[0, 0, 0, 0, 9, 1]),
            framed(RST_STREAM, 0, 1, &[0; 4]),
            framed(GOAWAY, 0, 0, &[0; 8]),
            framed(DATA, PADDED, 1, &[200, 1]),
            vec![255; 9],
        ] {
            let (mut http, mut out) = (Http2::new(), Vec::new());
            assert!(http.hear(&part, &mut out).is_err(), "{part:?}");
        }
    }

    #[test]
    fn a_window_that_is_used_up_is_not_overrun() {
        let (mut http, mut out) = (Http2::new(), Vec::new());
        for _ in 0..6 {
            http.call("/a", &[0; 10_000], &mut out).unwrap();
        }
        assert!(http.call("/a", &[0; 10_000], &mut out).is_err());
        http.hear(&framed(WINDOW_UPDATE, 0, 0, &[0, 1, 0, 0]), &mut out).unwrap();
        assert!(http.call("/a", &[0; 10_000], &mut out).is_ok());
    }
}
