//! Queues: what was posted comes out once, in order, and nothing else does.

use super::Verdict;
use crate::history::{ClientNumber, History, Operation};
use crate::workload::{Token, tokens_of};
use kumo_pfs::{Command, Query, Refusal, Reply};
use std::collections::{BTreeMap, BTreeSet};

/// Checks every queue. The run has drained them at its end, by waits that are part of the history.
/// `leases`: linear peeks are to be trusted.
pub fn check(history: &History, leases: bool) -> Verdict {
    let mut queues: BTreeMap<&str, Queue> = BTreeMap::new();
    for (operation, command) in history.commands() {
        let name = match command {
            Command::Post { queue, .. }
            | Command::Wait { queue, .. }
            | Command::Receive { queue, .. }
            | Command::Acknowledge { queue, .. }
            | Command::DeleteMessage { queue, .. } => queue,
            _ => continue,
        };
        queues.entry(name).or_default().add(operation, command)?;
    }
    for (operation, query, linear) in history.queries() {
        if let Query::Peek { queue } = query {
            queues.entry(queue).or_default().peek(operation, linear && leases)?;
        }
    }
    for (name, queue) in &queues {
        queue.check().map_err(|wrong| format!("queue {name}: {wrong}"))?;
    }
    Ok(())
}

#[derive(Default)]
struct Queue<'a> {
    posts: BTreeMap<Token, &'a Operation>,
    deliveries: Vec<Delivery<'a>>,
    peeks: Vec<Peek<'a>>,
    /// Message ids that were acknowledged or deleted, surely or perhaps, and by whom.
    removals: Vec<(u64, &'a Operation)>,
    /// Waits that may have taken a message without anybody being told.
    lost_waits: usize,
    receives: bool,
}

#[derive(Clone, Copy, Debug)]
struct Delivery<'a> {
    client: ClientNumber,
    id: u64,
    token: Token,
    invoked: u64,
    finished: u64,
    /// Taken for good; otherwise hidden until acknowledged.
    taken: bool,
    operation: &'a Operation,
}

/// A head that was shown, or none.
#[derive(Clone, Copy, Debug)]
struct Peek<'a> {
    shown: Option<(u64, Token)>,
    linear: bool,
    finished: u64,
    operation: &'a Operation,
}

impl<'a> Queue<'a> {
    fn add(&mut self, operation: &'a Operation, command: &'a Command) -> Verdict {
        match command {
            Command::Post { data, .. } => {
                let token = *tokens_of(data)?.first().ok_or("a post without a token")?;
                self.posts.insert(token, operation);
            }
            Command::Wait { .. } => {
                self.delivery(operation, true)?;
                self.lost_waits += usize::from(operation.unclear());
            }
            Command::Receive { .. } => {
                self.delivery(operation, false)?;
                self.receives = true;
            }
            Command::Acknowledge { id, .. } | Command::DeleteMessage { id, .. }
                if operation.unclear() || operation.reply() == Some(&Reply::Done) =>
            {
                self.removals.push((*id, operation));
            }
            _ => {}
        }
        Ok(())
    }

    fn delivery(&mut self, operation: &'a Operation, taken: bool) -> Verdict {
        let (Some(Reply::Message { id, data }), Some((finished, _))) =
            (operation.reply(), &operation.finished)
        else {
            return Ok(());
        };
        let token = *tokens_of(data)?.first().ok_or("a message without a token")?;
        let (client, invoked, finished) = (operation.client, operation.invoked, *finished);
        self.deliveries.push(Delivery { client, id: *id, token, invoked, finished, taken, operation });
        Ok(())
    }

    fn peek(&mut self, operation: &'a Operation, linear: bool) -> Verdict {
        let shown = match operation.reply() {
            Some(Reply::Message { id, data }) => {
                Some((*id, *tokens_of(data)?.first().ok_or("a message without a token")?))
            }
            Some(Reply::Refused(Refusal::Empty(_))) => None,
            Some(reply) => return Err(format!("unexpected reply to a peek: {reply:?}")),
            None => return Ok(()),
        };
        let finished = operation.settled().expect("it was answered");
        self.peeks.push(Peek { shown, linear, finished, operation });
        Ok(())
    }

