//! [`SimClient`]: a client program with its session: what it calls, what it is told, and what it believes.

use super::processes::SPINS_MAX;
use super::{CLIENT_HOST_FIRST, Event, World};
use crate::history::{Call, ClientNumber, Ending, Holding};
use crate::workload::{Role, Setting, Worker};
use kumo_paxos::Change;
use kumo_pfs::{Command, Event as PfsEvent, Reply};
use kumo_session::{
    Answer, CallError, Client, ClientEffect, ClientInput, ClientSettings, ConnectionId, Label, SessionState,
};
use kumo_wire::Wire;
use lot::{Clock, Host, Random};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

/// A client.
pub struct SimClient {
    pub program: Program,
    pub client: Client,
    clock: Clock,
    timer: (Option<u64>, u64),
    /// Calls without an answer.
    pub tickets: BTreeMap<u64, Call>,
    pub state: SessionState,
    pub connections: BTreeMap<SocketAddr, ConnectionId>,
    pub knocks: BTreeMap<SocketAddr, u64>,
    /// A call is about to be made.
    acting: bool,
    /// Locks it has, as far as it knows: name, number, exclusive, and its entry in the history while it is sure.
    held: BTreeMap<String, (u64, bool, Option<usize>)>,
    pub closing: bool,
    /// While it stands still: what waits for it.
    pub paused: Option<Vec<Event>>,
    /// An operator ends its session: it may be sure of nothing any more, and does not know.
    pub doomed: bool,
    spins: u32,
}

/// What makes a client's calls.
pub enum Program {
    Worker(Box<Worker>, Role),
    /// A list of things to do, one after another.
    Errands(VecDeque<Call>),
}

impl World {
    pub fn spawn_worker(&mut self, role: Role) {
        if !self.working {
            return;
        }
        let number = ClientNumber(self.fresh() as u32);
        let random = Random::new(self.plan.seed, &format!("client {}", number.0));
        let setting = Setting { large: self.plan.large, deep: self.plan.deep, era: self.eras };
        let worker = Worker::new(number, role, random, setting);
        let sync = worker.sync();
        self.spawn(number, Program::Worker(Box::new(worker), role), sync, true);
    }

    pub fn spawn(&mut self, number: ClientNumber, program: Program, sync: bool, session: bool) {
        let random = &mut self.randoms.clients;
        let rate = match self.plan.wild_clocks {
            true => random.between(600, 1600),
            false => random.between(960, 1040),
        };
        let clock = Clock::new(random.below(86_400_000_000), 0, rate);
        let settings = ClientSettings {
            members: self.slots.iter().filter(|slot| slot.wanted).map(|slot| slot.address).collect(),
            token: random.wide(),
            sync,
            label: Label { address: format!("client-{}", number.0), pid: number.0, number: 0 },
            resend_micros: 300_000,
            patience_micros: 5_000_000,
            session,
        };
        let client = Client::new(settings, clock.local(self.now));
        self.trace.note(self.now, &[20, u64::from(number.0)], &[], || format!("c{} starts", number.0));
        self.clients.insert(
            number,
            SimClient {
                program,
                client,
                clock,
                timer: (None, 0),
                tickets: BTreeMap::new(),
                state: SessionState::Opening,
                connections: BTreeMap::new(),
                knocks: BTreeMap::new(),
                acting: true,
                held: BTreeMap::new(),
                closing: false,
                paused: None,
                doomed: false,
                spins: 0,
            },
        );
        self.client_step(number, ClientInput::Timeout);
        self.schedule.put(self.now, Event::Act { client: number });
    }

    /// The client is gone, without a word to anybody.
    pub fn kill_client(&mut self, number: ClientNumber) {
        self.doubt(number);
        let Some(client) = self.clients.remove(&number) else { return };
        self.trace.note(self.now, &[21, u64::from(number.0)], &[], || format!("c{} is gone", number.0));
        for ticket in client.tickets.keys() {
            self.history.finish(*ticket, Ending::Unknown, self.now);
        }
        for connection in client.connections.values() {
            self.client_hangs_up(*connection);
        }
    }

    pub fn client_step(&mut self, number: ClientNumber, input: ClientInput) {
        let Some(client) = self.clients.get_mut(&number) else { return };
        let mut effects = Vec::new();
        client.client.step(client.clock.local(self.now), input, &mut effects);
        for effect in effects {
            match effect {
                ClientEffect::Connect(address) => self.connect(number, address),
                ClientEffect::Disconnect(address) => self.disconnect(number, address),
                ClientEffect::Send(address, message) => self.send_node(number, address, &message),
                ClientEffect::Done(ticket, result) => self.done(number, ticket, result),
                ClientEffect::State(state) => self.client_state(number, state),
            }
        }
        let Some(client) = self.clients.get_mut(&number) else { return };
        let moment = client
            .client
            .deadline()
            .map(|deadline| client.clock.moment(deadline, self.now).max(self.now + 1));
        if moment != client.timer.0 {
            client.timer = (moment, client.timer.1 + 1);
            if let Some(moment) = moment {
                self.schedule.put(moment, Event::ClientWake { client: number, armed: client.timer.1 });
            }
        }
        self.replace_lost(number);
    }

