//! Reading and judging the first frame of a connection.

use super::inbox::Inbox;
use bytes::Bytes;
use kumo_paxos::{Hello, MAGIC, VERSION};
use kumo_session::{Application, Cell, GREETING_BYTES_MAX, Greeting};
use kumo_wire::{Malformed, Reader, Wire};

/// The first frame, once it is whole. An error is a sentence for the sender.
pub fn take(inbox: &mut Inbox) -> Result<Option<Greeting>, String> {
    match inbox.take(GREETING_BYTES_MAX) {
        Ok(None) => Ok(None),
        Ok(Some(body)) => decode(body).map(Some),
        Err(malformed) => Err(format!("not a greeting: {malformed}")),
    }
}

/// Whether a hello speaks this node's protocol and is welcome in its cell.
pub fn judge<A: Application>(hello: &Hello, cell: &Cell<A>) -> Result<(), String> {
    check(hello.magic, hello.version)?;
    cell.greet(hello)
}

fn decode(body: Bytes) -> Result<Greeting, String> {
    let malformed = match Greeting::from_bytes(body.clone()) {
        Ok(greeting) => return Ok(greeting),
        Err(malformed) => malformed,
    };
    // Another version may have laid out the rest differently: say that instead.
    if let Ok((HELLO_KIND, (magic, version))) = opening(body) {
        check(magic, version)?;
    }
    Err(format!("not a greeting: {malformed}"))
}

/// What every version's hello begins with.
fn opening(body: Bytes) -> Result<(u8, (u64, u32)), Malformed> {
    Wire::decode(&mut Reader::new(body))
}

fn check(magic: u64, version: u32) -> Result<(), String> {
    if magic != MAGIC {
        return Err("wrong magic: this port speaks kumo's cell protocol only".to_owned());
    }
    if version != VERSION {
        return Err(format!("protocol version {version} is not spoken here, version {VERSION} is"));
    }
    Ok(())
}

/// The number of [`Greeting::Hello`].
const HELLO_KIND: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::{BufMut, BytesMut};

    fn opened(magic: u64, version: u32) -> String {
        let mut body = BytesMut::new();
        body.put_u8(1);
        body.put_u64_le(magic);
        body.put_u32_le(version);
        body.put_slice(b"laid out otherwise");
        decode(body.freeze()).unwrap_err()
    }

    #[test]
    fn another_version_is_told_so_whatever_follows() {
        assert_eq!(opened(MAGIC, 9), format!("protocol version 9 is not spoken here, version {VERSION} is"));
        assert_eq!(opened(7, 1), "wrong magic: this port speaks kumo's cell protocol only");
        assert!(opened(MAGIC, VERSION).starts_with("not a greeting: "));
    }

    #[test]
    fn arbitrary_bytes_are_an_error() {
        for length in 0..64 {
            for byte in [0u8, 1, 2, 3, 255] {
                assert!(decode(Bytes::from(vec![byte; length])).is_err());
            }
        }
    }
}
