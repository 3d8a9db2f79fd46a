//! [`Load`]: clients that set, get, delete and count at a steady pace, and judge everything they read.
//!
//! Every key but one belongs to one client, so at any moment the client knows which values the key may have: the last
//! one acknowledged, or one whose outcome it was not told and that was not seen yet. Others read these keys too, through
//! gateways of their own, and judge by what was written. One counter belongs to all: nobody is given a number of it
//! twice.
//!
//! The load is open: every operation has a time at which it is due, whatever became of those before it. What falls due
//! while the store stands still is done when it goes on, so [`RATE_MIN`] is kept over the whole time, stalls included. On
//! a machine that is too slow for it a test takes longer, and finds the same.

use crate::caller::{Caller, Callers};
use crate::client::Client;
use crate::cluster::{Cluster, Node, until};
use crate::judge::{Counter, History, Register, number};
use crate::readers::{self, Sleeper};
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A load under way.
pub struct Load {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<Worker>>,
    readers: Vec<JoinHandle<()>>,
}

/// What all clients of a load know.
pub struct Shared {
    /// Where what is left is looked at.
    gateway: SocketAddr,
    callers: Callers,
    pub began: Instant,
    pub ended: OnceLock<Instant>,
    acknowledged: AtomicU64,
    failed: AtomicU64,
    /// By readers, and by them without an answer.
    pub read: AtomicU64,
    pub unread: AtomicU64,
    /// Of all clients, one after another.
    pub keys: Vec<Mutex<History>>,
    pub written_last: AtomicUsize,
    /// Of the counter of all, as of a client's own.
    together: Mutex<Counter>,
    phases: Mutex<Vec<Phase>>,
}

/// What is done to the store, and what clients had of it meanwhile.
#[derive(Clone)]
pub struct Phase {
    name: String,
    began: Instant,
    acknowledged: u64,
    worst: Duration,
    pub read: u64,
    pub worst_read: Duration,
}

/// What a load left, and what must be found of it.
pub struct Tally {
    shared: Arc<Shared>,
    workers: Vec<Worker>,
    operations: u64,
    failed: u64,
    caught_up: Instant,
    phases: Vec<Phase>,
}

impl Load {
    pub fn start(cluster: &Cluster) -> Load {
        Load::watched(cluster, &[])
    }

    /// With others who read the same through these gateways.
    pub fn watched(cluster: &Cluster, gateways: &[&Node]) -> Load {
        Load::of(Callers::Gateway(cluster.gateway.address), cluster, gateways)
    }

    /// Of native clients.
    pub fn native(cluster: &Cluster, gateways: &[&Node]) -> Load {
        Load::of(Callers::native(cluster), cluster, gateways)
    }

    fn of(callers: Callers, cluster: &Cluster, gateways: &[&Node]) -> Load {
        let mut first = callers.call(0);
        until("the counter of all is there", || first.add(TOGETHER, "0").ok());
        for number in 0..WORKERS {
            until("the counter begins", || first.set(&counter_key(number), "0").ok());
        }
        let began = Instant::now();
        let shared = Arc::new(Shared {
            gateway: cluster.gateway.address,
            callers,
            began,
            ended: OnceLock::new(),
            acknowledged: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            read: AtomicU64::new(0),
            unread: AtomicU64::new(0),
            keys: (0..WORKERS * KEYS).map(|_| Mutex::default()).collect(),
            written_last: AtomicUsize::new(0),
            together: Mutex::default(),
            phases: Mutex::new(vec![Phase::new("before", began)]),
        });
        let start = |number| {
            let worker = Worker::new(number, shared.clone());
            std::thread::spawn(move || worker.run())
        };
        let workers = (0..WORKERS).map(start).collect();
        let readers = gateways.iter().flat_map(|gateway| readers::start(&shared, gateway.address)).collect();
        Load { workers, readers, shared }
    }

    /// What is done to the store from now on.
    pub fn phase(&self, name: &str) {
        self.shared.phases.lock().unwrap().push(Phase::new(name, Instant::now()));
    }

    /// Waits until so many more operations were acknowledged.
    pub fn further(&self, count: u64) {
        let wanted = self.shared.acknowledged.load(Ordering::SeqCst) + count;
        until("the load goes on", || {
            let mut readers = self.readers.iter();
            let wrong =
                self.workers.iter().any(JoinHandle::is_finished) || readers.any(JoinHandle::is_finished);
            assert!(!wrong, "a client found something wrong");
            (self.shared.acknowledged.load(Ordering::SeqCst) >= wanted).then_some(())
        });
    }

