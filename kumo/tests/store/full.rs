//! A server whose disk is full: what it has is served, what it cannot take is refused, and it is named.

use crate::client::Client;
use crate::cluster::{Cluster, strings, until};
use crate::namespaces;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn a_full_disk_refuses_writes_and_keeps_what_it_took() {
    inside("full::a_full_disk_refuses_writes_and_keeps_what_it_took", full_disk);
}

#[test]
fn a_server_without_a_byte_of_room_serves_on() {
    inside("full::a_server_without_a_byte_of_room_serves_on", no_byte_of_room);
}

/// Runs a test where a small disk can be mounted.
fn inside(name: &str, test: fn()) {
    if namespaces::inside() {
        return test();
    }
    match namespaces::run_inside(name) {
        Err(reason) => {
            println!("skipped: a small disk is mounted in a namespace, and there are none here ({reason})")
        }
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout);
            print!("{text}");
            assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
            assert!(text.contains(REPORT), "the test inside ran: {text}");
        }
    }
}

/// Three servers, of which the last has a disk of 24 MB.
fn with_small_disk() -> (Cluster, PathBuf) {
    let mut cluster = Cluster::start_detached(1, 2, &["--request-timeout", "3"]);
    let disk = cluster.folder.path().join("store-2");
    fs::create_dir(&disk).unwrap();
    mount(&["-t", "tmpfs", "-o", "size=24m", "none"], &disk);
    cluster.add_server();
    until("all are known", || (cluster.try_stat()?["not_attached"].as_array()?.len() == 3).then_some(()));
    cluster.attach();
    cluster.until_active(3);
    cluster.until_served();
    (cluster, disk)
}

/// Stores values until they are refused; those that were stored. Every key has a copy on the small disk.
fn store_until_refused(client: &mut Client) -> (Vec<usize>, usize) {
    let (mut stored, mut refused) = (Vec::new(), 0);
    for number in 0..KEYS_MAX {
        let key = format!("key-{number}");
        match client.set(&key, &value(number)) {
            Ok(_) => stored.push(number),
            Err(error) if error.to_string() == "SERVER_ERROR out of memory storing object" => refused += 1,
            // It was under way when the disk was found full, and may still be done.
            Err(error) => assert!(error.to_string().starts_with("SERVER_ERROR"), "{error}"),
        }
        if refused >= 10 {
            break;
        }
    }
    assert!(refused >= 10, "{} of {KEYS_MAX} values fit on a disk of 24 MB", stored.len());
    (stored, refused)
}

/// Nothing can be written any more, not even what a new hash space takes; and hash spaces change.
fn no_byte_of_room() {
    let (mut cluster, disk) = with_small_disk();
    let mut client = Client::open(cluster.gateway.address).unwrap();
    let filler = disk.join("filler");
    let fill = || {
        let mut file = File::options().create(true).append(true).open(&filler).unwrap();
        for bytes in [65_536, 4_096, 1] {
            while file.write_all(&vec![b'f'; bytes]).is_ok() {}
        }
    };
    fill();
    let (mut stored, refused) = store_until_refused(&mut client);
    fill();
    // Another server is lost: the one without room has to keep the new space, and now and then serves alone.
    cluster.servers[0].kill();
    cluster.until_fault(0);
    verify(&mut client, &stored);
    assert_eq!(cluster.state(2).as_deref(), Some("active"));
    // A start finds room for its new life too.
    cluster.servers[2].kill();
    cluster.until_fault(2);
    verify(&mut client, &stored);
    cluster.servers[2].run();
    let address = cluster.servers[2].address.to_string();
    until("it is back", || strings(&cluster.try_stat()?["not_attached"]).contains(&address).then_some(()));
    fs::remove_file(&filler).unwrap();
    cluster.attach();
    until("it is attached", || (cluster.state(2)? == "active").then_some(()));
    for number in KEYS_MAX..KEYS_MAX + 5 {
        until("there is room again", || client.set(&format!("key-{number}"), &value(number)).ok());
        stored.push(number);
    }
    verify(&mut client, &stored);
    let taken = stored.len();
    cluster.nodes().for_each(|node| node.end());
    assert!(Command::new("umount").arg(&disk).status().unwrap().success());
    println!(
        "{REPORT} without a byte: {taken} values stored, {refused} refused, 2 servers lost, none of the values"
    );
}

fn full_disk() {
    let (mut cluster, disk) = with_small_disk();
    let mut client = Client::open(cluster.gateway.address).unwrap();
    let (mut stored, refused) = store_until_refused(&mut client);
    until("the server is named", || {
        let shown = cluster.kumoctl(&["stat"]);
        let line = format!("  {} (active, disk full)", cluster.servers[2].address);
        String::from_utf8_lossy(&shown.stdout).lines().any(|one| one == line).then_some(())
    });
    assert!(cluster.servers[2].log().contains("no space left on the disk"));
    verify(&mut client, &stored);
    mount(&["-o", "remount,size=128m"], &disk);
    for number in KEYS_MAX..KEYS_MAX + 20 {
        // Every other server finds out for itself that there is room again.
        until("there is room again", || client.set(&format!("key-{number}"), &value(number)).ok());
        stored.push(number);
    }
    verify(&mut client, &stored);
    cluster.servers[2].kill();
    cluster.until_fault(2);
    verify(&mut client, &stored);
    let taken = stored.len();
    cluster.nodes().for_each(|node| node.end());
    let unmounted = Command::new("umount").arg(&disk).status();
    assert!(unmounted.unwrap().success());
    println!("{REPORT}: {taken} values stored, {refused} refused, none lost");
}

fn verify(client: &mut Client, stored: &[usize]) {
    for &number in stored {
        let found = client.get(&format!("key-{number}")).unwrap();
        assert!(found.as_deref() == Some(&value(number)[..]), "key-{number} is not what was stored");
    }
}

fn value(number: usize) -> String {
    format!("{number:05}{}", "v".repeat(99_995))
}

fn mount(options: &[&str], at: &Path) {
    let mounted = Command::new("mount").args(options).arg(at).status();
    assert!(mounted.unwrap().success(), "mount {options:?}");
}

const REPORT: &str = "full disk of a server";

/// Ten times what fits.
const KEYS_MAX: usize = 2400;
