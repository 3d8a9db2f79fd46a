//! [`Relay`]: a manager that does not lead asks the one that does, for a tool that may not reach it.

use crate::tool;
use kumo_cluster::control::{ControlAnswer, ControlRequest, ToolAnswer};
use kumo_paxos::{Hello, Time};
use kumo_session::ConnectionId;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::AbortHandle;

/// Questions that are asked elsewhere. What comes back is looked for at every turn, and at [`deadline`](Relay::deadline).
pub struct Relay {
    /// Ours: says to the other manager that the question was passed on once, and is not to be again.
    address: SocketAddr,
    /// What each tool has asked and is not answered. None: more than one thing at once, so that a word of who leads
    /// does not tell which of them it is about.
    asked: BTreeMap<ConnectionId, Option<ControlRequest>>,
    under_way: BTreeMap<ConnectionId, AbortHandle>,
    sender: UnboundedSender<(ConnectionId, Relayed)>,
    receiver: UnboundedReceiver<(ConnectionId, Relayed)>,
    looked: Time,
}

/// What came of a question. None: it may have been heard, and there is no answer.
pub type Relayed = Option<ToolAnswer>;

impl Relay {
    pub fn new(address: SocketAddr) -> Relay {
        let (sender, receiver) = unbounded_channel();
        Relay {
            address,
            asked: BTreeMap::new(),
            under_way: BTreeMap::new(),
            sender,
            receiver,
            looked: Time(0),
        }
    }

    /// A tool asks something. What a manager passes on is only answered.
    pub fn asks(&mut self, id: ConnectionId, hello: &Hello, request: &ControlRequest) {
        if !tool::is_passed_on(hello) {
            let first = !self.asked.contains_key(&id);
            self.asked.insert(id, first.then(|| request.clone()));
        }
    }

    /// The tool does not wait any more: nor does the other manager, which sees our connection end.
    pub fn left(&mut self, id: ConnectionId) {
        self.asked.remove(&id);
        if let Some(task) = self.under_way.remove(&id) {
            task.abort();
        }
    }

    /// The manager's own answer to it. Returned if it is for the tool; a name of who leads need not be.
    pub fn answered(&mut self, id: ConnectionId, answer: ControlAnswer) -> Option<ControlAnswer> {
        let request = self.asked.remove(&id).flatten();
        let (Some(request), ControlAnswer::Master(Some(master))) = (request, &answer) else {
            return Some(answer);
        };
        if self.under_way.len() >= UNDER_WAY_MAX || self.under_way.contains_key(&id) {
            return Some(answer);
        }
        let (sender, master, address) = (self.sender.clone(), *master, self.address);
        let task = tokio::spawn(async move {
            let relayed = tool::pass_on(address, master, &request).await;
            // The receiver is gone when the process ends.
            let _ = sender.send((id, relayed));
        });
        self.under_way.insert(id, task.abort_handle());
        None
    }

    /// What has come back.
    pub fn take(&mut self, now: Time) -> Vec<(ConnectionId, Relayed)> {
        self.looked = now;
        let mut back = Vec::new();
        while let Ok(one) = self.receiver.try_recv() {
            // Who left meanwhile gets nothing.
            if self.under_way.remove(&one.0).is_some() {
                back.push(one);
            }
        }
        back
    }

    pub fn is_idle(&self) -> bool {
        self.under_way.is_empty()
    }

    pub fn deadline(&self) -> Option<Time> {
        (!self.is_idle()).then(|| self.looked.plus_micros(LOOK_MICROS))
    }
}

/// Further tools are told who leads, and may ask there.
const UNDER_WAY_MAX: usize = 64;

/// People do not notice it.
const LOOK_MICROS: u64 = 5_000;
