//! The memcached grammar against recordings of memcached 1.6.18, however the bytes are cut, and against bytes that
//! no client would send.

mod model;
mod transcript;

use bytes::{Bytes, BytesMut};
use kumo_wire::memcache::{
    Bad, Call, Command, Decoded, Decoder, KEYS_LINE_BYTES_MAX, LINE_BYTES_MAX, Protocol, Reply, ReplyDecoder,
};
use model::{VALUE_BYTES_MAX, conversation, guarded_conversation};
use transcript::{Case, cases, unescaped};

const TRANSCRIPTS: [&str; 3] =
    [include_str!("text.txt"), include_str!("meta.txt"), include_str!("binary.txt")];

fn recorded() -> Vec<Case> {
    let all: Vec<Case> = TRANSCRIPTS.iter().flat_map(|text| cases(text)).collect();
    assert!(all.len() > 150, "transcripts are missing: {}", all.len());
    all
}

#[test]
fn replies_are_those_of_memcached() {
    for Case { name, sent, received, closed } in recorded() {
        let (replied, hung_up) = conversation([&sent[..]].into_iter());
        assert_eq!(shown(&replied), shown(&received), "{name}");
        assert_eq!(hung_up, closed, "{name}");
    }
}

const GUARDED: [&str; 2] = [include_str!("login.txt"), include_str!("sasl.txt")];

#[test]
fn a_guarded_port_answers_as_memcached() {
    let all: Vec<Case> = GUARDED.iter().flat_map(|text| cases(text)).collect();
    assert!(all.len() > 40, "transcripts are missing: {}", all.len());
    for Case { name, sent, received, closed } in all {
        for size in [1, 2, 5, 17, sent.len()] {
            let (replied, hung_up) = guarded_conversation(sent.chunks(size));
            assert_eq!(shown(&replied), shown(&received), "{name}, cut every {size} bytes");
            assert_eq!(hung_up, closed, "{name}, cut every {size} bytes");
        }
    }
}

/// The same of a guarded port: memcached drops all but the last of these replies.
#[test]
fn every_line_before_the_login_is_answered() {
    let sent = b"set x 0 0 6\r\nann no\r\nadd a 0 0 1\r\nx\r\nget a\r\n";
    let (replied, closed) = guarded_conversation([&sent[..]].into_iter());
    let unauthenticated = "CLIENT_ERROR unauthenticated\\r\\n".repeat(3);
    assert_eq!(shown(&replied), format!("CLIENT_ERROR authentication failure\\r\\n{unauthenticated}"));
    assert!(!closed);
}

#[test]
fn a_login_too_long_is_dropped_unread() {
    let mut decoder = Decoder::new(VALUE_BYTES_MAX).guarded();
    let mut buffer = BytesMut::from(&b"set x 0 0 4097\r\n"[..]);
    let unauthenticated = Bytes::from_static(b"CLIENT_ERROR unauthenticated\r\n");
    let refused = || Decoded::Bad(Bad { reply: unauthenticated.clone(), close: false });
    assert_eq!(decoder.next(&mut buffer), refused());
    buffer.extend_from_slice(&[b'x'; 4099]);
    assert_eq!(decoder.next(&mut buffer), Decoded::More(1));
    assert!(buffer.is_empty());
    buffer.extend_from_slice(b"get a\r\n");
    assert_eq!(decoder.next(&mut buffer), refused());
}

#[test]
fn a_login_by_two_steps() {
    let packet = |opcode: u8, data: &[u8]| {
        let mut packet = vec![0x80, opcode, 0, 5, 0, 0, 0, 0, 0, 0, 0, 5 + data.len() as u8];
        packet.resize(24, 0);
        [&packet[..], b"PLAIN", data].concat()
    };
    let data = b"\0ann\0s3cret";
    let statuses = |sent: &[Vec<u8>]| {
        let (replied, _) = guarded_conversation([&sent.concat()[..]].into_iter());
        let mut statuses = Vec::new();
        let mut rest = &replied[..];
        while let Some(header) = rest.first_chunk::<24>() {
            statuses.push(header[7]);
            rest = &rest[24 + usize::from(header[11])..];
        }
        statuses
    };
    assert_eq!(statuses(&[packet(0x21, b""), packet(0x22, data)]), [0x21, 0]);
    assert_eq!(
        statuses(&[packet(0x21, b""), packet(0x22, b"\0ann\0no"), packet(0x22, data)]),
        [0x21, 0x20, 0x20]
    );
}

