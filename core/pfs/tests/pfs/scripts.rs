//! Runs the scripts in tests/scripts: lines of input, `---`, the recorded output, an empty line.
//! `KUMO_RECORD=1` records what comes out instead of comparing it.

use crate::host::{Host, count, id};
use ::bytes::Bytes;
use kumo_pfs::{
    Command, Condition, EntryChange, Event, Pfs, Place, Query, QueueChange, Reply, Resource, Stat,
};
use kumo_session::{Application, GENERATION_SHIFT, Outcome, numbered};
use kumo_wire::Wire;
use std::fmt::Write;

#[test]
fn scripts_give_what_was_recorded() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 8, "the scripts are there");
    let record = std::env::var_os("KUMO_RECORD").is_some();
    for file in files {
        let recorded = std::fs::read_to_string(&file).unwrap();
        let now = run(&recorded);
        if record {
            std::fs::write(&file, now).unwrap();
        } else {
            assert_eq!(recorded, now, "{}", file.display());
        }
    }
}

/// The script with the output it gives.
fn run(script: &str) -> String {
    let mut host = Host::new();
    let mut whole = String::new();
    let mut output = String::new();
    let mut lines = script.lines();
    while let Some(line) = lines.next() {
        writeln!(whole, "{line}").unwrap();
        match line {
            "---" => {
                whole.push_str(&std::mem::take(&mut output));
                if lines.by_ref().find(|line| line.is_empty()).is_some() {
                    whole.push('\n');
                }
            }
            _ if line.is_empty() || line.starts_with('#') => {}
            _ => execute(&mut host, &line.split(' ').collect::<Vec<_>>(), &mut output),
        }
    }
    assert!(output.is_empty(), "a script ends with what comes out");
    whole
}

fn execute(host: &mut Host, words: &[&str], out: &mut String) {
    match words {
        ["new"] => *host = Host::new(),
        ["generation", number] => host.generation = number.parse().unwrap(),
        ["time", millis] => host.time = millis.parse().unwrap(),
        ["restore"] => {
            let again = Pfs::restore(host.pfs.snapshot().collect()).unwrap();
            assert!(again == host.pfs, "the state comes back from its snapshot");
            host.pfs = again;
        }
        [session, "end"] => show(&host.end(session.parse().unwrap()), out),
        [session, "cancel", "last"] => {
            let session = session.parse().unwrap();
            let (found, outcome) = host.cancel(session, host.last_request(session));
            writeln!(out, "{}", if found { "cancelled" } else { "nothing to cancel" }).unwrap();
            show(&outcome, out);
        }
        [session, "bytes", hex] => {
            let bytes =
                (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap());
            show(&host.apply_bytes(session.parse().unwrap(), bytes.collect()), out);
        }
        [session, words @ ..] if session.parse::<u64>().is_ok() => {
            let session = session.parse().unwrap();
            let outcome = host.apply(session, &command(words));
            if outcome.reply.is_none() {
                writeln!(out, "s{session}#{} waits", host.last_request(session)).unwrap();
            }
            show(&outcome, out);
        }
        words => writeln!(out, "{}", reply(&host.query(&query(words)))).unwrap(),
    }
}

fn command(words: &[&str]) -> Command {
    let text = |at: usize| words[at].to_owned();
    let has = |word: &str| words.contains(&word);
    match words[0] {
        "write" => Command::Write {
            path: text(1),
            place: place(words),
            data: data(words[2]),
            ephemeral: has("ephemeral"),
            condition: condition(words),
        },
        "truncate" => Command::Truncate { path: text(1), length: words[2].parse().unwrap() },
        "delete" => Command::Delete { path: text(1), condition: condition(words) },
        "rename" => Command::Rename { from: text(1), to: text(2) },
        "mkdir" => Command::Mkdir { path: text(1) },
        "rmdir" => Command::Rmdir { path: text(1) },
        "lock" => Command::Lock { name: text(1), exclusive: !has("shared"), try_only: has("try") },
        "unlock" => Command::Unlock { name: text(1) },
        "watch" => Command::Watch { resource: resource(words) },
        "unwatch" => Command::Unwatch { resource: resource(words) },
        "post" => Command::Post { queue: text(1), data: data(words[2]) },
        "wait" => Command::Wait { queue: text(1), try_only: has("try") },
        "receive" => Command::Receive { queue: text(1), try_only: has("try") },
        "acknowledge" => Command::Acknowledge { queue: text(1), id: number(words[2]) },
        "delete-message" => Command::DeleteMessage { queue: text(1), id: number(words[2]) },
        word => panic!("unknown command {word}"),
    }
}

fn query(words: &[&str]) -> Query {
    let text = |at: usize| words.get(at).copied().unwrap_or_default().to_owned();
    let value = |at: usize, missing: u64| words.get(at).map_or(missing, |word| word.parse().unwrap());
    match words[0] {
        "read" => Query::Read { path: text(1), offset: value(2, 0), length: value(3, u64::MAX) },
        "stat" => Query::Stat { path: text(1) },
        "readdir" => Query::ReadDir { path: text(1), index: value(2, 0), count: value(3, u64::MAX) },
        "peek" => Query::Peek { queue: text(1) },
        "queues" => Query::Queues { after: text(1) },
        "locks" => Query::Locks { after: text(1) },
        "usage" => Query::Usage,
        word => panic!("unknown query {word}"),
    }
}

fn place(words: &[&str]) -> Place {
    let at = words.iter().find_map(|word| word.strip_prefix("at="));
    match at {
        Some(offset) => Place::Offset(offset.parse().unwrap()),
        None if words.contains(&"end") => Place::End,
        None => Place::Replace,
    }
}

