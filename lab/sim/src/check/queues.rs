//! Queues: what was posted comes out once, in order, and nothing else does.

use super::Verdict;
use crate::history::{ClientNumber, History, Operation};
use crate::workload::{Token, tokens_of};
use kumo_pfs::{Command, Reply};
use std::collections::{BTreeMap, BTreeSet};

/// Checks every queue. The run has drained them at its end, by waits that are part of the history.
pub fn check(history: &History) -> Verdict {
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
    for (name, queue) in &queues {
        queue.check().map_err(|wrong| format!("queue {name}: {wrong}"))?;
    }
    Ok(())
}

#[derive(Default)]
struct Queue<'a> {
    posts: BTreeMap<Token, &'a Operation>,
    deliveries: Vec<Delivery<'a>>,
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

    fn check(&self) -> Verdict {
        self.once()?;
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

    /// Every acknowledged post was taken, acknowledged or deleted, as far as we can know.
    fn none_lost(&self) -> Verdict {
        let ids: BTreeMap<Token, u64> = self.deliveries.iter().map(|d| (d.token, d.id)).collect();
        let taken: BTreeSet<Token> = self.deliveries.iter().filter(|d| d.taken).map(|d| d.token).collect();
        let removed: BTreeSet<u64> = self.removals.iter().map(|(id, _)| *id).collect();
        let missing: Vec<&Token> = self
            .posts
            .iter()
            .filter(|(token, post)| post.reply() == Some(&Reply::Done) && !taken.contains(token))
            .filter(|(token, _)| ids.get(token).is_none_or(|id| !removed.contains(id)))
            .map(|(token, _)| token)
            .collect();
        // A wait whose answer never came may have taken one.
        match missing.len() > self.lost_waits {
            true => Err(format!("lost, with {} waits of unknown outcome: {missing:?}", self.lost_waits)),
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
        for one in &self.deliveries {
            for other in &self.deliveries {
                let (first, second) = (self.posts[&one.token], self.posts[&other.token]);
                let posted_before = first.settled().is_some_and(|settled| settled < second.invoked);
                if posted_before && one.id > other.id {
                    return Err(format!("{one:?} was posted before {other:?} and has the greater id"));
                }
                if !self.receives && one.id < other.id && other.finished < one.invoked {
                    return Err(format!("{other:?} was taken before {one:?}"));
                }
            }
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

        fn verdict(&self) -> Verdict {
            check(&self.0)
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