#[test]
fn it_does_not_matter_how_the_bytes_are_cut() {
    for Case { name, sent, .. } in recorded() {
        let whole = conversation([&sent[..]].into_iter());
        for size in [1, 2, 3, 7, 24, 1000, 16_384] {
            // One byte at a time is for what can be read that way in a test.
            if sent.len() / size < 50_000 {
                assert!(conversation(sent.chunks(size)) == whole, "{name}, cut every {size} bytes");
            }
        }
        if sent.len() < 500 {
            for at in 0..=sent.len() {
                let (head, tail) = sent.split_at(at);
                assert!(conversation([head, tail].into_iter()) == whole, "{name}, cut at {at}");
            }
        }
    }
}

#[test]
fn what_ends_early_waits_for_more() {
    for Case { name, sent, .. } in recorded().into_iter().filter(|case| case.sent.len() < 2_000) {
        let (whole, _) = conversation([&sent[..]].into_iter());
        for at in 0..sent.len() {
            let (part, _) = conversation([&sent[..at]].into_iter());
            assert!(whole.starts_with(&part), "{name}, ended at {at}");
        }
    }
}

/// A request missing any of its bytes is not there, and the decoder knows at least how many it lacks.
#[test]
fn a_request_is_whole_or_not_at_all() {
    let binary = "\\x80\\x01\\x00\\x01\\x08\\x00\\x00\\x00\\x00\\x00\\x00\\x0c\\x00\\x00\\x00\\x00\\x00\\x00\\x00\
                  \\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x07\\x00\\x00\\x00\\x00aabc";
    let lines =
        ["get a\\r\\n", "set a 0 0 3\\r\\nabc\\r\\n", "ms a 3 T0\\r\\nabc\\r\\n", "mg a v\\r\\n", binary];
    for line in lines {
        let bytes = unescaped(line);
        for at in 0..bytes.len() {
            let mut buffer = BytesMut::from(&bytes[..at]);
            match Decoder::new(64).next(&mut buffer) {
                Decoded::More(missing) => assert!(missing <= bytes.len() - at, "{line} ended at {at}"),
                other => panic!("{line} ended at {at}: {other:?}"),
            }
        }
        let mut buffer = BytesMut::from(&bytes[..]);
        assert!(matches!(Decoder::new(64).next(&mut buffer), Decoded::Request(_)), "{line}");
        assert!(buffer.is_empty());
    }
}

#[test]
fn requests_are_read_as_meant() {
    let table = include_str!("requests.txt").lines().filter(|line| !line.starts_with('#'));
    let mut rows = 0;
    let mut lines = table.filter(|line| !line.is_empty());
    while let Some(sent) = lines.next() {
        let sent = sent.strip_prefix("> ").expect("what was sent");
        let expected = lines.next().and_then(|line| line.strip_prefix("= ")).expect("what it means");
        let mut buffer = BytesMut::from(&unescaped(sent)[..]);
        let decoded = Decoder::new(16).next(&mut buffer);
        assert_eq!(format!("{decoded:?}"), expected, "{sent}");
        rows += 1;
    }
    assert!(rows > 20, "the table is missing");
}