    fn check(&self) -> Verdict {
        self.once()?;
        self.removed_once()?;
        self.shown_is_there()?;
        self.head_is_shown()?;
        self.none_lost()?;
        self.acknowledged_is_gone()?;
        self.in_order()
    }

    /// Ids and messages belong together, messages were posted, and none was taken twice.
    fn once(&self) -> Verdict {
        let mut ids: BTreeMap<u64, Token> = BTreeMap::new();
        let mut tokens: BTreeMap<Token, u64> = BTreeMap::new();
        let mut taken: BTreeSet<u64> = BTreeSet::new();
        for delivery in &self.deliveries {
            let Some(post) = self.posts.get(&delivery.token) else {
                return Err(format!("nobody posted {delivery:?}"));
            };
            if !post.unclear() && post.reply().is_none_or(|reply| matches!(reply, Reply::Refused(_))) {
                return Err(format!("the post of {delivery:?} was refused"));
            }
            if *ids.entry(delivery.id).or_insert(delivery.token) != delivery.token
                || *tokens.entry(delivery.token).or_insert(delivery.id) != delivery.id
            {
                return Err(format!("{delivery:?} has the id of another message, or another id than before"));
            }
            if delivery.taken && !taken.insert(delivery.id) {
                return Err(format!("{delivery:?} was taken twice"));
            }
        }
        Ok(())
    }

    /// What one call removed for good, no other did.
    fn removed_once(&self) -> Verdict {
        let taken = self.deliveries.iter().filter(|d| d.taken).map(|d| (d.id, d.operation));
        let removed = self.removals.iter().filter(|(_, removal)| !removal.unclear()).copied();
        let mut gone: BTreeMap<u64, &Operation> = BTreeMap::new();
        for (id, operation) in taken.chain(removed) {
            if let Some(other) = gone.insert(id, operation) {
                return Err(format!("message {id} was removed by {other:?} and by {operation:?}"));
            }
        }
        Ok(())
    }

    /// A peek shows what somebody posted, and nothing that was gone before it was asked: gone by anybody's doing
    /// if the session is linear, by its own in any.
    fn shown_is_there(&self) -> Verdict {
        let mut ids: BTreeMap<Token, u64> = self.deliveries.iter().map(|d| (d.token, d.id)).collect();
        for peek in &self.peeks {
            let Some((id, token)) = peek.shown else { continue };
            if !self.posts.contains_key(&token) {
                return Err(format!("nobody posted what {peek:?} shows"));
            }
            if *ids.entry(token).or_insert(id) != id {
                return Err(format!("{peek:?} shows a message under another id"));
            }
            let taken = self.deliveries.iter().filter(|d| d.taken).map(|d| (d.id, d.operation));
            let removed = self.removals.iter().filter(|(_, removal)| !removal.unclear()).copied();
            let gone = taken.chain(removed).find(|(of, operation)| {
                *of == id
                    && (peek.linear || operation.client == peek.operation.client)
                    && operation.settled().is_some_and(|settled| settled < peek.operation.invoked)
            });
            if let Some((_, operation)) = gone {
                return Err(format!("{peek:?} shows what was gone by {operation:?}"));
            }
        }
        Ok(())
    }

    /// A linear peek shows nothing that stands behind a message which was surely there all the time.
    fn head_is_shown(&self) -> Verdict {
        for peek in self.peeks.iter().filter(|peek| peek.linear && !self.receives) {
            let there = self.deliveries.iter().filter(|d| {
                let posted = self.posts[&d.token].settled();
                d.invoked > peek.finished && posted.is_some_and(|posted| posted < peek.operation.invoked)
            });
            let Some(first) = there.min_by_key(|d| d.id) else { continue };
            if peek.shown.is_none_or(|(id, _)| id > first.id) {
                return Err(format!("{peek:?} misses {first:?}, which was there"));
            }
        }
        Ok(())
    }

