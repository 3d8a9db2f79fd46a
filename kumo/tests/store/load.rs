//! [`Load`]: clients that set, get, delete and count all the time, and judge everything they read.
//!
//! Every key but one belongs to one client, so at any moment the client knows which values the key may have: the last
//! one acknowledged, or one whose outcome it was not told and that was not seen yet. One counter belongs to all: nobody
//! is given a number of it twice.

use crate::client::Client;
use crate::cluster::{Cluster, until};
use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A load under way.
pub struct Load {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<Worker>>,
    began: Instant,
}

struct Shared {
    gateway: SocketAddr,
    stop: AtomicBool,
    acknowledged: AtomicU64,
    failed: AtomicU64,
    /// Of the counter of all, as of a client's own.
    together: Mutex<Counter>,
    /// What is going on, and the longest time that a request took meanwhile.
    phases: Mutex<Vec<(String, Duration)>>,
}

/// What a load left, and what must be found of it.
pub struct Tally {
    shared: Arc<Shared>,
    workers: Vec<Worker>,
    operations: u64,
    failed: u64,
    seconds: f64,
    phases: Vec<(String, Duration)>,
}

impl Load {
    pub fn start(cluster: &Cluster) -> Load {
        let phases = Mutex::new(vec![("before".to_owned(), Duration::ZERO)]);
        let shared = Arc::new(Shared {
            gateway: cluster.gateway.address,
            stop: AtomicBool::new(false),
            acknowledged: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            together: Mutex::default(),
            phases,
        });
        let start = |number| {
            let worker = Worker::new(number, shared.clone());
            std::thread::spawn(move || worker.run())
        };
        Load { workers: (0..WORKERS).map(start).collect(), shared, began: Instant::now() }
    }

    /// What is done to the store from now on.
    pub fn phase(&self, name: &str) {
        self.shared.phases.lock().unwrap().push((name.to_owned(), Duration::ZERO));
    }

    /// Waits until so many more operations were acknowledged.
    pub fn further(&self, count: u64) {
        let wanted = self.shared.acknowledged.load(Ordering::SeqCst) + count;
        until("the load goes on", || {
            assert!(!self.workers.iter().any(JoinHandle::is_finished), "a client found something wrong");
            (self.shared.acknowledged.load(Ordering::SeqCst) >= wanted).then_some(())
        });
    }

    /// Ends the load, and looks at everything that it left.
    pub fn finish(self) -> Tally {
        self.shared.stop.store(true, Ordering::SeqCst);
        let workers =
            self.workers.into_iter().map(|worker| worker.join().expect("nothing was wrong")).collect();
        let phases = self.shared.phases.lock().unwrap().clone();
        let mut tally = Tally {
            shared: self.shared.clone(),
            workers,
            operations: self.shared.acknowledged.load(Ordering::SeqCst),
            failed: self.shared.failed.load(Ordering::SeqCst),
            seconds: self.began.elapsed().as_secs_f64(),
            phases,
        };
        tally.verify();
        tally
    }
}

impl Tally {
    /// Every key has a value that it may have.
    pub fn verify(&mut self) {
        let mut client = Client::open(self.shared.gateway).expect("the gateway is there");
        let value = until("the counter of all can be read", || client.get(TOGETHER).ok());
        let value = value.expect("the counter of all is there").trim().parse().expect("a number");
        self.shared.together.lock().unwrap().read(TOGETHER, value);
        let mut given: Vec<u64> = self.workers.iter().flat_map(|worker| worker.given.clone()).collect();
        let all = given.len();
        given.sort_unstable();
        given.dedup();
        assert_eq!(given.len(), all, "no number of {TOGETHER} was given to two");
        for worker in &mut self.workers {
            let mut client = Client::open(worker.shared.gateway).expect("the gateway is there");
            for key in 0..KEYS {
                let name = worker.key(key);
                let value = until("the key can be read", || client.get(&name).ok());
                worker.keys[key].read(&name, value.as_deref());
            }
            let value = until("the counter can be read", || client.get(&worker.counter_key()).ok());
            let value = value.expect("the counter is there").trim().parse().expect("a number");
            worker.counter.read(&worker.counter_key(), value);
        }
    }

    /// Fewer may mean that a fault met nobody.
    pub fn operations(&self) -> u64 {
        self.operations
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let rate = self.operations as f64 / self.seconds;
        write!(out, "{} operations succeeded in {:.1} s ({rate:.0}/s), ", self.operations, self.seconds)?;
        write!(out, "{} had no known outcome, none lost, none old; worst waits:", self.failed)?;
        for (phase, worst) in &self.phases {
            write!(out, " {phase} {} ms,", worst.as_millis())?;
        }
        Ok(())
    }
}

/// One client, its keys, and what it knows of them.
struct Worker {
    number: usize,
    shared: Arc<Shared>,
    keys: Vec<Register>,
    counter: Counter,
    /// What it was given of the counter of all.
    given: Vec<u64>,
    random: u64,
}

