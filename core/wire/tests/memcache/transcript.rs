//! The recorded conversations beside this file, and the notation they are written in.

/// One conversation: what the client sent, what it read.
pub struct Case {
    pub name: String,
    pub sent: Vec<u8>,
    pub received: Vec<u8>,
    pub closed: bool,
}

/// The cases of a file: `==` starts one, `>` was sent, `<` was received, `closed` ends some, `#` is a comment.
pub fn cases(text: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix("== ") {
            let (sent, received) = (Vec::new(), Vec::new());
            cases.push(Case { name: name.to_owned(), sent, received, closed: false });
            continue;
        }
        let case = cases.last_mut().expect("a case has a name");
        match line.split_at(line.len().min(2)) {
            ("> ", bytes) => case.sent.extend(unescaped(bytes)),
            ("< ", bytes) => case.received.extend(unescaped(bytes)),
            _ if line == "closed" => case.closed = true,
            _ => panic!("{}: {line}", case.name),
        }
    }
    cases
}

/// The bytes that a line of a transcript stands for.
pub fn unescaped(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        bytes.extend_from_slice(&rest.as_bytes()[..at]);
        let (escape, after) = rest[at + 1..].split_at(1);
        rest = after;
        match escape {
            "r" => bytes.push(b'\r'),
            "n" => bytes.push(b'\n'),
            "\\" => bytes.push(b'\\'),
            "x" => {
                bytes.push(u8::from_str_radix(&rest[..2], 16).expect("two digits"));
                rest = &rest[2..];
            }
            "{" => {
                let (run, after) = rest.split_once('}').expect("a run is closed");
                let (byte, count) = run.split_at(1);
                let count: usize = count[1..].parse().expect("a run has a length");
                bytes.extend(std::iter::repeat_n(byte.as_bytes()[0], count));
                rest = after;
            }
            other => panic!("\\{other}"),
        }
    }
    bytes.extend_from_slice(rest.as_bytes());
    bytes
}