    pub fn client_wake(&mut self, number: ClientNumber, armed: u64) {
        let Some(client) = self.clients.get_mut(&number) else { return };
        if client.timer.1 == armed {
            client.timer.0 = None;
            self.client_step(number, ClientInput::Timeout);
            self.count_client_spins(number);
        }
    }

    fn count_client_spins(&mut self, number: ClientNumber) {
        let Some(client) = self.clients.get_mut(&number) else { return };
        let now = client.clock.local(self.now);
        let passed = client.client.deadline().is_some_and(|deadline| deadline <= now);
        client.spins = if passed { client.spins + 1 } else { 0 };
        if client.spins > SPINS_MAX {
            self.fail(format!("c{} spins: its deadline has passed and stays", number.0));
        }
    }

    /// A program whose session is over starts anew.
    fn replace_lost(&mut self, number: ClientNumber) {
        let client = &self.clients[&number];
        if client.state != SessionState::Lost || !client.tickets.is_empty() {
            return;
        }
        if let Program::Worker(_, role) = client.program {
            self.schedule.put(self.now + 150_000, Event::SpawnClient { role });
        }
        self.kill_client(number);
    }

    /// Makes the next call, if it is time for one.
    pub fn act(&mut self, number: ClientNumber) {
        let Some(client) = self.clients.get_mut(&number) else { return };
        client.acting = false;
        if client.state == SessionState::Lost || client.closing {
            return;
        }
        let (call, patience) = match &mut client.program {
            Program::Worker(worker, _) if self.working && client.tickets.len() < worker.depth() => {
                let call = worker.next_call();
                let patience = worker.patience();
                (call, Some(patience))
            }
            Program::Worker(..) => return,
            Program::Errands(errands) => match errands.pop_front() {
                Some(call) if client.tickets.is_empty() => (call, None),
                Some(_) | None => return,
            },
        };
        let ticket = self.call(number, call);
        if let Some(patience) = patience {
            self.schedule.put(self.now + patience, Event::GiveUp { client: number, ticket });
        }
        self.act_soon(number);
    }

    /// The next call after a pause, unless as many as may be are under way.
    fn act_soon(&mut self, number: ClientNumber) {
        let Some(client) = self.clients.get_mut(&number) else { return };
        let pause = match &mut client.program {
            Program::Worker(worker, _) if client.tickets.len() < worker.depth() => worker.pause(),
            Program::Worker(..) => return,
            Program::Errands(_) if client.tickets.is_empty() => 1_000,
            Program::Errands(_) => return,
        };
        if !client.acting {
            client.acting = true;
            self.schedule.put(self.now + pause, Event::Act { client: number });
        }
    }

    pub fn call(&mut self, number: ClientNumber, call: Call) -> u64 {
        let ticket = self.history.invoke(number, call.clone(), self.now);
        self.trace.note(self.now, &[22, u64::from(number.0), ticket], &[], || {
            format!("c{} calls #{ticket} {}", number.0, short(&call))
        });
        let client = self.clients.get_mut(&number).expect("a client that calls is there");
        client.tickets.insert(ticket, call.clone());
        if let Call::Command(Command::Unlock { name }) = &call {
            // It lets go by asking, not by being told.
            if let Some((_, _, Some(entry))) = client.held.remove(name) {
                self.history.holdings[entry].until = Some(self.now);
            }
        }
        let input = match call {
            Call::Command(command) => ClientInput::Command { ticket, command: self.packer.pack(&command) },
            Call::Read { query, .. } => ClientInput::Read { ticket, query: self.packer.pack(&query) },
            Call::Events => ClientInput::Events { ticket },
            Call::Change(change) => ClientInput::Change { ticket, change, at: None },
            Call::Recover(at) => ClientInput::Change { ticket, change: Change::Recover, at: Some(at) },
            Call::Kill(session) => ClientInput::Kill { ticket, session },
            Call::Transfer => ClientInput::Transfer { ticket },
            Call::Snapshot => ClientInput::Snapshot { ticket },
            Call::Close => ClientInput::Close { ticket },
        };
        self.client_step(number, input);
        ticket
    }

    /// The client waited long enough.
    pub fn give_up(&mut self, number: ClientNumber, ticket: u64) {
        let Some(client) = self.clients.get(&number) else { return };
        if let Some(Call::Command(Command::Lock { .. } | Command::Wait { .. } | Command::Receive { .. })) =
            client.tickets.get(&ticket)
        {
            self.trace.note(self.now, &[23, ticket], &[], || format!("c{} gives up #{ticket}", number.0));
            self.client_step(number, ClientInput::Cancel { ticket });
        }
    }

