//! Every step of the store's cores as a line of the text log, for those who ask for everything (`-vv`).
//!
//! Nothing is written together, and nothing allocated, unless the lines are wanted.

use kumo_cluster::{Answer, GatewayError, GatewayInput, Operation, Reply, ServerEffect, ServerInput};
use std::fmt::{self, Debug, Display, Formatter, Write};
use tracing::debug;

/// What a gateway's core is told next: the requests of clients among it.
pub fn to_gateway(inputs: &[GatewayInput]) {
    if !tracing::enabled!(tracing::Level::DEBUG) {
        return;
    }
    for input in inputs {
        match input {
            GatewayInput::Call { ticket, key, operation, .. } => {
                debug!(ticket, kind = operation_kind(operation), key = %Short(key), "request");
            }
            GatewayInput::Flush { ticket, prefix } => {
                debug!(ticket, kind = "flush", prefix = %Short(prefix), "request");
            }
            GatewayInput::Timeout
            | GatewayInput::ManagerUp(_)
            | GatewayInput::ManagerDown(_)
            | GatewayInput::Manager(..)
            | GatewayInput::ServerUp(_)
            | GatewayInput::ServerDown(_)
            | GatewayInput::Server(..) => debug!(what = %Short(input), "in"),
        }
    }
}

/// What a client's request came to.
pub fn answered(ticket: u64, result: &Result<Answer, GatewayError>) {
    match result {
        Ok(answer) => debug!(ticket, kind = answer_kind(answer), "answer"),
        Err(error) => debug!(ticket, %error, "answer"),
    }
}

pub fn to_server(input: &ServerInput) {
    debug!(what = %Short(input), "in");
}

pub fn of_server(effect: &ServerEffect) {
    debug!(what = %Short(effect), "out");
}

fn operation_kind(operation: &Operation) -> &'static str {
    match operation {
        Operation::Get => "get",
        Operation::GetAndTouch { .. } => "gat",
        Operation::Set { .. } => "set",
        Operation::Add { .. } => "add",
        Operation::Replace { .. } => "replace",
        Operation::Cas { .. } => "cas",
        Operation::Append { .. } => "append",
        Operation::Prepend { .. } => "prepend",
        Operation::Delete { .. } => "delete",
        Operation::Touch { .. } => "touch",
        Operation::Add64 { down: false, .. } => "incr",
        Operation::Add64 { down: true, .. } => "decr",
    }
}

fn answer_kind(answer: &Answer) -> &'static str {
    match answer {
        Answer::Reply(Reply::Done { .. }) => "done",
        Answer::Reply(Reply::Number { .. }) => "number",
        Answer::Reply(Reply::Value { .. }) => "value",
        Answer::Reply(Reply::Touched { .. }) => "touched",
        Answer::Missing => "missing",
        Answer::NotStored => "not stored",
        Answer::Exists => "exists",
        Answer::NotNumeric => "not a number",
        Answer::TooLarge => "too large",
        Answer::WrongSpace { .. } => "wrong space",
        Answer::Wait => "wait",
        Answer::Unknown => "unknown",
        Answer::Refused { .. } => "refused",
    }
}

/// The beginning of how something is written: a value of a megabyte is not.
struct Short<'a, T>(&'a T);

impl<T: Debug> Display for Short<'_, T> {
    fn fmt(&self, formatter: &mut Formatter) -> fmt::Result {
        let mut cut = Cut { formatter, left: BYTES_MAX, full: false };
        let written = write!(cut, "{:?}", self.0);
        match cut.full {
            // What stopped it was the cut: the line goes on.
            true => formatter.write_str("…"),
            false => written,
        }
    }
}

/// Stops who writes to it once there is enough.
struct Cut<'a, 'b> {
    formatter: &'a mut Formatter<'b>,
    left: usize,
    full: bool,
}

impl Write for Cut<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = text.floor_char_boundary(self.left);
        self.left -= end;
        self.formatter.write_str(&text[..end])?;
        self.full |= end < text.len();
        if self.full { Err(fmt::Error) } else { Ok(()) }
    }
}

/// Enough for who, what, and the key.
const BYTES_MAX: usize = 320;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_short_is_whole_and_a_large_value_is_cut() {
        assert_eq!(Short(&"key").to_string(), "\"key\"");
        let large = Short(&"é".repeat(1 << 20)).to_string();
        assert!(large.ends_with("é…") && large.len() <= BYTES_MAX + "…".len(), "{large}");
        let operation = Operation::Set { flags: 7, expiry: 0, data: vec![0u8; 1 << 20].into() };
        let text = Short(&operation).to_string();
        assert!(text.starts_with("Set { flags: 7, ") && text.len() < 400, "{text}");
    }
}
