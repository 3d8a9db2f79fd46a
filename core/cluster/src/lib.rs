//! The store without IO: the hash space, records and their order, and the three roles that use them.

mod cluster;
pub mod control;
mod gateway;
mod hash;
mod identity;
mod manager;
mod message;
mod mutation;
mod record;
mod ring;
mod server;
mod space;
mod step;
mod store;

pub use cluster::{Cluster, Command, GATEWAYS_MAX, LEASE_MICROS_MAX, Lead, Objection, Order, Query};
pub use gateway::Gateway;
pub use hash::{KeyHash, key_hash};
pub use identity::{GatewayId, Incarnation, RequestId, ServerId};
pub use manager::Manager;
pub use message::{
    Alive, Answer, Committed, Initial, Message, Operation, Origin, Progress, Range, Refusal, Remembered,
    Reply, Request, Unsettled,
};
pub use mutation::{Broken, Mutation};
pub use record::{Clock, Kind, Record, SpaceNumber, Stamp};
pub use ring::{Arc, COPIES, POINTS, Table, points};
pub use server::{Counts, Server};
pub use space::{Job, MEMBERS_MAX, Member, MemberState, Space};
pub use step::{
    CellView, GatewayEffect, GatewayError, GatewayInput, GatewayNote, GatewaySettings, ManagerEffect,
    ManagerInput, ManagerNote, ManagerSettings, ServerEffect, ServerInput, ServerNote, ServerSettings,
};
pub use store::{Fault, Head, Store, StoreKey, Usage};
