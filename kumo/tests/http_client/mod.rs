//! A plain HTTP client, a reader of event streams, and a judge of the text that Prometheus reads.

use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

pub struct Answer {
    pub status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Answer {
    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).expect("answers are text")
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }
}

/// One request on a connection of its own.
pub struct Asked {
    head: String,
}

impl Asked {
    pub fn new(method: &str, path: &str, host: &str) -> Asked {
        Asked { head: format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n") }
    }

    pub fn with(mut self, header: &str) -> Asked {
        self.head += header;
        self.head += "\r\n";
        self
    }

    pub fn send(self, to: SocketAddr, body: &[u8]) -> Answer {
        self.try_send(to, body).expect("an answer")
    }

    fn try_send(self, to: SocketAddr, body: &[u8]) -> Option<Answer> {
        let mut stream = open(to)?;
        let head = format!("{}Content-Length: {}\r\n\r\n", self.head, body.len());
        stream.write_all(head.as_bytes()).ok()?;
        // Who finds the head too long does not read the rest.
        let _ = stream.write_all(body);
        let mut reader = BufReader::new(stream);
        let (status, headers) = read_head(&mut reader)?;
        let mut body = Vec::new();
        let length = headers.iter().find(|(name, _)| name == "content-length");
        match length {
            Some((_, length)) => {
                body.resize(length.parse().expect("a length"), 0);
                reader.read_exact(&mut body).ok()?;
            }
            None => {
                reader.read_to_end(&mut body).ok()?;
            }
        }
        Some(Answer { status, headers, body })
    }

    /// None: nobody listens there.
    pub fn try_get(to: SocketAddr, path: &str) -> Option<Answer> {
        Asked::new("GET", path, &to.to_string()).try_send(to, b"")
    }
}

pub fn get(to: SocketAddr, path: &str) -> Answer {
    Asked::try_get(to, path).expect("an answer")
}

pub fn get_json(to: SocketAddr, path: &str) -> Value {
    let answer = get(to, path);
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    assert_eq!(answer.header("content-type"), Some("application/json"), "{path}");
    answer.json()
}

/// As the page does it.
pub fn post(to: SocketAddr, path: &str, body: &Value) -> (u16, Value) {
    let headers = ["X-Kumo: write", "Content-Type: application/json"];
    let answer = post_with(to, path, &headers, body.to_string().as_bytes());
    (answer.status, answer.json())
}

pub fn post_with(to: SocketAddr, path: &str, headers: &[&str], body: &[u8]) -> Answer {
    let asked = Asked::new("POST", path, &to.to_string());
    headers.iter().fold(asked, |asked, header| asked.with(header)).send(to, body)
}

/// A connection on which this much was said.
pub fn head_of(to: SocketAddr, said: &str) -> Half {
    let mut stream = open(to).expect("somebody listens");
    stream.write_all(said.as_bytes()).unwrap();
    Half(stream)
}

pub struct Half(TcpStream);

impl Half {
    /// Whether the other side ends it.
    pub fn ends(mut self) -> bool {
        self.0.read_to_end(&mut Vec::new()).is_ok()
    }
}

/// Snapshots as they come.
pub struct Stream(BufReader<TcpStream>);

impl Stream {
    pub fn open(to: SocketAddr, path: &str) -> Stream {
        Stream::try_open(to, path).expect("a stream")
    }

    pub fn try_open(to: SocketAddr, path: &str) -> Option<Stream> {
        let mut stream = open(to)?;
        let head = format!("GET {path} HTTP/1.1\r\nHost: {to}\r\nAccept: text/event-stream\r\n\r\n");
        stream.write_all(head.as_bytes()).ok()?;
        let mut reader = BufReader::new(stream);
        let (status, headers) = read_head(&mut reader)?;
        let kind = headers.iter().find(|(name, _)| name == "content-type");
        (status == 200 && kind.is_some_and(|(_, kind)| kind == "text/event-stream")).then_some(Stream(reader))
    }

