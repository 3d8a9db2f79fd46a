//! Nodes in threads of this process, and a client that speaks raw frames.
#![allow(dead_code)] // Each test file uses its part.

use bytes::{Bytes, BytesMut};
use kumo_node::{NodeConfig, NodeError};
use kumo_paxos::{CellId, Hello, Incarnation, Instance, MAGIC, Side, VERSION};
use kumo_pfs::{Command, Condition, Place, Query, Reply};
use kumo_session::{Ask, CellMessage, ClientMessage, Greeting, Label, Reply as SessionReply, SessionId};
use kumo_wire::{Wire, Writer, frame};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;

/// Nothing here takes longer unless it is broken.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A node in a thread of its own.
pub struct Running {
    pub config: NodeConfig,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<Result<(), NodeError>>>,
}

impl Running {
    pub fn start(config: NodeConfig, listener: TcpListener) -> Running {
        let (stop, stopped) = oneshot::channel::<()>();
        let of_thread = config.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(kumo_node::run_on(listener, of_thread, async {
                let _ = stopped.await;
            }))
        });
        Running { config, stop: Some(stop), thread: Some(thread) }
    }

    /// Ends it cleanly.
    pub fn stop(mut self) -> Result<(), NodeError> {
        drop(self.stop.take());
        self.thread.take().unwrap().join().unwrap()
    }

    /// Waits for an end that nobody asked for.
    pub fn end(mut self) -> Result<(), NodeError> {
        self.thread.take().unwrap().join().unwrap()
    }
}

/// `count` listeners with ports of their own, and the configurations of a cell on them. Nobody dials from this process's
/// own loopback address, so a port stays free while its member is stopped.
pub fn members(count: usize, data: Option<&Path>) -> Vec<(NodeConfig, TcpListener)> {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    let host = Ipv4Addr::new(127, 64 + high % 64, middle, low);
    let listeners: Vec<TcpListener> = (0..count).map(|_| TcpListener::bind((host, 0)).unwrap()).collect();
    let addresses: Vec<SocketAddr> = listeners.iter().map(|l| l.local_addr().unwrap()).collect();
    listeners
        .into_iter()
        .enumerate()
        .map(|(index, listener)| {
            let config = NodeConfig {
                listen: addresses[index],
                peers: addresses.iter().copied().filter(|peer| *peer != addresses[index]).collect(),
                unit: Duration::from_millis(50),
                data: data.map(|data| data.join(format!("node-{index}"))),
                extension: false,
                session_timeout: Duration::from_secs(10),
                linger: kumo_node::LINGER,
                http: None,
            };
            (config, listener)
        })
        .collect()
}

pub fn cell(count: usize, data: Option<&Path>) -> Vec<Running> {
    members(count, data).into_iter().map(|(config, listener)| Running::start(config, listener)).collect()
}

