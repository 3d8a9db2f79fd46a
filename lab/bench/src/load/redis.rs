//! Redis: its protocol (RESP), and a client that sets, or gets, its own keys.

use super::{Driver, Heard, Load, Plan, Talk, Turn, Values};
use crate::failure::{Failure, Result};
use std::collections::VecDeque;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// `SET`s, and one `WAIT` behind each batch: all of it is on so many replicas when it is answered.
    Set {
        replicas: u32,
    },
    Get,
}

/// A load on keys `kumo-bench-0000000000` and so on, each client on its own part of them.
pub fn load(op: Op, pipeline: u32, size: usize, keys: u64, plan: Plan) -> Load {
    Box::new(move || {
        let (values, clients) = (Values::new(size), plan.clients as u64);
        let make = |client: usize| Client {
            op,
            pipeline,
            values: values.clone(),
            client: client as u64,
            clients,
            numbers: vec![0; keys.saturating_sub(client as u64).div_ceil(clients) as usize],
            expected: VecDeque::new(),
            operations: 0,
            draw: client as u64 + 1,
        };
        Driver::run(&plan, make)
    })
}

struct Client {
    op: Op,
    pipeline: u32,
    values: Values,
    client: u64,
    clients: u64,
    /// Of the newest value of each of its keys.
    numbers: Vec<u64>,
    expected: VecDeque<Expected>,
    operations: u32,
    draw: u64,
}

/// The answer to a request.
enum Expected {
    Stored,
    /// At least so many replicas.
    Replicas(i64),
    /// The newest value of this key.
    Value(usize),
}

impl Talk for Client {
    fn begin(&mut self, turn: Turn, out: &mut Vec<u8>) {
        self.operations = self.pipeline;
        match (turn, self.op) {
            (Turn::Prepare, _) => {
                for key in 0..self.numbers.len() {
                    self.set(key, out);
                }
            }
            (Turn::Operate, Op::Set { replicas }) => {
                for _ in 0..self.pipeline {
                    let key = self.next_key();
                    self.set(key, out);
                }
                request(out, &[b"WAIT", replicas.to_string().as_bytes(), WAIT_MS]);
                self.expected.push_back(Expected::Replicas(replicas.into()));
            }
            (Turn::Operate, Op::Get) => {
                for _ in 0..self.pipeline {
                    let key = self.next_key();
                    self.get(key, out);
                }
            }
            (Turn::Verify, _) => {
                for key in 0..self.numbers.len() {
                    self.get(key, out);
                }
            }
        }
    }

    fn hear(&mut self, input: &[u8], _: &mut Vec<u8>) -> Result<Heard> {
        let Some((reply, taken)) = Reply::read(input)? else { return Ok(Heard::Partial) };
        let expected = self.expected.pop_front().ok_or_else(|| Failure::new("Redis answers unasked"))?;
        let is_right = match (&expected, &reply) {
            (Expected::Stored, Reply::Simple(b"OK")) => true,
            (Expected::Replicas(least), Reply::Number(count)) => count >= least,
            (&Expected::Value(key), Reply::Bulk(Some(value))) => {
                self.values.is(value, self.number(key), self.numbers[key])
            }
            _ => false,
        };
        if !is_right {
            return Err(Failure::new(format!("Redis answers wrongly: {reply}")));
        }
        match self.expected.is_empty() {
            true => Ok(Heard::Done { taken, operations: self.operations }),
            false => Ok(Heard::Taken(taken)),
        }
    }
}

impl Client {
    fn next_key(&mut self) -> usize {
        self.draw = self.draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.draw >> 33) as usize % self.numbers.len().max(1)
    }

    /// The number of a key of this client among the keys of all.
    fn number(&self, key: usize) -> u64 {
        self.client + key as u64 * self.clients
    }

    fn set(&mut self, key: usize, out: &mut Vec<u8>) {
        self.numbers[key] += 1;
        let value = self.values.make(self.number(key), self.numbers[key]);
        request(out, &[b"SET", name(self.number(key)).as_bytes(), &value]);
        self.expected.push_back(Expected::Stored);
    }

    fn get(&mut self, key: usize, out: &mut Vec<u8>) {
        request(out, &[b"GET", name(self.number(key)).as_bytes()]);
        self.expected.push_back(Expected::Value(key));
    }
}

/// As `kumo bench store` names them: the lengths count.
fn name(key: u64) -> String {
    format!("kumo-bench-{key:010}")
}

/// A request: an array of strings.
pub fn request(out: &mut Vec<u8>, words: &[&[u8]]) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

