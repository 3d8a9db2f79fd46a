//! What an instance is decided on. Agreement does not know what a command means.

use crate::configuration::{Configuration, Genesis};
use bytes::Bytes;
use kumo_wire::wire_enum;
use std::fmt;

/// The name of an out-of-band value: the BLAKE3 hash of its bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DataName(pub [u8; 32]);

impl DataName {
    pub fn of(bytes: &[u8]) -> DataName {
        DataName(blake3::hash(bytes).into())
    }
}

impl fmt::Debug for DataName {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        self.0[..6].iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

/// A value. Its identity is its content, not who proposed it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Value {
    /// Fills a hole.
    Noop,
    /// Up to [`IN_BAND_MAX`] bytes that travel in the log.
    Command(Bytes),
    /// A larger command: the log holds its name, the bytes travel beside it. Accepted only by who holds them.
    Large { name: DataName, length: u32 },
    /// A change of members.
    Config(Configuration),
    /// Entry 0, or the first entry of a recovered generation. Never proposed: fixed by who forms or recovers.
    Genesis(Genesis),
}

impl Value {
    /// Bytes this value takes in the log, for limits.
    pub fn weight(&self) -> usize {
        match self {
            Value::Noop => ENTRY_BYTES,
            Value::Command(bytes) => ENTRY_BYTES + bytes.len(),
            Value::Large { length, .. } => ENTRY_BYTES + *length as usize,
            Value::Config(configuration) | Value::Genesis(Genesis { configuration, .. }) => {
                ENTRY_BYTES + configuration.members.len() * ENTRY_BYTES
            }
        }
    }
}

/// What an entry costs beside its bytes, about.
const ENTRY_BYTES: usize = 64;

/// Finds the name of bytes that come one piece after another. Its state takes two kilobytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Naming(Box<blake3::Hasher>);

impl Naming {
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub fn name(&self) -> DataName {
        DataName(self.0.finalize().into())
    }
}

/// Commands above this travel out of band. (The seed's PAXOS_COMMAND_SIZE.)
pub const IN_BAND_MAX: usize = 64 * 1024;

/// The largest command, out of band.
pub const OUT_OF_BAND_MAX: usize = 64 * 1024 * 1024 + 16 * 1024;

wire_enum!(Value { 0 = Noop, 1 = Command(bytes), 2 = Large { name, length }, 3 = Config(configuration), 4 = Genesis(genesis) });

impl kumo_wire::Wire for DataName {
    fn encode(&self, out: &mut kumo_wire::Writer) {
        self.0.encode(out);
    }
    fn decode(input: &mut kumo_wire::Reader) -> Result<Self, kumo_wire::Malformed> {
        Ok(DataName(kumo_wire::Wire::decode(input)?))
    }
}
