//! Runs the scripts in tests/scripts: a cell, clients with their real cores, and connections that speak the protocol by
//! hand, told what to do line by line; what they are told is compared with what the script records.

mod world;

use bytes::Bytes;
use kumo_session::{
    Answer, Ask, CallError, CellMessage, ClientInput, ClientMessage, ConnectionId, GENERATION_SHIFT, Label,
    NodeNote, Reply, SessionId,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;
use world::World;

/// A cell with the clients and connections that a script names.
struct Stage {
    world: World,
    users: BTreeMap<String, usize>,
    /// Calls under way: who called, what, and the ticket.
    calls: Vec<(String, String, u64)>,
    connections: BTreeMap<String, (ConnectionId, Option<SessionId>)>,
    states_told: BTreeMap<String, usize>,
    notes_told: BTreeSet<String>,
    out: String,
}

impl Stage {
    fn new(nodes: usize) -> Stage {
        Stage {
            world: World::new(nodes),
            users: BTreeMap::new(),
            calls: Vec::new(),
            connections: BTreeMap::new(),
            states_told: BTreeMap::new(),
            notes_told: BTreeSet::new(),
            out: String::new(),
        }
    }

    fn line(&mut self, line: &str) {
        writeln!(self.out, "{line}").expect("a string");
    }

    fn command(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let rest = |count: usize| words[count..].join(" ");
        match words.as_slice() {
            ["client", name] => {
                let user = self.world.user(true);
                self.users.insert((*name).to_owned(), user);
                let session = self.world.users[user].client.session();
                self.line(&format!("{name} has session {}", session.expect("an opened session")));
            }
            [name, "asks", ..] => {
                let command = Bytes::from(rest(2));
                self.call(name, &rest(2), |ticket| ClientInput::Command { ticket, command });
            }
            [name, "reads"] => {
                self.call(name, "read", |ticket| ClientInput::Read { ticket, query: Bytes::new() });
            }
            [name, "wants", "events"] => self.call(name, "events", |ticket| ClientInput::Events { ticket }),
            [name, "gives", "up", ..] => self.give_up(name, &rest(3)),
            [name, "kills", other] => {
                let session = self.world.users[self.users[*other]].client.session().expect("a session");
                self.call(name, &rest(1), |ticket| ClientInput::Kill { ticket, session });
            }
            [name, "closes"] => self.call(name, "close", |ticket| ClientInput::Close { ticket }),
            [name, "dies"] => self.world.kill_user(self.users[*name]),
            ["sessions"] => {
                let master = self.world.master();
                let sessions: Vec<String> =
                    self.world.nodes[master].cell.sessions().map(|session| session.to_string()).collect();
                self.line(&format!("sessions: {}", sessions.join(" ")));
            }
            ["run", millis] => self.world.run(millis.parse::<u64>().expect("milliseconds") * 1000),
            ["repeat", times, name, "asks", ..] => {
                for index in 0..times.parse::<u64>().expect("a number") {
                    let text = rest(4).replace('#', &index.to_string());
                    let reply = self.world.command(self.users[*name], &text);
                    assert_eq!(reply, "ok");
                }
            }
            ["master", "crashes"] => {
                let master = self.world.master();
                self.world.crash(master);
            }
            ["the", "cell", "is", "silent"] => self.world.deaf = (0..self.world.nodes.len()).collect(),
            ["the", "cell", "is", "back"] => self.world.deaf.clear(),
            ["connection", name] => {
                let master = self.world.master();
                let connection = self.world.raw_connect(master);
                self.connections.insert((*name).to_owned(), (connection, None));
            }
            [name, "says", what @ ..] => self.say(name, what),
            words => panic!("unknown command {words:?}"),
        }
        self.tell();
    }

    fn call(&mut self, name: &str, what: &str, input: impl FnOnce(u64) -> ClientInput) {
        let ticket = self.world.call(self.users[name], input);
        self.calls.push((name.to_owned(), what.to_owned(), ticket));
        self.world.run(50_000);
    }

    fn give_up(&mut self, name: &str, what: &str) {
        let given = self.calls.iter().find(|(caller, call, _)| caller == name && call == what);
        let ticket = given.expect("a call under way").2;
        self.world.call(self.users[name], |_| ClientInput::Cancel { ticket });
        self.world.run(50_000);
    }

    /// A message made by hand: `open TOKEN`, `attach SESSION TOKEN`, `renew`, `N COMMAND`, `N COMMAND had M`
    /// (replies up to M are acknowledged), `close N`.
    fn say(&mut self, name: &str, what: &[&str]) {
        let (connection, session) = self.connections[name];
        let own = || session.expect("a session of its own");
        let number = |word: &str| word.parse::<u64>().expect("a number");
        let request = |number, acknowledged, ask| ClientMessage::Request {
            session: own(),
            number,
            acknowledged,
            unanswered: Vec::new(),
            events_seen: 0,
            ask,
        };
        let message = match what {
            ["open", token] => ClientMessage::Open { token: number(token).into(), label: Label::default() },
            ["attach", count, token] => {
                let session = SessionId(1 << GENERATION_SHIFT | number(count));
                self.connections.insert(name.to_owned(), (connection, Some(session)));
                ClientMessage::Attach { session, token: number(token).into() }
            }
            ["renew"] => ClientMessage::Renew { session: own(), sent: 9 },
            ["close", count] => request(number(count), 0, Ask::Close),
            [count, command @ .., "had", had] => {
                request(number(count), number(had), Ask::Command(command.join(" ").into()))
            }
            [count, command @ ..] => request(number(count), 0, Ask::Command(command.join(" ").into())),
            [] => panic!("{name} says nothing"),
        };
        let master = self.world.master();
        let said = self.world.raw_say(master, connection, message);
        for message in said {
            if let Some(CellMessage::Opened { session, .. }) = message {
                self.connections.insert(name.to_owned(), (connection, Some(session)));
            }
            self.line(&format!("{name} hears {}", heard(message)));
        }
    }

    /// Calls that are answered, states that changed, sessions that expired.
    fn tell(&mut self) {
        for (name, what, ticket) in std::mem::take(&mut self.calls) {
            match self.world.answer(self.users[&name], ticket).map(answered) {
                Some(text) => self.line(&format!("{name}: {what} -> {text}")),
                None => self.calls.push((name, what, ticket)),
            }
        }
        for (name, user) in self.users.clone() {
            let states = self.world.users[user].states.clone();
            let told = self.states_told.insert(name.clone(), states.len()).unwrap_or(0);
            states[told..].iter().for_each(|state| self.line(&format!("{name} is {state:?}")));
        }
        let expired = self.world.nodes.iter().flat_map(|node| &node.notes).filter_map(|note| match note {
            NodeNote::SessionExpired(session) => Some(format!("session {session} expires")),
            NodeNote::Paxos(_) | NodeNote::Panicked { .. } | NodeNote::Restored { .. } => None,
            NodeNote::SnapshotMalformed { .. } => None,
            NodeNote::RequestRefused { .. } | NodeNote::ClientRefused { .. } => None,
        });
        for line in expired.collect::<BTreeSet<String>>() {
            if self.notes_told.insert(line.clone()) {
                self.line(&line);
            }
        }
    }
}

fn text(bytes: &Bytes) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn count(number: u64) -> u64 {
    number & ((1 << GENERATION_SHIFT) - 1)
}

fn answered(answer: &Result<Answer, CallError>) -> String {
    match answer {
        Ok(Answer::Body(body)) => text(body),
        Ok(Answer::Events { omitted, first, events }) => {
            let (shown, more) = (events.iter().take(4).map(text), events.len().saturating_sub(4));
            let shown: Vec<String> = shown.collect();
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("{omitted} omitted, from number {}: {}{more}", count(*first), shown.join(", "))
        }
        Ok(Answer::Done) => "done".to_owned(),
        Ok(Answer::Status { .. } | Answer::Sessions(_)) => panic!("no script asks for it"),
        Err(error) => format!("error: {error}"),
    }
}

fn heard(message: Option<CellMessage>) -> String {
    match message {
        None => "that the connection ends".to_owned(),
        Some(CellMessage::Opened { session, timeout_ms, .. }) => {
            format!("opened: session {session}, lives {timeout_ms} ms")
        }
        Some(CellMessage::Attached { session }) => format!("attached: session {session}"),
        Some(CellMessage::Reply { number, reply: Reply::Body(body), .. }) => {
            format!("reply {number}: {}", text(&body))
        }
        Some(CellMessage::Reply { number, reply, .. }) => format!("reply {number}: {reply:?}"),
        Some(CellMessage::Renewed { sent, .. }) => format!("renewed: what was sent at {sent}"),
        Some(CellMessage::Ended { session, reason }) => format!("ended: session {session}, {reason:?}"),
        Some(CellMessage::Refused { reason }) => format!("refused: {reason}"),
        Some(other) => format!("{other:?}"),
    }
}

/// A stage whose first line says how many nodes there are.
#[derive(Default)]
struct Curtain(Option<Stage>);

impl script::Stage for Curtain {
    fn command(&mut self, line: &str) {
        match (line.strip_prefix("nodes "), &mut self.0) {
            (Some(nodes), None) => self.0 = Some(Stage::new(nodes.parse().expect("a number"))),
            (None, Some(stage)) => stage.command(line),
            (_, _) => panic!("a script begins with its nodes, once: {line}"),
        }
    }

    fn seen(&mut self) -> String {
        self.0.as_mut().map(|stage| std::mem::take(&mut stage.out)).unwrap_or_default()
    }
}

#[test]
fn scripts_play_as_recorded() {
    script::check(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts"), 6, Curtain::default);
}
