//! Order, exactly-once, events and read routing on an agreed sequence (seed 004, part IV).

mod application;
mod protocol;
mod step;

pub use application::{Application, Entry, GENERATION_SHIFT, Outcome, SessionId, UnixMillis, numbered};
pub use protocol::{
    Ask, CLIENT_FRAME_BYTES_MAX, CellMessage, ClientMessage, EndReason, Label, Reply, SessionInfo,
};
pub use step::{
    Answer, CallError, CellSettings, ClientEffect, ClientInput, ClientSettings, ConnectionId, Effect, Input,
    NodeNote, SessionState,
};
