//! [`NodeMetrics`]: what a replica of a cell measures, and the manager beside it.

use super::{Counter, Gauge, Latency, Metrics, Text};
use bytes::Bytes;
use kumo_cluster::{Cluster, MemberState, Progress, Table};
use kumo_paxos::Time;
use kumo_pfs::{Query, Reply};
use kumo_session::{Application, Ask, Cell, CellMessage, ClientMessage, SessionId};
use kumo_wire::Wire;
use std::fmt;

/// Of a `kumo-cell`, or of a manager.
#[derive(Debug)]
pub struct NodeMetrics {
    manager: bool,
    pub requests: [Counter; OPERATIONS.len()],
    pub latencies: [Latency; OPERATIONS.len()],
    decided: Gauge,
    executed: Gauge,
    round: Gauge,
    generation: Gauge,
    voters: Gauge,
    members: Gauge,
    belongs: Gauge,
    serves: Gauge,
    has_master: Gauge,
    is_master: Gauge,
    has_lease: Gauge,
    pub sessions: Gauge,
    pub bytes: Gauge,
    pub files: Gauge,
    pub directories: Gauge,
    pub messages: Gauge,
    cluster: ClusterGauges,
}

/// The store as this manager has it from the log and from the servers' signs of life.
#[derive(Debug, Default)]
struct ClusterGauges {
    space: Gauge,
    active: Gauge,
    fault: Gauge,
    returned: Gauge,
    /// In 2^-32 parts of the ring.
    dark: Gauge,
    connected: Gauge,
    gateways: Gauge,
    replacing: Gauge,
    paused: Gauge,
    copies: Gauge,
    copies_done: Gauge,
    bytes_sent: Gauge,
    bytes_left: Gauge,
}

impl NodeMetrics {
    pub fn new(manager: bool) -> NodeMetrics {
        NodeMetrics {
            manager,
            requests: std::array::from_fn(|_| Counter::default()),
            latencies: std::array::from_fn(|_| Latency::default()),
            decided: Gauge::default(),
            executed: Gauge::default(),
            round: Gauge::default(),
            generation: Gauge::default(),
            voters: Gauge::default(),
            members: Gauge::default(),
            belongs: Gauge::default(),
            serves: Gauge::default(),
            has_master: Gauge::default(),
            is_master: Gauge::default(),
            has_lease: Gauge::default(),
            sessions: Gauge::default(),
            bytes: Gauge::default(),
            files: Gauge::default(),
            directories: Gauge::default(),
            messages: Gauge::default(),
            cluster: ClusterGauges::default(),
        }
    }

    /// How the replica stands.
    pub fn publish<A: Application>(&self, now: Time, cell: &Cell<A>) {
        let replica = cell.replica();
        let agreement = replica.agreement();
        self.decided.set(agreement.log().decided_upto().0);
        self.executed.set(cell.executed_upto().0);
        self.round.set(agreement.acceptor().promised().sequence);
        self.generation.set(u64::from(replica.generation()));
        let (voters, members) = replica
            .configuration()
            .map_or((0, 0), |configuration| (configuration.voters().count(), configuration.members.len()));
        self.voters.set(voters as u64);
        self.members.set(members as u64);
        self.belongs.set(u64::from(replica.configuration().is_some()));
        self.serves.set(u64::from(replica.serves_reads()));
        self.has_master.set(u64::from(replica.master().is_some()));
        self.is_master.set(u64::from(cell.is_master()));
        self.has_lease.set(u64::from(cell.has_lease(now)));
        self.sessions.set(cell.sessions_count() as u64);
        let usage = cell.application().read(SessionId::HOUSE, Query::Usage.to_bytes());
        if let Ok(Reply::Usage(usage)) = Reply::from_bytes(usage) {
            self.bytes.set(usage.bytes);
            self.files.set(usage.files);
            self.directories.set(usage.directories);
            self.messages.set(usage.messages);
        }
    }

    /// How the store stands.
    pub fn publish_cluster(&self, cluster: &Cluster, connected: usize, progress: Progress) {
        let (space, gauges) = (cluster.space(), &self.cluster);
        let (mut active, mut fault, mut returned) = (0, 0, 0);
        for &index in &space.rhs {
            match space.member(index).state {
                MemberState::Active => active += 1,
                MemberState::Fault { .. } => fault += 1,
                MemberState::Returned { .. } => returned += 1,
            }
        }
        // A large ring takes a while to lay out, and changes seldom.
        if gauges.space.get() != space.number.0 {
            gauges.dark.set(Table::new(space).dark_parts());
        }
        gauges.space.set(space.number.0);
        gauges.active.set(active);
        gauges.fault.set(fault);
        gauges.returned.set(returned);
        gauges.connected.set(connected as u64);
        gauges.gateways.set(cluster.gateways().len() as u64);
        gauges.replacing.set(u64::from(space.job.is_some() || !space.settled()));
        gauges.paused.set(u64::from(space.job.is_some_and(|job| job.paused)));
        gauges.copies.set(progress.copies);
        gauges.copies_done.set(progress.copies_done);
        gauges.bytes_sent.set(progress.bytes_sent);
        gauges.bytes_left.set(progress.bytes_left);
    }