/// Where we differ from memcached on purpose: the table in the module's header.
#[test]
fn deviations_are_deliberate() {
    let said = |sent: &[u8]| {
        let (replied, closed) = conversation([sent].into_iter());
        (shown(&replied), closed)
    };
    let line_too_long = ("CLIENT_ERROR line too long\\r\\n".to_owned(), true);
    let long = "x".repeat(LINE_BYTES_MAX);
    assert_eq!(said(format!("set {long}").as_bytes()), line_too_long);
    assert_eq!(said(format!("set {long}\r\nmn\r\n").as_bytes()), line_too_long);
    assert_eq!(said("get k".repeat(KEYS_LINE_BYTES_MAX / 4).as_bytes()), line_too_long);
    let keys = format!("gats 0{}\r\n", " key".repeat(LINE_BYTES_MAX));
    assert_eq!(said(keys.as_bytes()).0, "END\\r\\n");
    let bad_format = "CLIENT_ERROR bad command line format\\r\\n";
    for line in ["set a 4294967296 0 3\r\n", "set a 0 0 99999999999\r\n"] {
        assert_eq!(said(line.as_bytes()).0, bad_format);
    }
    let kept = format!("set a 0 0 1\r\nx\r\nset a 0 0 1100000\r\n{}\r\nget a\r\n", "b".repeat(1_100_000));
    let expected =
        "STORED\\r\\nSERVER_ERROR object too large for cache\\r\\nVALUE a 0 1\\r\\nx\\r\\nEND\\r\\n";
    assert_eq!(said(kept.as_bytes()).0, expected);
    let exact = format!("set a 0 0 {VALUE_BYTES_MAX}\r\n{}\r\n", "b".repeat(VALUE_BYTES_MAX));
    assert_eq!(said(exact.as_bytes()).0, "STORED\\r\\n");
    assert_eq!(
        said(b"set a 0 0 2\r\n10\r\ndecr a 1\r\nget a\r\n").0,
        "STORED\\r\\n9\\r\\nVALUE a 0 1\\r\\n9\\r\\nEND\\r\\n"
    );
    // A time beyond 31 bits; but -1 in 32 bits without a sign is -1.
    assert_eq!(said(b"ms a 2 T4200000000\r\nxx\r\nmg a\r\n").0, "HD\\r\\nHD\\r\\n");
    assert_eq!(said(b"ms a 2 T4294967295\r\nxx\r\nmg a\r\n").0, "HD\\r\\nEN\\r\\n");
    // Where the flags of a number that is created stand does not matter; and it is created quietly, if it is to be.
    assert_eq!(said(b"ma a t N60\r\nma b T90 N60 t\r\nmg b t\r\n").0, "HD t60\\r\\nHD t90\\r\\nHD t90\\r\\n");
    assert_eq!(said(b"ma a N-1 t\r\nmg a\r\n").0, "HD t0\\r\\nEN\\r\\n");
    assert_eq!(said(b"ma a N0 q v\r\nmg a v\r\n").0, "VA 1\\r\\n0\\r\\n");
    let opaque = format!("ma a O{}\r\n", "1".repeat(32));
    assert_eq!(
        said(format!("set a 0 0 1\r\n1\r\n{opaque}mg a v\r\n").as_bytes()).0,
        "STORED\\r\\nCLIENT_ERROR opaque token too long\\r\\nVA 1\\r\\n1\\r\\n"
    );
    for flag in ["h", "l", "N30", "R30"] {
        assert_eq!(said(format!("mg a {flag}\r\n").as_bytes()).0, "CLIENT_ERROR invalid flag\\r\\n");
    }
    assert_eq!(said(b"ms a 1 I\r\nx\r\nmn\r\n").0, "CLIENT_ERROR invalid flag\\r\\nMN\\r\\n");
    assert_eq!(said(b"md a I\r\n").0, "CLIENT_ERROR invalid or duplicate flag\\r\\n");
    let described = said(b"set a 0 100 3\r\nabc\r\nme a\r\nms YQ== 1 b\r\nx\r\nme YQ== b\r\nmg a k\r\n");
    let expected =
        "STORED\\r\\nME a exp=100 cas=1 size=3\\r\\nHD\\r\\nME YQ== exp=-1 cas=2 size=1\\r\\nHD ka\\r\\n";
    assert_eq!(described.0, expected);
    let noop = "\\x80\\n\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x07\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00";
    let unknown = "\\x80P\\x00\\x01\\x02\\x00\\x00\\x00\\x00\\x00\\x00\\x05\\x00\\x00\\x00\\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00exkva";
    let (replied, closed) = said(&unescaped(&format!("{unknown}{noop}")));
    assert!(replied.contains("Unknown command") && replied.contains("\\x07") && !closed, "{replied}");
}

#[test]
fn a_value_above_the_limit_is_refused_before_it_arrives() {
    let mut buffer = BytesMut::from(&b"set a 0 0 17\r\n"[..]);
    let mut decoder = Decoder::new(16);
    let reply = Bytes::from_static(b"SERVER_ERROR object too large for cache\r\n");
    assert_eq!(decoder.next(&mut buffer), Decoded::Bad(Bad { reply, close: false }));
    assert!(buffer.is_empty());
    buffer.extend_from_slice(b"0123456789abcde");
    assert_eq!(decoder.next(&mut buffer), Decoded::More(1));
    assert!(buffer.is_empty());
    buffer.extend_from_slice(b"fg\r\nmn\r\n");
    assert!(
        matches!(decoder.next(&mut buffer), Decoded::Request(request) if request.command == Command::Noop)
    );
}

#[test]
fn nothing_follows_a_quit() {
    let mut decoder = Decoder::new(16);
    let mut buffer = BytesMut::from(&b"quit\r\nget a\r\n"[..]);
    assert!(matches!(decoder.next(&mut buffer), Decoded::Request(_)));
    assert_eq!(decoder.next(&mut buffer), Decoded::More(1));
    assert!(buffer.is_empty());
}

