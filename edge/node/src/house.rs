//! [`House`]: what else lives in the process of a replica and is served at its port: the store's manager.

use bytes::Bytes;
use kumo_paxos::{Change, Hello, Time};
use kumo_session::{Application, Cell, ConnectionId};

/// Something that stands beside a cell: it looks at what the cell has executed, has connections of its own at the
/// same port, and may put commands up for agreement.
pub trait House<A: Application> {
    /// Whether connections of the store are taken in at all.
    const OPEN: bool;

    /// What happened to its connections since the last turn, and what the cell looks like now. Called at the end of
    /// every turn, and when its deadline has passed.
    fn turn(
        &mut self,
        now: Time,
        arrived: &mut Vec<HouseInput>,
        cell: &Cell<A>,
        wanted: &mut Vec<HouseEffect>,
    );

    fn deadline(&self) -> Option<Time>;
}

/// What happened to a connection of the house.
#[derive(Clone, Debug)]
pub enum HouseInput {
    Up(ConnectionId, Hello),
    Down(ConnectionId),
    Frame(ConnectionId, Bytes),
}

/// What the house wants done.
#[derive(Clone, Debug)]
pub enum HouseEffect {
    /// One frame's body.
    Send(ConnectionId, Bytes),
    /// Close after what was sent to it.
    Hangup(ConnectionId),
    /// A command without a session.
    Propose(Bytes),
    /// A change of the cell's members.
    Change(Change),
}

/// A plain cell has nobody beside it.
pub struct NoHouse;

impl<A: Application> House<A> for NoHouse {
    const OPEN: bool = false;

    fn turn(&mut self, _: Time, _: &mut Vec<HouseInput>, _: &Cell<A>, _: &mut Vec<HouseEffect>) {}

    fn deadline(&self) -> Option<Time> {
        None
    }
}
