//! [`Client`]: the counter seen from outside. Sessions, retries and the search for the master are the library's.

use crate::counters::{Command, Query, Reply};
use kumo_wire::Wire;
use pfs::{Error, Options, Session};

pub struct Client {
    session: Session,
}

impl Client {
    /// Reads are linear: they see every count that anybody was told.
    pub async fn open(options: &Options) -> Result<Client, Error> {
        let options = Options { sync: true, ..options.clone() };
        Ok(Client { session: Session::open(&options).await? })
    }

    /// Adds once, however often it had to be sent, and returns the new count.
    pub async fn add(&self, name: &str, amount: u64) -> Result<u64, Error> {
        self.change(Command::Add { name: name.to_owned(), amount }).await
    }

    /// Returns the count as soon as it is at least that.
    pub async fn wait(&self, name: &str, at_least: u64) -> Result<u64, Error> {
        self.change(Command::Wait { name: name.to_owned(), at_least }).await
    }

    pub async fn get(&self, name: &str) -> Result<u64, Error> {
        let query = Query { name: name.to_owned() };
        count(self.session.inquire(query.to_bytes()).await?)
    }

    pub async fn close(&self) -> Result<(), Error> {
        self.session.close().await
    }

    async fn change(&self, command: Command) -> Result<u64, Error> {
        count(self.session.request(command.to_bytes()).await?)
    }
}

fn count(reply: bytes::Bytes) -> Result<u64, Error> {
    match Reply::from_bytes(reply) {
        Ok(Reply::Count(count)) => Ok(count),
        Ok(Reply::Refused(refusal)) => Err(Error::CellRefused(refusal.to_string())),
        Err(malformed) => Err(Error::Protocol(malformed.to_string())),
    }
}
