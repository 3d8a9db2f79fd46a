//! What the engine costs: CPU time of a put and a get, memory and start with many records.
//! `cargo run --release -p kumo-store --example measure -- memory|files [RECORDS] [DATA BYTES]`

use bytes::Bytes;
use kumo_cluster::{Clock, KeyHash, Kind, Record, SpaceNumber, Stamp, Store, key_hash};
use kumo_store::{Engine, Options};
use std::time::Instant;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mode = arguments.next().expect("memory or files");
    let mut numbers = arguments.map(|argument| argument.parse::<u64>().expect("a number"));
    let (records, data_bytes) = (numbers.next().unwrap_or(1_000_000), numbers.next().unwrap_or(100));
    println!("{mode}: {records} records, keys of {KEY_BYTES} bytes, data of {data_bytes} bytes");
    let keys: Vec<(KeyHash, [u8; KEY_BYTES])> = (0..records).map(key).collect();
    match mode.as_str() {
        "memory" => memory(&keys, data_bytes as usize),
        "files" => files(&keys, data_bytes as usize),
        other => panic!("memory or files, not {other}"),
    }
}

fn memory(keys: &[(KeyHash, [u8; KEY_BYTES])], data_bytes: usize) {
    let before = resident();
    let engine = Engine::memory();
    put_all(&engine, keys, data_bytes);
    report_memory(before, keys.len(), KEY_BYTES + data_bytes);
    get_all(&engine, keys);
    scan_all(&engine, keys.len());
    put_all(&engine, keys, data_bytes);
}

fn files(keys: &[(KeyHash, [u8; KEY_BYTES])], data_bytes: usize) {
    let path = std::env::temp_dir().join(format!("kumo-store-measure-{}", std::process::id()));
    let before = resident();
    let (engine, _) = Engine::open(&path, Options::default()).expect("a fresh store");
    put_all(&engine, keys, data_bytes);
    report_memory(before, keys.len(), KEY_BYTES);
    get_all(&engine, keys);
    scan_all(&engine, keys.len());
    put_all(&engine, keys, data_bytes);
    let start = Instant::now();
    engine.backup(&path.with_extension("backup"), &[]).expect("a backup");
    println!("  backup: {:?}", start.elapsed());
    drop(engine);

    let (start, cpu) = (Instant::now(), cpu_seconds());
    let (engine, opened) = Engine::open(&path, Options::default()).expect("the store again");
    let (wall, cpu) = (start.elapsed(), cpu_seconds() - cpu);
    println!("  start: {wall:?}, CPU {cpu:.2} s, {} segments, {} hinted", opened.segments, opened.hinted);
    assert_eq!(opened.items, keys.len() as u64);
    drop(engine);
    std::fs::remove_dir_all(&path).expect("remove the store");
    std::fs::remove_dir_all(path.with_extension("backup")).expect("remove the backup");
}

fn report_memory(before: u64, records: usize, content_bytes: usize) {
    let each = (resident() - before) as f64 / records as f64;
    let beyond = each - content_bytes as f64;
    println!(
        "  resident: {each:.1} bytes a record, {beyond:.1} beyond the {content_bytes} of key and data in it"
    );
}

fn key(number: u64) -> (KeyHash, [u8; KEY_BYTES]) {
    let mut key = [b'k'; KEY_BYTES];
    key[4..].copy_from_slice(format!("{number:016}").as_bytes());
    (key_hash(&key), key)
}

fn put_all(engine: &Engine, keys: &[(KeyHash, [u8; KEY_BYTES])], data_bytes: usize) {
    let data = Bytes::from(vec![7; data_bytes]);
    let (wall, cpu) = (Instant::now(), cpu_seconds());
    for (number, (hash, key)) in keys.iter().enumerate() {
        let stamp = Stamp { space: SpaceNumber(1), clock: Clock(1 << 62 | number as u64) };
        let record = Record { stamp, kind: Kind::Value, flags: 0, expiry: 0, data: data.clone() };
        engine.put(*hash, key, &record).expect("a put");
        if number % TURN == 0 {
            engine.commit().expect("a commit");
        }
    }
    engine.commit().expect("a commit");
    report("put", keys.len(), wall, cpu);
}

fn get_all(engine: &Engine, keys: &[(KeyHash, [u8; KEY_BYTES])]) {
    let (wall, cpu) = (Instant::now(), cpu_seconds());
    // Far apart from each other, as requests are.
    for number in 0..keys.len() {
        let (hash, key) = &keys[number * 7919 % keys.len()];
        assert!(engine.get(*hash, key).expect("a get").is_some());
    }
    report("get", keys.len(), wall, cpu);
}

fn scan_all(engine: &Engine, records: usize) {
    let (wall, cpu) = (Instant::now(), cpu_seconds());
    let (mut after, mut count) = (None, 0);
    loop {
        let found = engine.scan(KeyHash(0), KeyHash(u64::MAX), after.as_ref(), 1000).expect("a scan");
        count += found.len();
        let Some((last, _)) = found.last() else { break };
        after = Some(last.clone());
    }
    assert_eq!(count, records);
    report("scan", count, wall, cpu);
}

fn report(what: &str, count: usize, wall: Instant, cpu: f64) {
    let micros = |seconds: f64| seconds * 1e6 / count as f64;
    let (wall, cpu) = (micros(wall.elapsed().as_secs_f64()), micros(cpu_seconds() - cpu));
    println!("  {what}: {wall:.2} µs, CPU {cpu:.2} µs (all threads)");
}

/// Of this process: user and system.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let after_name = stat.rsplit(')').next().expect("a stat line");
    let ticks =
        after_name.split_whitespace().skip(11).take(2).map(|field| field.parse::<f64>().expect("ticks"));
    ticks.sum::<f64>() / 100.0
}

fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a resident size");
    let kib: u64 = line.split_whitespace().nth(1).expect("a number").parse().expect("a number");
    kib * 1024
}

/// Puts between two commits, as a busy server has them.
const TURN: usize = 16;

const KEY_BYTES: usize = 20;
