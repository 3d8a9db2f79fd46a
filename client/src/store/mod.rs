//! [`Store`]: the native client of the store. It holds the hash space and asks the servers of a key themselves.

mod carrier;
mod result;

pub use result::{CasResult, Item, StoreError};

use bytes::Bytes;
use carrier::{Carrier, Order};
use kumo_cluster::{Answer, Early, GatewaySettings, Initial, Operation, Reply};
use kumo_wire::SHARED_BYTES_MAX;
use kumo_wire::memcache::{KEY_BYTES_MAX, VALUE_BYTES_MAX_DEFAULT};
use result::unexpected;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// How the store is reached.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Some managers; the others are learned from them.
    pub managers: Vec<SocketAddr>,
    /// How long one server may take to answer before the call is tried elsewhere.
    pub try_for: Duration,
    /// How long a call may take in all.
    pub request_for: Duration,
    /// Read at any server of a key in turn, not only at its first: for hot keys.
    pub spread_reads: bool,
    /// The longest value that is sent: at most 64 MiB.
    pub value_bytes_max: usize,
}

/// A handle on the store; clones share its connections.
///
/// It keeps the promises a gateway keeps: a write that is answered is on every server of its key, a call is
/// executed at most once however often it was sent, and operations on one key are linearizable. A call whose future
/// is dropped goes on; its outcome is unknown.
///
/// ```no_run
/// # async fn example() -> Result<(), pfs::StoreError> {
/// let store = pfs::Store::open(&pfs::StoreOptions::new(["127.0.0.1:19700".parse().expect("an address")]))?;
/// let unique = store.set("colour", "blue", 0, 0).await?;
/// assert_eq!(store.get("colour").await?.map(|item| item.unique), Some(unique));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Store {
    orders: mpsc::Sender<Order>,
    value_bytes_max: usize,
}

impl StoreOptions {
    pub fn new(managers: impl Into<Vec<SocketAddr>>) -> StoreOptions {
        StoreOptions { managers: managers.into(), ..StoreOptions::default() }
    }

    fn settings(&self, nonce: u128) -> GatewaySettings {
        GatewaySettings {
            nonce,
            cluster: None,
            get_retry_max: 5,
            set_retry_max: 20,
            delete_retry_max: 20,
            renew_threshold: 5,
            try_micros: self.try_for.as_micros() as u64,
            request_micros: self.request_for.as_micros() as u64,
            early: Early::default(),
            spread_reads: self.spread_reads,
            keepalive_micros: 2_000_000,
            workers: 1,
        }
    }
}

impl Default for StoreOptions {
    /// As a gateway's.
    fn default() -> StoreOptions {
        StoreOptions {
            managers: vec![([127, 0, 0, 1], crate::PORT).into()],
            try_for: Duration::from_secs(5),
            request_for: Duration::from_secs(30),
            spread_reads: false,
            value_bytes_max: VALUE_BYTES_MAX_DEFAULT,
        }
    }
}

impl Store {
    /// Starts on the current tokio runtime. It connects by itself, and again whenever a connection breaks: a call
    /// waits for that as long as `request_for` allows.
    pub fn open(options: &StoreOptions) -> Result<Store, StoreError> {
        let nonce = random()?;
        let (orders, receiver) = mpsc::channel(ORDERS_MAX);
        Carrier::start(options.settings(nonce), &options.managers, receiver, random()? as u64);
        Ok(Store { orders, value_bytes_max: options.value_bytes_max.min(VALUE_BYTES_MAX) })
    }

    pub async fn get(&self, key: impl Into<Bytes>) -> Result<Option<Item>, StoreError> {
        self.value(key.into(), Operation::Get).await
    }

    /// A get that also sets the expiry.
    pub async fn get_and_touch(
        &self,
        key: impl Into<Bytes>,
        expiry: i64,
    ) -> Result<Option<Item>, StoreError> {
        self.value(key.into(), Operation::GetAndTouch { expiry }).await
    }