    /// One more gateway, which will be stopped.
    pub fn sleeper(&self, gateway: &Node) -> Sleeper {
        Sleeper::new(self.shared.clone(), gateway.address)
    }

    /// Ends the load when all that was due is done, and looks at everything that it left.
    pub fn finish(self) -> Tally {
        self.shared.ended.set(Instant::now()).expect("a load ends once");
        self.phase("afterwards");
        self.readers.into_iter().for_each(|reader| reader.join().expect("nothing old was read"));
        let workers =
            self.workers.into_iter().map(|worker| worker.join().expect("nothing was wrong")).collect();
        let phases = self.shared.phases.lock().unwrap().clone();
        let mut tally = Tally {
            operations: self.shared.acknowledged.load(Ordering::SeqCst),
            failed: self.shared.failed.load(Ordering::SeqCst),
            shared: self.shared,
            workers,
            caught_up: Instant::now(),
            phases,
        };
        tally.check_rate();
        tally.verify();
        tally
    }
}

impl Shared {
    pub fn name(key: usize) -> String {
        format!("load-{}-{}", key / KEYS, key % KEYS)
    }

    /// What whoever begins to read a key now must find, if nothing newer.
    pub fn floor(&self, key: usize) -> u64 {
        self.keys[key].lock().unwrap().floor()
    }

    /// Of who began when the floor was that.
    pub fn judge(&self, key: usize, floor: u64, value: Option<&str>) {
        self.keys[key].lock().unwrap().read(&Shared::name(key), floor, number(value));
    }

    pub fn note(&self, note: impl FnOnce(&mut Phase)) {
        note(self.phases.lock().unwrap().last_mut().expect("there is a first"));
    }

    /// Operations that were due by then.
    fn due_by(&self, moment: Instant) -> u64 {
        (0..WORKERS).map(|number| self.pace(number).due_by(moment)).sum()
    }

    fn pace(&self, number: usize) -> Pace {
        Pace::new(self.began, RATE, number, WORKERS)
    }
}

impl Phase {
    fn new(name: &str, began: Instant) -> Phase {
        let (acknowledged, read, nothing) = (0, 0, Duration::ZERO);
        Phase { name: name.to_owned(), began, acknowledged, worst: nothing, read, worst_read: nothing }
    }
}

impl Tally {
    /// Everything that was due was done, at [`RATE_MIN`] at least, and few of it have no known outcome.
    fn check_rate(&self) {
        let ended = *self.shared.ended.get().expect("it has ended");
        let (due, done) = (self.shared.due_by(ended), self.operations + self.failed);
        assert!(done >= due, "{due} operations were due, and {done} were done");
        let faults = (self.phases.len() * WORKERS) as u64;
        let failed_max = done * FAILED_PERCENT_MAX / 100 + faults;
        assert!(self.failed <= failed_max, "{} of {done} operations failed, not {failed_max}", self.failed);
        let unread = self.shared.unread.load(Ordering::SeqCst);
        let unread_max = self.shared.read.load(Ordering::SeqCst) * FAILED_PERCENT_MAX / 100 + faults;
        assert!(unread <= unread_max, "{unread} reads failed, not {unread_max}");
        let wanted = (ended - self.shared.began).as_secs_f64() * f64::from(RATE_MIN);
        assert!(self.operations as f64 >= wanted, "{} acknowledged, {wanted:.0} wanted", self.operations);
    }

    /// Every key has a value that it may have.
    pub fn verify(&mut self) {
        let mut client = Client::open(self.shared.gateway).expect("the gateway is there");
        let value = until("the counter of all can be read", || client.get(TOGETHER).ok());
        let value = number(value.as_deref()).expect("the counter of all is there");
        self.shared.together.lock().unwrap().read(TOGETHER, value);
        let mut given: Vec<u64> = self.workers.iter().flat_map(|worker| worker.given.clone()).collect();
        let all = given.len();
        given.sort_unstable();
        given.dedup();
        assert_eq!(given.len(), all, "no number of {TOGETHER} was given to two");
        for worker in &mut self.workers {
            for index in 0..KEYS {
                let key = worker.key(index);
                let (name, floor) = (Shared::name(key), self.shared.floor(key));
                let value = until("the key can be read", || client.get(&name).ok());
                worker.keys[index].read(&name, number(value.as_deref()));
                self.shared.judge(key, floor, value.as_deref());
            }
            let name = counter_key(worker.number);
            let value = until("the counter can be read", || client.get(&name).ok());
            worker.counter.read(&name, number(value.as_deref()).expect("the counter is there"));
        }
    }