    /// Every acknowledged post was taken, acknowledged or deleted, as far as we can know.
    fn none_lost(&self) -> Verdict {
        let shown = self.peeks.iter().filter_map(|peek| peek.shown).map(|(id, token)| (token, id));
        let delivered = self.deliveries.iter().map(|d| (d.token, d.id));
        let ids: BTreeMap<Token, u64> = delivered.chain(shown).collect();
        let taken: BTreeSet<Token> = self.deliveries.iter().filter(|d| d.taken).map(|d| d.token).collect();
        let removed: BTreeSet<u64> = self.removals.iter().map(|(id, _)| *id).collect();
        let missing: Vec<&Token> = self
            .posts
            .iter()
            .filter(|(token, post)| post.reply() == Some(&Reply::Done) && !taken.contains(token))
            .filter(|(token, _)| ids.get(token).is_none_or(|id| !removed.contains(id)))
            .map(|(token, _)| token)
            .collect();
        // A wait whose answer never came may have taken one; and where a cell went on from a survivor, what was
        // acknowledged may be known by its id alone.
        let known: BTreeSet<u64> = ids.values().copied().collect();
        let unnamed = removed.difference(&known).count();
        match missing.len() > self.lost_waits + unnamed {
            true => Err(format!(
                "lost, with {} waits of unknown outcome and {unnamed} removals of unknown messages: {missing:?}",
                self.lost_waits
            )),
            false => Ok(()),
        }
    }

    /// From its receive on, what a session acknowledged was nobody else's.
    fn acknowledged_is_gone(&self) -> Verdict {
        for (id, removal) in &self.removals {
            if removal.unclear() {
                continue;
            }
            let Some(own) = self.deliveries.iter().find(|d| d.id == *id && d.client == removal.client) else {
                continue;
            };
            let other = self.deliveries.iter().find(|d| {
                d.id == *id && !std::ptr::eq(d.operation, own.operation) && d.invoked > own.finished
            });
            if let Some(other) = other {
                return Err(format!("{own:?} was acknowledged, and yet there is {other:?}"));
            }
        }
        Ok(())
    }

