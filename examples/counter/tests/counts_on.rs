//! Three real processes count; the master is killed, then another; every count is told once and none is lost.

use counter::Client;
use pfs::{Cell, Options, ReplicaState};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A replica's process, ended with the test.
struct Replica {
    address: SocketAddr,
    child: Child,
}

impl Replica {
    fn start(address: SocketAddr, all: &[SocketAddr]) -> Replica {
        let child = Command::new(env!("CARGO_BIN_EXE_counter"))
            .args(["replica", &address.to_string()])
            .args(all.iter().filter(|peer| **peer != address).map(SocketAddr::to_string))
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Replica { address, child }
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Addresses on a loopback address of this process's own. Nobody dials from there, so a port stays free while the
/// replica that listens on it is dead.
fn free_addresses() -> Vec<SocketAddr> {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    let host = Ipv4Addr::new(127, 64 + high % 64, middle, low);
    let held: Vec<TcpListener> = (0..3).map(|_| TcpListener::bind((host, 0)).unwrap()).collect();
    held.iter().map(|listener| listener.local_addr().unwrap()).collect()
}

/// Far beyond what a busy machine needs.
fn options(members: &[SocketAddr]) -> Options {
    let mut options = Options::new(members);
    options.patience = Duration::from_secs(60);
    options
}

/// Kills who is master now and starts it again with nothing remembered, once all three vote: the cell survives the loss
/// of one, and one that has forgotten counts as lost until it votes again.
async fn replace_master(replicas: &mut [Replica], all: &[SocketAddr]) {
    let cell = Cell::connect(&options(all)).unwrap();
    let master = loop {
        let status = cell.status().await.unwrap().status;
        let voting = status.replicas.iter().filter(|replica| replica.state == ReplicaState::Voting).count();
        match status.master {
            Some(master) if voting == all.len() => break master,
            Some(_) | None => tokio::task::yield_now().await,
        }
    };
    let replica = replicas.iter_mut().find(|replica| replica.address == master).unwrap();
    replica.kill();
    *replica = Replica::start(master, all);
}

#[test]
fn three_replicas_count_on_when_their_masters_are_killed() {
    let all = free_addresses();
    let mut replicas: Vec<Replica> = all.iter().map(|&address| Replica::start(address, &all)).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = Client::open(&options(&all)).await.unwrap();
        let waiter = Client::open(&options(&all)).await.unwrap();
        let waiting = tokio::spawn(async move { waiter.wait("visits", 250).await });
        let mut told = Vec::new();
        for round in 0..3 {
            if round > 0 {
                replace_master(&mut replicas, &all).await;
            }
            for _ in 0..100 {
                told.push(client.add("visits", 1).await.unwrap());
            }
        }
        assert_eq!(told, (1..=300).collect::<Vec<u64>>(), "each request counted once, in order");
        assert_eq!(client.get("visits").await.unwrap(), 300);
        assert_eq!(waiting.await.unwrap().unwrap(), 250, "parked at one master, answered by a later one");
        let refused = client.add("visits", u64::MAX).await.unwrap_err();
        assert!(refused.to_string().contains("the count would exceed"), "{refused}");
        assert_eq!(client.get("visits").await.unwrap(), 300);
    });
}
