//! What memcached was recorded to answer (core/wire/tests/memcache), asked of a gateway; and the list of what it
//! answers otherwise.

use bytes::BytesMut;
use kumo_wire::memcache::{Command, Decoded, Decoder, Expiry, VALUE_BYTES_MAX_DEFAULT};
use std::collections::BTreeMap;
use std::io::{Error, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

#[path = "../../../core/wire/tests/memcache/transcript.rs"]
mod transcript;

pub use transcript::{Case, cases, unescaped};

const RECORDINGS: [(&str, &str); 3] = [
    ("text", include_str!("../../../core/wire/tests/memcache/text.txt")),
    ("meta", include_str!("../../../core/wire/tests/memcache/meta.txt")),
    ("binary", include_str!("../../../core/wire/tests/memcache/binary.txt")),
];

/// All of them, named by protocol. Those that put off a flush come last: it would empty the store under the others.
pub fn recorded() -> Vec<Case> {
    let mut all = Vec::new();
    for (protocol, text) in RECORDINGS {
        let named = |case: Case| Case { name: format!("{protocol}: {}", case.name), ..case };
        all.extend(cases(text).into_iter().map(named));
    }
    all.sort_by_key(|case| requests(&case.sent).iter().any(|(_, command)| is_put_off(command)));
    all
}

/// What the gateway makes of a recorded conversation, in the notation of [`told`]; and whether it hung up.
pub fn replayed(gateway: SocketAddr, case: &Case) -> (String, bool) {
    flush(gateway);
    let mut stream = connect(gateway);
    let requests = requests(&case.sent);
    let binary = is_binary(&case.sent);
    let mut said = Vec::new();
    if requests.iter().any(|(_, command)| unique(command).is_some()) {
        let mut writes = Writes::default();
        for (number, (bytes, command)) in requests.iter().enumerate() {
            let bytes = writes.translated(bytes, command);
            said.extend(asked(&mut stream, &bytes, binary, number as u32));
            writes.note(gateway, command);
        }
        let rest = requests.iter().map(|(bytes, _)| bytes.len()).sum::<usize>();
        assert_eq!(rest, case.sent.len(), "{}: cut into its requests", case.name);
        return (told(&said, binary), false);
    }
    // T5 is over in five seconds, which a busy machine may take. Nothing shows it.
    let sent = replaced(&case.sent, b" T5\r\n", b" T5000\r\n");
    if case.closed {
        said = last_words(stream, &sent);
        return (told(&said, binary), true);
    }
    said = asked(&mut stream, &sent, binary, 0);
    (told(&said, binary), false)
}

/// Replies as text in which two runs can be compared, one line a line or packet, in the notation of the recordings. A cas
/// unique is the place of its first appearance.
pub fn told(replies: &[u8], binary: bool) -> String {
    let mut names = Names::default();
    let pieces = if binary { names.packets(replies) } else { names.lines(replies) };
    pieces.iter().map(|piece| escaped(piece) + "\n").collect()
}

fn escaped(bytes: &[u8]) -> String {
    let shown = bytes.iter().map(|byte| match byte {
        b'\r' => "\\r".to_owned(),
        b'\n' => "\\n".to_owned(),
        b'\\' => "\\\\".to_owned(),
        b' '..=b'~' => char::from(*byte).to_string(),
        other => format!("\\x{other:02x}"),
    });
    shown.collect()
}

pub fn is_binary(sent: &[u8]) -> bool {
    sent.first() == Some(&0x80)
}

/// Sends it, and a mark behind it that the answer cannot hold; returns what comes before the mark's own answer.
fn asked(stream: &mut TcpStream, bytes: &[u8], binary: bool, number: u32) -> Vec<u8> {
    let (mark, answer) = match binary {
        true => {
            let opaque = (0xfeed_0000 | number).to_be_bytes();
            let packet = |magic: u8| [&[magic, 0x0a][..], &[0; 10], &opaque, &[0; 8]].concat();
            (packet(0x80), packet(0x81))
        }
        false => {
            (format!("md mark Omark{number}\r\n").into_bytes(), format!("NF Omark{number}\r\n").into_bytes())
        }
    };
    stream.write_all(&[bytes, &mark].concat()).unwrap();
    let (mut said, mut piece) = (Vec::new(), [0; 65536]);
    while !said.ends_with(&answer) {
        match stream.read(&mut piece).expect("an answer") {
            0 => panic!("hung up after {}", said.escape_ascii()),
            count => said.extend_from_slice(&piece[..count]),
        }
    }
    said.truncate(said.len() - answer.len());
    said
}

/// What it says before it hangs up. It may do so while more is on its way to it, which resets the connection.
fn last_words(mut stream: TcpStream, bytes: &[u8]) -> Vec<u8> {
    let is_reset = |error: &Error| matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe);
    if let Err(error) = stream.write_all(bytes) {
        assert!(is_reset(&error), "{error}");
    }
    let mut said = Vec::new();
    if let Err(error) = stream.read_to_end(&mut said) {
        assert!(is_reset(&error), "the gateway hangs up: {error}");
    }
    said
}