/// Random bytes, and recorded requests with bytes changed, left out, doubled: no panic, no wish for more memory
/// than a request may take, and always an end.
#[test]
fn no_bytes_break_the_decoder() {
    const VALUE_MAX: usize = 4096;
    let corpus: Vec<Vec<u8>> =
        recorded().into_iter().map(|case| case.sent).filter(|sent| sent.len() < 4096).collect();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut requests = 0;
    for round in 0..200_000usize {
        let mut bytes = match round % 4 {
            0 => random.bytes(random.clone().below(64)),
            1 => [&[0x80][..], &random.bytes(40)].concat(),
            _ => random.mutated(&corpus),
        };
        bytes.truncate(8192);
        let mut decoder = Decoder::new(VALUE_MAX);
        let mut buffer = BytesMut::from(&bytes[..]);
        for step in 0.. {
            assert!(step <= bytes.len() + 1, "no end: {}", shown(&bytes));
            match decoder.next(&mut buffer) {
                Decoded::Request(_) => requests += 1,
                Decoded::Bad(Bad { reply, .. }) => assert!(reply.len() < 128),
                Decoded::More(missing) => {
                    assert!(buffer.len() + missing <= LINE_BYTES_MAX + VALUE_MAX + 2, "{}", shown(&bytes));
                    break;
                }
            }
        }
        // The client's side reads the same bytes as replies.
        for protocol in [Protocol::Text, Protocol::Binary] {
            let mut decoder = ReplyDecoder::new(protocol, VALUE_MAX);
            let mut buffer = BytesMut::from(&bytes[..]);
            while let Ok(Some(_)) = decoder.next(&mut buffer) {}
        }
    }
    assert!(requests > 100_000, "hardly a request was read: {requests}");
}

#[test]
fn a_client_understands_the_answers() {
    for protocol in [Protocol::Text, Protocol::Binary] {
        let mut sent = BytesMut::new();
        let set = |key, value, cas| Call::Set { key, flags: 7, expiry: 0, cas, value };
        for call in [
            set(b"a", b"10", None),
            set(b"b", b"x\r\ny", None),
            set(b"b", b"z", Some(99)),
            set(b"c", b"z", Some(99)),
            set(b"b", b"z", Some(2)),
            Call::Increment { key: b"a", delta: 5 },
            Call::Increment { key: b"c", delta: 5 },
            Call::Increment { key: b"b", delta: 5 },
            Call::Get { keys: &[b"a"], cas: true },
            Call::Get { keys: &[b"c"], cas: true },
            Call::Get { keys: &[b"a", b"c", b"b"], cas: true },
            Call::Delete { key: b"a" },
            Call::Delete { key: b"a" },
        ] {
            call.write(protocol, &mut sent);
        }
        let (replied, closed) = conversation([&sent[..]].into_iter());
        assert!(!closed);
        for size in [1, 5, replied.len()] {
            let mut decoder = ReplyDecoder::new(protocol, 64);
            let (mut buffer, mut replies) = (BytesMut::new(), Vec::new());
            for piece in replied.chunks(size) {
                buffer.extend_from_slice(piece);
                while let Some(reply) = decoder.next(&mut buffer).expect("a reply") {
                    replies.push(reply);
                }
            }
            assert!(buffer.is_empty());
            assert_eq!(replies, expected_replies(protocol), "{protocol:?}");
        }
    }
}

fn expected_replies(protocol: Protocol) -> Vec<Reply> {
    let value = |key: &'static str, cas, data: &'static str| Reply::Value {
        key: key.into(),
        flags: 7,
        cas: Some(cas),
        data: data.into(),
    };
    let not_numeric = match protocol {
        Protocol::Text => "CLIENT_ERROR cannot increment or decrement non-numeric value",
        Protocol::Binary => "Non-numeric server-side value for incr or decr",
    };
    vec![
        Reply::Stored,
        Reply::Stored,
        Reply::Exists,
        Reply::NotFound,
        Reply::Stored,
        Reply::Number(15),
        Reply::NotFound,
        Reply::Error(not_numeric.into()),
        value("a", 4, "15"),
        Reply::End,
        Reply::End,
        value("a", 4, "15"),
        value("b", 3, "z"),
        Reply::End,
        Reply::Deleted,
        Reply::NotFound,
    ]
}

/// Keys and values are parts of what was read, not copies.
#[test]
fn a_request_shares_the_memory_it_was_read_into() {
    let mut buffer = BytesMut::from(&b"set key 0 0 5\r\nvalue\r\n"[..]);
    let memory = buffer.as_ptr() as usize;
    let Decoded::Request(request) = Decoder::new(64).next(&mut buffer) else { panic!("a request") };
    let Command::Store { key, value, .. } = request.command else { panic!("a store") };
    assert_eq!((key.as_ptr() as usize, value.as_ptr() as usize), (memory + 4, memory + 15));
}

/// Bytes as a person can read them.
fn shown(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

/// A small generator of numbers: tests must do the same on every run.
#[derive(Clone)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }

    fn mutated(&mut self, corpus: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = corpus[self.below(corpus.len())].clone();
        for _ in 0..1 + self.below(4) {
            let at = self.below(bytes.len() + 1);
            let end = (at + self.below(16)).min(bytes.len());
            match self.below(5) {
                0 if at < bytes.len() => bytes[at] = self.next() as u8,
                1 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
                2 => drop(bytes.drain(at..end)),
                3 => bytes.extend_from_within(at..end),
                _ => bytes.insert(at, b" \r\n\x800-9Mq"[self.below(9)]),
            }
        }
        bytes
    }
}
