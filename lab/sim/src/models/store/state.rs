//! [`State`]: the servers, the letters between them, and what the callers were told so far.

use super::chapter::{key, server};
use super::node::Node;
use crate::models::shared::Shared;
use crate::store::check::linear;
use crate::store::history::{Call, Ending};
use kumo_cluster::{
    Answer, GatewayId, Message, Range, Request, RequestId, ServerEffect, ServerId, ServerInput, SpaceNumber,
};
use kumo_session::ConnectionId;
use kumo_wire::Wire;
use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};

/// Where a tale is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// By place.
    pub nodes: Vec<Shared<Node>>,
    pub letters: BTreeSet<Shared<Letter>>,
    /// Spaces that were published.
    pub published: usize,
    pub asks: Vec<Ask>,
    /// Calls made and answered so far: the time.
    pub events: u64,
    pub ticks: u8,
    pub restarts: u8,
    pub echoes: u8,
    /// No order of the calls explains the answers.
    pub wrong: Option<String>,
}

/// Something on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Letter {
    pub to: ServerId,
    pub from: From,
    pub message: Message,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    Server(ServerId),
    /// A try that nobody listens to.
    Nobody,
}

/// A call, and its tries.
#[derive(Clone, Debug)]
pub struct Ask {
    pub call: Call,
    pub begun: bool,
    pub tries: u8,
    /// Who has it.
    pub hands: Option<usize>,
    first_space: u64,
}

impl Ask {
    pub fn new(call: Call) -> Ask {
        Ask { call, begun: false, tries: 0, hands: None, first_space: 0 }
    }

    pub fn is_over(&self) -> bool {
        self.call.ending.is_some()
    }
}

impl State {
    pub fn place_of(&self, id: ServerId) -> Option<usize> {
        self.nodes.iter().position(|node| server(node.life) == id && !node.ended)
    }

    /// A step of one server, and what follows from it. False: nothing changed.
    pub fn step(&mut self, place: usize, step: impl FnOnce(&mut Node) -> Vec<ServerEffect>) -> bool {
        let mut effects = Vec::new();
        let after = self.nodes[place].with(|node| effects = step(node));
        let from = From::Server(server(after.life));
        let changed = after != self.nodes[place];
        self.nodes[place] = after;
        let before = (self.letters.len(), self.events);
        for effect in effects {
            match effect {
                ServerEffect::Server(to, message) if matters(&message) => {
                    self.letters.insert(Shared::new(Letter { to, from, message }));
                }
                ServerEffect::Gateway(connection, Message::Answer { seq, answer }) => {
                    self.answered(place, connection, seq, answer);
                }
                _other => {}
            }
        }
        changed || before != (self.letters.len(), self.events)
    }

    /// False: it changes nothing there.
    pub fn deliver(&mut self, letter: &Shared<Letter>) -> bool {
        self.letters.remove(letter);
        self.receive(letter)
    }

    /// The letter stays on its way: it comes again. False: it changes nothing there.
    pub fn receive(&mut self, letter: &Shared<Letter>) -> bool {
        let Some(place) = self.place_of(letter.to) else { return false };
        let message = letter.message.clone();
        let input = match letter.from {
            From::Server(from) => ServerInput::Server(from, message),
            From::Nobody => ServerInput::Gateway(DEAF, message),
        };
        let before = self.asks.iter().map(|ask| ask.hands).collect::<Vec<_>>();
        let changed = self.step(place, |node| node.step(input));
        changed || before != self.asks.iter().map(|ask| ask.hands).collect::<Vec<_>>()
    }