impl Worker {
    fn new(number: usize, shared: Arc<Shared>) -> Worker {
        let keys = vec![Register::default(); KEYS];
        let random = 0x9E37_79B9_7F4A_7C15 ^ (number as u64 + 1);
        Worker { number, shared, keys, counter: Counter::default(), given: Vec::new(), random }
    }

    fn key(&self, key: usize) -> String {
        format!("load-{}-{key}", self.number)
    }

    fn counter_key(&self) -> String {
        format!("count-{}", self.number)
    }

    fn run(mut self) -> Worker {
        let mut client = self.client();
        until("the counter begins", || client.set(&self.counter_key(), "0").ok());
        until("the counter of all is there", || client.add(TOGETHER, "0").ok());
        while !self.shared.stop.load(Ordering::SeqCst) {
            let began = Instant::now();
            match self.operate(&mut client) {
                Ok(()) => {
                    self.shared.acknowledged.fetch_add(1, Ordering::SeqCst);
                }
                Err(error) => {
                    if self.shared.failed.fetch_add(1, Ordering::SeqCst) < FAILURES_SHOWN {
                        println!("no known outcome after {:?}: {error}", began.elapsed());
                    }
                    if error.kind() != std::io::ErrorKind::Other {
                        client = self.client();
                    }
                }
            }
            let mut phases = self.shared.phases.lock().unwrap();
            let (_, worst) = phases.last_mut().expect("there is a first");
            *worst = (*worst).max(began.elapsed());
        }
        self
    }

    fn client(&self) -> Client {
        until("the gateway takes a client", || Client::open(self.shared.gateway))
    }

    fn operate(&mut self, client: &mut Client) -> std::io::Result<()> {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let index = (self.random >> 16) as usize % KEYS;
        let key = self.key(index);
        match self.random % 10 {
            0..=3 => {
                let number = self.keys[index].sending();
                match client.set(&key, &number.to_string()) {
                    Ok(_) => self.keys[index].stored(number),
                    Err(error) => return Err(error),
                }
            }
            4..=6 => {
                let value = client.get(&key)?;
                self.keys[index].read(&key, value.as_deref());
            }
            7 => {
                self.keys[index].deletes += 1;
                let was_there = client.delete(&key)?;
                self.keys[index].deleted(&key, was_there);
            }
            8 => {
                self.shared.together.lock().unwrap().unknown += 1;
                let number = client.increment(TOGETHER)?.expect("a counter is never lost");
                let mut together = self.shared.together.lock().unwrap();
                together.unknown -= 1;
                together.acknowledged += 1;
                assert!(
                    self.given.last().is_none_or(|last| *last < number),
                    "{TOGETHER} went back to {number}"
                );
                self.given.push(number);
            }
            _ => {
                let key = self.counter_key();
                self.counter.unknown += 1;
                let number = client.increment(&key)?.expect("a counter is never lost");
                self.counter.unknown -= 1;
                self.counter.acknowledged += 1;
                self.counter.read(&key, number);
            }
        }
        Ok(())
    }
}

/// What one key may hold. A set or a delete without an answer may take effect at any time, once.
#[derive(Clone, Default)]
struct Register {
    sent: u64,
    /// 0 is no value.
    now: u64,
    unknown: BTreeSet<u64>,
    /// Without a known outcome.
    deletes: u64,
}

impl Register {
    fn sending(&mut self) -> u64 {
        self.sent += 1;
        self.unknown.insert(self.sent);
        self.sent
    }

    fn stored(&mut self, number: u64) {
        self.unknown.remove(&number);
        self.now = number;
    }

    fn read(&mut self, key: &str, value: Option<&str>) {
        let found: u64 = value.map_or(0, |value| value.parse().expect("values are numbers"));
        if found == 0 && self.now != 0 && self.deletes > 0 {
            self.deletes -= 1;
            self.now = 0;
        }
        if found != self.now {
            let seen = self.unknown.remove(&found);
            assert!(seen, "{key} is {found}, not {} or one of {:?}", self.now, self.unknown);
            self.now = found;
        }
    }

    /// A delete was answered. That there was nothing is true only of a key that may be without a value.
    fn deleted(&mut self, key: &str, was_there: bool) {
        self.deletes -= 1;
        match was_there {
            true => {
                let some = self.now != 0 || !self.unknown.is_empty();
                assert!(some, "{key} was deleted, but it had no value");
            }
            false => {
                let none = self.now == 0 || self.deletes > 0;
                assert!(none, "{key} is {}, but a delete found nothing", self.now);
            }
        }
        self.now = 0;
    }
}

/// A number that only grows.
#[derive(Clone, Default)]
struct Counter {
    acknowledged: u64,
    unknown: u64,
}

impl Counter {
    fn read(&self, key: &str, value: u64) {
        let most = self.acknowledged + self.unknown;
        assert!(
            (self.acknowledged..=most).contains(&value),
            "{key} is {value}, not {} to {most}",
            self.acknowledged
        );
    }
}

/// Enough for 500 operations a second where a machine allows it.
const WORKERS: usize = 8;
/// The counter of all clients.
const TOGETHER: &str = "count-together";
const KEYS: usize = 50;

const FAILURES_SHOWN: u64 = 20;