/// A fresh folder for a test.
pub fn scratch(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("kumo-node-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

pub fn hello() -> Hello {
    Hello {
        magic: MAGIC,
        version: VERSION,
        cell: CellId(0),
        generation: 0,
        side: Side::Client,
        address: "127.0.0.1:1".parse().unwrap(),
        incarnation: Incarnation(0),
    }
}

/// One raw connection.
pub struct Raw {
    pub stream: TcpStream,
    buffer: BytesMut,
}

impl Raw {
    pub fn connect(address: SocketAddr) -> Raw {
        let stream = TcpStream::connect_timeout(&address, PATIENCE).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Raw { stream, buffer: BytesMut::new() }
    }

    pub fn send<T: Wire>(&mut self, value: &T) {
        let mut out = Writer::default();
        frame::put(value, &mut out);
        self.stream.write_all(&out.into_bytes()).unwrap();
    }

    /// The next frame; `None` at the end of the connection.
    pub fn receive<T: Wire>(&mut self) -> Option<T> {
        loop {
            if let Some(body) = frame::take(&mut self.buffer, 64 * 1024 * 1024).unwrap() {
                return Some(T::from_bytes(body).unwrap());
            }
            let mut bytes = [0; 64 * 1024];
            match self.stream.read(&mut bytes) {
                Ok(0) => return None,
                Ok(count) => self.buffer.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("no frame: {error}"),
            }
        }
    }

    /// Says hello and expects one back.
    pub fn greet(&mut self, hello: Hello) -> Hello {
        self.send(&Greeting::Hello(hello));
        match self.receive() {
            Some(Greeting::Hello(hello)) => hello,
            other => panic!("no hello: {other:?}"),
        }
    }

    /// The reason the other side gives for refusing us, after which it must close.
    pub fn refusal(&mut self) -> String {
        let Some(Greeting::Refused { reason }) = self.receive() else { panic!("no refusal") };
        assert_eq!(self.receive::<Greeting>(), None, "closed after a refusal");
        reason
    }
}

/// A session on the master.
pub struct Session {
    pub raw: Raw,
    pub session: SessionId,
    number: u64,
    tag: u64,
    seen: Instance,
}

impl Session {
    /// Finds the master from any member and opens a session there.
    pub fn open(any: SocketAddr, token: u128) -> Session {
        let mut at = any;
        loop {
            let mut raw = Raw::connect(at);
            raw.greet(hello());
            let master = loop {
                match raw.receive() {
                    Some(CellMessage::Master { master: Some(master), .. }) => break master,
                    Some(_) => {}
                    None => break any,
                }
            };
            if master != at {
                at = master;
                continue;
            }
            let label = Label { address: "test".to_owned(), pid: 1, number: 0 };
            raw.send(&ClientMessage::Open { token, label });
            loop {
                match raw.receive() {
                    Some(CellMessage::Opened { session, .. }) => {
                        return Session { raw, session, number: 0, tag: 0, seen: Instance(0) };
                    }
                    Some(_) => {}
                    None => break,
                }
            }
        }
    }

    pub fn command(&mut self, command: &Command) -> Reply {
        self.number += 1;
        self.raw.send(&ClientMessage::Request {
            session: self.session,
            number: self.number,
            acknowledged: self.number - 1,
            unanswered: Vec::new(),
            events_seen: 0,
            ask: Ask::Command(command.to_bytes()),
        });
        loop {
            match self.raw.receive().expect("a reply") {
                CellMessage::Reply { number, instance, reply: SessionReply::Body(body), .. }
                    if number == self.number =>
                {
                    self.seen = instance;
                    return Reply::from_bytes(body).unwrap();
                }
                CellMessage::Master { .. } | CellMessage::Done { .. } => {}
                other => panic!("not a reply: {other:?}"),
            }
        }
    }

    pub fn write(&mut self, path: &str, data: impl Into<Bytes>) {
        let reply = self.command(&Command::Write {
            path: path.to_owned(),
            place: Place::Replace,
            data: data.into(),
            ephemeral: false,
            condition: Condition::Always,
        });
        assert!(matches!(reply, Reply::Written { .. }), "{reply:?}");
    }

    /// The file as a linear read shows it.
    pub fn read(&mut self, path: &str) -> Reply {
        let query = Query::Read { path: path.to_owned(), offset: 0, length: 1 << 20 };
        self.tag += 1;
        let tag = self.tag;
        let (session, after) = (self.session, self.seen);
        self.raw.send(&ClientMessage::Read { session, tag, after, linear: true, query: query.to_bytes() });
        loop {
            match self.raw.receive().expect("an answer") {
                CellMessage::Answer { tag: of, body, .. } if of == tag => {
                    return Reply::from_bytes(body).unwrap();
                }
                CellMessage::Master { .. } => {}
                other => panic!("not an answer: {other:?}"),
            }
        }
    }

    pub fn data(&mut self, path: &str) -> Bytes {
        match self.read(path) {
            Reply::Data { bytes, .. } => bytes,
            other => panic!("no data: {other:?}"),
        }
    }
}