    /// Many keys at once, answered in their order.
    pub async fn get_many(
        &self,
        keys: impl IntoIterator<Item = impl Into<Bytes>>,
    ) -> Result<Vec<Option<Item>>, StoreError> {
        let mut waiting = Vec::new();
        for key in keys {
            waiting.push(self.begin(key.into(), Operation::Get).await?);
        }
        let mut found = Vec::with_capacity(waiting.len());
        for answer in waiting {
            found.push(item(result::settled(answer.await)?)?);
        }
        Ok(found)
    }

    /// Stores it whatever is there. `expiry` as memcached's: 0 is never, up to 30 days are seconds from now, more is a
    /// time, less than 0 has passed. Returns the version's number.
    pub async fn set(
        &self,
        key: impl Into<Bytes>,
        data: impl Into<Bytes>,
        flags: u32,
        expiry: i64,
    ) -> Result<u64, StoreError> {
        let data = self.checked(data.into())?;
        match self.call(key.into(), Operation::Set { flags, expiry, data }).await? {
            Answer::Reply(Reply::Done { clock }) => Ok(clock),
            other => Err(unexpected(other)),
        }
    }

    /// Stores it if nothing is there. None: something is.
    pub async fn add(
        &self,
        key: impl Into<Bytes>,
        data: impl Into<Bytes>,
        flags: u32,
        expiry: i64,
    ) -> Result<Option<u64>, StoreError> {
        let data = self.checked(data.into())?;
        stored(self.call(key.into(), Operation::Add { flags, expiry, data }).await?)
    }

    /// Stores it if something is there. None: nothing is.
    pub async fn replace(
        &self,
        key: impl Into<Bytes>,
        data: impl Into<Bytes>,
        flags: u32,
        expiry: i64,
    ) -> Result<Option<u64>, StoreError> {
        let data = self.checked(data.into())?;
        stored(self.call(key.into(), Operation::Replace { flags, expiry, data }).await?)
    }

    /// Stores it if the version there is `unique`.
    pub async fn cas(
        &self,
        key: impl Into<Bytes>,
        data: impl Into<Bytes>,
        unique: u64,
        flags: u32,
        expiry: i64,
    ) -> Result<CasResult, StoreError> {
        let data = self.checked(data.into())?;
        match self.call(key.into(), Operation::Cas { unique, flags, expiry, data }).await? {
            Answer::Reply(Reply::Done { clock }) => Ok(CasResult::Stored(clock)),
            Answer::Exists => Ok(CasResult::Changed),
            Answer::Missing => Ok(CasResult::Missing),
            other => Err(unexpected(other)),
        }
    }

    /// Adds to the end of what is there. None: nothing is.
    pub async fn append(
        &self,
        key: impl Into<Bytes>,
        data: impl Into<Bytes>,
    ) -> Result<Option<u64>, StoreError> {
        let data = self.checked(data.into())?;
        stored(self.call(key.into(), Operation::Append { unique: None, data }).await?)
    }

    /// Puts it before what is there. None: nothing is.
    pub async fn prepend(
        &self,
        key: impl Into<Bytes>,
        data: impl Into<Bytes>,
    ) -> Result<Option<u64>, StoreError> {
        let data = self.checked(data.into())?;
        stored(self.call(key.into(), Operation::Prepend { unique: None, data }).await?)
    }

    /// False: nothing was there.
    pub async fn delete(&self, key: impl Into<Bytes>) -> Result<bool, StoreError> {
        done(self.call(key.into(), Operation::Delete { unique: None }).await?)
    }

    /// False: nothing was there.
    pub async fn touch(&self, key: impl Into<Bytes>, expiry: i64) -> Result<bool, StoreError> {
        done(self.call(key.into(), Operation::Touch { expiry }).await?)
    }

