//! Links between replicas, as the shell makes them: each side dials, says hello, and sends over its own link.

use super::processes::ProcessId;
use super::{Event, World};
use bytes::Bytes;
use kumo_paxos::{Envelope, Hello, Message};
use kumo_session::Input;
use kumo_wire::Wire;
use lot::Host;
use std::net::SocketAddr;

/// A link that a process dials.
pub struct Link {
    /// Which try this is; what belongs to an earlier one is ignored.
    attempt: u64,
    /// Who answered.
    up: Option<ProcessId>,
    /// The latest arrival: messages keep their order unless the network is in the mood.
    last: u64,
    /// A message was lost in a cut: the connection will break.
    stalled: bool,
}

impl World {
    pub fn want_link(&mut self, id: ProcessId, address: SocketAddr) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        if process.links.contains_key(&address) {
            return;
        }
        process.attempts += 1;
        let attempt = process.attempts;
        process.links.insert(address, Link { attempt, up: None, last: 0, stalled: false });
        self.schedule.put(self.now, Event::Dial { process: id, address, attempt });
    }

    pub fn drop_link(&mut self, id: ProcessId, address: SocketAddr) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        if process.links.remove(&address).is_some_and(|link| link.up.is_some()) {
            self.step(id, Input::PeerDown(address));
        }
    }

    /// Whether this attempt is still the one that counts.
    fn current(&self, id: ProcessId, address: SocketAddr, attempt: u64) -> bool {
        let link = self.processes.get(&id).and_then(|process| process.links.get(&address));
        link.is_some_and(|link| link.attempt == attempt)
    }

    pub fn dial(&mut self, id: ProcessId, address: SocketAddr, attempt: u64) {
        if !self.current(id, address, attempt) {
            return;
        }
        let from = Host(self.processes[&id].slot as u32);
        let reachable = self.host_at(address).is_some_and(|to| {
            self.listener(address).is_some() && self.network.passes(from, to) && self.network.passes(to, from)
        });
        let delay = self.network.delay();
        if !reachable {
            self.schedule.put(self.now + REDIAL_MICROS, Event::DialTimeout { process: id, address, attempt });
            return;
        }
        let hello = self.packer.pack(&self.processes[&id].cell.hello());
        self.schedule.put(self.now + delay, Event::Greeting { dialler: id, address, attempt, hello });
        self.schedule.put(self.now + DIAL_MICROS, Event::DialTimeout { process: id, address, attempt });
    }

    /// At the listener: a hello came in.
    pub fn greeting(&mut self, dialler: ProcessId, address: SocketAddr, attempt: u64, hello: Bytes) {
        let Some(listener) = self.listener(address) else { return };
        let cell = &self.processes[&listener].cell;
        let read = Hello::from_bytes(hello).expect("a hello is read as it was written");
        if let Err(reason) = cell.greet(&read) {
            self.trace.note(self.now, &[10, listener.0, dialler.0], &[], || {
                format!("p{} refuses p{}: {reason}", listener.0, dialler.0)
            });
            return;
        }
        let hello = self.packer.pack(&cell.hello());
        let delay = self.network.delay();
        self.schedule.put(self.now + delay, Event::Greeted { dialler, address, attempt, listener, hello });
    }

    /// At the dialler: the listener answered.
    pub fn greeted(
        &mut self,
        dialler: ProcessId,
        address: SocketAddr,
        attempt: u64,
        listener: ProcessId,
        hello: Bytes,
    ) {
        // Who has lost the address since is as far away as from those whose links were up by then.
        if !self.current(dialler, address, attempt) || self.listener(address) != Some(listener) {
            return;
        }
        let read = Hello::from_bytes(hello.clone()).expect("a hello is read as it was written");
        let process = self.processes.get_mut(&dialler).expect("its attempt is current");
        if let Err(reason) = process.cell.greet(&read) {
            self.trace.note(self.now, &[11, dialler.0, listener.0], &[], || {
                format!("p{} refuses p{}: {reason}", dialler.0, listener.0)
            });
            return;
        }
        let link = process.links.get_mut(&address).expect("its attempt is current");
        if link.up.is_some() {
            return;
        }
        link.up = Some(listener);
        link.stalled = false;
        self.trace.note(self.now, &[12, dialler.0, listener.0], &hello, || {
            format!("link p{} -> p{}", dialler.0, listener.0)
        });
        self.step(dialler, Input::PeerUp(read));
    }

    /// The attempt led nowhere: try again.
    pub fn redial(&mut self, id: ProcessId, address: SocketAddr, attempt: u64) {
        if !self.current(id, address, attempt) {
            return;
        }
        let process = self.processes.get_mut(&id).expect("its attempt is current");
        let link = process.links.get_mut(&address).expect("its attempt is current");
        if link.up.is_none() {
            process.attempts += 1;
            link.attempt = process.attempts;
            let attempt = link.attempt;
            self.schedule.put(self.now, Event::Dial { process: id, address, attempt });
        }
    }

    pub fn link_down(&mut self, id: ProcessId, address: SocketAddr, attempt: u64) {
        if !self.current(id, address, attempt) {
            return;
        }
        let process = self.processes.get_mut(&id).expect("its attempt is current");
        let link = process.links.get_mut(&address).expect("its attempt is current");
        if link.up.take().is_none() {
            return;
        }
        process.attempts += 1;
        link.attempt = process.attempts;
        let attempt = link.attempt;
        self.trace.note(self.now, &[13, id.0], &[], || format!("link of p{} to {address} is down", id.0));
        self.schedule.put(self.now + REDIAL_MICROS / 4, Event::Dial { process: id, address, attempt });
        self.step(id, Input::PeerDown(address));
    }

    pub fn send_peer(&mut self, id: ProcessId, address: SocketAddr, envelope: &Envelope) {
        let Some(to) = self.host_at(address) else { return };
        let Some(process) = self.processes.get_mut(&id) else { return };
        let from = Host(process.slot as u32);
        let Some(link) = process.links.get_mut(&address) else { return };
        let Some(listener) = link.up else { return };
        let bytes = self.packer.pack(envelope);
        self.trace.note(self.now, &[14, id.0, listener.0], &bytes, || {
            format!("p{} -> p{} {}", id.0, listener.0, brief(&envelope.message))
        });
        self.network.remember(address, &bytes);
        let fate = self.network.fate(from, to);
        for delay in fate.delays.into_iter().flatten() {
            let mut arrival = self.now + delay;
            if !fate.free {
                arrival = arrival.max(link.last);
                link.last = arrival;
            }
            self.schedule.put(arrival, Event::Peer { process: listener, bytes: bytes.clone() });
        }
        if !self.network.passes(from, to) && !link.stalled {
            link.stalled = true;
            let attempt = link.attempt;
            let patience = self.network.delay() * STALL_FACTOR;
            self.schedule.put(self.now + patience, Event::LinkDown { process: id, address, attempt });
        }
    }

    pub fn peer(&mut self, id: ProcessId, bytes: Bytes) {
        if !self.processes.contains_key(&id) {
            return;
        }
        match Envelope::from_bytes(bytes) {
            Ok(envelope) => {
                self.trace.note(self.now, &[15, id.0], &[], || {
                    format!("p{} <- {} {}", id.0, envelope.from, brief(&envelope.message))
                });
                self.step(id, Input::Peer(envelope));
            }
            Err(malformed) => self.fail(format!("a message cannot be read as it was written: {malformed}")),
        }
    }

    /// The process at the other end died: those who dialled it notice, sooner or later.
    pub fn break_links_to(&mut self, dead: ProcessId) {
        let mut broken = Vec::new();
        for (id, process) in &self.processes {
            for (address, link) in &process.links {
                if link.up == Some(dead) {
                    broken.push((*id, *address, link.attempt));
                }
            }
        }
        for (process, address, attempt) in broken {
            let delay = self.network.delay();
            self.schedule.put(self.now + delay, Event::LinkDown { process, address, attempt });
        }
    }

    /// The links that are up, for whoever wants to cut one.
    pub fn links_up(&self) -> Vec<(ProcessId, SocketAddr, u64)> {
        let of = |(id, process): (&ProcessId, &super::processes::Process)| {
            let up = process.links.iter().filter(|(_, link)| link.up.is_some());
            let id = *id;
            up.map(move |(address, link)| (id, *address, link.attempt)).collect::<Vec<_>>()
        };
        self.processes.iter().flat_map(of).collect()
    }
}

/// A message as a reader of the trace wants it: a heartbeat without what seldom matters, an incarnation by its
/// first digits.
fn brief(message: &Message) -> String {
    let text = match message {
        Message::Heartbeat(beat) => format!(
            "Heartbeat age {} votes {} names {:?} leads {:?} promised {}.{} executed {} success {}",
            beat.age_ms,
            beat.votes,
            beat.names,
            beat.leads.map(|round| round.sequence),
            beat.promised.sequence,
            beat.promised.id.0,
            beat.executed.0,
            beat.success.0
        ),
        message => format!("{message:?}"),
    };
    let mut short = String::new();
    let mut digits = 0;
    for letter in text.chars().take(TEXT_MAX) {
        digits = if letter.is_ascii_hexdigit() { digits + 1 } else { 0 };
        if digits <= 20 || letter == ' ' {
            short.push(letter);
        }
    }
    short
}

/// Letters of one message in the trace.
const TEXT_MAX: usize = 700;
/// Between two tries to dial.
const REDIAL_MICROS: u64 = 200_000;
/// How long a dialler waits for a hello.
const DIAL_MICROS: u64 = 1_000_000;
/// A cut connection breaks after so many delays of its network: seconds, about.
const STALL_FACTOR: u64 = 1000;
