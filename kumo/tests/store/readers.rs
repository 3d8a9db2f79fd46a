//! Readers of a load: clients of other gateways that read what the load writes, and judge it.

use crate::client::Client;
use crate::cluster::until;
use crate::load::{Pace, Shared, Trouble, begin_random, next_random};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

/// Clients of one gateway that do nothing but read.
pub fn start(shared: &Arc<Shared>, gateway: SocketAddr) -> Vec<JoinHandle<()>> {
    let start = |number| {
        let shared = shared.clone();
        let client = open(gateway);
        std::thread::spawn(move || read(&shared, gateway, number, client))
    };
    (0..READERS).map(start).collect()
}

/// Reads now a key that was written just now, now any.
fn read(shared: &Shared, gateway: SocketAddr, number: usize, mut client: Client) {
    let mut pace = Pace::new(shared.began, READS_A_SECOND, number, READERS);
    let mut random = begin_random(number + 1000);
    let mut trouble = Trouble::default();
    while pace.next(&shared.ended) {
        let drawn = next_random(&mut random);
        let key = match drawn.is_multiple_of(2) {
            true => shared.written_last.load(Ordering::SeqCst),
            false => (drawn >> 16) as usize % shared.keys.len(),
        };
        let (began, floor) = (trouble.begin(), shared.floor(key));
        let result = client.get(&Shared::name(key));
        shared.note(|phase| {
            phase.read += u64::from(result.is_ok());
            phase.worst_read = phase.worst_read.max(began.elapsed());
        });
        match result {
            Ok(value) => {
                shared.judge(key, floor, value.as_deref());
                shared.read.fetch_add(1, Ordering::SeqCst);
                trouble = Trouble::default();
            }
            Err(error) => {
                shared.unread.fetch_add(1, Ordering::SeqCst);
                if error.kind() != ErrorKind::Other {
                    client = open(gateway);
                }
                trouble.wait();
            }
        }
    }
}

/// A gateway that is stopped together with a server, and asked when both go on: it knows nothing of what was written
/// meanwhile, and neither does that server.
pub struct Sleeper {
    shared: Arc<Shared>,
    client: Client,
    /// Of each key when it fell asleep, then when it was asked.
    floors: Vec<u64>,
}

impl Sleeper {
    /// It has read every key: its connections and its hash space are as good as they ever were.
    pub fn new(shared: Arc<Shared>, gateway: SocketAddr) -> Sleeper {
        let mut client = open(gateway);
        for key in 0..shared.keys.len() {
            let floor = shared.floor(key);
            let value = until("it is read", || client.get(&Shared::name(key)).ok());
            shared.judge(key, floor, value.as_deref());
        }
        let floors = (0..shared.keys.len()).map(|key| shared.floor(key)).collect();
        Sleeper { shared, client, floors }
    }

    /// Asks for every key, while it sleeps: what was acknowledged by now must be found, if nothing newer. How many keys
    /// were written since it fell asleep.
    pub fn ask(&mut self) -> usize {
        let keys = 0..self.shared.keys.len();
        let before =
            std::mem::replace(&mut self.floors, keys.clone().map(|key| self.shared.floor(key)).collect());
        let requests: String = keys.map(|key| format!("get {}\r\n", Shared::name(key))).collect();
        self.client.send(&requests).expect("the kernel takes them");
        self.floors.iter().zip(before).filter(|(now, before)| *now > before).count()
    }

    /// Judges the answers; how many there were.
    pub fn answers(&mut self) -> usize {
        let mut read = 0;
        for key in 0..self.shared.keys.len() {
            match self.client.value(&Shared::name(key)) {
                Ok(value) => {
                    self.shared.judge(key, self.floors[key], value.as_deref());
                    read += 1;
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::Other, "an answer: {error}"),
            }
        }
        read
    }
}

fn open(gateway: SocketAddr) -> Client {
    until("the gateway takes a reader", || Client::open(gateway))
}

/// Of each gateway.
const READERS: usize = 2;

/// Of all readers of a gateway.
const READS_A_SECOND: u32 = 100;
