//! [`Caller`]: the handle's side of the driver: starts calls, and gives up those nobody waits for any more.

use crate::admission::weight;
use crate::error::Error;
use crate::events::Backlog;
use bytes::{Bytes, BytesMut};
use kumo_pfs::{Command, Reply};
use kumo_session::{Answer, CallError, ClientInput, EndReason, SessionId, SessionState};
use kumo_wire::Wire;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use tokio::sync::{mpsc, oneshot, watch};

/// Speaks to the driver. When the last one goes, the driver closes the session and ends.
pub(crate) struct Caller {
    pub(crate) orders: mpsc::UnboundedSender<Order>,
    pub(crate) state: watch::Receiver<SessionState>,
    pub(crate) shared: Arc<Shared>,
}

/// What both sides of the driver's channel know.
pub(crate) struct Shared {
    tickets: AtomicU64,
    /// Locks held or awaited by this session. A session holds a lock once, so a second guard of the same name
    /// would be undone by the first one's end: it is refused instead.
    pub(crate) locks: Mutex<BTreeSet<String>>,
    /// What a dropped stream of events has left; `None` while there is one.
    pub(crate) events: Mutex<Option<Backlog>>,
    /// Until when the session surely lives, on this side's clock: known even while the driver does not run.
    pub(crate) safe_until: AtomicU64,
    pub(crate) session: OnceLock<SessionId>,
}

/// What a handle has to say to the driver.
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all orders are calls: a box would cost each an allocation"
)]
pub(crate) enum Order {
    Start(Call),
    /// Give that call up.
    Cancel(u64),
}

/// An input for the session's core, and who waits for its answer.
pub(crate) struct Call {
    pub(crate) input: ClientInput,
    pub(crate) waiter: Waiter,
}

pub(crate) struct Waiter {
    pub(crate) ticket: u64,
    /// Its other end may be gone: nobody need wait.
    pub(crate) reply: oneshot::Sender<Result<Answer, Error>>,
    /// The lock this call asks for: to be freed if it is granted to nobody.
    pub(crate) lock: Option<String>,
    /// It may wait in the cell for long.
    pub(crate) parks: bool,
    pub(crate) bytes: usize,
}

impl Call {
    pub(crate) fn new(
        ticket: u64,
        input: ClientInput,
        lock: Option<String>,
        parks: bool,
    ) -> (Call, oneshot::Receiver<Result<Answer, Error>>) {
        let (reply, receiver) = oneshot::channel();
        let waiter = Waiter { ticket, reply, lock, parks, bytes: weight(&input) };
        (Call { input, waiter }, receiver)
    }

    pub(crate) fn parks(&self) -> bool {
        self.waiter.parks
    }
}

impl Default for Shared {
    fn default() -> Shared {
        Shared {
            tickets: AtomicU64::new(0),
            locks: Mutex::default(),
            events: Mutex::new(Some(Backlog::default())),
            safe_until: AtomicU64::new(0),
            session: OnceLock::new(),
        }
    }
}

impl Shared {
    pub(crate) fn ticket(&self) -> u64 {
        self.tickets.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn backlog(&self) -> MutexGuard<'_, Option<Backlog>> {
        self.events.lock().expect("no holder of this mutex panics")
    }

    /// Nobody of this session holds or awaits the lock any more.
    pub(crate) fn forget_lock(&self, name: &str) {
        self.locks.lock().expect("no holder of this mutex panics").remove(name);
    }

    pub(crate) fn claim_lock(&self, name: &str) -> bool {
        self.locks.lock().expect("no holder of this mutex panics").insert(name.to_owned())
    }
}

impl Caller {
    /// Starts a call. It is under way even if the result is never awaited.
    pub(crate) fn start(&self, input: impl FnOnce(u64) -> ClientInput) -> Pending<'_> {
        self.begin(None, false, input)
    }

    /// A command that, if it `parks`, may be parked: given up when the result is not wanted any more.
    pub(crate) fn start_parked(&self, command: &Command, parks: bool) -> Pending<'_> {
        let command = encode(command);
        self.begin(None, parks, |ticket| ClientInput::Command { ticket, command })
    }

    /// As [`start_parked`](Caller::start_parked), for a lock that this session has claimed.
    pub(crate) fn start_lock(&self, name: &str, command: &Command, parks: bool) -> Pending<'_> {
        let command = encode(command);
        self.begin(Some(name.to_owned()), parks, |ticket| ClientInput::Command { ticket, command })
    }

    fn begin(
        &self,
        lock: Option<String>,
        parks: bool,
        input: impl FnOnce(u64) -> ClientInput,
    ) -> Pending<'_> {
        let ticket = self.shared.ticket();
        let (call, receiver) = Call::new(ticket, input(ticket), lock.clone(), parks);
        // A driver that is gone drops the waiter, and so answers.
        let _ = self.orders.send(Order::Start(call));
        Pending { caller: self, ticket, receiver, answered: false, parks, lock }
    }

    pub(crate) async fn call(&self, input: impl FnOnce(u64) -> ClientInput) -> Result<Answer, Error> {
        self.start(input).finish().await
    }

    /// A command whose answer nobody waits for.
    pub(crate) fn tell(&self, command: &Command) {
        let command = encode(command);
        drop(self.start(|ticket| ClientInput::Command { ticket, command }));
    }

    fn cancel(&self, ticket: u64) {
        let _ = self.orders.send(Order::Cancel(ticket));
    }
}