    /// Fewer may mean that a fault met nobody.
    pub fn operations(&self) -> u64 {
        self.operations
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let ended = *self.shared.ended.get().expect("it has ended");
        let seconds = (ended - self.shared.began).as_secs_f64();
        let due = self.shared.due_by(ended);
        let (operations, failed, late) = (self.operations, self.failed, (self.caught_up - ended).as_millis());
        let reads = self.shared.read.load(Ordering::SeqCst);
        let unread = self.shared.unread.load(Ordering::SeqCst);
        writeln!(
            out,
            "{due} operations were due in {seconds:.1} s ({:.0}/s), {operations} succeeded ({:.0}/s, the last {late} ms \
             late), {failed} had no known outcome; {reads} reads by others, {unread} without an answer; none lost, none old",
            due as f64 / seconds,
            operations as f64 / seconds,
        )?;
        let ends = self.phases[1..].iter().map(|next| next.began).chain([self.caught_up]);
        for (phase, end) in self.phases.iter().zip(ends) {
            let seconds = (end - phase.began).as_secs_f64();
            let offered = self.shared.due_by(end.min(ended)) - self.shared.due_by(phase.began.min(ended));
            let [offered, acknowledged] = [offered, phase.acknowledged].map(|count| count as f64 / seconds);
            let (name, worst) = (&phase.name, phase.worst.as_millis());
            write!(out, "  {name}: {seconds:.1} s, {offered:.0}/s due, {acknowledged:.0}/s acknowledged, ")?;
            write!(out, "worst wait {worst} ms")?;
            match phase.read {
                0 => writeln!(out)?,
                _ => writeln!(out, ", of a reader {} ms", phase.worst_read.as_millis())?,
            }
        }
        Ok(())
    }
}

/// When the operations of one client are due.
pub struct Pace {
    first: Instant,
    interval: Duration,
    done: u32,
}

impl Pace {
    /// Of one of so many who do so much together, in turn.
    pub fn new(began: Instant, rate: u32, number: usize, of: usize) -> Pace {
        let interval = Duration::from_secs(of as u64) / rate;
        Pace { first: began + interval * number as u32 / of as u32, interval, done: 0 }
    }

    /// Waits until the next one is due. False: none is, before the end.
    pub fn next(&mut self, ended: &OnceLock<Instant>) -> bool {
        let due = self.first + self.interval * self.done;
        self.done += 1;
        loop {
            if ended.get().is_some_and(|ended| due > *ended) {
                return false;
            }
            match due.checked_duration_since(Instant::now()) {
                None | Some(Duration::ZERO) => return true,
                Some(left) => std::thread::park_timeout(left),
            }
        }
    }

    fn due_by(&self, moment: Instant) -> u64 {
        let since = moment.checked_duration_since(self.first);
        since.map_or(0, |since| (since.as_nanos() / self.interval.as_nanos()) as u64 + 1)
    }
}

/// What a client does that is told of failures: it waits, longer after each, and goes on. Whoever is told at once that
/// nobody is there would ask for all that is due in that moment.
#[derive(Default)]
pub struct Trouble {
    since: Option<Instant>,
    failures: u32,
}

impl Trouble {
    /// Since when there is no answer, at the begin of a request.
    pub fn begin(&mut self) -> Instant {
        *self.since.get_or_insert_with(Instant::now)
    }

    pub fn wait(&mut self) {
        std::thread::park_timeout(TROUBLE_FIRST * 2u32.pow(self.failures.min(TROUBLE_DOUBLINGS)));
        self.failures += 1;
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
        let random = begin_random(number);
        Worker { number, shared, keys, counter: Counter::default(), given: Vec::new(), random }
    }

    /// One of its own among all.
    fn key(&self, index: usize) -> usize {
        self.number * KEYS + index
    }