    fn next(&mut self) -> Value {
        let mut line = String::new();
        loop {
            line.clear();
            assert_ne!(self.0.read_line(&mut line).expect("the stream goes on"), 0, "the stream goes on");
            if let Some(data) = line.strip_prefix("data: ") {
                return serde_json::from_str(data).expect("one line of JSON");
            }
        }
    }

    /// Reads on until a snapshot says what is looked for.
    pub fn until<T>(&mut self, what: &str, mut look: impl FnMut(&Value) -> Option<T>) -> T {
        let limit = Instant::now() + PATIENCE;
        loop {
            let snapshot = self.next();
            if let Some(found) = look(&snapshot) {
                return found;
            }
            assert!(Instant::now() < limit, "in time: {what}\n{snapshot:#}");
        }
    }
}

fn open(to: SocketAddr) -> Option<TcpStream> {
    let stream = TcpStream::connect(to).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    Some(stream)
}

fn read_head(reader: &mut impl BufRead) -> Option<(u16, Vec<(String, String)>)> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let status = line.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    let mut headers = Vec::new();
    loop {
        line.clear();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { return Some((status, headers)) };
        headers.push((name.to_ascii_lowercase(), value.trim_start().to_owned()));
    }
}

/// The samples of a text in the format of Prometheus; panics where it breaks the grammar or the customs of names.
pub fn samples(text: &str) -> BTreeMap<String, f64> {
    assert!(text.ends_with('\n'));
    let mut samples = BTreeMap::new();
    let mut family = ("", "");
    let mut helped = "";
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("a help has words");
            assert!(is_name(name) && !help.is_empty(), "{line}");
            helped = name;
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a type");
            assert_eq!(name, helped, "every family has a help: {line}");
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            assert!(family.0 != name, "a family is told once: {line}");
            family = (name, kind);
        } else {
            let (sample, value) = line.rsplit_once(' ').expect("a value");
            let name = sample.split('{').next().expect("a name");
            let suffix =
                name.strip_prefix(family.0).unwrap_or_else(|| panic!("{line} is not of {}", family.0));
            let suffixes: &[&str] =
                if family.1 == "histogram" { &["_sum", "_count", "_bucket"] } else { &[""] };
            assert!(suffixes.contains(&suffix), "{line}");
            check_labels(&sample[name.len()..]);
            let value = value.parse().unwrap_or_else(|_| panic!("{line} has no number"));
            assert!(samples.insert(sample.to_owned(), value).is_none(), "told twice: {line}");
        }
    }
    check_histograms(&samples);
    samples
}

fn check_labels(labels: &str) {
    if labels.is_empty() {
        return;
    }
    let inner = labels.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).expect("labels in braces");
    for pair in inner.split(',') {
        let (name, value) = pair.split_once('=').expect("a label and its value");
        assert!(
            is_name(name) && value.len() >= 2 && value.starts_with('"') && value.ends_with('"'),
            "{pair}"
        );
    }
}

/// The last bucket has all, and all before it have no more.
fn check_histograms(samples: &BTreeMap<String, f64>) {
    for (sample, &all) in samples.iter().filter(|(sample, _)| sample.contains("le=\"+Inf\"")) {
        let (name, labels) = sample.split_once("_bucket{").expect("a bucket");
        let labels = labels.replace(",le=\"+Inf\"", "").replace("le=\"+Inf\",", "");
        assert_eq!(samples[&format!("{name}_count{{{labels}")], all, "{sample}");
        let same = labels.trim_end_matches('}');
        let buckets = samples
            .iter()
            .filter(|(one, _)| one.starts_with(&format!("{name}_bucket{{")) && one.contains(same));
        assert!(buckets.map(|(_, &count)| count).all(|count| count <= all), "{sample}");
    }
}

fn is_name(name: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    name.bytes().all(good) && name.starts_with(|first: char| first.is_ascii_lowercase())
}

/// Far beyond what a busy machine needs.
const PATIENCE: Duration = Duration::from_secs(90);
