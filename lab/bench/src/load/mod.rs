//! Loads of our own, for peers that do not speak memcached: clients without IO ([`Talk`]), driven in a closed loop.

mod bytes;
mod driver;
pub mod etcd;
pub mod redis;
mod value;
pub mod zookeeper;

use crate::failure::Result;
use crate::sample::Sample;
pub use driver::Driver;
use std::net::SocketAddr;
use std::time::Duration;
pub use value::Values;

/// A load, ready to be run, in a thread of its own if need be.
pub type Load = Box<dyn FnOnce() -> Result<Sample> + Send>;

/// What a client does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Greets, and makes what must be there before the clock runs.
    Prepare,
    /// One operation that is timed.
    Operate,
    /// Compares what is stored with what was acknowledged.
    Verify,
}

/// One client on one connection, without IO. It asks in turns, and a turn is over when the client says so.
pub trait Talk {
    /// Appends the first request of a turn.
    fn begin(&mut self, turn: Turn, out: &mut Vec<u8>);

    /// Takes the first message of `input`, if it is whole, and appends what is to be said next.
    /// A reply that is wrong or a refusal is a failure of the turn.
    fn hear(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<Heard>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// The message is not whole yet.
    Partial,
    /// So many bytes are done with; the turn goes on.
    Taken(usize),
    /// So many bytes are done with, and the turn is over, with so many operations.
    Done { taken: usize, operations: u32 },
}

/// How a load is to be run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Clients go to them in turn, and to the next one when they lose theirs.
    pub addresses: Vec<SocketAddr>,
    pub clients: usize,
    pub secs: f64,
    /// Whose processor time is counted.
    pub pids: Vec<u32>,
    /// After this time a client gives a request up, and goes elsewhere; `None`: it waits.
    pub patience: Option<Duration>,
}