    /// First in, first out. Only for queues without receives, which may hide a head for a while.
    fn in_order(&self) -> Verdict {
        let mut deliveries: Vec<&Delivery> = self.deliveries.iter().collect();
        deliveries.sort_by_key(|delivery| delivery.id);
        let Some(mut posted) = deliveries.first().copied() else { return Ok(()) };
        let mut waited = posted;
        for next in deliveries {
            // Of all with smaller ids: the one posted last, and the one asked for last.
            let post = self.posts[&next.token];
            let latest = self.posts[&posted.token].invoked;
            if posted.id < next.id && post.settled().is_some_and(|settled| settled < latest) {
                return Err(format!("{next:?} was posted before {posted:?} and has the greater id"));
            }
            if !self.receives && waited.id < next.id && next.finished < waited.invoked {
                return Err(format!("{next:?} was taken before {waited:?}"));
            }
            posted = if post.invoked > latest { next } else { posted };
            waited = if next.invoked > waited.invoked { next } else { waited };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Call, Ending};

    struct Script(History, u64);

    impl Script {
        fn new() -> Script {
            Script(History::default(), 0)
        }

        fn call(&mut self, client: u32, command: Command, ending: Ending) {
            let number = self.0.invoke(ClientNumber(client), Call::Command(command), self.1);
            self.0.finish(number, ending, self.1 + 1);
            self.1 += 2;
        }

        fn post(&mut self, number: u64) -> &mut Script {
            let data = Token { client: ClientNumber(1), number }.bytes();
            self.call(1, Command::Post { queue: "q".to_owned(), data }, Ending::Reply(Reply::Done));
            self
        }

        fn message(number: u64) -> Ending {
            let data = Token { client: ClientNumber(1), number }.bytes();
            Ending::Reply(Reply::Message { id: number, data })
        }

        fn wait(&mut self, client: u32, number: u64) -> &mut Script {
            let wait = Command::Wait { queue: "q".to_owned(), try_only: false };
            self.call(client, wait, Script::message(number));
            self
        }

        fn receive(&mut self, client: u32, number: u64) -> &mut Script {
            let receive = Command::Receive { queue: "q".to_owned(), try_only: false };
            self.call(client, receive, Script::message(number));
            self
        }

        fn acknowledge(&mut self, client: u32, id: u64) -> &mut Script {
            let acknowledge = Command::Acknowledge { queue: "q".to_owned(), id };
            self.call(client, acknowledge, Ending::Reply(Reply::Done));
            self
        }

        fn peek(&mut self, client: u32, shown: Option<u64>) -> &mut Script {
            let query = Query::Peek { queue: "q".to_owned() };
            let call = self.0.invoke(ClientNumber(client), Call::Read { query, linear: client > 5 }, self.1);
            let empty = Ending::Reply(Reply::Refused(Refusal::Empty("q".to_owned())));
            self.0.finish(call, shown.map_or(empty, Script::message), self.1 + 1);
            self.1 += 2;
            self
        }

        fn delete(&mut self, client: u32, id: u64) -> &mut Script {
            let delete = Command::DeleteMessage { queue: "q".to_owned(), id };
            self.call(client, delete, Ending::Reply(Reply::Done));
            self
        }

        fn verdict(&self) -> Verdict {
            check(&self.0, true)
        }
    }

    #[test]
    fn what_was_posted_comes_out_once_and_in_order() {
        Script::new().post(1).post(2).wait(2, 1).wait(3, 2).verdict().unwrap();
        Script::new().post(1).post(2).wait(2, 2).wait(3, 1).verdict().unwrap_err();
        Script::new().post(1).wait(2, 1).wait(3, 1).verdict().unwrap_err();
        Script::new().post(1).wait(2, 1).wait(3, 7).verdict().unwrap_err();
        Script::new().post(1).post(2).wait(2, 1).verdict().unwrap_err();
    }

    #[test]
    fn a_peek_shows_the_head_and_nothing_gone() {
        // Clients from 6 on have linear sessions.
        Script::new()
            .post(1)
            .post(2)
            .peek(6, Some(1))
            .wait(2, 1)
            .peek(6, Some(2))
            .wait(2, 2)
            .verdict()
            .unwrap();
        Script::new().peek(6, None).post(1).wait(2, 1).verdict().unwrap();
        Script::new().post(1).wait(2, 1).peek(3, Some(1)).verdict().unwrap();
        Script::new().post(1).wait(2, 1).peek(2, Some(1)).verdict().unwrap_err();
        Script::new().post(1).wait(2, 1).peek(6, Some(1)).verdict().unwrap_err();
        Script::new().post(1).peek(6, None).wait(2, 1).verdict().unwrap_err();
        Script::new().post(1).post(2).peek(6, Some(2)).wait(2, 1).wait(2, 2).verdict().unwrap_err();
        Script::new().post(1).peek(3, Some(9)).wait(2, 1).verdict().unwrap_err();
    }

    #[test]
    fn what_was_deleted_is_gone_once() {
        Script::new().post(1).peek(3, Some(1)).delete(3, 1).verdict().unwrap();
        Script::new().post(1).peek(3, Some(1)).delete(3, 1).wait(2, 1).verdict().unwrap_err();
        Script::new().post(1).peek(3, Some(1)).delete(3, 1).delete(4, 1).verdict().unwrap_err();
        Script::new().post(1).peek(3, Some(1)).delete(3, 1).peek(3, Some(1)).verdict().unwrap_err();
    }

    #[test]
    fn a_wait_of_unknown_outcome_may_have_taken_one() {
        let mut script = Script::new();
        script.post(1).post(2).wait(2, 2);
        script.call(3, Command::Wait { queue: "q".to_owned(), try_only: false }, Ending::Unknown);
        script.verdict().unwrap();
        script.post(3);
        script.verdict().unwrap_err();
    }

    #[test]
    fn a_received_message_comes_again_only_when_it_was_not_acknowledged() {
        Script::new().post(1).receive(2, 1).receive(3, 1).acknowledge(3, 1).verdict().unwrap();
        Script::new().post(1).receive(2, 1).acknowledge(2, 1).receive(3, 1).verdict().unwrap_err();
        Script::new().post(1).receive(2, 1).receive(3, 1).acknowledge(2, 1).verdict().unwrap_err();
    }
}