/// A call under way.
pub(crate) struct Pending<'a> {
    caller: &'a Caller,
    ticket: u64,
    receiver: oneshot::Receiver<Result<Answer, Error>>,
    answered: bool,
    /// It may be parked for long: cancel it when dropped.
    parks: bool,
    lock: Option<String>,
}

impl Pending<'_> {
    pub(crate) async fn finish(mut self) -> Result<Answer, Error> {
        self.wait().await
    }

    /// Waits for the answer, asking the cell to give up after `patience`. Whichever comes first is the answer:
    /// nothing is granted or taken unnoticed.
    pub(crate) async fn finish_within(
        mut self,
        patience: Option<std::time::Duration>,
    ) -> Result<Answer, Error> {
        let Some(patience) = patience else { return self.wait().await };
        match tokio::time::timeout(patience, self.wait()).await {
            Ok(answer) => answer,
            Err(_) => {
                self.caller.cancel(self.ticket);
                self.wait().await
            }
        }
    }

    async fn wait(&mut self) -> Result<Answer, Error> {
        let answer = (&mut self.receiver).await;
        self.answered = true;
        answer.unwrap_or(Err(Error::Ended(EndReason::Closed)))
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        self.receiver.close();
        match self.receiver.try_recv() {
            // Answered between the last poll and now: the driver believes it was received.
            Ok(answer) => {
                if let Some(name) = &self.lock {
                    abandoned(&self.caller.shared, name, &answer, |unlock| self.caller.tell(unlock));
                }
            }
            Err(_) if self.parks => self.caller.cancel(self.ticket),
            Err(_) => {}
        }
    }
}

/// A request for a lock was answered, and nobody is there to take it: free it if it was granted.
pub(crate) fn abandoned(
    shared: &Shared,
    name: &str,
    answer: &Result<Answer, Error>,
    unlock: impl FnOnce(&Command),
) {
    if let Ok(answer) = answer
        && let Ok(Reply::Granted { .. }) = body(answer.clone())
    {
        unlock(&Command::Unlock { name: name.to_owned() });
    }
    shared.forget_lock(name);
}

/// The reply in an answer that must hold one; PFS's refusals are errors.
pub(crate) fn body(answer: Answer) -> Result<Reply, Error> {
    let Answer::Body(bytes) = answer else {
        return Err(Error::Protocol(format!("a reply was due, not {answer:?}")));
    };
    match Reply::from_bytes(bytes).map_err(Error::malformed)? {
        Reply::Refused(refusal) => Err(Error::Refused(refusal)),
        reply => Ok(reply),
    }
}

pub(crate) fn encode(value: &impl Wire) -> Bytes {
    let mut bytes = BytesMut::with_capacity(COMMAND_BYTES_USUAL);
    value.append(&mut bytes);
    bytes.freeze()
}

/// The answer says something the question does not allow.
pub(crate) fn unexpected(reply: impl std::fmt::Debug) -> Error {
    Error::Protocol(format!("unexpected reply {reply:?}"))
}

/// What went wrong with a connection.
pub(crate) enum Fault {
    Broken(SocketAddr, String),
    /// There is a replica, of another cell.
    Foreign(SocketAddr),
}

/// What the error of a call is, once the driver knows more than the core.
pub(crate) fn explain(error: CallError, fault: Option<&Fault>) -> Error {
    match (Error::from(error), fault) {
        // The cell was not reached, because it is not there any more.
        (Error::Unreachable(_) | Error::NoMaster | Error::Lost, Some(Fault::Foreign(address))) => {
            Error::ForeignCell(*address)
        }
        (Error::Unreachable(_), Some(Fault::Broken(address, reason))) => {
            Error::Unreachable(Some(format!("{address}: {reason}")))
        }
        (error, _) => error,
    }
}

/// Room for a small command in one piece.
const COMMAND_BYTES_USUAL: usize = 192;
