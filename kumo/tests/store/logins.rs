//! A gateway with `--auth`: nothing is served before the login, by text or by binary, and passwords are in no log.

use crate::cluster::{Cluster, Node, free_addresses, named, until, words};
use std::fs::Permissions;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

#[test]
fn a_guarded_gateway_serves_those_who_log_in() {
    let cluster = Cluster::start(1, 3, &[]);
    let file = cluster.folder.path().join("users");
    std::fs::write(&file, format!("ann:{SECRET}\nbob:other\n")).unwrap();
    std::fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    let mut gateway = guarded(&cluster, &file);
    gateway.run();
    let address = gateway.address;
    until("it listens", || TcpStream::connect(address).ok());

    let login = format!("set login 0 0 {}\r\nann {SECRET}\r\n", 4 + SECRET.len());
    let text = [
        ("get a\r\n", "CLIENT_ERROR unauthenticated\r\n"),
        ("version\r\n", "CLIENT_ERROR unauthenticated\r\n"),
        ("set login 0 0 9\r\nann wrong\r\n", "CLIENT_ERROR authentication failure\r\n"),
        ("set a 0 0 1\r\n", ""),
        ("x\r\n", "CLIENT_ERROR bad authentication token format\r\n"),
        (&login, "STORED\r\n"),
        ("set a 0 0 1\r\nx\r\n", "STORED\r\n"),
        ("get a login\r\n", "VALUE a 0 1\r\nx\r\nEND\r\n"),
    ];
    let mut stream = connected(address);
    for (sent, expected) in text {
        assert_eq!(told(&mut stream, sent.as_bytes(), expected.len()), expected.as_bytes(), "{sent}");
    }

    let mut stream = connected(address);
    let data = format!("\0ann\0{SECRET}");
    assert_eq!(asked(&mut stream, LIST, b"", b""), (0, b"PLAIN".to_vec()));
    assert_eq!(asked(&mut stream, AUTH, b"PLAIN", b"\0ann\0wrong"), (0x20, b"Auth failure.".to_vec()));
    assert_eq!(asked(&mut stream, AUTH, b"PLAIN", data.as_bytes()), (0, b"Authenticated".to_vec()));
    assert_eq!(asked(&mut stream, GET, b"a", b""), (0, b"\0\0\0\0x".to_vec()));
    let mut stream = connected(address);
    assert_eq!(asked(&mut stream, GET, b"a", b""), (0x20, b"Auth failure.".to_vec()));
    assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0, "and it is closed");

    let log = gateway.log();
    assert!(!log.contains(SECRET) && !log.contains("wrong"), "a password is in the log:\n{log}");
}

#[test]
fn a_file_of_users_that_others_can_read_is_refused() {
    let cluster = Cluster::start(1, 1, &[]);
    let file = cluster.folder.path().join("users");
    std::fs::write(&file, format!("ann:{SECRET}\n")).unwrap();
    std::fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    let mut gateway = guarded(&cluster, &file);
    gateway.run();
    let log = until("it says why", || Some(gateway.log()).filter(|log| log.contains("--auth")));
    assert!(log.contains("may be read or changed by others"), "{log}");
    assert!(!log.contains(SECRET), "{log}");
    assert!(TcpStream::connect(gateway.address).is_err(), "nobody is served");
}

fn guarded(cluster: &Cluster, file: &Path) -> Node {
    let address = free_addresses(1)[0];
    let mut arguments = words(&["gateway", "-v", "-t", &address.to_string(), "--http", "off", "--auth"]);
    arguments.push(file.display().to_string());
    arguments.extend(named(&[cluster.managers[0].address]));
    Node::new(&cluster.folder, "guarded gateway".to_owned(), address, arguments)
}

fn connected(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Sends it and reads an answer of that length.
fn told(stream: &mut TcpStream, bytes: &[u8], length: usize) -> Vec<u8> {
    stream.write_all(bytes).unwrap();
    let mut answer = vec![0; length];
    stream.read_exact(&mut answer).expect("an answer");
    answer
}

/// Sends a packet, and reads the status and the body of its answer.
fn asked(stream: &mut TcpStream, opcode: u8, key: &[u8], value: &[u8]) -> (u8, Vec<u8>) {
    let mut packet =
        vec![0x80, opcode, 0, key.len() as u8, 0, 0, 0, 0, 0, 0, 0, (key.len() + value.len()) as u8];
    packet.resize(24, 0);
    packet.extend_from_slice(key);
    packet.extend_from_slice(value);
    let header = told(stream, &packet, 24);
    (header[7], told(stream, b"", usize::from(header[11])))
}

const GET: u8 = 0x00;
const LIST: u8 = 0x20;
const AUTH: u8 = 0x21;

const SECRET: &str = "correct-horse";
const PATIENCE: Duration = Duration::from_secs(60);
