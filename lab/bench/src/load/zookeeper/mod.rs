//! ZooKeeper: its wire protocol, and clients that write, read and lock.

mod client;
mod frame;

use super::{Driver, Load, Plan, Values};
use client::Client;
pub use client::Op;
use std::cell::Cell;
use std::rc::Rc;

/// A load; each client has a session, and a znode or lock of its own unless `op` says otherwise.
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
