//! [`Log`]: a plain ordered log in the place of a cell, and a few names.

use kumo_cluster::{
    Author, Broken, Cluster, Command, Incarnation, Lead, MemberState, Objection, Order, ServerId, SpaceNumber,
};
use kumo_paxos::{CellId, Instance};
use kumo_session::{Application, Entry, Outcome, SessionId, UnixMillis};
use kumo_wire::Wire;
use std::net::SocketAddr;

pub const CELL: CellId = CellId(0xce11);

/// An operator's.
pub const CANCEL: Order = Order::Cancel { author: Author::Operator };

pub struct Log {
    pub cluster: Cluster,
    pub generation: u32,
    pub instance: u64,
    tickets: u64,
}

pub fn address(number: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 19800 + number))
}

/// Server `number` in its life `life`.
pub fn server(number: u16, life: u128) -> ServerId {
    ServerId { address: address(number), incarnation: Incarnation(life) }
}

impl Log {
    pub fn new() -> Log {
        Log { cluster: Cluster::with_broken(Broken::default()), generation: 0, instance: 0, tickets: 0 }
    }

    /// With a master, and these servers attached in their first lives.
    pub fn with_servers(numbers: impl IntoIterator<Item = u16>) -> Log {
        let mut log = Log::new();
        log.lead(1);
        log.replace(numbers.into_iter().map(|number| server(number, 1)), []).unwrap();
        log
    }

    pub fn apply(&mut self, command: Command) -> Result<(), Objection> {
        self.apply_bytes(command.to_bytes())
    }

    /// Every state also comes back from its snapshot, and no refused command changes anything but the time.
    pub fn apply_bytes(&mut self, command: bytes::Bytes) -> Result<(), Objection> {
        self.instance += 1;
        let entry = Entry {
            instance: Instance(self.instance),
            generation: self.generation,
            time: UnixMillis(1_000_000 + self.instance),
            session: SessionId(0),
            number: 0,
        };
        let before = self.cluster.space().clone();
        let mut outcome = Outcome::default();
        self.cluster.apply(entry, command, &mut outcome);
        let again = Cluster::restore(self.cluster.snapshot().collect()).unwrap();
        assert_eq!(again, self.cluster, "the state comes back from its snapshot");
        let objection = Option::<Objection>::from_bytes(outcome.reply.unwrap()).unwrap();
        if objection.is_some() {
            assert_eq!(before, *self.cluster.space(), "what is refused changes nothing");
        }
        objection.map_or(Ok(()), Err)
    }

    pub fn lead(&mut self, life: u128) {
        let after = self.cluster.term();
        let lead = Lead { after, life, cluster: CELL, lease_micros: 1_500_000, auto_replace: false };
        self.apply(Command::Lead(lead)).unwrap();
    }

    pub fn order(&mut self, order: Order) -> Result<(), Objection> {
        self.tickets += 1;
        let (term, ticket) = (self.cluster.term(), self.tickets);
        let done = self.apply(Command::Order { term, ticket, order });
        assert_eq!(self.cluster.answer(ticket), Some(done));
        done
    }

    pub fn replace(
        &mut self,
        attach: impl IntoIterator<Item = ServerId>,
        detach: impl IntoIterator<Item = u16>,
    ) -> Result<(), Objection> {
        self.replace_by(Author::Operator, attach, detach)
    }

    pub fn replace_by(
        &mut self,
        author: Author,
        attach: impl IntoIterator<Item = ServerId>,
        detach: impl IntoIterator<Item = u16>,
    ) -> Result<(), Objection> {
        let number = self.number();
        let attach = attach.into_iter().collect();
        let detach = detach.into_iter().map(address).collect();
        let above = SpaceNumber(0);
        self.order(Order::Replace { number, above, attach, detach, accept_loss: false, author })
    }

    pub fn fault(&mut self, servers: impl IntoIterator<Item = ServerId>) -> Result<(), Objection> {
        let (term, number) = (self.cluster.term(), self.number());
        self.apply(Command::Fault { term, number, servers: servers.into_iter().collect() })
    }

    /// Server `number`, lost in `life`, is back in the next one.
    pub fn bring_back(&mut self, number: u16, life: u128) -> Result<(), Objection> {
        let (term, at) = (self.cluster.term(), self.number());
        let servers = vec![(server(number, life), Incarnation(life + 1))];
        self.apply(Command::Return { term, number: at, servers })
    }

    /// No server knows of a space that a recovery lost.
    pub fn remembered(&mut self) -> Result<(), Objection> {
        let (term, number) = (self.cluster.term(), self.number());
        self.apply(Command::Remembered { term, number })
    }

    pub fn switch(&mut self) -> Result<(), Objection> {
        let (term, number) = (self.cluster.term(), self.number());
        self.apply(Command::Switch { term, number })
    }

    pub fn cleared(&mut self) -> Result<(), Objection> {
        let (term, number) = (self.cluster.term(), self.number());
        self.apply(Command::Cleared { term, number })
    }

    pub fn number(&self) -> SpaceNumber {
        self.cluster.space().number
    }

    pub fn state(&self, server: ServerId) -> Option<MemberState> {
        let space = self.cluster.space();
        space.index_of(server).map(|index| space.member(index).state)
    }

    /// A ring's servers as (number, life).
    pub fn ring(&self, indexes: &[u16]) -> Vec<(u16, u128)> {
        let servers = indexes.iter().map(|&index| self.cluster.space().server(index));
        servers.map(|server| (server.address.port() - 19800, server.incarnation.0)).collect()
    }

    /// The ring that is read, the one that is written to, and the old members.
    pub fn rings(&self) -> [Vec<(u16, u128)>; 3] {
        let space = self.cluster.space();
        [&space.rhs, &space.whs, &space.old].map(|indexes| self.ring(indexes))
    }
}
