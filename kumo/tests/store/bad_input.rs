//! Clients that send nonsense, send for ever, send slowly, or never read: they are told or closed, others are served,
//! and the gateway's memory stays bounded.

use crate::client::Client;
use crate::cluster::Cluster;
use crate::load::Load;
use crate::workers::stats;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

#[test]
fn bad_clients_are_told_and_others_are_served() {
    let mut cluster = Cluster::start(1, 3, &[]);
    let load = Load::start(&cluster);
    load.further(OPERATIONS_BETWEEN);
    let before = cluster.gateway.memory_bytes();
    let address = cluster.gateway.address;

    load.phase("malformed");
    let malformed = malformed(address);
    load.further(OPERATIONS_BETWEEN);
    load.phase("endless");
    endless_line(address);
    endless_value(address);
    load.further(OPERATIONS_BETWEEN);
    load.phase("slow");
    slow(address, &load);
    load.phase("noise");
    let noise = noise(address);
    load.further(OPERATIONS_BETWEEN);
    let after = cluster.gateway.memory_bytes();
    assert!(after < before + MEMORY_BYTES_MAX, "{before} bytes grew to {after}");
    cluster.until_active(3);
    assert!(cluster.nodes().all(|node| !node.log().contains("panicked")), "no bytes lead to a panic");
    let tally = load.finish();
    println!(
        "bad input: {malformed} were told why, {noise} connections of noise, {before} to {after} bytes; {tally}"
    );
}

#[test]
fn clients_that_ask_and_hang_up_are_answered() {
    let cluster = Cluster::start(1, 3, &[]);
    for count in 0..20 {
        let mut stream = TcpStream::connect(cluster.gateway.address).unwrap();
        stream.write_all(format!("set hurried-{count} 0 0 1\r\nx\r\n").as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(
            told(&mut stream, b""),
            "STORED\r\n",
            "the answer to client {count}, as memcached gives it"
        );
    }
}

#[test]
fn idle_clients_cost_little() {
    let clients = allow_files() - FILES_BESIDE;
    if clients < CLIENTS {
        println!("skipped: {} of {CLIENTS} idle clients: so few files may be open here", CLIENTS - clients);
    }
    let cluster = Cluster::start(1, 3, &["--max-connections", &(clients + 100).to_string()]);
    let load = Load::start(&cluster);
    load.further(OPERATIONS_BETWEEN);
    let before = cluster.gateway.memory_bytes();
    let address = cluster.gateway.address;
    load.phase("they come");
    let idle: Vec<TcpStream> = (0..clients).map(|_| TcpStream::connect(address).unwrap()).collect();
    load.phase("idle");
    load.further(OPERATIONS_BETWEEN);
    let after = cluster.gateway.memory_bytes();
    // All of them were taken in, and the last one is served.
    let taken = stats(&mut Client::open(address).unwrap())["curr_connections"];
    assert!(taken > clients, "{taken} of {clients} clients were taken in");
    let mut last = idle.last().expect("there are some").try_clone().unwrap();
    assert_eq!(told(&mut last, b"get nothing\r\n"), "END\r\n");
    assert!(after < before + MEMORY_BYTES_MAX, "{before} bytes grew to {after}");
    let tally = load.finish();
    println!("{} idle clients: {before} bytes before, {after} with them; {tally}", idle.len());
}

#[test]
fn clients_that_do_not_read_cost_little() {
    let cluster = Cluster::start(1, 3, &[]);
    let load = Load::start(&cluster);
    load.further(OPERATIONS_BETWEEN);
    let before = cluster.gateway.memory_bytes();
    let address = cluster.gateway.address;

    load.phase("half a value each");
    let half: Vec<TcpStream> = (0..100)
        .map(|_| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(format!("set half 0 0 {VALUE_BYTES}\r\nbegin").as_bytes()).unwrap();
            stream
        })
        .collect();
    load.further(OPERATIONS_BETWEEN);
    drop(half);

    load.phase("never reads");
    let mut writer = TcpStream::connect(address).unwrap();
    let value = vec![b'v'; VALUE_BYTES];
    writer.write_all(format!("set large 0 0 {VALUE_BYTES}\r\n").as_bytes()).unwrap();
    writer.write_all(&value).unwrap();
    assert_eq!(told(&mut writer, b"\r\n"), "STORED\r\n");
    let mut deaf = Vec::new();
    for line in ["get large\r\n".repeat(2_000), format!("get{}\r\n", " large".repeat(300))] {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(line.as_bytes()).unwrap();
        deaf.push(stream);
    }
    load.further(4 * OPERATIONS_BETWEEN);
    let with_deaf = cluster.gateway.memory_bytes();
    cluster.until_active(3);
    drop(deaf);

    assert!(with_deaf < before + MEMORY_BYTES_MAX, "{before} bytes grew to {with_deaf}");
    let tally = load.finish();
    println!("deaf clients: {before} bytes before, {with_deaf} with them; {tally}");
}

