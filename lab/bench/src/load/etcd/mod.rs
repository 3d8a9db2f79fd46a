//! etcd: as much of HTTP/2, gRPC and its messages as its clients need, and clients that write, read and lock.

mod client;
mod http2;
mod protobuf;

use super::{Driver, Load, Plan, Values};
use crate::failure::{Context, Failure, Result};
use client::Client;
pub use client::Op;
use http2::{Http2, Received};
use protobuf::Message;
use std::cell::Cell;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;
use std::time::Duration;

/// A load; each client has a connection, and a key or lock of its own unless `op` says otherwise.
pub fn load(op: Op, size: usize, plan: Plan) -> Load {
    Box::new(move || {
        let (values, newest) = (Values::new(size), Rc::new(Cell::new(0)));
        let mut serial = 0;
        Driver::run(&plan, |client| {
            // A connection that comes after a lost one must not meet what the lost one may still write.
            serial += 1;
            Client::new(op, client as u64, serial, values.clone(), newest.clone())
        })
    })
}

/// Whether the member at `address` leads; `None`: it does not answer, or knows no leader.
pub fn is_leader(address: SocketAddr) -> Option<bool> {
    let answer = ask_once(address, "/etcdserverpb.Maintenance/Status").ok()?;
    let status = Message(&answer);
    let leader = status.number(4).ok()??;
    let own = Message(status.bytes(1).ok()??).number(2).ok()??;
    (leader != 0).then_some(leader == own)
}

/// One call with an empty message, on a connection of its own.
fn ask_once(address: SocketAddr, path: &str) -> Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&address, ASK_MAX).context(address)?;
    stream.set_read_timeout(Some(ASK_MAX)).context(address)?;
    let (mut http, mut out, mut input) = (Http2::new(), Vec::new(), Vec::new());
    http.open(&mut out);
    http.call(path, &[], &mut out)?;
    let mut scratch = [0; 4096];
    loop {
        stream.write_all(&std::mem::take(&mut out)).context(address)?;
        let count = stream.read(&mut scratch).context(address)?;
        if count == 0 {
            return Err(Failure::new(format!("{address} closes the connection")));
        }
        input.extend_from_slice(&scratch[..count]);
        while let Some((received, taken)) = http.hear(&input, &mut out)? {
            input.drain(..taken);
            if let Received::Answer(answer) = received {
                return Ok(answer);
            }
        }
    }
}

/// A member that does not answer by then is not there.
const ASK_MAX: Duration = Duration::from_secs(1);
