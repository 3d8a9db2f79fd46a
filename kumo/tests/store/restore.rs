//! A backup comes back in another cluster, and what is written there counts on every copy.

use crate::client::Client;
use crate::cluster::{Cluster, KUMO, strings, until};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

#[test]
fn what_is_written_after_a_restore_wins_on_every_copy() {
    let mut first = Cluster::start(1, 3, &[]);
    // Its records are stamped with a number that a new cluster would take long to reach.
    for _ in 0..3 {
        first.order(&["full-replace"]);
        first.until_settled();
    }
    // Whoever starts a cluster here has stored something already.
    let mut model = BTreeMap::from([("served".to_owned(), "yes".to_owned())]);
    let mut client = Client::open(first.gateway.address).unwrap();
    (0..KEYS).for_each(|key| set(&mut client, &mut model, key, "before"));
    (0..KEYS).step_by(10).for_each(|key| delete(&mut client, &mut model, key));
    first.order(&["backup", "nightly"]);
    let of_server = |cluster: &Cluster, server| cluster.folder.path().join(format!("store-{server}-nightly"));
    let backups: Vec<PathBuf> = (0..3).map(|server| of_server(&first, server)).collect();
    until("the backups are written", || backups.iter().all(|backup| backup.is_dir()).then_some(()));
    let restored = first.folder.path().join("restored");
    let merged = merge(&restored, &backups);
    assert_eq!(merged["items"], model.len(), "{merged}");
    let before = number(&first);
    first.nodes().for_each(|node| node.end());

    let mut second = restored_cluster(&restored, &[2]);
    assert!(number(&second) > before, "{:?} leads {before:?}", number(&second));
    let mut client = Client::open(second.gateway.address).unwrap();
    verify(&mut client, &model);
    (0..KEYS).step_by(3).for_each(|key| set(&mut client, &mut model, key, "after"));
    (1..KEYS).step_by(7).filter(|key| !key.is_multiple_of(10)).for_each(|key| {
        delete(&mut client, &mut model, key);
    });
    verify(&mut client, &model);
    second.servers[0].kill();
    second.until_fault(0);
    verify(&mut client, &model);
    (2..KEYS).step_by(50).for_each(|key| set(&mut client, &mut model, key, "without the first"));
    let output = second.kumoctl(&["backup", "nightly"]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.code() == Some(1) && said.contains("failed: the server is fault"), "{said}");
    let copies: Vec<PathBuf> = (1..3).map(|server| of_server(&second, server)).collect();
    until("the backups are written", || copies.iter().all(|copy| copy.is_dir()).then_some(()));
    assert_equal(&second, &copies, &model);
    // The third has it all by itself, and so had the first until it was lost.
    second.servers[1].kill();
    second.until_fault(1);
    verify(&mut client, &model);
    println!("restored {KEYS} keys of space {before:?} in space {:?}: all copies agree", number(&second));
}

#[test]
fn a_backup_lies_beside_its_store_and_is_named_from_the_root_on() {
    let mut cluster = Cluster::start_detached(1, 0, &[]);
    let path = |name: &str| cluster.folder.path().join(name);
    let (store, backup, merged) = (path("store"), path("store-nightly"), path("merged/"));
    cluster.add_server_at("store/", &[]);
    until("the server is known", || (strings(&cluster.try_stat()?["not_attached"]).len() == 1).then_some(()));
    cluster.attach();
    cluster.until_served();
    let output = cluster.kumoctl(&["backup", "nightly"]);
    let said = String::from_utf8(output.stdout).unwrap();
    // From the root on: whoever reads it elsewhere does not know where the server was started.
    let whole = backup.parent().unwrap().canonicalize().unwrap().join("store-nightly").display().to_string();
    assert!(output.status.success() && said.trim_end().ends_with(&format!("  {whole}")), "{said}");
    let log = cluster.servers[0].log();
    assert!(log.lines().any(|line| line.contains("backup written") && line.contains(&whole)), "{log}");
    assert!(backup.is_dir(), "beside the store");
    assert!(fs::read_dir(&store).unwrap().all(|entry| entry.unwrap().path().is_file()), "not in it");
    // Nothing else is made of a suffix than the end of that name.
    let there = names(cluster.folder.path());
    for suffix in ["", "../out", "/tmp/out", "two words", "cell", &"s".repeat(65)] {
        let why =
            if suffix == "cell" { "no backup can end in cell" } else { "a suffix of a backup has letters" };
        let output = cluster.kumoctl(&["backup", suffix]);
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(output.status.code() == Some(1) && said.contains(why), "{suffix:?}: {said}");
    }
    assert_eq!(names(cluster.folder.path()), there);
    assert_eq!(merge(&merged, &[backup.join("")])["items"], 1);
}