#[test]
fn many_that_ask_for_large_values_at_once_cost_little() {
    let cluster = Cluster::start(1, 3, &[]);
    let address = cluster.gateway.address;
    store_large(address);
    let before = cluster.gateway.memory_bytes();
    let mut others = Client::open(address).unwrap();
    let mut most = 0;
    // Fresh ones, of whose values nothing is known; and lines of many keys, which are longer in memory than on the wire.
    let line = format!("get{}\r\n", " k".repeat(16_000));
    let asked = ["get large\r\n".repeat(12), line.repeat(30)];
    let deaf: Vec<TcpStream> = (0..50)
        .map(|count| {
            let mut stream = TcpStream::connect(address).unwrap();
            let asked = &asked[usize::from(count >= 48)];
            // Not all of it may be taken: nobody reads it.
            stream.set_nonblocking(true).unwrap();
            let _ = stream.write_all(asked.as_bytes());
            stream
        })
        .collect();
    for count in 0..60 {
        assert!(others.set("other", &count.to_string()).unwrap(), "others are served");
        assert_eq!(others.get("other").unwrap(), Some(count.to_string()));
        most = most.max(cluster.gateway.memory_bytes());
    }
    drop(deaf);
    assert!(most < before + CROWD_BYTES_MAX, "{before} bytes grew to {most}");
    println!("a crowd that does not read: {before} bytes before, {most} at most");
}

#[test]
fn a_slow_reader_gets_all_it_asked_for() {
    let cluster = Cluster::start(1, 3, &[]);
    let address = cluster.gateway.address;
    store_large(address);
    let mut slow = TcpStream::connect(address).unwrap();
    slow.set_read_timeout(Some(PATIENCE)).unwrap();
    slow.write_all("get large\r\n".repeat(40).as_bytes()).unwrap();
    let mut others = Client::open(address).unwrap();
    for count in 0..100 {
        assert!(others.set("other", &count.to_string()).unwrap(), "others are served");
    }
    let head = format!("VALUE large 0 {VALUE_BYTES}\r\n");
    let mut answer = vec![0; head.len() + VALUE_BYTES + "\r\nEND\r\n".len()];
    for count in 0..40 {
        slow.read_exact(&mut answer).unwrap_or_else(|error| panic!("answer {count}: {error}"));
        assert!(answer.starts_with(head.as_bytes()) && answer.ends_with(b"v\r\nEND\r\n"), "answer {count}");
    }
}

fn store_large(address: SocketAddr) {
    let mut writer = TcpStream::connect(address).unwrap();
    let request = format!("set large 0 0 {VALUE_BYTES}\r\n{}\r\n", "v".repeat(VALUE_BYTES));
    assert_eq!(told(&mut writer, request.as_bytes()), "STORED\r\n");
}

/// Requests that memcached refuses, and how the refusal begins. The connection may end with it.
fn malformed(address: SocketAddr) -> usize {
    let long_key = format!("get {}\r\n", "k".repeat(251));
    let too_large = format!("set k 0 0 {}\r\n{}\r\n", 2 << 20, "v".repeat(2 << 20));
    let many_keys = format!("get{}\r\n", " k".repeat(16_385));
    let cases: [(&[u8], &str); 14] = [
        (b"bogus\r\n", "ERROR\r\n"),
        (b"\r\n", "ERROR\r\n"),
        (b"set\r\n", "ERROR\r\n"),
        (b"set k 0 0 -1\r\n", "CLIENT_ERROR"),
        (b"set k 0 0 99999999999999999999\r\n", "CLIENT_ERROR"),
        (b"set k 0 0 2000000000\r\n", "SERVER_ERROR object too large for cache\r\n"),
        (b"set k 0 0 4294967295\r\n", "CLIENT_ERROR"),
        (b"set k 0 0 1\r\nxyz\r\n", "CLIENT_ERROR bad data chunk\r\n"),
        (long_key.as_bytes(), "CLIENT_ERROR"),
        (too_large.as_bytes(), "SERVER_ERROR object too large for cache\r\n"),
        (b"incr k minus\r\n", "CLIENT_ERROR"),
        (b"set past 0 -1 1\r\nx\r\nget past\r\n", "STORED\r\nEND\r\n"),
        (b"get \x01\x02\x7f\r\n", "END\r\n"),
        (many_keys.as_bytes(), "CLIENT_ERROR too many keys in one line, at most 16384\r\n"),
    ];
    for (bytes, expected) in &cases {
        let mut stream = TcpStream::connect(address).unwrap();
        let said = until_said(&mut stream, bytes, expected.len());
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(40)]).into_owned();
        assert!(said.starts_with(expected), "{shown:?}: {said:?}");
    }
    // A binary set whose body would be four gigabytes.
    let mut header = [0u8; 24];
    header[..4].copy_from_slice(&[0x80, 0x01, 0, 3]);
    header[4] = 8;
    header[8..12].copy_from_slice(&u32::MAX.to_be_bytes());
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&header).unwrap();
    let mut answer = [0; 24];
    stream.read_exact(&mut answer).expect("it is answered at once, not when four gigabytes have come");
    assert!(answer[0] == 0x81 && answer[6..8] != [0, 0], "{answer:?}");
    cases.len() + 1
}

