//! A server whose disk is full: what it has is served, what it cannot take is refused, and it is named.

use crate::client::Client;
use crate::cluster::{Cluster, until};
use crate::namespaces;
use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
fn a_full_disk_refuses_writes_and_keeps_what_it_took() {
    if namespaces::inside() {
        return full_disk();
    }
    match namespaces::run_inside("full::a_full_disk_refuses_writes_and_keeps_what_it_took") {
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

fn full_disk() {
    let mut cluster = Cluster::start_detached(1, 2, &["--request-timeout", "3"]);
    let disk = cluster.folder.path().join("store-2");
    fs::create_dir(&disk).unwrap();
    mount(&["-t", "tmpfs", "-o", "size=24m", "none"], &disk);
    cluster.add_server();
    until("all are known", || (cluster.try_stat()?["not_attached"].as_array()?.len() == 3).then_some(()));
    cluster.attach();
    cluster.until_active(3);
    cluster.until_served();
    let mut client = Client::open(cluster.gateway.address).unwrap();
    let (mut stored, mut refused) = (Vec::new(), 0);
    // Every key has a copy on the small disk.
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
