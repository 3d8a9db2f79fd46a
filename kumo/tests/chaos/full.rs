//! Replicas whose disk is full: they end, and forget nothing.

use crate::load::Load;
use crate::namespaces;
use crate::process::{Cell, bounded, until};
use crate::raw;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::Command;

#[tokio::test(flavor = "multi_thread")]
async fn a_durable_cell_survives_a_full_disk() {
    if namespaces::inside() {
        return bounded(full_disk()).await;
    }
    match namespaces::run_inside("full::a_durable_cell_survives_a_full_disk") {
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

/// All three share the disk, so that all three find it full.
async fn full_disk() {
    let disk = std::env::temp_dir().join(format!("kumo-full-{}", std::process::id()));
    fs::create_dir(&disk).unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", DISK_SIZE, "none"]).arg(&disk).status();
    assert!(mounted.unwrap().success(), "a small disk is mounted");
    let mut cell = Cell::start_durable_in(disk.clone(), &["--session-timeout", "60"]).await;
    let lives = |cell: &Cell| -> Vec<_> { cell.addresses().into_iter().map(raw::incarnation).collect() };
    let (formed, before) = (cell.voting().await, lives(&cell));
    let load = Load::start(&cell).await;
    load.further(200).await;
    let filler = disk.join("filler");
    let mut file = File::create(&filler).unwrap();
    until("a majority finds the disk full", async || {
        fill(&mut file);
        (cell.ended() >= 2).then_some(())
    })
    .await;
    let acknowledged = load.acknowledged();
    // The third has nobody to write with, and may have a few bytes left.
    let ended: Vec<usize> = (0..3).filter(|&index| said_full(&cell, index, &disk)).collect();
    assert!(ended.len() >= 2, "each says why: {ended:?}");
    drop(file);
    fs::remove_file(&filler).unwrap();
    let status = until("every replica votes again", async || {
        cell.run_ended();
        cell.if_voting().await
    })
    .await;
    load.check(&cell.session().await).await;
    load.further(200).await;
    assert_eq!((status.cell, status.generation), (formed.cell, 1), "the same cell");
    assert_eq!(lives(&cell), before, "everybody kept its memory");
    let tally = load.finish(&cell).await;
    drop(cell);
    let unmounted = Command::new("umount").arg(&disk).status();
    assert!(unmounted.unwrap().success());
    fs::remove_dir(&disk).unwrap();
    println!("{REPORT}: {} of 3 ended after {acknowledged} operations, {tally}", ended.len());
}

/// Takes all the space there is, up to the last byte.
fn fill(file: &mut File) {
    for size in [4096, 1] {
        loop {
            match file.write_all(&vec![1; size]) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::StorageFull => break,
                Err(error) => panic!("filling the disk: {error}"),
            }
        }
    }
}

fn said_full(cell: &Cell, index: usize, disk: &Path) -> bool {
    let data = disk.join(format!("data-{index}"));
    let begin = format!("disk full: write the log in {}: ", data.display());
    let log = cell.log(index);
    log.lines().any(|line| line.contains(&begin) && line.contains("; free space and start it again"))
}

const REPORT: &str = "full disk";

/// A few seconds' load fits, and no more.
const DISK_SIZE: &str = "size=16m";