#[test]
fn a_copy_of_a_backup_that_is_not_complete_is_neither_merged_nor_served() {
    let mut cluster = Cluster::start(1, 1, &[]);
    cluster.order(&["backup", "nightly"]);
    let backup = cluster.folder.path().join("store-0-nightly");
    until("the backup is written", || backup.is_dir().then_some(()));
    let segment = fs::File::options().write(true).open(backup.join("0000000001.segment")).unwrap();
    let bytes = segment.metadata().unwrap().len();
    segment.set_len(bytes / 2).unwrap();
    let why = format!("the backup is not complete: 0000000001.segment has {} bytes, not {bytes}", bytes / 2);
    let destination = cluster.folder.path().join("merged");
    let output = Command::new(KUMO).arg("mergedb").args([&destination, &backup]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.lines().count() == 1 && said.contains(&why), "{said}");
    assert!(!destination.exists());
    cluster.add_server_at("store-0-nightly", &[]);
    assert_eq!(cluster.servers[1].wait(), Some(1));
    let log = cluster.servers[1].log();
    assert!(log.contains(&format!("store-0-nightly: {why}")), "{log}");
}

#[test]
fn a_merge_that_lacks_part_of_the_ring_is_refused_and_names_the_servers() {
    let mut cluster = Cluster::start(1, 4, &[]);
    let mut client = Client::open(cluster.gateway.address).unwrap();
    client.fill(KEYS, 10);
    cluster.order(&["backup", "first"]);
    let path = |name: &str| cluster.folder.path().join(name);
    let addresses: Vec<String> = cluster.servers.iter().map(|server| server.address.to_string()).collect();
    let (one, all) = (path("one"), path("all"));
    let (status, said) = try_merge(&one, &[], &[path("store-0-first")]);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.lines().count() == 1 && said.contains("of the hash ring is in none of these"), "{said}");
    let named: Vec<bool> = addresses.iter().map(|address| said.contains(address)).collect();
    assert_eq!(named, [false, true, true, true], "{said}");
    assert!(!one.exists());
    // Whoever says that it is meant gets what there is, and is told.
    let (status, said) = try_merge(&one, &["--accept-data-loss"], &[path("store-0-first")]);
    assert!(status == Some(0) && said.contains("of the hash ring is in none of these"), "{said}");
    // Of four servers two have every key.
    let two = [path("store-1-first"), path("store-3-first")];
    assert_eq!(try_merge(&all, &[], &two), (Some(0), String::new()));
    let (status, said) = try_merge(&path("again"), &[], &[one, path("store-0-first")]);
    assert!(status == Some(0) && said.lines().count() == 1 && said.contains("cannot be told"), "{said}");

    // Of two hash spaces: what the last one says of who is lost counts.
    cluster.servers[0].kill();
    cluster.until_fault(0);
    assert_eq!(cluster.kumoctl(&["backup", "second"]).status.code(), Some(1), "one is fault");
    let mixed = [path("store-1-first"), path("store-2-second")];
    assert_eq!(try_merge(&path("mixed"), &[], &mixed), (Some(0), String::new()));
    let outdated = [path("store-0-first"), path("store-2-second")];
    let (status, said) = try_merge(&path("outdated"), &[], &outdated);
    assert!(status == Some(1) && said.contains("store-0-first is too old"), "{said}");
    let named: Vec<bool> = addresses.iter().map(|address| said.contains(address)).collect();
    assert_eq!(named, [false, true, false, true], "{said}");
}

#[test]
fn a_backup_has_what_was_acknowledged_before_it_and_nothing_that_nobody_sent() {
    let mut cluster = Cluster::start(1, 3, &[]);
    let writer = Writer::default();
    let writing = writer.clone().start(Client::open(cluster.gateway.address).unwrap());
    until("all keys are written again and again", || (writer.acknowledged() > 10 * KEYS).then_some(()));
    let before = writer.acknowledged();
    cluster.order(&["backup", "busy"]);
    let after = writer.sent();
    until("writes go on", || (writer.acknowledged() > after + KEYS).then_some(()));
    writer.ended.store(true, Ordering::SeqCst);
    writing.join().unwrap();
    let backups: Vec<PathBuf> =
        (0..3).map(|server| cluster.folder.path().join(format!("store-{server}-busy"))).collect();
    let restored = cluster.folder.path().join("restored");
    // With what whoever starts a cluster here has stored.
    assert_eq!(merge(&restored, &backups)["items"], KEYS + 1);
    cluster.nodes().for_each(|node| node.end());
    let second = restored_cluster(&restored, &[]);
    let mut client = Client::open(second.gateway.address).unwrap();
    for key in 0..KEYS {
        let value: usize =
            client.get(&format!("key-{key}")).unwrap().expect("it was written").parse().unwrap();
        // The last number below `before` that is a write of this key.
        let least = (before - 1 - key) / KEYS * KEYS + key;
        assert!(
            value % KEYS == key && (least..after).contains(&value),
            "key-{key}: {value} of {least}..{after}"
        );
    }
    println!("a backup while {} writes were done; all {KEYS} keys are of its time", after - before);
}

