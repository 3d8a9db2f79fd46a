//! [`Events`]: what happened to the resources a session watches, in order.

use crate::caller::{Call, Order, unexpected};
use crate::error::Error;
use crate::session::Session;
use kumo_pfs::Event;
use kumo_session::{Answer, ClientInput, EndReason};
use kumo_wire::Wire;
use std::collections::VecDeque;
use tokio::sync::oneshot;

/// One event. Numbers are consecutive in a session, omitted ones included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    pub number: u64,
    /// How many events just before this one were dropped, because they were not fetched in time.
    pub omitted: u64,
    pub event: Event,
}

/// The events of a session, of which there is one reader at a time.
pub struct Events {
    session: Session,
    backlog: Backlog,
}

/// What was fetched or asked for and not handed out: it outlives a dropped stream, so that the next one goes on there.
#[derive(Default)]
pub(crate) struct Backlog {
    ready: VecDeque<Notice>,
    /// Of events that no event has followed yet.
    omitted: u64,
    /// The question under way. It outlives a dropped [`next`](Events::next), so that no event is lost with it.
    asked: Option<oneshot::Receiver<Result<Answer, Error>>>,
}

impl Session {
    /// The events on what this session [`watch`](Session::watch)es. While the stream lives, another one is
    /// [`Error::EventsInUse`].
    pub fn events(&self) -> Result<Events, Error> {
        let backlog = self.cell().caller.shared.backlog().take().ok_or(Error::EventsInUse)?;
        Ok(Events { session: self.clone(), backlog })
    }
}

impl Events {
    /// The next event. May be dropped and called again: nothing is skipped.
    pub async fn next(&mut self) -> Result<Notice, Error> {
        loop {
            if let Some(notice) = self.backlog.ready.pop_front() {
                return Ok(notice);
            }
            let answer = match &mut self.backlog.asked {
                Some(asked) => asked.await.unwrap_or(Err(Error::Ended(EndReason::Closed))),
                None => {
                    self.ask();
                    continue;
                }
            };
            self.backlog.asked = None;
            self.backlog.take(answer?)?;
        }
    }

    /// The next event if it is here already.
    pub(crate) fn ready(&mut self) -> Option<Notice> {
        self.backlog.ready.pop_front()
    }

    fn ask(&mut self) {
        let caller = &self.session.cell().caller;
        let ticket = caller.shared.ticket();
        // It has a place among the calls that do not park: waits must not keep events back.
        let (call, receiver) = Call::new(ticket, ClientInput::Events { ticket }, None, false);
        let _ = caller.orders.send(Order::Start(call));
        self.backlog.asked = Some(receiver);
    }
}

impl Backlog {
    fn take(&mut self, answer: Answer) -> Result<(), Error> {
        let Answer::Events { omitted, first, events } = answer else { return Err(unexpected(answer)) };
        self.omitted = self.omitted.saturating_add(omitted);
        for (index, bytes) in events.into_iter().enumerate() {
            let event = Event::from_bytes(bytes).map_err(Error::malformed)?;
            let number = first.saturating_add(index as u64);
            self.ready.push_back(Notice { number, omitted: std::mem::take(&mut self.omitted), event });
        }
        Ok(())
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        let backlog = std::mem::take(&mut self.backlog);
        *self.session.cell().caller.shared.backlog() = Some(backlog);
    }
}