    fn done(&mut self, number: ClientNumber, ticket: u64, result: Result<Answer, CallError>) {
        let client = self.clients.get_mut(&number).expect("it has just made a step");
        let Some(call) = client.tickets.remove(&ticket) else {
            return self
                .fail(format!("#{ticket} of c{} is answered, and was not asked: {result:?}", number.0));
        };
        let ending = match ending(result) {
            Ok(ending) => ending,
            Err(wrong) => return self.fail(format!("the answer to #{ticket} is wrong: {wrong}")),
        };
        self.trace.note(self.now, &[24, ticket], &[], || {
            let ending = format!("{ending:?}");
            format!("c{} #{ticket} ends {}", number.0, ending.get(..200).unwrap_or(&ending))
        });
        match &mut client.program {
            Program::Worker(worker, _) => worker.ended(&call, &ending),
            Program::Errands(errands) => {
                // A queue is drained by waiting until it is empty.
                if let (Call::Command(Command::Wait { .. }), Ending::Reply(Reply::Message { .. })) =
                    (&call, &ending)
                {
                    errands.push_front(call.clone());
                }
            }
        }
        if let (
            Call::Command(Command::Lock { name, exclusive, .. }),
            Ending::Reply(Reply::Granted { number: grant }),
        ) = (&call, &ending)
        {
            client.held.insert(name.clone(), (*grant, *exclusive, None));
        }
        self.history.finish(ticket, ending, self.now);
        self.believe(number);
        self.act_soon(number);
    }

    fn client_state(&mut self, number: ClientNumber, state: SessionState) {
        self.trace.note(self.now, &[25, u64::from(number.0)], &[], || format!("c{} is {state:?}", number.0));
        let client = self.clients.get_mut(&number).expect("it has just made a step");
        client.state = state;
        if let Some(session) = client.client.session() {
            self.truth.opened(session, number);
        }
        match state {
            SessionState::Safe => self.believe(number),
            SessionState::Opening | SessionState::Jeopardy => self.doubt(number),
            SessionState::Lost => {
                self.doubt(number);
                self.clients.get_mut(&number).expect("it is still there").held.clear();
            }
        }
    }

    /// While it is sure of its session, it is sure of its locks.
    fn believe(&mut self, number: ClientNumber) {
        let client = self.clients.get_mut(&number).expect("it has just made a step");
        if client.state != SessionState::Safe || client.doomed {
            return;
        }
        for (lock, (grant, exclusive, entry)) in &mut client.held {
            if entry.is_none() {
                *entry = Some(self.history.holdings.len());
                self.history.holdings.push(Holding {
                    client: number,
                    lock: lock.clone(),
                    exclusive: *exclusive,
                    number: *grant,
                    from: self.now,
                    until: None,
                });
            }
        }
    }

    pub fn doubt(&mut self, number: ClientNumber) {
        let Some(client) = self.clients.get_mut(&number) else { return };
        // A client that stood still looks at its clock before it acts on what it believed.
        let sure = client.client.safe_until().map(|until| client.clock.moment(until, 0));
        for (_, _, entry) in client.held.values_mut() {
            if let Some(entry) = entry.take() {
                let holding = &mut self.history.holdings[entry];
                let until =
                    sure.filter(|_| client.paused.is_some()).map_or(self.now, |sure| sure.min(self.now));
                holding.until = Some(until.max(holding.from));
            }
        }
    }

    /// Goes on after a pause, with everything that has come in meanwhile.
    pub fn resume_client(&mut self, number: ClientNumber) {
        self.doubt(number);
        let Some(client) = self.clients.get_mut(&number) else { return };
        let Some(waiting) = client.paused.take() else { return };
        let count = waiting.len();
        self.trace.note(self.now, &[29, u64::from(number.0)], &[], || {
            format!("c{} goes on with {count} waiting", number.0)
        });
        for event in waiting {
            self.dispatch(event);
        }
    }
}

pub fn client_host(number: ClientNumber) -> Host {
    Host(CLIENT_HOST_FIRST + number.0)
}

fn ending(result: Result<Answer, CallError>) -> Result<Ending, String> {
    Ok(match result {
        Ok(Answer::Body(body)) => Ending::Reply(Reply::from_bytes(body).map_err(|wrong| wrong.to_string())?),
        Ok(Answer::Events { omitted, first, events }) => {
            let read: Result<Vec<PfsEvent>, _> = events.into_iter().map(PfsEvent::from_bytes).collect();
            Ending::Events { omitted, first, events: read.map_err(|wrong| wrong.to_string())? }
        }
        Ok(Answer::Done) => Ending::Done,
        Ok(Answer::Status { .. } | Answer::Sessions(_)) => return Err("nobody asked for a status".to_owned()),
        Err(CallError::Cancelled) => Ending::Cancelled,
        Err(CallError::Ended(_) | CallError::NoSession) => Ending::Over,
        Err(CallError::Refused(why)) => Ending::Refused(why),
        Err(CallError::Busy) => Ending::Refused("busy".to_owned()),
        Err(CallError::Lost | CallError::Unreachable | CallError::NoMaster) => Ending::Unknown,
    })
}

fn short(call: &Call) -> String {
    let text = format!("{call:?}");
    text.get(..200).unwrap_or(&text).to_owned()
}

pub fn clip(message: &impl std::fmt::Debug) -> String {
    let text = format!("{message:?}");
    text.get(..240).unwrap_or(&text).to_owned()
}
