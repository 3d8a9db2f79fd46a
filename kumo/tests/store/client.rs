//! [`Client`]: a memcached client of the text protocol, one request after another.

use std::io::{self, BufRead, BufReader, Error, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

pub struct Client {
    stream: TcpStream,
    reader: BufReader<TcpStream>,
}

impl Client {
    pub fn open(address: SocketAddr) -> Option<Client> {
        let stream = TcpStream::connect(address).ok()?;
        stream.set_nodelay(true).unwrap();
        // Longer than the gateway takes to give up: whoever waits so long waits for nothing.
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let reader = BufReader::new(stream.try_clone().unwrap());
        Some(Client { stream, reader })
    }

    /// Whether it was stored; an error is an unknown outcome.
    pub fn set(&mut self, key: &str, value: &str) -> io::Result<bool> {
        let line = self.ask(&format!("set {key} 0 0 {}\r\n{value}\r\n", value.len()))?;
        match &line[..] {
            "STORED" => Ok(true),
            _ => Err(Error::other(line)),
        }
    }

    /// Whether it was stored, because it was not there.
    pub fn add(&mut self, key: &str, value: &str) -> io::Result<bool> {
        let line = self.ask(&format!("add {key} 0 0 {}\r\n{value}\r\n", value.len()))?;
        match &line[..] {
            "STORED" => Ok(true),
            "NOT_STORED" => Ok(false),
            _ => Err(Error::other(line)),
        }
    }

    /// `None`: it is not there.
    pub fn get(&mut self, key: &str) -> io::Result<Option<String>> {
        self.send(&format!("get {key}\r\n"))?;
        self.value(key)
    }

    /// The answer to a get of that key.
    pub fn value(&mut self, key: &str) -> io::Result<Option<String>> {
        let line = self.line()?;
        if line == "END" {
            return Ok(None);
        }
        let Some(("VALUE", rest)) = line.split_once(' ') else { return Err(Error::other(line)) };
        let mut rest = rest.split(' ');
        assert_eq!(rest.next(), Some(key), "the value of the key that was asked for");
        let length: usize = rest.nth(1).and_then(|length| length.parse().ok()).expect("a length");
        let mut data = vec![0; length + 2];
        self.reader.read_exact(&mut data)?;
        assert_eq!(self.line()?, "END", "a get of one key ends after it");
        data.truncate(length);
        Ok(Some(String::from_utf8(data).expect("values are text here")))
    }

    /// The number that it made; `None`: there is no such key.
    pub fn increment(&mut self, key: &str) -> io::Result<Option<u64>> {
        let line = self.ask(&format!("incr {key} 1\r\n"))?;
        match &line[..] {
            "NOT_FOUND" => Ok(None),
            digits => digits.parse().map(Some).map_err(|_| Error::other(line)),
        }
    }

    /// Whether there was something to delete; an error is an unknown outcome.
    pub fn delete(&mut self, key: &str) -> io::Result<bool> {
        let line = self.ask(&format!("delete {key}\r\n"))?;
        match &line[..] {
            "DELETED" => Ok(true),
            "NOT_FOUND" => Ok(false),
            _ => Err(Error::other(line)),
        }
    }

    /// Sends one request and reads the first line of its answer.
    pub fn ask(&mut self, request: &str) -> io::Result<String> {
        self.send(request)?;
        self.line()
    }

    pub fn send(&mut self, requests: &str) -> io::Result<()> {
        self.stream.write_all(requests.as_bytes())
    }

    /// The connection is open, and nothing came that was not read.
    pub fn is_silent(&self) -> bool {
        self.stream.set_nonblocking(true).unwrap();
        let next = self.stream.peek(&mut [0]);
        self.stream.set_nonblocking(false).unwrap();
        self.reader.buffer().is_empty() && next.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    pub fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        match self.reader.read_line(&mut line)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(line.trim_end().to_owned()),
        }
    }

    /// Stores many values of one size, a hundred requests at a time.
    pub fn fill(&mut self, keys: usize, bytes: usize) {
        let value = "v".repeat(bytes);
        for first in (0..keys).step_by(FILL_PIPELINE) {
            let last = keys.min(first + FILL_PIPELINE);
            let requests: String =
                (first..last).map(|key| format!("set fill-{key} 0 0 {bytes}\r\n{value}\r\n")).collect();
            self.stream.write_all(requests.as_bytes()).unwrap();
            (first..last).for_each(|_| assert_eq!(self.line().unwrap(), "STORED"));
        }
    }
}

const FILL_PIPELINE: usize = 100;
