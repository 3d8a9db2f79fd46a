//! [`Caller`]: a client of a load, of a gateway or of the servers themselves.

use crate::client::Client;
use crate::cluster::{Cluster, until};
use pfs::{Store, StoreError, StoreOptions};
use std::io::{Error, Result};
use std::net::SocketAddr;
use tokio::runtime::{Handle, Runtime};

/// Where callers come from.
pub enum Callers {
    Gateway(SocketAddr),
    /// Native clients, shared by all callers.
    Native {
        stores: Vec<Store>,
        runtime: Runtime,
    },
}

/// An error is an unknown outcome.
pub enum Caller {
    Gateway(Client),
    Native { store: Store, runtime: Handle },
}

impl Callers {
    /// Native clients; the last one reads at all copies in turn.
    pub fn native(cluster: &Cluster) -> Callers {
        let managers: Vec<_> = cluster.managers.iter().map(|manager| manager.address).collect();
        let runtime = Runtime::new().expect("threads can be started");
        let open = |spread_reads| {
            let options = StoreOptions { spread_reads, ..StoreOptions::new(managers.clone()) };
            let _inside = runtime.enter();
            Store::open(&options).expect("a native client")
        };
        let stores = [false, false, false, true].map(open).into();
        Callers::Native { stores, runtime }
    }

    pub fn call(&self, number: usize) -> Caller {
        match self {
            Callers::Gateway(address) => {
                Caller::Gateway(until("the gateway takes a client", || Client::open(*address)))
            }
            Callers::Native { stores, runtime } => {
                let store = stores[number % stores.len()].clone();
                Caller::Native { store, runtime: runtime.handle().clone() }
            }
        }
    }
}

impl Caller {
    pub fn set(&mut self, key: &str, value: &str) -> Result<()> {
        match self {
            Caller::Gateway(client) => client.set(key, value).map(|_| ()),
            Caller::Native { store, runtime } => {
                let stored = runtime.block_on(store.set(key.to_owned(), value.to_owned(), 0, 0));
                stored.map(|_| ()).map_err(unknown)
            }
        }
    }

    pub fn add(&mut self, key: &str, value: &str) -> Result<bool> {
        match self {
            Caller::Gateway(client) => client.add(key, value),
            Caller::Native { store, runtime } => {
                let stored = runtime.block_on(store.add(key.to_owned(), value.to_owned(), 0, 0));
                stored.map(|stored| stored.is_some()).map_err(unknown)
            }
        }
    }

    pub fn get(&mut self, key: &str) -> Result<Option<String>> {
        match self {
            Caller::Gateway(client) => client.get(key),
            Caller::Native { store, runtime } => {
                let item = runtime.block_on(store.get(key.to_owned())).map_err(unknown)?;
                Ok(item.map(|item| String::from_utf8(item.data.to_vec()).expect("values are text here")))
            }
        }
    }

    pub fn increment(&mut self, key: &str) -> Result<Option<u64>> {
        match self {
            Caller::Gateway(client) => client.increment(key),
            Caller::Native { store, runtime } => {
                runtime.block_on(store.increment(key.to_owned(), 1, None)).map_err(unknown)
            }
        }
    }

    pub fn delete(&mut self, key: &str) -> Result<bool> {
        match self {
            Caller::Gateway(client) => client.delete(key),
            Caller::Native { store, runtime } => {
                runtime.block_on(store.delete(key.to_owned())).map_err(unknown)
            }
        }
    }
}

/// A native client connects again by itself.
fn unknown(error: StoreError) -> Error {
    Error::other(error.to_string())
}