    /// Adds to the number that is there, and returns the new one. A missing key becomes `initial`, if there is one,
    /// with no expiry; otherwise None. It wraps around at 64 bits.
    pub async fn increment(
        &self,
        key: impl Into<Bytes>,
        delta: u64,
        initial: Option<u64>,
    ) -> Result<Option<u64>, StoreError> {
        self.arithmetic(key.into(), delta, false, initial).await
    }

    /// As `increment`, downwards; it stops at 0.
    pub async fn decrement(
        &self,
        key: impl Into<Bytes>,
        delta: u64,
        initial: Option<u64>,
    ) -> Result<Option<u64>, StoreError> {
        self.arithmetic(key.into(), delta, true, initial).await
    }

    async fn arithmetic(
        &self,
        key: Bytes,
        delta: u64,
        down: bool,
        initial: Option<u64>,
    ) -> Result<Option<u64>, StoreError> {
        let initial = initial.map(|value| Initial { value, expiry: 0 });
        let operation = Operation::Add64 { unique: None, delta, down, initial, touch: None };
        match self.call(key, operation).await? {
            Answer::Reply(Reply::Number { number, .. }) => Ok(Some(number)),
            Answer::Missing => Ok(None),
            other => Err(unexpected(other)),
        }
    }

    async fn value(&self, key: Bytes, operation: Operation) -> Result<Option<Item>, StoreError> {
        item(self.call(key, operation).await?)
    }

    async fn call(&self, key: Bytes, operation: Operation) -> Result<Answer, StoreError> {
        let answer = self.begin(key, operation).await?;
        result::settled(answer.await)
    }

    async fn begin(&self, key: Bytes, operation: Operation) -> Result<Waiting, StoreError> {
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Err(StoreError::Key(key.len()));
        }
        let (waiter, waiting) = oneshot::channel();
        let order = Order { key, operation, waiter };
        self.orders.send(order).await.map_err(|_| StoreError::Closed)?;
        Ok(waiting)
    }

    fn checked(&self, data: Bytes) -> Result<Bytes, StoreError> {
        if data.len() > self.value_bytes_max {
            return Err(StoreError::TooLarge);
        }
        Ok(data)
    }
}

type Waiting = oneshot::Receiver<carrier::Outcome>;

fn item(answer: Answer) -> Result<Option<Item>, StoreError> {
    match answer {
        Answer::Reply(Reply::Value { clock, flags, ttl, data }) => {
            // A small one that is kept does not hold on to what arrived with it.
            let small = data.len() <= SHARED_BYTES_MAX;
            let data = if small { Bytes::copy_from_slice(&data) } else { data };
            Ok(Some(Item { data, flags, unique: clock, ttl }))
        }
        Answer::Missing => Ok(None),
        other => Err(unexpected(other)),
    }
}

fn stored(answer: Answer) -> Result<Option<u64>, StoreError> {
    match answer {
        Answer::Reply(Reply::Done { clock }) => Ok(Some(clock)),
        Answer::NotStored | Answer::Missing => Ok(None),
        other => Err(unexpected(other)),
    }
}

fn done(answer: Answer) -> Result<bool, StoreError> {
    match answer {
        Answer::Reply(Reply::Done { .. } | Reply::Touched { .. }) => Ok(true),
        Answer::Missing => Ok(false),
        other => Err(unexpected(other)),
    }
}

fn random() -> Result<u128, StoreError> {
    let mut bits = [0; 16];
    getrandom::fill(&mut bits).map_err(|_| StoreError::Entropy)?;
    Ok(u128::from_le_bytes(bits))
}

/// What every server can take.
const VALUE_BYTES_MAX: usize = 64 << 20;

/// Calls that wait to be taken up; a caller beyond them waits for its turn.
const ORDERS_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_no_server_takes_is_not_sent() {
        let options = StoreOptions { value_bytes_max: usize::MAX, ..StoreOptions::default() };
        let store = Store::open(&options).expect("a store");
        let value = vec![0; VALUE_BYTES_MAX + 1];
        assert!(matches!(store.set("key", value, 0, 0).await, Err(StoreError::TooLarge)));
    }
}