    fn run(mut self) -> Worker {
        let mut caller = self.shared.callers.call(self.number);
        let mut pace = self.shared.pace(self.number);
        let mut trouble = Trouble::default();
        while pace.next(&self.shared.ended) {
            let began = trouble.begin();
            let result = self.operate(&mut caller);
            self.shared.note(|phase| {
                phase.acknowledged += u64::from(result.is_ok());
                phase.worst = phase.worst.max(began.elapsed());
            });
            let Err(error) = result else {
                self.shared.acknowledged.fetch_add(1, Ordering::SeqCst);
                trouble = Trouble::default();
                continue;
            };
            if self.shared.failed.fetch_add(1, Ordering::SeqCst) < FAILURES_SHOWN {
                println!("no known outcome after {:?}: {error}", began.elapsed());
            }
            if error.kind() != std::io::ErrorKind::Other {
                caller = self.shared.callers.call(self.number);
            }
            trouble.wait();
        }
        self
    }

    fn operate(&mut self, caller: &mut Caller) -> std::io::Result<()> {
        let random = next_random(&mut self.random);
        let index = (random >> 16) as usize % KEYS;
        match random % 10 {
            0..=3 => self.set(caller, index),
            4..=6 => {
                let key = self.key(index);
                let (name, floor) = (Shared::name(key), self.shared.floor(key));
                let value = caller.get(&name)?;
                self.keys[index].read(&name, number(value.as_deref()));
                self.shared.judge(key, floor, value.as_deref());
                Ok(())
            }
            7 => self.delete(caller, index),
            8 => self.count_together(caller),
            _ => {
                let key = counter_key(self.number);
                self.counter.unknown += 1;
                let number = caller.increment(&key)?.expect("a counter is never lost");
                self.counter.unknown -= 1;
                self.counter.acknowledged += 1;
                self.counter.read(&key, number);
                Ok(())
            }
        }
    }

    fn set(&mut self, caller: &mut Caller, index: usize) -> std::io::Result<()> {
        let key = self.key(index);
        let number = self.shared.keys[key].lock().unwrap().begin(false);
        self.keys[index].sending(number);
        let result = caller.set(&Shared::name(key), &number.to_string());
        self.written(key, number, result.is_ok());
        result.map(|()| self.keys[index].stored(number))
    }

    fn delete(&mut self, caller: &mut Caller, index: usize) -> std::io::Result<()> {
        let key = self.key(index);
        let number = self.shared.keys[key].lock().unwrap().begin(true);
        self.keys[index].deleting();
        let result = caller.delete(&Shared::name(key));
        self.written(key, number, result.is_ok());
        result.map(|was_there| self.keys[index].deleted(&Shared::name(key), was_there))
    }

    fn written(&self, key: usize, number: u64, is_known: bool) {
        let mut history = self.shared.keys[key].lock().unwrap();
        match is_known {
            true => history.acknowledged(number),
            false => history.unknown(number),
        }
        self.shared.written_last.store(key, Ordering::SeqCst);
    }

    fn count_together(&mut self, caller: &mut Caller) -> std::io::Result<()> {
        self.shared.together.lock().unwrap().unknown += 1;
        let number = caller.increment(TOGETHER)?.expect("a counter is never lost");
        let mut together = self.shared.together.lock().unwrap();
        together.unknown -= 1;
        together.acknowledged += 1;
        assert!(self.given.last().is_none_or(|last| *last < number), "{TOGETHER} went back to {number}");
        self.given.push(number);
        Ok(())
    }
}

fn counter_key(worker: usize) -> String {
    format!("count-{worker}")
}

/// Every client's own sequence.
pub fn begin_random(number: usize) -> u64 {
    0x9E37_79B9_7F4A_7C15 ^ (number as u64 + 1)
}

pub fn next_random(random: &mut u64) -> u64 {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    *random
}

/// Enough that all are never stalled by one server, and that each waits for its time.
const WORKERS: usize = 32;
/// After the first failure.
const TROUBLE_FIRST: Duration = Duration::from_millis(100);
const TROUBLE_DOUBLINGS: u32 = 6;

/// The counter of all clients.
const TOGETHER: &str = "count-together";
/// Of each.
const KEYS: usize = 12;

/// Operations a second that fall due, of all clients together.
const RATE: u32 = 800;
/// Those of them that are acknowledged, stalls included, come to this at least.
const RATE_MIN: u32 = 500;
/// Of operations whose outcome nobody is told, beside one of each client for each thing that is done to the store.
const FAILED_PERCENT_MAX: u64 = 2;

const FAILURES_SHOWN: u64 = 20;