fn condition(words: &[&str]) -> Condition {
    if let Some(version) = words.iter().find_map(|word| word.strip_prefix("version=")) {
        return Condition::Version(number(version));
    }
    let Some(fence) = words.iter().find_map(|word| word.strip_prefix("fence=")) else {
        return Condition::Always;
    };
    let (lock, grant) = fence.split_once(':').unwrap();
    Condition::Fence { lock: lock.to_owned(), number: number(grant) }
}

fn resource(words: &[&str]) -> Resource {
    let name = words[2].to_owned();
    match words[1] {
        "directory" => Resource::Directory(name),
        "lock" => Resource::Lock(name),
        "queue" => Resource::Queue(name),
        word => panic!("unknown resource {word}"),
    }
}

/// `-` is nothing, `x*3` is xxx.
fn data(word: &str) -> Bytes {
    match word.split_once('*') {
        Some((text, times)) => text.repeat(times.parse().unwrap()).into(),
        None if word == "-" => Bytes::new(),
        None => word.to_owned().into(),
    }
}

/// `generation.count`, or a plain number.
fn number(word: &str) -> u64 {
    match word.split_once('.') {
        Some((generation, count)) => numbered(generation.parse().unwrap(), count.parse().unwrap()),
        None => word.parse().unwrap(),
    }
}

fn show(outcome: &Outcome, out: &mut String) {
    if let Some(bytes) = &outcome.reply {
        writeln!(out, "{}", reply(&Reply::from_bytes(bytes.clone()).unwrap())).unwrap();
    }
    for (session, number, bytes) in &outcome.answers {
        let reply = reply(&Reply::from_bytes(bytes.clone()).unwrap());
        writeln!(out, "s{}#{number} gets: {reply}", count(session.0)).unwrap();
    }
    for (session, bytes) in &outcome.events {
        writeln!(out, "s{} sees: {}", count(session.0), event(&Event::from_bytes(bytes.clone()).unwrap()))
            .unwrap();
    }
}

fn event(event: &Event) -> String {
    match event {
        Event::Directory { path, name, change } => {
            let change = match change {
                EntryChange::Created => "created",
                EntryChange::Updated => "updated",
                EntryChange::Deleted => "deleted",
            };
            format!("{name} {change} in {path}")
        }
        Event::Lock { name, exclusive } => {
            format!("lock {name} is waited for by a {}", if *exclusive { "writer" } else { "reader" })
        }
        Event::Queue { name, change: QueueChange::Posted } => format!("queue {name} was posted to"),
        Event::Queue { name, change: QueueChange::Waiting } => format!("queue {name} is waited for"),
    }
}

fn reply(reply: &Reply) -> String {
    match reply {
        Reply::Done => "done".to_owned(),
        Reply::Written { count, version, length } => {
            format!("written {count}, version {}, length {length}", show_number(*version))
        }
        Reply::Data { bytes, version } => {
            format!("data {} version {}", show_data(bytes), show_number(*version))
        }
        Reply::Stat(found) => stat(found),
        Reply::Entries { entries, total } => {
            let shown = entries.iter().map(|entry| format!("\n  {}: {}", entry.name, stat(&entry.stat)));
            format!("{} of {total} entries{}", entries.len(), shown.collect::<String>())
        }
        Reply::Granted { number } => format!("granted {}", show_number(*number)),
        Reply::Message { id, data } => format!("message {} {}", show_number(*id), show_data(data)),
        Reply::Queues(queues) => {
            let shown = queues.iter().map(|queue| {
                format!(
                    "\n  {}: ready {} hidden {} waiting {}",
                    queue.name, queue.ready, queue.hidden, queue.waiting
                )
            });
            format!("{} queues{}", queues.len(), shown.collect::<String>())
        }
        Reply::Locks(locks) => {
            let shown = locks.iter().map(|lock| {
                let kind = if lock.exclusive { "writer" } else { "readers" };
                let names = |sessions: &[kumo_session::SessionId]| {
                    sessions.iter().map(|session| format!(" s{}", count(session.0))).collect::<String>()
                };
                let (holders, waiters) = (names(&lock.holders), names(&lock.waiters));
                format!("\n  {}: {} {kind}{holders} waiting{waiters}", lock.name, show_number(lock.number))
            });
            format!("{} locks{}", locks.len(), shown.collect::<String>())
        }
        Reply::Usage(usage) => format!(
            "bytes {} files {} directories {} messages {}",
            usage.bytes, usage.files, usage.directories, usage.messages
        ),
        Reply::Refused(refusal) => format!("refused: {refusal}"),
    }
}

fn stat(stat: &Stat) -> String {
    let kind = if stat.directory { "directory" } else { "file" };
    let owner =
        stat.ephemeral.map_or(String::new(), |session| format!(" ephemeral of s{}", count(session.0)));
    assert!(stat.ephemeral.is_none_or(|session| session == id(count(session.0))));
    let (created, modified) = (stat.created.0, stat.modified.0);
    let version = show_number(stat.version);
    format!("{kind} length {} version {version} created {created} modified {modified}{owner}", stat.length)
}

fn show_number(number: u64) -> String {
    format!("{}.{}", number >> GENERATION_SHIFT, count(number))
}

/// Zeros as dots; what is long by its length.
fn show_data(bytes: &Bytes) -> String {
    match bytes.len() {
        0 => "-".to_owned(),
        1..40 => String::from_utf8_lossy(bytes).replace('\0', "."),
        length => format!("({length} bytes)"),
    }
}
