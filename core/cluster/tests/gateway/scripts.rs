//! Runs the scripts in tests/gateway/scripts: what happens to a gateway, line by line, and what it wants done.

use crate::names::{manager, name, place, server, settings, space};
use bytes::Bytes;
use kumo_cluster::{
    Answer, Early, Gateway, GatewayEffect, GatewayId, GatewayInput, GatewayNote, GatewaySettings, Message,
    Operation, Refusal, Reply, Request, Space, SpaceNumber,
};
use kumo_paxos::{CellId, Time};
use std::fmt::Write;
use std::net::SocketAddr;
use std::path::Path;

/// A gateway, the time in milliseconds, and what was seen of it.
struct Stage {
    settings: GatewaySettings,
    gateway: Gateway,
    now: u64,
    out: String,
}

impl Stage {
    fn new() -> Stage {
        Stage { settings: settings(), gateway: Gateway::new(settings(), Time(0)), now: 0, out: String::new() }
    }

    fn command(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["set", setting] => self.set(setting),
            ["ready", servers] => self.ready(servers),
            ["manager", from, rest @ ..] => self.manager(manager(number(from) as u8), rest),
            ["server", names, rest @ ..] => {
                names.chars().for_each(|one| self.server(one, rest));
            }
            ["call", ticket, rest @ ..] => self.call(number(ticket), rest),
            ["flush", ticket] => {
                self.step(GatewayInput::Flush { ticket: number(ticket), prefix: Bytes::new() });
            }
            ["run", millis] => self.run(number(millis)),
            ["deadline"] => writeln!(self.out, "deadline {:?}", self.gateway.deadline()).expect("text"),
            _ => panic!("not a command: {line}"),
        }
    }

    fn set(&mut self, setting: &str) {
        match setting {
            "spread_reads" => self.settings.spread_reads = true,
            "early" => self.settings.early = Early { set: true, delete: true },
            "cluster" => self.settings.cluster = Some(CellId(1)),
            "few_tries" => (self.settings.get_retry_max, self.settings.set_retry_max) = (1, 2),
            _ => panic!("not a setting: {setting}"),
        }
        self.gateway = Gateway::new(self.settings.clone(), Time(0));
    }

    /// The usual beginning, unseen: a manager, an id, space 2, and all links.
    fn ready(&mut self, servers: &str) {
        self.manager(manager(1), &["up"]);
        self.manager(manager(1), &["registered", "100", "7"]);
        self.manager(manager(1), &["space", "2", servers]);
        servers.chars().filter(|one| *one != '!').for_each(|one| self.server(one, &["up"]));
        self.out.clear();
    }

    fn manager(&mut self, from: SocketAddr, words: &[&str]) {
        let message = match words {
            ["up"] => return self.step(GatewayInput::ManagerUp(from)),
            ["down"] => return self.step(GatewayInput::ManagerDown(from)),
            ["registered", nonce, id] => {
                let (nonce, gateway) = (number(nonce).into(), GatewayId(number(id)));
                Message::Registered { nonce, gateway, cluster: crate::names::CLUSTER }
            }
            ["lists", all] => {
                let managers = all.bytes().map(|one| manager(one - b'0')).collect();
                Message::Managers { cluster: crate::names::CLUSTER, managers, master: Some(from) }
            }
            ["refuses"] => Message::Unwelcome { reason: "too new".to_owned() },
            other => any_message(other),
        };
        self.step(GatewayInput::Manager(from, message));
    }

    fn server(&mut self, from: char, words: &[&str]) {
        let message = match words {
            ["up"] => return self.step(GatewayInput::ServerUp(server(from))),
            ["down"] => return self.step(GatewayInput::ServerDown(server(from))),
            ["flushed", space, seq] => {
                Message::Flushed { space: SpaceNumber(number(space)), seq: number(seq) }
            }
            ["answers", seq, rest @ ..] => Message::Answer { seq: number(seq), answer: answer(rest) },
            other => any_message(other),
        };
        self.step(GatewayInput::Server(server(from), message));
    }

    fn call(&mut self, ticket: u64, words: &[&str]) {
        let [what, owners, rest @ ..] = words else { panic!("a call has an operation and a place") };
        let data = Bytes::from(rest.join(" "));
        let (flags, expiry) = (0, 0);
        let operation = match *what {
            "get" => Operation::Get,
            "set" => Operation::Set { flags, expiry, data },
            "add" => Operation::Add { flags, expiry, data },
            "delete" => Operation::Delete { unique: None },
            other => panic!("not an operation: {other}"),
        };
        let key = Bytes::from((*owners).to_owned());
        self.step(GatewayInput::Call { ticket, hash: place(owners), key, operation });
    }

    /// Lets time pass, waking the gateway when it wants to be.
    fn run(&mut self, millis: u64) {
        let end = self.now + millis;
        while let Some(at) = self.gateway.deadline().filter(|at| at.0 <= end * 1000) {
            self.now = self.now.max(at.0.div_ceil(1000));
            self.step(GatewayInput::Timeout);
        }
        self.now = end;
    }

    fn step(&mut self, input: GatewayInput) {
        let mut effects = Vec::new();
        self.gateway.step(Time(self.now * 1000), input, &mut effects);
        for effect in effects {
            writeln!(self.out, "{:>5} {}", self.now, shown(effect)).expect("text");
        }
    }
}

