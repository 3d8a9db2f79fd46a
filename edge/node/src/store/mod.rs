//! The processes of the store: a loop each around its core.

pub mod binary_log;
mod budget;
mod client;
mod clients;
mod credentials;
mod door;
mod failures;
mod faults;
mod garbage;
mod gateway;
mod kept;
mod manager;
mod notes;
mod origin;
mod outage;
mod relay;
mod report;
mod request;
mod room;
mod server;
mod stats;
mod talk;
mod trouble;
mod voter;
mod worker;

pub use credentials::{Credentials, CredentialsError};
pub use garbage::GarbageLimits;
pub use gateway::{GatewayConfig, run_gateway};
pub use kumo_store::Sync as StoreSync;
pub use manager::ManagerHouse;
pub use origin::origin;
pub use server::{ServerConfig, run_server};