/// Whoever is asked first, the other has nothing newer; and the one that was lost has nothing newer than both.
fn assert_equal(cluster: &Cluster, copies: &[PathBuf], model: &BTreeMap<String, String>) {
    let lost = cluster.folder.path().join("store-0");
    let orders =
        [(&copies[0], &copies[1], "one"), (&copies[1], &copies[0], "other"), (&copies[0], &lost, "lost")];
    for (ahead, behind, name) in orders {
        let merged = merge(&cluster.folder.path().join(name), &[ahead.clone(), behind.clone()]);
        let newer: Vec<_> = merged["sources"].as_array().unwrap().iter().map(|one| &one["newer"]).collect();
        assert_eq!(newer, [0, 0], "{name}: {merged}");
        assert_eq!(merged["items"], model.len(), "{name}: {merged}");
    }
}

/// A new cluster whose first server has that store, and so many more, one after another.
fn restored_cluster(restored: &Path, more: &[usize]) -> Cluster {
    let mut cluster = Cluster::start_detached(1, 0, &[]);
    let all = 1 + more.iter().sum::<usize>();
    let copied =
        Command::new("cp").arg("-r").arg(restored).arg(cluster.folder.path().join("store-0")).status();
    assert!(copied.unwrap().success());
    for &servers in [1].iter().chain(more) {
        (0..servers).for_each(|_| cluster.add_server());
        until("the servers are known", || {
            (strings(&cluster.try_stat()?["not_attached"]).len() == servers).then_some(())
        });
        cluster.attach();
    }
    cluster.until_active(all);
    cluster.until_served();
    cluster
}

/// One write after another, round after round over all keys: the number of a write is its value.
#[derive(Clone, Default)]
struct Writer {
    sent: Arc<AtomicUsize>,
    acknowledged: Arc<AtomicUsize>,
    ended: Arc<AtomicBool>,
}

impl Writer {
    fn start(self, mut client: Client) -> JoinHandle<()> {
        std::thread::spawn(move || {
            while !self.ended.load(Ordering::SeqCst) {
                let number = self.sent.fetch_add(1, Ordering::SeqCst);
                assert!(client.set(&format!("key-{}", number % KEYS), &number.to_string()).unwrap());
                self.acknowledged.store(number + 1, Ordering::SeqCst);
            }
        })
    }

    fn sent(&self) -> usize {
        self.sent.load(Ordering::SeqCst)
    }

    fn acknowledged(&self) -> usize {
        self.acknowledged.load(Ordering::SeqCst)
    }
}

fn set(client: &mut Client, model: &mut BTreeMap<String, String>, key: usize, value: &str) {
    let (key, value) = (format!("key-{key}"), format!("{value} {key}"));
    assert!(client.set(&key, &value).unwrap());
    model.insert(key, value);
}

fn delete(client: &mut Client, model: &mut BTreeMap<String, String>, key: usize) {
    let key = format!("key-{key}");
    let there = model.remove(&key).is_some();
    let answer = client.ask(&format!("delete {key}\r\n")).unwrap();
    assert_eq!(answer, if there { "DELETED" } else { "NOT_FOUND" }, "{key}");
}

fn verify(client: &mut Client, model: &BTreeMap<String, String>) {
    for key in (0..KEYS).map(|key| format!("key-{key}")) {
        assert_eq!(client.get(&key).unwrap(), model.get(&key).cloned(), "{key}");
    }
}

/// Generation and count of the hash space.
fn number(cluster: &Cluster) -> (u64, u64) {
    let stat = until("the managers answer", || cluster.try_stat());
    let text = stat["space"]["number"].as_str().expect("text");
    let (generation, count) = text.split_once('.').expect("two numbers");
    (generation.parse().unwrap(), count.parse().unwrap())
}

fn names(folder: &Path) -> BTreeSet<String> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    names.map(|name| name.into_string().unwrap()).collect()
}

/// The status, and what was said on standard error.
fn try_merge(destination: &Path, options: &[&str], sources: &[PathBuf]) -> (Option<i32>, String) {
    let mut command = Command::new(KUMO);
    let output = command.arg("mergedb").args(options).arg(destination).args(sources).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

fn merge(destination: &Path, sources: &[PathBuf]) -> Value {
    let mut command = Command::new(KUMO);
    let output =
        command.args(["mergedb", "--format", "json"]).arg(destination).args(sources).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(fs::metadata(destination).is_ok_and(|metadata| metadata.is_dir()));
    serde_json::from_slice(&output.stdout).unwrap()
}

const KEYS: usize = 300;