    /// The request, in a space that is that old. If it is deaf, it is on its way, and nobody hears the answer.
    pub fn request(&mut self, ask: usize, to: usize, space: u64, deaf: bool) {
        let lowest_open = self.asks.iter().position(|ask| !ask.is_over()).map_or(0, |at| at as u64 + 1);
        self.events += 1;
        let now = self.events;
        let one = &mut self.asks[ask];
        if !one.begun {
            (one.begun, one.call.invoked, one.first_space) = (true, now, space);
        }
        one.tries += 1;
        one.hands = (!deaf).then_some(to);
        let request = Request {
            space: SpaceNumber(space),
            first_space: SpaceNumber(one.first_space),
            id: RequestId { gateway: GatewayId(1), seq: ask as u64 + 1 },
            lowest_open,
            hash: key().hash,
            key: key().key.clone(),
            operation: one.call.operation.clone(),
            early: false,
        };
        let message = Message::Request(request);
        if deaf {
            let letter = Letter { to: server(self.nodes[to].life), from: From::Nobody, message };
            self.letters.insert(Shared::new(letter));
            return;
        }
        let connection = ConnectionId(u64::from(one.tries));
        self.step(to, |node| node.step(ServerInput::Gateway(connection, message)));
    }

    fn answered(&mut self, place: usize, connection: ConnectionId, seq: u64, answer: Answer) {
        let one = &mut self.asks[seq as usize - 1];
        let heard = one.hands == Some(place) && connection == ConnectionId(u64::from(one.tries));
        if one.is_over() || !heard {
            return;
        }
        one.hands = None;
        let ending = match answer {
            Answer::Wait | Answer::WrongSpace { .. } => return,
            Answer::Unknown | Answer::Refused { .. } => Ending::Unknown(None),
            answer => Ending::Answer(answer),
        };
        self.events += 1;
        one.call.ending = Some((self.events, ending));
        let begun = self.asks.iter().filter(|ask| ask.begun).map(|ask| &ask.call);
        self.wrong = linear::check(begun, [].iter(), &[], 0).err();
    }
}

/// Of an arc, compared once more: only of the key's, for nothing is written in others.
fn is_end(range: &Range) -> bool {
    range.first == range.last
}

/// What is said about other keys is not looked at, and spaces come from the tale.
fn matters(message: &Message) -> bool {
    match message {
        Message::CopyDigest { range, .. }
        | Message::CopySame { range, .. }
        | Message::CopyDiffers { range, .. }
        | Message::CopyRecords { range, .. }
        | Message::CopyStored { range, .. }
        | Message::CopyHeads { range, .. }
        | Message::CopyNarrow { range, .. }
        | Message::CopyIds { range, .. }
        | Message::CopyIdsStored { range, .. } => range.contains(key().hash) || is_end(range),
        Message::NewSpace { .. } | Message::WantSpace { .. } | Message::CopyLater { .. } => false,
        _said => true,
    }
}

impl Letter {
    /// The space that the receiver must be in; none: any.
    pub fn space(&self) -> Option<SpaceNumber> {
        match &self.message {
            Message::Replicate { epoch, .. }
            | Message::Replicated { epoch, .. }
            | Message::ReplicaFull { epoch, .. }
            | Message::Watermark { epoch, .. } => Some(*epoch),
            Message::Confirm { space, .. }
            | Message::Confirmed { space, .. }
            | Message::AskPrimary { space, .. }
            | Message::PrimarySays { space, .. }
            | Message::Settle { space, .. }
            | Message::Settled { space, .. }
            | Message::CopyDigest { space, .. }
            | Message::CopyIds { space, .. }
            | Message::CopyRecords { space, .. } => Some(*space),
            _other => None,
        }
    }
}

impl Hash for Letter {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.to.hash(hasher);
        if let From::Server(from) = self.from {
            from.hash(hasher);
        }
        hasher.write(&self.message.to_bytes());
    }
}

impl Hash for Ask {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (self.begun, self.tries, self.hands, self.call.invoked, self.first_space).hash(hasher);
        hasher.write(format!("{:?}", self.call.ending).as_bytes());
    }
}

impl PartialEq for Ask {
    fn eq(&self, other: &Ask) -> bool {
        (self.begun, self.tries, self.hands, self.call.invoked, self.first_space)
            == (other.begun, other.tries, other.hands, other.call.invoked, other.first_space)
            && self.call.ending == other.call.ending
    }
}

impl Eq for Ask {}

/// A connection that is gone.
const DEAF: ConnectionId = ConnectionId(0);
