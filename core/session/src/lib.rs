//! Order, exactly-once, events and read routing on an agreed sequence (seed 004, part IV).

mod application;
mod cell;
mod client;
mod digest;
mod entry;
mod expiry;
mod front;
mod greeting;
mod operator;
mod protocol;
mod reads;
mod receive;
mod serve;
mod session;
mod snapshot;
mod step;
mod table;
mod transfer;

pub use application::{Application, Entry, GENERATION_SHIFT, Outcome, SessionId, UnixMillis, numbered};
pub use cell::Cell;
pub use client::Client;
pub use greeting::{GREETING_BYTES_MAX, Greeting};
pub use protocol::{
    Ask, CLIENT_FRAME_BYTES_MAX, CellMessage, ClientMessage, EndReason, Label, Reply, SessionInfo,
};
pub use snapshot::Parts;
pub use step::{
    Answer, CallError, CellSettings, ClientEffect, ClientInput, ClientSettings, ConnectionId, Effect, Input,
    NodeNote, SessionState,
};
