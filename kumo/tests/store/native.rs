//! The native client: the same semantics as through a gateway, and the same promises when a server is killed.

use crate::client::Client;
use crate::cluster::{Cluster, until};
use crate::load::Load;
use pfs::{CasResult, Store, StoreError, StoreOptions};
use rustix::process::Signal;
use std::time::{Duration, Instant};

#[tokio::test]
async fn every_operation_means_what_memcached_says() {
    let cluster = Cluster::start(1, 3, &[]);
    let store = open(&cluster);
    assert_eq!(store.get("k").await, Ok(None));
    assert_eq!(store.replace("k", "x", 0, 0).await, Ok(None));
    let first = store.add("k", "one", 7, 0).await.unwrap().expect("it was missing");
    assert_eq!(store.add("k", "two", 0, 0).await, Ok(None));
    let item = store.get("k").await.unwrap().expect("it is there");
    assert_eq!((&item.data[..], item.flags, item.unique), (&b"one"[..], 7, first));
    assert_eq!(store.cas("k", "two", first + 1, 0, 0).await, Ok(CasResult::Changed));
    assert!(matches!(store.cas("k", "two", first, 0, 0).await, Ok(CasResult::Stored(_))));
    assert_eq!(store.cas("missing", "two", first, 0, 0).await, Ok(CasResult::Missing));
    assert!(store.append("k", "+").await.unwrap().is_some());
    assert!(store.prepend("k", "-").await.unwrap().is_some());
    assert_eq!(store.append("missing", "+").await, Ok(None));
    assert_eq!(store.get("k").await.unwrap().unwrap().data, "-two+");
    assert_eq!(store.increment("k", 1, None).await, Err(StoreError::NotNumeric));
    assert_eq!(store.increment("n", 1, None).await, Ok(None));
    assert_eq!(store.increment("n", 1, Some(40)).await, Ok(Some(40)));
    assert_eq!(store.increment("n", 2, None).await, Ok(Some(42)));
    assert_eq!(store.decrement("n", 50, None).await, Ok(Some(0)));
    assert_eq!(store.touch("k", 1000).await, Ok(true));
    assert!(store.get_and_touch("k", 1000).await.unwrap().unwrap().ttl.is_some());
    let found = store.get_many(["n", "missing", "k"]).await.unwrap();
    assert_eq!(found.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false, true]);
    assert_eq!(store.delete("k").await, Ok(true));
    assert_eq!(store.delete("k").await, Ok(false));
    assert_eq!(store.get("").await, Err(StoreError::Key(0)));
    assert_eq!(store.get(vec![b'k'; 251]).await, Err(StoreError::Key(251)));
    assert_eq!(store.set("big", vec![0; (1 << 20) + 1], 0, 0).await, Err(StoreError::TooLarge));
    // What a gateway reads is what was stored directly.
    store.set("shared", "seen", 0, 0).await.unwrap();
    let mut client = Client::open(cluster.gateway.address).unwrap();
    assert_eq!(client.get("shared").unwrap().as_deref(), Some("seen"));
}

#[tokio::test]
async fn nothing_is_lost_when_a_server_is_killed() {
    let mut cluster = Cluster::start(3, 3, &[]);
    let store = open(&cluster);
    for number in 0..KEYS {
        store.set(format!("key-{number}"), format!("value-{number}"), 0, 0).await.unwrap();
    }
    cluster.servers[0].kill();
    let mut worst = Duration::ZERO;
    for number in 0..KEYS {
        let began = Instant::now();
        assert_eq!(store.increment("count", 1, Some(1)).await, Ok(Some(number + 1)), "exactly once");
        let item = store.get(format!("key-{number}")).await.unwrap().expect("it was acknowledged");
        assert_eq!(item.data, format!("value-{number}"));
        worst = worst.max(began.elapsed());
    }
    println!("native client: {} operations, one server killed, worst stall {worst:?}", KEYS * 3);
}

#[test]
fn native_clients_find_nothing_lost_or_old_whatever_becomes_of_servers() {
    let mut cluster = Cluster::start(3, 3, &[]);
    let other = cluster.second_gateway(&["--spread-reads"]);
    let load = Load::native(&cluster, &[&other]);
    load.further(OPERATIONS_BETWEEN);
    load.phase("kill -9 of one");
    cluster.servers[0].kill();
    cluster.until_fault(0);
    load.further(OPERATIONS_BETWEEN);
    load.phase("it comes back");
    cluster.servers[0].run();
    attach(&cluster, 1);
    cluster.until_active(3);
    load.further(OPERATIONS_BETWEEN);
    load.phase("stopped");
    cluster.servers[1].signal(Signal::STOP);
    cluster.until_fault(1);
    load.further(OPERATIONS_BETWEEN);
    load.phase("continued");
    cluster.servers[1].signal(Signal::CONT);
    attach(&cluster, 1);
    cluster.until_active(3);
    load.further(OPERATIONS_BETWEEN);
    load.phase("attach of a fourth");
    cluster.add_server();
    attach(&cluster, 1);
    cluster.until_active(4);
    load.further(OPERATIONS_BETWEEN);
    let tally = load.finish();
    println!("native clients: kill -9, SIGSTOP and attach, 3 of 3 took effect; {tally}");
    assert!(tally.operations() >= 6 * OPERATIONS_BETWEEN);
}

/// When so many are there to be attached.
fn attach(cluster: &Cluster, count: usize) {
    until("they are known", || {
        (cluster.try_stat()?["not_attached"].as_array()?.len() == count).then_some(())
    });
    cluster.attach();
}

#[tokio::test]
async fn without_managers_a_call_fails_in_its_time() {
    let nobody = StoreOptions {
        request_for: Duration::from_millis(300),
        ..StoreOptions::new(["127.0.0.1:1".parse().unwrap()])
    };
    let store = Store::open(&nobody).unwrap();
    assert!(matches!(store.get("k").await, Err(StoreError::Store(_))));
}

fn open(cluster: &Cluster) -> Store {
    let managers: Vec<_> = cluster.managers.iter().map(|manager| manager.address).collect();
    Store::open(&StoreOptions::new(managers)).unwrap()
}

const KEYS: u64 = 500;
const OPERATIONS_BETWEEN: u64 = 500;
