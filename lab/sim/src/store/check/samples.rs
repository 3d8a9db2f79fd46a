//! Calls as tests of the checkers write them down: all of one key.

use super::{Verdict, linear};
use crate::store::history::{Call, Ending, Flush, token};
use bytes::Bytes;
use kumo_cluster::{Answer, Operation, Reply};

pub const FAR: i64 = 1_000_000;

pub fn call(times: (u64, u64), operation: Operation, answer: Answer) -> Call {
    let ending = Some((times.1, Ending::Answer(answer)));
    Call { key: 0, caller: 0, operation, invoked: times.0, ending }
}

pub fn perhaps(invoked: u64, operation: Operation) -> Call {
    Call { key: 0, caller: 0, operation, invoked, ending: None }
}

pub fn set(number: u64) -> Operation {
    Operation::Set { flags: 0, expiry: 0, data: token(number) }
}

pub fn append(number: u64) -> Operation {
    Operation::Append { unique: None, data: token(number) }
}

pub fn done(clock: u64) -> Answer {
    Answer::Reply(Reply::Done { clock })
}

pub fn value(clock: u64, data: &[u8]) -> Answer {
    let data = Bytes::copy_from_slice(data);
    Answer::Reply(Reply::Value { clock, flags: 0, ttl: None, data })
}

pub fn get(times: (u64, u64), clock: u64, number: u64) -> Call {
    call(times, Operation::Get, value(clock, &token(number)))
}

pub fn flush(invoked: u64, settled: Option<u64>) -> Flush {
    let ending = settled.map(|settled| (settled, Ending::Answer(done(0))));
    Flush { prefix: Bytes::new(), invoked, ending }
}

pub fn verdict(calls: &[Call]) -> Verdict {
    linear::check(calls.iter(), [].iter(), &[], FAR)
}
