//! [`Carrier`]: the task that carries a gateway's core between the callers of a [`Store`](super::Store) and the
//! servers.

use super::result::StoreError;
use bytes::Bytes;
use kumo_cluster::{Answer, GatewayInput, GatewaySettings, Operation, key_hash};
use kumo_link::hub::{Alarm, Hub};
use kumo_link::{GatewayLink, Told, clock};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// A call that is to be made.
#[derive(Debug)]
pub(super) struct Order {
    pub key: Bytes,
    pub operation: Operation,
    pub waiter: oneshot::Sender<Outcome>,
}

pub(super) type Outcome = Result<Answer, StoreError>;

/// One turn takes all calls and all answers that are there, steps the core through them, and writes what came of it
/// with one call per connection.
pub(super) struct Carrier {
    link: GatewayLink,
    orders: mpsc::Receiver<Order>,
    batch: Vec<Order>,
    /// By ticket.
    waiters: Vec<Option<oneshot::Sender<Outcome>>>,
    free: Vec<u64>,
    told: Vec<Told>,
    alarm: Alarm,
    /// The managers refused: so is every call from now on.
    refused: Option<String>,
}

impl Carrier {
    /// Starts on the current runtime. Ends when no caller is left and every call is answered.
    pub(super) fn start(
        settings: GatewaySettings,
        managers: &[SocketAddr],
        orders: mpsc::Receiver<Order>,
        noise: u64,
    ) {
        let mut carrier = Carrier {
            link: GatewayLink::new(settings, managers, Hub::new(DIAL_FOR), noise, clock::now()),
            orders,
            batch: Vec::new(),
            waiters: Vec::new(),
            free: Vec::new(),
            told: Vec::new(),
            alarm: Alarm::default(),
            refused: None,
        };
        // The loop bounds its own turns, as a gateway's does.
        tokio::spawn(tokio::task::unconstrained(poll_fn(move |context| carrier.turn(context))));
    }

    fn turn(&mut self, context: &mut Context) -> Poll<()> {
        self.link.poll(clock::now(), context, &mut Vec::new());
        let left = self.take_orders(context);
        let now = clock::now();
        self.link.step(now, &mut self.told);
        self.tell();
        let more = self.link.flush();
        if !left && self.free.len() == self.waiters.len() {
            return Poll::Ready(());
        }
        if more {
            context.waker().wake_by_ref();
        } else if let Some(wanted) = self.link.deadline() {
            self.alarm.set(now, wanted, context);
        }
        Poll::Pending
    }

    /// False: nobody is left who could call.
    fn take_orders(&mut self, context: &mut Context) -> bool {
        match self.orders.poll_recv_many(context, &mut self.batch, ORDERS_TAKEN_MAX) {
            Poll::Pending => return true,
            Poll::Ready(0) => return false,
            // What is left over is looked at in the next turn.
            Poll::Ready(_) => context.waker().wake_by_ref(),
        }
        let mut batch = std::mem::take(&mut self.batch);
        for order in batch.drain(..) {
            if let Some(reason) = &self.refused {
                // A caller that went away is told nothing.
                let _ = order.waiter.send(Err(StoreError::Refused(reason.clone())));
                continue;
            }
            let ticket = self.ticket(order.waiter);
            let hash = key_hash(&order.key);
            let call = GatewayInput::Call { ticket, hash, key: order.key, operation: order.operation };
            self.link.parts().1.push(call);
        }
        self.batch = batch;
        true
    }

    fn ticket(&mut self, waiter: oneshot::Sender<Outcome>) -> u64 {
        let ticket = self.free.pop().unwrap_or_else(|| {
            self.waiters.push(None);
            self.waiters.len() as u64 - 1
        });
        self.waiters[ticket as usize] = Some(waiter);
        ticket
    }

    fn tell(&mut self) {
        let mut told = std::mem::take(&mut self.told);
        for one in told.drain(..) {
            match one {
                Told::Done { ticket, result } => self.answer(ticket, result.map_err(StoreError::Store)),
                Told::Note(_) => {}
                Told::Refused(reason) => {
                    for ticket in 0..self.waiters.len() as u64 {
                        self.answer(ticket, Err(StoreError::Refused(reason.clone())));
                    }
                    self.refused = Some(reason);
                }
            }
        }
        self.told = told;
    }

    fn answer(&mut self, ticket: u64, outcome: Outcome) {
        let waiter = self.waiters.get_mut(ticket as usize).and_then(Option::take);
        if let Some(waiter) = waiter {
            self.free.push(ticket);
            // A caller that went away is told nothing.
            let _ = waiter.send(outcome);
        }
    }
}

/// Calls taken up in one turn.
const ORDERS_TAKEN_MAX: usize = 256;

/// How long a dial may take before the next is tried.
const DIAL_FOR: Duration = Duration::from_secs(2);