    fn tell_cluster(&self, text: &mut Text) -> fmt::Result {
        let gauges = &self.cluster;
        text.gauge("kumo_cluster_space_number", "Number of the hash space.", gauges.space.get())?;
        text.gauges(
            "kumo_cluster_servers",
            "Servers of the ring that is read, by state; returned: lost, and back for what only it has. One that is attached \
             again is active when its copies are there.",
            "state",
            &[
                ("active", gauges.active.get()),
                ("fault", gauges.fault.get()),
                ("returned", gauges.returned.get()),
            ],
        )?;
        text.gauge_f64(
            "kumo_cluster_unreachable_ratio",
            "Part of the ring whose servers are all lost: its keys cannot be reached.",
            gauges.dark.get() as f64 / (1u64 << 32) as f64,
        )?;
        text.gauge(
            "kumo_cluster_connected_servers",
            "Servers connected to this manager, attached or not.",
            gauges.connected.get(),
        )?;
        text.gauge("kumo_cluster_gateways", "Registered gateways.", gauges.gateways.get())?;
        text.gauge("kumo_cluster_replace_active", "1: a replace is under way.", gauges.replacing.get())?;
        text.gauge("kumo_cluster_replace_paused", "1: it is paused.", gauges.paused.get())?;
        text.gauge("kumo_cluster_replace_copies", "Ranges that it has to copy.", gauges.copies.get())?;
        text.gauge("kumo_cluster_replace_copies_done", "Of them, copied.", gauges.copies_done.get())?;
        text.gauge("kumo_cluster_replace_sent_bytes", "What was sent for it.", gauges.bytes_sent.get())?;
        text.gauge(
            "kumo_cluster_replace_left_bytes",
            "What is left to send, estimated.",
            gauges.bytes_left.get(),
        )
    }
}

impl Metrics for NodeMetrics {
    fn kind(&self) -> &'static str {
        if self.manager { "manager" } else { "cell" }
    }

    fn hindrance(&self) -> Option<&'static str> {
        if self.belongs.get() == 0 {
            return Some("no cell yet: this replica has not found enough of its peers");
        }
        if self.has_master.get() == 0 {
            return Some("the cell has no master");
        }
        (self.serves.get() == 0).then_some("this replica is still catching up")
    }

    fn tell(&self, text: &mut Text) -> fmt::Result {
        text.gauge("kumo_cell_decided_instance", "Decided up to here.", self.decided.get())?;
        text.gauge("kumo_cell_executed_instance", "Executed up to here.", self.executed.get())?;
        text.gauge("kumo_cell_round_sequence", "Sequence of the round promised.", self.round.get())?;
        text.gauge("kumo_cell_generation", "Generation of the cell.", self.generation.get())?;
        text.gauge("kumo_cell_voters", "Voters of the newest configuration.", self.voters.get())?;
        text.gauge("kumo_cell_members", "Members of the newest configuration.", self.members.get())?;
        text.gauge("kumo_cell_has_master", "1: a master is known here.", self.has_master.get())?;
        text.gauge("kumo_cell_is_master", "1: it is this replica.", self.is_master.get())?;
        text.gauge("kumo_cell_has_lease", "1: it may answer linear reads alone.", self.has_lease.get())?;
        text.gauge("kumo_cell_sessions", "Open sessions.", self.sessions.get())?;
        text.gauge("kumo_pfs_stored_bytes", "Content of files and messages.", self.bytes.get())?;
        text.gauge("kumo_pfs_files", "Files.", self.files.get())?;
        text.gauge("kumo_pfs_directories", "Directories.", self.directories.get())?;
        text.gauge("kumo_pfs_messages", "Messages in queues.", self.messages.get())?;
        text.counters(
            "kumo_cell_requests_total",
            "Requests of clients that reached this replica.",
            "operation",
            &OPERATIONS,
            &self.requests,
        )?;
        text.latencies(
            "kumo_cell_request_seconds",
            "From a request's arrival here to its answer; waiting for a lock or a message included.",
            "operation",
            &OPERATIONS,
            &self.latencies,
        )?;
        if self.manager { self.tell_cluster(text) } else { Ok(()) }
    }
}

