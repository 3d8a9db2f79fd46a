//! [`Limits`]: how much a cell keeps. Constants, not options: replicas that differed here would refuse
//! differently, and part.

use crate::protocol::Refusal;

/// The quotas of a cell.
#[derive(Debug)]
pub(crate) struct Limits {
    /// Of all files and all messages together. A gap in a file counts as what it may become.
    pub bytes: u64,
    /// Files and directories together.
    pub nodes: u64,
    /// Messages in one queue, hidden ones included.
    pub queue_messages: u64,
    /// Messages in all queues.
    pub messages: u64,
    /// Locks held and waited for, counted once for each session and request.
    pub claims: u64,
    /// Requests that wait for messages.
    pub waits: u64,
    /// Requests of one session that wait for anything.
    pub session_parked: u64,
    /// Resources one session watches.
    pub session_watches: u64,
    /// Resources watched, counted once for each session.
    pub watches: u64,
}

/// What every cell has. All of it is in memory: a node of a file takes about 200 bytes beside its content,
/// the other things less.
pub(crate) const LIMITS: Limits = Limits {
    bytes: 4 << 30,
    nodes: 1_000_000,
    queue_messages: 100_000,
    messages: 1_000_000,
    claims: 1_000_000,
    waits: 1_000_000,
    session_parked: 1_000,
    session_watches: 1_000,
    watches: 1_000_000,
};

/// Refuses, naming the thing, when `wanted` is more than `limit`.
pub(crate) fn within(wanted: u64, limit: u64, what: &str) -> Result<(), Refusal> {
    if wanted > limit { Err(Refusal::Limit(what.to_owned(), limit)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pfs::Pfs;
    use crate::protocol::{Command, Condition, Place, Reply, Resource};
    use bytes::Bytes;
    use kumo_paxos::Instance;
    use kumo_session::{Application, Entry, Outcome, SessionId, UnixMillis};
    use kumo_wire::Wire;

    static SMALL: Limits = Limits {
        bytes: 10,
        nodes: 3,
        queue_messages: 2,
        messages: 3,
        claims: 3,
        waits: 3,
        session_parked: 2,
        session_watches: 2,
        watches: 3,
    };

    struct Host {
        pfs: Pfs,
        requests: u64,
    }

    impl Host {
        fn new() -> Host {
            Host { pfs: Pfs::with_limits(&SMALL), requests: 0 }
        }

        fn apply(&mut self, session: u64, command: &Command) -> Option<Reply> {
            self.requests += 1;
            let entry = Entry {
                instance: Instance(self.requests),
                generation: 1,
                time: UnixMillis(0),
                session: SessionId(session),
                number: self.requests,
            };
            let mut outcome = Outcome::default();
            self.pfs.apply(entry, command.to_bytes(), &mut outcome);
            outcome.reply.map(|reply| Reply::from_bytes(reply).unwrap())
        }

        /// Refused for that limit, with nothing changed.
        fn refused(&mut self, session: u64, command: &Command, what: &str, limit: u64) {
            let before = self.pfs.clone();
            let refusal = Refusal::Limit(what.to_owned(), limit);
            assert_eq!(self.apply(session, command), Some(Reply::Refused(refusal)));
            assert!(self.pfs == before);
        }

        fn done(&mut self, session: u64, command: &Command) {
            let reply = self.apply(session, command);
            assert!(!matches!(reply, None | Some(Reply::Refused(_))), "{reply:?}");
        }

        fn parked(&mut self, session: u64, command: &Command) {
            assert_eq!(self.apply(session, command), None);
        }
    }

    fn write(path: &str, length: usize) -> Command {
        Command::Write {
            path: path.to_owned(),
            place: Place::Replace,
            data: Bytes::from(vec![1; length]),
            ephemeral: false,
            condition: Condition::Always,
        }
    }

    fn post(queue: &str, length: usize) -> Command {
        Command::Post { queue: queue.to_owned(), data: Bytes::from(vec![1; length]) }
    }

    #[test]
    fn bytes_of_files_and_messages_are_limited_together() {
        let what = "bytes in files and queues";
        let mut host = Host::new();
        host.done(1, &write("/a", 6));
        host.done(1, &post("q", 4));
        host.refused(1, &post("q", 1), what, 10);
        host.refused(1, &write("/a", 7), what, 10);
        host.refused(1, &write("/b", 1), what, 10);
        host.refused(1, &Command::Truncate { path: "/a".into(), length: 7 }, what, 10);
        host.done(1, &write("/a", 5));
        host.done(1, &Command::Wait { queue: "q".into(), try_only: true });
        host.done(1, &Command::Truncate { path: "/a".into(), length: 10 });
        host.done(1, &Command::Delete { path: "/a".into(), condition: Condition::Always });
        host.done(1, &write("/b", 10));
    }

    #[test]
    fn files_and_directories_are_limited_together() {
        let mut host = Host::new();
        host.refused(1, &write("/a/b/c/d", 0), "files and directories", 3);
        host.refused(1, &Command::Mkdir { path: "/a/b/c/d".into() }, "files and directories", 3);
        host.done(1, &write("/a/b/c", 0));
        host.refused(1, &write("/d", 0), "files and directories", 3);
        host.done(1, &write("/a/b/c", 1));
        host.done(1, &Command::Rename { from: "/a/b/c".into(), to: "/c".into() });
        host.done(1, &Command::Rmdir { path: "/a/b".into() });
        host.done(1, &write("/d", 0));
    }

    #[test]
    fn messages_are_limited_in_each_queue_and_in_all() {
        let mut host = Host::new();
        host.done(1, &post("q", 0));
        host.done(1, &post("q", 0));
        host.refused(1, &post("q", 0), "messages in the queue", 2);
        host.done(1, &Command::Receive { queue: "q".into(), try_only: true });
        host.refused(1, &post("q", 0), "messages in the queue", 2);
        host.done(1, &post("r", 0));
        host.refused(1, &post("s", 0), "messages in all queues", 3);
    }

    #[test]
    fn locks_and_waits_are_limited() {
        let lock = |name: &str| Command::Lock { name: name.to_owned(), exclusive: true, try_only: false };
        let wait = |queue: &str| Command::Wait { queue: queue.to_owned(), try_only: false };
        let mut host = Host::new();
        host.done(1, &lock("a"));
        host.parked(2, &lock("a"));
        host.done(1, &lock("b"));
        host.done(1, &lock("b"));
        host.refused(1, &lock("c"), "locks held and waited for", 3);
        host.refused(3, &lock("a"), "locks held and waited for", 3);
        host.done(1, &Command::Unlock { name: "b".into() });
        host.parked(3, &lock("a"));
        host.parked(2, &wait("q"));
        host.refused(2, &wait("q"), "waiting requests of the session", 2);
        host.parked(3, &wait("q"));
        host.parked(1, &wait("r"));
        host.refused(1, &wait("r"), "requests that wait for messages", 3);
    }

    #[test]
    fn watches_are_limited_for_a_session_and_for_all() {
        let watch = |name: &str| Command::Watch { resource: Resource::Lock(name.to_owned()) };
        let mut host = Host::new();
        host.done(1, &watch("a"));
        host.done(1, &watch("b"));
        host.done(1, &watch("b"));
        host.refused(1, &watch("c"), "resources watched by the session", 2);
        host.done(2, &watch("a"));
        host.refused(2, &watch("b"), "resources watched", 3);
        host.done(1, &Command::Unwatch { resource: Resource::Lock("a".into()) });
        host.done(2, &watch("b"));
    }
}