fn number(word: &str) -> u64 {
    word.parse().unwrap_or_else(|_| panic!("not a number: {word}"))
}

/// What both managers and servers may say.
fn any_message(words: &[&str]) -> Message {
    match words {
        ["space", at, "nobody"] => Message::new_space(space(number(at), "")),
        ["space", at, servers] => Message::new_space(space(number(at), servers)),
        ["space", at, servers, "of", cell] => {
            let cluster = CellId(number(cell).into());
            Message::new_space(Space { cluster, ..space(number(at), servers) })
        }
        ["space", at, servers, "expires_below", floor] => {
            let gateway_floor = GatewayId(number(floor));
            Message::new_space(Space { gateway_floor, ..space(number(at), servers) })
        }
        ["space", at, servers, "upside_down"] => {
            let mut space = space(number(at), servers);
            space.members.reverse();
            Message::new_space(space)
        }
        ["wants_space_above", at] => Message::WantSpace { above: SpaceNumber(number(at)) },
        other => panic!("nothing to say: {other:?}"),
    }
}

fn answer(words: &[&str]) -> Answer {
    let refused = |reason| Answer::Refused { reason };
    match words {
        ["done"] => Answer::Reply(Reply::Done { clock: 1 }),
        ["value", data] => {
            let data = Bytes::from((*data).to_owned());
            Answer::Reply(Reply::Value { clock: 1, flags: 0, ttl: None, data })
        }
        ["missing"] => Answer::Missing,
        ["not_stored"] => Answer::NotStored,
        ["wait"] => Answer::Wait,
        ["unknown"] => Answer::Unknown,
        ["wrong_space", newest] => Answer::WrongSpace { newest: SpaceNumber(number(newest)) },
        ["full"] => refused(Refusal::Full),
        ["damaged"] => refused(Refusal::Damaged),
        ["expired"] => refused(Refusal::GatewayExpired),
        ["answered"] => refused(Refusal::Answered),
        other => panic!("not an answer: {other:?}"),
    }
}

fn shown(effect: GatewayEffect) -> String {
    let place = |address: SocketAddr| address.ip().to_string().replace("10.0.1.", "manager ");
    match effect {
        GatewayEffect::Manager(to, message) => format!("to {}: {}", place(to), said(message)),
        GatewayEffect::Server(to, message) => format!("to {}: {}", name(to), said(message)),
        GatewayEffect::Dial(to) => format!("dial {}", name(to)),
        GatewayEffect::Undial(to) => format!("undial {}", name(to)),
        GatewayEffect::Managers(all) => {
            format!("managers: {}", all.into_iter().map(place).collect::<Vec<_>>().join(", "))
        }
        GatewayEffect::Done { ticket, result: Ok(Answer::Reply(Reply::Value { data, .. })) } => {
            format!("done {ticket}: value {}", String::from_utf8_lossy(&data))
        }
        GatewayEffect::Done { ticket, result: Ok(answer) } => format!("done {ticket}: {answer:?}"),
        GatewayEffect::Done { ticket, result: Err(error) } => format!("done {ticket}: error, {error}"),
        GatewayEffect::Note(note) => format!("note: {}", noted(note)),
        GatewayEffect::Exit(why) => format!("exit: {why}"),
    }
}

fn said(message: Message) -> String {
    match message {
        Message::Request(Request { space, first_space, id, lowest_open, operation, early, .. }) => {
            let what = match operation {
                Operation::Get => "get".to_owned(),
                Operation::Set { data, .. } => format!("set {}", String::from_utf8_lossy(&data)),
                Operation::Delete { .. } => "delete".to_owned(),
                other => format!("{other:?}"),
            };
            let early = if early { ", early" } else { "" };
            format!(
                "{what} ({}:{} space {space} first {first_space} lowest {lowest_open}{early})",
                id.gateway, id.seq
            )
        }
        Message::NewSpace { space } => format!("space {}", space.number),
        Message::Flush { space, id, lowest_open, .. } => {
            format!("flush ({}:{} space {space} lowest {lowest_open})", id.gateway, id.seq)
        }
        other => format!("{other:?}"),
    }
}

fn noted(note: GatewayNote) -> String {
    match note {
        GatewayNote::Adopted { space } => format!("adopted {}", space.number),
        GatewayNote::Registered { gateway } => format!("registered as {gateway}"),
        GatewayNote::Expired { gateway } => format!("{gateway} expired"),
        GatewayNote::Stranger { from, cluster } => format!("{from} is of cell {cluster:?}"),
        GatewayNote::Failed { key, error, .. } => format!("failed {key:?}: {error}"),
    }
}

impl script::Stage for Stage {
    fn command(&mut self, line: &str) {
        Stage::command(self, line);
    }

    fn seen(&mut self) -> String {
        std::mem::take(&mut self.out)
    }
}

#[test]
fn scripts_play_as_recorded() {
    script::check(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gateway/scripts"), 8, Stage::new);
}
