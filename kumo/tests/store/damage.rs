//! A server that meets damage on its disk: it acts on, and whoever looks after it is told.

use crate::client::Client;
use crate::cluster::{Cluster, until};
use crate::refusals::{contents, refused};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

#[test]
fn a_server_that_met_damage_is_named_until_it_is_written_over() {
    let cluster = Cluster::start(1, 1, &["--request-timeout", "1"]);
    let mut client = Client::open(cluster.gateway.address).unwrap();
    assert!(client.set("damaged", VALUE).unwrap());
    assert_eq!((known(&cluster), said(&cluster)), (Some(0), None));
    damage(&cluster.folder.path().join("store-0"));
    assert!(client.ask("get damaged\r\n").unwrap().starts_with("SERVER_ERROR"));
    let told = until("it is told", || said(&cluster));
    assert_eq!(told, format!("{HEADING}\n  {} 1", cluster.servers[0].address));
    assert_eq!(known(&cluster), Some(1));
    assert_eq!(cluster.state(0).as_deref(), Some("active"));
    // Asked again it is the same one.
    assert!(client.ask("get damaged\r\n").unwrap().starts_with("SERVER_ERROR"));
    assert_eq!(known(&cluster), Some(1));
    assert!(client.set("damaged", "whole again").unwrap());
    until("nothing is told any more", || (known(&cluster)? == 0 && said(&cluster).is_none()).then_some(()));
    assert_eq!(client.get("damaged").unwrap().as_deref(), Some("whole again"));
}

#[test]
fn a_log_that_is_damaged_inside_is_refused_with_its_place() {
    let mut cluster = Cluster::start(1, 1, &["--request-timeout", "1"]);
    let mut client = Client::open(cluster.gateway.address).unwrap();
    assert!(client.set("damaged", VALUE).unwrap() && client.set("behind", "whole").unwrap());
    cluster.servers[0].kill();
    let store = cluster.folder.path().join("store-0");
    let whole = contents(&store);
    let (segment, offset) = damage(&store);
    let before = contents(&store);
    assert_ne!(before, whole);
    let line = refused(&[cluster.managers[0].address], cluster.servers[0].address, &store);
    let record = offset - FRONT_BYTES - "damaged".len() as u64;
    let place = format!("kumo: {}: damaged at offset {record}: wrong checksum\n", segment.display());
    assert_eq!(line, place);
    assert_eq!(contents(&store), before, "nothing is changed");
    // It is what it was: with that byte as it should be, it serves.
    let file = std::fs::OpenOptions::new().write(true).open(&segment).unwrap();
    file.write_all_at(&VALUE.as_bytes()[..1], offset).unwrap();
    cluster.servers[0].run();
    for (key, value) in [("damaged", VALUE), ("behind", "whole")] {
        until("it is served again", || {
            cluster.kumoctl(&["attach"]);
            (client.get(key).ok()?.as_deref() == Some(value)).then_some(())
        });
    }
    print!("damage inside a log: {line}");
}

/// As `kumoctl stat` has it in its JSON.
fn known(cluster: &Cluster) -> Option<u64> {
    cluster.try_stat()?["attached"][0]["unreadable"].as_u64()
}

/// What `kumoctl stat` says behind the seed's block.
fn said(cluster: &Cluster) -> Option<String> {
    let text = String::from_utf8(cluster.kumoctl(&["stat"]).stdout).unwrap();
    let line = format!("  {} (active)\nnot attached node:\n", cluster.servers[0].address);
    let (_, behind) = text.split_once(&line).expect("the seed's block is as ever");
    (!behind.is_empty()).then(|| behind.trim_end().to_owned())
}

/// Changes the first byte of the value where it lies: in that file, at that offset.
fn damage(store: &Path) -> (PathBuf, u64) {
    let mut files = std::fs::read_dir(store).unwrap().map(|entry| entry.unwrap().path());
    let segment = files.find(|path| path.extension().is_some_and(|end| end == "segment")).unwrap();
    let content = std::fs::read(&segment).unwrap();
    let value = VALUE.as_bytes();
    let offset = content.windows(value.len()).position(|bytes| bytes == value).expect("it is in the file");
    let file = std::fs::OpenOptions::new().write(true).open(&segment).unwrap();
    file.write_all_at(b"X", offset as u64).unwrap();
    (segment, offset as u64)
}

const VALUE: &str = "a value like no other";
/// Of a record, before its value, without its key.
const FRONT_BYTES: u64 = 43;
const HEADING: &str =
    "records that cannot be read, as far as they were met (the server's log names the file):";
