//! [`Greeting`]: the first frame on a connection, in either direction.

use kumo_paxos::Hello;
use kumo_wire::wire_enum;

/// The first frame a side sends. Who dialled speaks first; who listens answers with its own hello, or with a
/// refusal and then closes. After two hellos a replica sends [`Envelope`](kumo_paxos::Envelope)s, a client
/// [`ClientMessage`](crate::ClientMessage)s, and what listens answers a client with
/// [`CellMessage`](crate::CellMessage)s; nothing is sent back to a replica that dialled.
///
/// | number | greeting | body                              |
/// |      1 | Hello    | [`Hello`]                         |
/// |      2 | Refused  | reason: a sentence for the sender |
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Greeting {
    Hello(Hello),
    Refused { reason: String },
}

/// The largest first frame: nothing is known of the sender yet.
pub const GREETING_BYTES_MAX: usize = 4096;

wire_enum!(Greeting { 1 = Hello(hello), 2 = Refused { reason } });

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use kumo_paxos::{CellId, Incarnation, MAGIC, Side, VERSION};
    use kumo_wire::Wire;

    #[test]
    fn greetings_come_back_and_truncations_are_errors() {
        let hello = Hello {
            magic: MAGIC,
            version: VERSION,
            cell: CellId(7),
            generation: 1,
            side: Side::Client,
            address: "127.0.0.1:19700".parse().unwrap(),
            incarnation: Incarnation(0),
        };
        for greeting in [Greeting::Hello(hello), Greeting::Refused { reason: "no".to_owned() }] {
            let whole = greeting.to_bytes();
            assert!(whole.len() <= GREETING_BYTES_MAX);
            for length in 0..whole.len() {
                assert!(Greeting::from_bytes(whole.slice(..length)).is_err(), "length {length}");
            }
            assert_eq!(Greeting::from_bytes(whole), Ok(greeting));
        }
        assert!(Greeting::from_bytes(Bytes::from_static(&[3])).is_err());
    }
}
