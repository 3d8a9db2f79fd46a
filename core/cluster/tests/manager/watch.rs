//! [`Watch`]: sees every entry as it is decided, and knows the truth about servers, leases and reports.

use crate::server::Server;
use bytes::Bytes;
use kumo_cluster::control::ControlAnswer;
use kumo_cluster::{
    Alive, Broken, Cluster, Command, MemberState, Message, ServerId, Space, SpaceNumber, Table,
};
use kumo_paxos::Instance;
use kumo_session::{Application, Entry, SessionId, UnixMillis};
use kumo_wire::Wire;
use std::collections::{BTreeMap, BTreeSet};

pub struct Watch {
    /// What the log says, executed at once.
    pub cluster: Cluster,
    spaces: BTreeMap<SpaceNumber, Space>,
    tables: BTreeMap<SpaceNumber, Table>,
    /// Who reported in which space, and about which job that all is copied.
    adopted: BTreeSet<(ServerId, SpaceNumber)>,
    copied: BTreeSet<(ServerId, SpaceNumber, SpaceNumber)>,
    pub answers: Vec<ControlAnswer>,
    pub wrongs: Vec<String>,
    // How much happened.
    pub leaders: u64,
    pub crashes: u64,
    pub terms: u64,
    pub faults: u64,
    pub returns: u64,
    pub switches: u64,
    pub clearings: u64,
    pub expiries: u64,
    pub void: u64,
}

impl Watch {
    pub fn new(broken: Broken) -> Watch {
        Watch {
            cluster: Cluster::with_broken(broken),
            spaces: BTreeMap::new(),
            tables: BTreeMap::new(),
            adopted: BTreeSet::new(),
            copied: BTreeSet::new(),
            answers: Vec::new(),
            wrongs: Vec::new(),
            leaders: 0,
            crashes: 0,
            terms: 0,
            faults: 0,
            returns: 0,
            switches: 0,
            clearings: 0,
            expiries: 0,
            void: 0,
        }
    }

    pub fn entry(instance: u64) -> Entry {
        Entry {
            instance: Instance(instance),
            generation: 0,
            time: UnixMillis(1_700_000_000_000 + instance),
            session: SessionId(0),
            number: 0,
        }
    }

    pub fn append(&mut self, now: u64, command: Bytes, instance: u64, servers: &[Server]) {
        let before = self.cluster.space().clone();
        self.cluster.apply(Watch::entry(instance), command.clone(), &mut Default::default());
        let after = self.cluster.space().clone();
        if before == after {
            self.void += 1;
            return;
        }
        if after.number <= before.number {
            self.wrongs.push(format!("{} follows {}", after.number, before.number));
        }
        self.tables.insert(after.number, Table::new(&after));
        self.spaces.insert(after.number, after.clone());
        let command = Command::from_bytes(command).expect("it had an effect");
        self.check_faults(now, &before, &after, servers);
        self.check_job(&command, &before, &after);
        self.check_old(&command, &before, &after);
        match command {
            Command::Switch { .. } => self.check_switch(&before),
            Command::Cleared { .. } => self.check_cleared(&before),
            Command::Return { .. } => self.returns += 1,
            Command::ExpireGateways { .. } => self.expiries += 1,
            Command::Lead(_) => self.terms += 1,
            Command::Fault { .. }
            | Command::Register { .. }
            | Command::Order { .. }
            | Command::Recruit { .. }
            | Command::Dismiss { .. }
            | Command::Remembered { .. }
            | Command::Forgotten { .. }
            | Command::Witnessed { .. } => {}
        }
    }

    /// What a server says, at the moment of saying it.
    pub fn reported(&mut self, alive: &Alive) {
        self.adopted.insert((alive.server, alive.space));
        if alive.progress.copies == alive.progress.copies_done {
            self.copied.insert((alive.server, alive.space, alive.progress.job));
        }
    }

    /// Nobody ever hears of a space that the log does not have.
    pub fn sent(&mut self, message: &Message) {
        if let Message::NewSpace { space } = message
            && self.spaces.get(&space.number) != Some(space)
        {
            self.wrongs.push(format!("another space with the number {}", space.number));
        }
    }

    pub fn answered(&mut self, answer: ControlAnswer) {
        self.answers.push(answer);
    }

    pub fn tables(&self) -> &BTreeMap<SpaceNumber, Table> {
        &self.tables
    }

    fn check_faults(&mut self, now: u64, before: &Space, after: &Space, servers: &[Server]) {
        for member in before.members.iter().filter(|member| acts(member.state)) {
            let id = member.id();
            let lost = after.index_of(id).is_some_and(|index| !acts(after.member(index).state));
            if !lost {
                continue;
            }
            self.faults += 1;
            if servers.iter().any(|server| server.id() == id && server.has_lease(now)) {
                self.wrongs.push(format!("{id:?} is fault within its lease"));
            }
        }
    }

    fn check_job(&mut self, command: &Command, before: &Space, after: &Space) {
        let another = before.job.is_some() && after.job.is_some() && before.whs_since != after.whs_since;
        if another && !matches!(command, Command::Return { .. }) {
            self.wrongs.push(format!("a job begins in {} while another runs", after.number));
        }
        if after.job.is_some() && !after.old.is_empty() {
            self.wrongs.push(format!("a job runs in {} with old members", after.number));
        }
    }

    /// Who has not confirmed yet is named by every later space, until it has or is fault.
    fn check_old(&mut self, command: &Command, before: &Space, after: &Space) {
        let left = |id: &ServerId| {
            let still = after.index_of(*id).is_some_and(|index| after.old.contains(&index));
            let lost = after.index_of(*id).is_none_or(|index| !acts(after.member(index).state));
            !still && !lost
        };
        let cleared = matches!(command, Command::Cleared { .. });
        let forgotten = before.old.iter().map(|&index| before.server(index)).find(left);
        if let Some(id) = forgotten.filter(|_| !cleared) {
            self.wrongs.push(format!("{} forgets {id:?}, an old member", after.number));
        }
    }

    fn check_switch(&mut self, before: &Space) {
        self.switches += 1;
        let arcs = self.tables[&before.number].arcs();
        let primaries: BTreeSet<u16> = arcs.iter().filter_map(|arc| arc.primary()).collect();
        for server in primaries.into_iter().map(|index| before.server(index)) {
            if !self.copied.contains(&(server, before.number, before.whs_since)) {
                self.wrongs.push(format!("a switch after {} without {server:?}'s copies", before.number));
            }
        }
    }

    fn check_cleared(&mut self, before: &Space) {
        self.clearings += 1;
        for server in before.old.iter().map(|&index| before.server(index)) {
            if !self.adopted.contains(&(server, before.number)) {
                self.wrongs.push(format!("{server:?} did not confirm {}", before.number));
            }
        }
    }
}

fn acts(state: MemberState) -> bool {
    !matches!(state, MemberState::Fault { .. })
}