/// A line that does not end: the gateway ends it.
fn endless_line(address: SocketAddr) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    let piece = [b'a'; 16 * 1024];
    let sent = (0..).take_while(|_| stream.write_all(&piece).is_ok()).take(16_384).count();
    assert!(sent < 16_384, "a line of {} bytes is still read", sent * piece.len());
}

/// One value after another, for ever: 64 of them, each replaced by the next.
fn endless_value(address: SocketAddr) {
    let mut stream = TcpStream::connect(address).unwrap();
    let value = "v".repeat(VALUE_BYTES);
    for _ in 0..64 {
        let request = format!("set endless 0 0 {VALUE_BYTES}\r\n{value}\r\n");
        assert_eq!(told(&mut stream, request.as_bytes()), "STORED\r\n");
    }
}

/// A request that comes byte by byte, each after others were served.
fn slow(address: SocketAddr, load: &Load) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    for byte in b"set slow 0 0 4\r\nslow\r\n" {
        stream.write_all(&[*byte]).unwrap();
        load.further(20);
    }
    assert_eq!(told(&mut stream, b""), "STORED\r\n");
}

/// Bytes without sense, half of them as if they were binary.
fn noise(address: SocketAddr) -> usize {
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    for count in 0..NOISE {
        let mut bytes = vec![0; 200 + count];
        for byte in &mut bytes {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = (state >> 56) as u8;
        }
        if count % 2 == 0 {
            bytes[0] = 0x80;
        }
        let mut stream = TcpStream::connect(address).unwrap();
        // It may be closed before all is sent.
        let _ = stream.write_all(&bytes);
    }
    NOISE
}

/// Sends it and returns the first line of the answer.
fn told(stream: &mut TcpStream, bytes: &[u8]) -> String {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    if !bytes.is_empty() {
        stream.write_all(bytes).unwrap();
    }
    let (mut line, mut byte) = (String::new(), [0]);
    while !line.ends_with('\n') && stream.read(&mut byte).expect("an answer") == 1 {
        line.push(char::from(byte[0]));
    }
    line
}

/// Sends it and returns what is answered, up to so many bytes.
fn until_said(stream: &mut TcpStream, bytes: &[u8], count: usize) -> String {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // A refusal may close the connection while we still send.
    let _ = stream.write_all(bytes);
    let mut said = Vec::new();
    let mut piece = [0; 256];
    while said.len() < count {
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(read) => said.extend_from_slice(&piece[..read]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
            Err(error) => panic!("no answer: {error}"),
        }
    }
    String::from_utf8_lossy(&said).into_owned()
}

/// For us and for the processes that we start: as many files as all clients need, which is more than a shell allows, or
/// as many as there may be.
fn allow_files() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(FILES, |maximum| maximum.min(FILES));
    if limit.current.is_some_and(|current| current < wanted) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum }).unwrap();
    }
    wanted
}

/// Of this process, for clients and whatever else.
const FILES: u64 = CLIENTS + FILES_BESIDE;
const CLIENTS: u64 = 10_000;
const FILES_BESIDE: u64 = 300;
const OPERATIONS_BETWEEN: u64 = 300;
const NOISE: usize = 200;
const VALUE_BYTES: usize = 1_000_000;
const PATIENCE: Duration = Duration::from_secs(60);

/// What all bad clients of a test together may cost.
const MEMORY_BYTES_MAX: u64 = 192 << 20;

/// Fifty that do not read cost about 400 MB: some answers of a megabyte each, in buffers that grew by doubling. Without
/// bounds it would be twice as much.
const CROWD_BYTES_MAX: u64 = 700 << 20;
