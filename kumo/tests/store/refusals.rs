//! Servers that do not belong: of another cluster, with another's store, with an address twice, with files that are not
//! ours. Each ends with 1 and one clear line, and changes nothing.

use crate::client::Client;
use crate::cluster::{Cluster, Folder, KUMO, free_addresses, named, until};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn a_store_of_another_cluster_is_refused() {
    let mut one = Cluster::start(1, 3, &[]);
    let two = Cluster::start(1, 3, &[]);
    let mut client = Client::open(one.gateway.address).unwrap();
    assert!(client.set("kept", "value").unwrap());
    one.servers[2].kill();
    one.until_fault(2);
    let store = one.folder.path().join("store-2");
    let before = contents(&store);
    let line = refused(&[two.managers[0].address], free_addresses(1)[0], &store);
    assert!(line.contains("belongs to cluster"), "it says that the cluster is another one: {line}");
    assert_eq!(contents(&store), before, "nothing is changed");
    two.until_active(3);
    // It is what it was: its own cluster takes it back, and it serves.
    one.servers[2].run();
    until("it is known again", || (one.try_stat()?["not_attached"].as_array()?.len() == 1).then_some(()));
    one.attach();
    one.until_active(3);
    assert_eq!(client.get("kept").unwrap().as_deref(), Some("value"));
}

#[test]
fn managers_of_two_clusters_are_refused() {
    let mut one = Cluster::start(1, 2, &[]);
    let two = Cluster::start(1, 1, &[]);
    one.servers[1].kill();
    one.until_fault(1);
    let store = one.folder.path().join("store-1");
    let before = contents(&store);
    let managers = [one.managers[0].address, two.managers[0].address];
    let line = refused(&managers, one.servers[1].address, &store);
    assert!(line.contains("belongs to cluster"), "it says that the clusters differ: {line}");
    assert_eq!(contents(&store), before, "nothing is changed");
    two.until_active(1);
}

#[test]
fn a_second_server_with_one_address_is_refused() {
    let cluster = Cluster::start(1, 3, &[]);
    let folder = Folder::new();
    let store = folder.path().join("twin");
    let line = refused(&[cluster.managers[0].address], cluster.servers[0].address, &store);
    assert!(line.contains("is taken by another process"), "{line}");
    assert!(!store.exists(), "nothing is made");
    // And the same store twice.
    let first = cluster.folder.path().join("store-0");
    let line = refused(&[cluster.managers[0].address], free_addresses(1)[0], &first);
    assert!(line.contains("store-0"), "{line}");
    cluster.until_active(3);
    assert!(Client::open(cluster.gateway.address).unwrap().set("still", "served").unwrap());
}

#[test]
fn files_that_are_not_ours_are_refused() {
    let cluster = Cluster::start(1, 1, &[]);
    let folder = Folder::new();
    let tokyo = folder.path().join("database.tch");
    let mut content = b"ToKyO CaBiNeT\n1.0:911\n".to_vec();
    content.resize(4096, 0);
    std::fs::write(&tokyo, &content).unwrap();
    let line = refused(&[cluster.managers[0].address], free_addresses(1)[0], &tokyo);
    assert!(line.contains("Tokyo Cabinet") && line.contains("database.tch"), "{line}");
    assert_eq!(std::fs::read(&tokyo).unwrap(), content, "nothing is overwritten");

    let newer = folder.path().join("newer");
    std::fs::create_dir(&newer).unwrap();
    std::fs::write(newer.join("FORMAT"), "kumo store 999\n").unwrap();
    std::fs::write(newer.join("0000000001.segment"), "from the future").unwrap();
    let before = contents(&newer);
    let line = refused(&[cluster.managers[0].address], free_addresses(1)[0], &newer);
    assert!(line.contains("999"), "it names the format: {line}");
    assert_eq!(contents(&newer), before, "nothing is overwritten");

    let foreign = folder.path().join("home");
    std::fs::create_dir(&foreign).unwrap();
    std::fs::write(foreign.join("letter.txt"), "dear reader").unwrap();
    let before = contents(&foreign);
    let line = refused(&[cluster.managers[0].address], free_addresses(1)[0], &foreign);
    assert!(line.contains("home"), "{line}");
    assert_eq!(contents(&foreign), before, "nothing is put into it");
    cluster.until_active(1);
}

/// Runs a server that must end by itself with 1, and returns the one line that it says.
pub fn refused(managers: &[SocketAddr], address: SocketAddr, store: &Path) -> String {
    let output = Command::new("timeout")
        .args(["60", KUMO, "server", "-o", "-", "-l", &address.to_string()])
        .args(named(managers))
        .args(["-L", &free_addresses(1)[0].port().to_string(), "-s"])
        .arg(store)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{}: {error}\n{said}", store.display());
    assert_eq!(error.lines().count(), 1, "one line: {error}");
    error
}

/// Every file of a folder, but for what only says who uses it, and who has used it: every start is noted, in the room for
/// the next note.
pub fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let Ok(entries) = std::fs::read_dir(folder) else { return BTreeMap::new() };
    let files = entries.map(|entry| entry.unwrap()).filter(|entry| {
        !["LOCK", "lives.note", "spoke.note", "ROOM"].iter().any(|name| entry.file_name() == *name)
    });
    files
        .map(|entry| (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap()))
        .collect()
}