fn connect(gateway: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(gateway).unwrap();
    // Longer than the gateway takes to give up.
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

/// Every recorded conversation began with an empty memcached.
fn flush(gateway: SocketAddr) {
    assert_eq!(asked(&mut connect(gateway), b"flush_all\r\n", false, 0), b"OK\r\n");
}

/// The conversation cut into requests, as far as it can be: what is refused has no command.
fn requests(sent: &[u8]) -> Vec<(Vec<u8>, Option<Command>)> {
    let mut decoder = Decoder::new(VALUE_BYTES_MAX_DEFAULT);
    let mut buffer = BytesMut::from(sent);
    let mut requests = Vec::new();
    let mut rest = sent;
    loop {
        let command = match decoder.next(&mut buffer) {
            Decoded::Request(request) => Some(request.command),
            Decoded::Bad(_) => None,
            Decoded::More(_) => return requests,
        };
        let (bytes, behind) = rest.split_at(rest.len() - buffer.len());
        requests.push((bytes.to_vec(), command));
        rest = behind;
    }
}

fn is_put_off(command: &Option<Command>) -> bool {
    matches!(command, Some(Command::FlushAll { delay: Some(Expiry(1..)) }))
}

/// The cas unique that a request names.
fn unique(command: &Option<Command>) -> Option<u64> {
    match command {
        Some(Command::Store { cas, .. } | Command::Delete { cas, .. } | Command::Arithmetic { cas, .. }) => {
            *cas
        }
        _other => None,
    }
}

/// memcached counts its writes, and the count is the cas unique: the uniques that the same writes got here.
#[derive(Default)]
struct Writes {
    uniques: Vec<String>,
    of_keys: BTreeMap<Vec<u8>, String>,
}

impl Writes {
    /// The request with the unique that a version has here.
    fn translated(&self, bytes: &[u8], command: &Option<Command>) -> Vec<u8> {
        let Some(unique) = unique(command) else { return bytes.to_vec() };
        let place = usize::try_from(unique).ok().and_then(|count| count.checked_sub(1));
        let Some(here) = place.and_then(|place| self.uniques.get(place)) else { return bytes.to_vec() };
        if is_binary(bytes) {
            let here: u64 = here.parse().expect("a unique is a number");
            return [&bytes[..16], &here.to_be_bytes(), &bytes[24..]].concat();
        }
        let line = bytes.iter().position(|&byte| byte == b'\n').expect("a line");
        let (line, block) = bytes.split_at(line + 1);
        let text = std::str::from_utf8(line).expect("text");
        let is_cas = text.starts_with("cas ");
        let words = text.trim_end().split(' ').enumerate().map(|(number, word)| match word {
            _ if is_cas && number == 5 => here.clone(),
            _ if !is_cas && number > 1 && word.starts_with('C') => format!("C{here}"),
            word => word.to_owned(),
        });
        let words: Vec<String> = words.collect();
        [format!("{}\r\n", words.join(" ")).as_bytes(), block].concat()
    }

    /// Asks for the unique of the key that the request may have written.
    fn note(&mut self, gateway: SocketAddr, command: &Option<Command>) {
        let (Some(Command::Store { key, .. }) | Some(Command::Arithmetic { key, .. })) = command else {
            return;
        };
        let line = [b"mg ", &key[..], b" c\r\n"].concat();
        let said = String::from_utf8(asked(&mut connect(gateway), &line, false, 0)).expect("text");
        let Some(unique) = said.strip_prefix("HD c").map(|unique| unique.trim_end().to_owned()) else {
            return;
        };
        if self.of_keys.insert(key.to_vec(), unique.clone()).as_ref() != Some(&unique) {
            self.uniques.push(unique);
        }
    }
}

/// Cas uniques in the order in which they appear.
#[derive(Default)]
struct Names {
    uniques: Vec<u64>,
}

impl Names {
    fn name(&mut self, unique: u64) -> u64 {
        if unique == 0 {
            return 0;
        }
        let place = self.uniques.iter().position(|&one| one == unique).unwrap_or_else(|| {
            self.uniques.push(unique);
            self.uniques.len() - 1
        });
        place as u64 + 1
    }

    fn packets(&mut self, mut replies: &[u8]) -> Vec<Vec<u8>> {
        let mut pieces = Vec::new();
        while let Some((header, rest)) = replies.split_first_chunk::<24>() {
            let unique = u64::from_be_bytes(*header.last_chunk().expect("eight of them"));
            let body = u32::from_be_bytes([header[8], header[9], header[10], header[11]]) as usize;
            let (body, rest) = rest.split_at(body.min(rest.len()));
            pieces.push([&header[..16], &self.name(unique).to_be_bytes(), body].concat());
            replies = rest;
        }
        pieces.extend((!replies.is_empty()).then(|| replies.to_vec()));
        pieces
    }

    fn lines(&mut self, mut replies: &[u8]) -> Vec<Vec<u8>> {
        let mut pieces = Vec::new();
        while let Some(end) = replies.iter().position(|&byte| byte == b'\n') {
            let (line, rest) = replies.split_at(end + 1);
            let words: Vec<&[u8]> = line.trim_ascii_end().split(|&byte| byte == b' ').collect();
            let named: Vec<Vec<u8>> =
                words.iter().enumerate().map(|(place, word)| self.word(words[0], place, word)).collect();
            pieces.push([&named.join(&b' ')[..], b"\r\n"].concat());
            let length = match words[..] {
                [b"VALUE", _, _, length, ..] | [b"VA", length, ..] => number(length),
                _ => None,
            };
            let block = length.map_or(0, |length| length as usize + 2).min(rest.len());
            if block > 0 {
                pieces.push(rest[..block].to_vec());
            }
            replies = &rest[block..];
        }
        pieces.extend((!replies.is_empty()).then(|| replies.to_vec()));
        pieces
    }

    fn word(&mut self, first: &[u8], place: usize, word: &[u8]) -> Vec<u8> {
        let meta = matches!(first, b"HD" | b"VA" | b"EN" | b"NS" | b"NF" | b"EX") && place > 0;
        match word {
            _ if first == b"VALUE" && place == 4 => {
                number(word).map_or(word.to_vec(), |unique| self.named("", unique))
            }
            [b'c', unique @ ..] if meta && number(unique).is_some() => {
                self.named("c", number(unique).unwrap_or_default())
            }
            // A second may have passed since it was set; all that were recorded are of thirty.
            [b't', left @ ..] if meta && number(left).is_some_and(|left| (1..30).contains(&left)) => {
                b"t30".to_vec()
            }
            _ => word.to_vec(),
        }
    }

    fn named(&mut self, flag: &str, unique: u64) -> Vec<u8> {
        format!("{flag}{}", self.name(unique)).into_bytes()
    }
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn replaced(bytes: &[u8], old: &[u8], new: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while !rest.is_empty() {
        match rest.strip_prefix(old) {
            Some(behind) => {
                out.extend_from_slice(new);
                rest = behind;
            }
            None => {
                out.push(rest[0]);
                rest = &rest[1..];
            }
        }
    }
    out
}