/// What a client's message asks for: whose it is, its number there, and which of [`OPERATIONS`]. None: it is not
/// answered, or by nobody's waiting.
pub fn request(message: &ClientMessage) -> Option<((u64, u64), usize)> {
    match message {
        ClientMessage::Request { session, number, ask, .. } => {
            let operation = match ask {
                Ask::Command(command) => numbered(command, COMMANDS),
                Ask::Cancel { .. } => CANCEL,
                Ask::Close => CLOSE,
                Ask::Kill { .. } => KILL,
            };
            Some(((session.0, *number), operation))
        }
        ClientMessage::Read { session, tag, query, .. } => {
            Some((read_key(*session, *tag), QUERY + numbered(query, QUERIES)))
        }
        ClientMessage::Open { .. }
        | ClientMessage::Attach { .. }
        | ClientMessage::Renew { .. }
        | ClientMessage::Events { .. }
        | ClientMessage::Who
        | ClientMessage::Status { .. }
        | ClientMessage::Sessions { .. }
        | ClientMessage::Change { .. }
        | ClientMessage::Transfer { .. }
        | ClientMessage::Snapshot { .. } => None,
    }
}

/// Which request a message to a client answers.
pub fn answer(message: &CellMessage) -> Option<(u64, u64)> {
    match message {
        CellMessage::Reply { session, number, .. } => Some((session.0, *number)),
        CellMessage::Answer { session, tag, .. } => Some(read_key(*session, *tag)),
        CellMessage::Opened { .. }
        | CellMessage::Attached { .. }
        | CellMessage::Renewed { .. }
        | CellMessage::Events { .. }
        | CellMessage::Master { .. }
        | CellMessage::Ended { .. }
        | CellMessage::Status { .. }
        | CellMessage::Sessions { .. }
        | CellMessage::Done { .. }
        | CellMessage::Refused { .. } => None,
    }
}

/// Reads are numbered apart from requests.
fn read_key(session: SessionId, tag: u64) -> (u64, u64) {
    (!session.0, tag)
}

/// PFS' own number of a command or a query is its first byte; 0: unknown.
fn numbered(body: &Bytes, count: usize) -> usize {
    body.first().map(|&number| usize::from(number)).filter(|&number| number <= count).unwrap_or(0)
}

/// By number: PFS' commands, the session's own requests, PFS' queries.
const OPERATIONS: [&str; QUERY + QUERIES + 1] = [
    "unknown_command",
    "write",
    "truncate",
    "delete",
    "rename",
    "mkdir",
    "rmdir",
    "lock",
    "unlock",
    "watch",
    "unwatch",
    "post",
    "wait",
    "receive",
    "acknowledge",
    "delete_message",
    "cancel",
    "close",
    "kill",
    "unknown_query",
    "read",
    "stat",
    "readdir",
    "peek",
    "queues",
    "locks",
    "usage",
];
const COMMANDS: usize = 15;
const CANCEL: usize = COMMANDS + 1;
const CLOSE: usize = COMMANDS + 2;
const KILL: usize = COMMANDS + 3;
const QUERY: usize = COMMANDS + 4;
const QUERIES: usize = 7;

#[cfg(test)]
mod tests {
    use super::*;
    use kumo_pfs::Command;

    fn operation(ask: Ask) -> &'static str {
        let message = ClientMessage::Request {
            session: SessionId(1),
            number: 1,
            acknowledged: 0,
            unanswered: Vec::new(),
            events_seen: 0,
            ask,
        };
        OPERATIONS[request(&message).expect("a request").1]
    }

    fn read(query: Bytes) -> &'static str {
        let message = ClientMessage::Read {
            session: SessionId(1),
            tag: 1,
            after: kumo_paxos::Instance(0),
            linear: false,
            query,
        };
        OPERATIONS[request(&message).expect("a request").1]
    }

    #[test]
    fn operations_are_named_by_the_numbers_of_the_protocol() {
        let name = "a".to_owned();
        let commands = [
            (Command::Mkdir { path: name.clone() }, "mkdir"),
            (Command::Lock { name: name.clone(), exclusive: true, try_only: false }, "lock"),
            (Command::Post { queue: name.clone(), data: Bytes::new() }, "post"),
            (Command::DeleteMessage { queue: name.clone(), id: 1 }, "delete_message"),
        ];
        for (command, wanted) in commands {
            assert_eq!(operation(Ask::Command(command.to_bytes())), wanted);
        }
        assert_eq!(operation(Ask::Close), "close");
        assert_eq!(read(Query::ReadDir { path: name, index: 0, count: 1 }.to_bytes()), "readdir");
        assert_eq!(read(Query::Usage.to_bytes()), "usage");
    }

    #[test]
    fn nonsense_is_counted_as_unknown() {
        for bytes in [&b""[..], b"\0", b"\xff", b"\x10"] {
            assert_eq!(operation(Ask::Command(Bytes::from_static(bytes))), "unknown_command");
        }
        for bytes in [&b""[..], b"\x08"] {
            assert_eq!(read(Bytes::from_static(bytes)), "unknown_query");
        }
    }
}