/// The replies that our requests can have.
#[derive(Debug, PartialEq, Eq)]
pub enum Reply<'a> {
    Simple(&'a [u8]),
    Error(&'a [u8]),
    Number(i64),
    Bulk(Option<&'a [u8]>),
}

impl<'a> Reply<'a> {
    /// The reply at the front and its length; `None`: it is not whole yet.
    pub fn read(input: &'a [u8]) -> Result<Option<(Reply<'a>, usize)>> {
        let Some(end) = input.windows(2).take(LINE_BYTES_MAX).position(|two| two == b"\r\n") else {
            return match input.len() > LINE_BYTES_MAX {
                true => Err(Failure::new("Redis sends a line without end")),
                false => Ok(None),
            };
        };
        let line = &input[..end];
        let kind = line.first().copied();
        let rest = line.get(1..).unwrap_or_default();
        let number = || {
            let number = std::str::from_utf8(rest).ok().and_then(|text| text.parse::<i64>().ok());
            number.ok_or_else(|| Failure::new(format!("Redis sends no number: {}", line.escape_ascii())))
        };
        let (reply, taken) = match kind {
            Some(b'+') => (Reply::Simple(rest), end + 2),
            Some(b'-') => (Reply::Error(rest), end + 2),
            Some(b':') => (Reply::Number(number()?), end + 2),
            Some(b'$') => match number()? {
                -1 => (Reply::Bulk(None), end + 2),
                length @ 0..=BULK_BYTES_MAX => {
                    let (from, to) = (end + 2, end + 2 + length as usize);
                    let Some(closing) = input.get(to..to + 2) else { return Ok(None) };
                    if closing != b"\r\n" {
                        return Err(Failure::new("Redis sends a string of another length than it says"));
                    }
                    (Reply::Bulk(Some(&input[from..to])), to + 2)
                }
                length => return Err(Failure::new(format!("Redis sends a string of {length} bytes"))),
            },
            _ => return Err(Failure::new(format!("Redis sends {}", line.escape_ascii()))),
        };
        Ok(Some((reply, taken)))
    }
}

impl std::fmt::Display for Reply<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Reply::Simple(text) | Reply::Error(text) => write!(out, "{}", text.escape_ascii()),
            Reply::Number(number) => write!(out, "{number}"),
            Reply::Bulk(Some(value)) => write!(out, "a value of {} bytes", value.len()),
            Reply::Bulk(None) => write!(out, "no value"),
        }
    }
}

/// Milliseconds for which a `WAIT` waits; a replica that takes so long is lost, and the run with it.
const WAIT_MS: &[u8] = b"5000";

/// Of a line without a value: no answer to our requests comes near it.
const LINE_BYTES_MAX: usize = 1024;

/// Far above our values.
const BULK_BYTES_MAX: i64 = 16 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_an_array_of_strings() {
        let mut out = Vec::new();
        request(&mut out, &[b"SET", b"k", b"\r\n"]);
        assert_eq!(out, b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2\r\n\r\n\r\n");
    }

    #[test]
    fn every_reply_is_read_whole_and_never_in_part() {
        for (bytes, reply) in [
            (&b"+OK\r\n"[..], Reply::Simple(b"OK")),
            (b"-ERR no\r\n", Reply::Error(b"ERR no")),
            (b":-2\r\n", Reply::Number(-2)),
            (b"$-1\r\n", Reply::Bulk(None)),
            (b"$0\r\n\r\n", Reply::Bulk(Some(b""))),
            (b"$4\r\na\r\nb\r\n", Reply::Bulk(Some(b"a\r\nb"))),
        ] {
            for length in 0..bytes.len() {
                assert_eq!(Reply::read(&bytes[..length]).unwrap(), None, "{length} of {bytes:?}");
            }
            let more = [bytes, b"+next"].concat();
            assert_eq!(Reply::read(&more).unwrap(), Some((reply, bytes.len())));
        }
    }

    #[test]
    fn what_is_no_reply_is_refused() {
        for bytes in [&b"\r\n"[..], b"*1\r\n", b":x\r\n", b"$-2\r\n", b"$99999999999\r\n", b"$1\r\nabc\r\n"] {
            assert!(Reply::read(bytes).is_err(), "{}", bytes.escape_ascii());
        }
        assert!(Reply::read(&[b'+'; LINE_BYTES_MAX + 1]).is_err());
    }

    #[test]
    fn a_set_is_done_when_the_replicas_have_it_and_an_old_value_is_wrong() {
        let values = Values::new(20);
        let mut client = Client {
            op: Op::Set { replicas: 2 },
            pipeline: 1,
            values: values.clone(),
            client: 1,
            clients: 2,
            numbers: vec![0],
            expected: VecDeque::new(),
            operations: 0,
            draw: 1,
        };
        let mut out = Vec::new();
        client.begin(Turn::Operate, &mut out);
        assert!(out.ends_with(b"*3\r\n$4\r\nWAIT\r\n$1\r\n2\r\n$4\r\n5000\r\n"));
        assert_eq!(client.hear(b"+OK\r\n:2\r\n", &mut out).unwrap(), Heard::Taken(5));
        assert_eq!(client.hear(b":2\r\n", &mut out).unwrap(), Heard::Done { taken: 4, operations: 1 });
        client.begin(Turn::Operate, &mut out);
        client.hear(b"+OK\r\n", &mut out).unwrap();
        assert!(client.hear(b":1\r\n", &mut out).is_err(), "one replica is not two");
        client.expected.clear();
        client.begin(Turn::Verify, &mut out);
        let old = [&b"$20\r\n"[..], &values.make(1, 1), b"\r\n"].concat();
        assert!(client.hear(&old, &mut out).is_err(), "the first of two values");
    }
}
