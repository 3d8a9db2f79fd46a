//! What goes wrong, and what operators ask for meanwhile.

use super::{Event, MANAGERS, SERVERS, World};
use kumo_cluster::Cluster;
use kumo_session::Application;

impl World {
    pub(super) fn mischief(&mut self) {
        if self.calm {
            return;
        }
        let server = self.random.below(SERVERS as u64) as usize;
        match self.random.below(12) {
            0..3 => self.crash(server),
            3 => (0..SERVERS).for_each(|server| self.crash(server)),
            4 => self.servers[server].paused_until = self.now + self.random.below(10_000_000),
            5..8 => self.cut(server),
            8 => self.restart_manager(),
            9 => {
                let gateway = self.random.below(4) as usize;
                self.gateways[gateway].silent = self.random.chance(60);
            }
            _ => self.part(server),
        }
        let delay = 500_000 + self.random.below(6_000_000);
        self.after(delay, Event::Mischief);
    }

    /// The process is gone. Its connections break, some of them without a word.
    pub(super) fn crash(&mut self, number: usize) {
        if !self.servers[number].running {
            return;
        }
        self.watch.crashes += 1;
        self.servers[number].running = false;
        if self.random.chance(5) {
            self.servers[number].disk = false;
        }
        for manager in 0..MANAGERS {
            if let Some(connection) = self.servers[number].links[manager].take() {
                self.links.remove(&connection);
                let delay = if self.random.chance(20) { 12_000_000 } else { 100 };
                self.after(delay, Event::ManagerDown(manager, connection));
            }
        }
        let longest = if self.random.chance(50) { 2_000_000 } else { 12_000_000 };
        let delay = 200_000 + self.random.below(longest);
        self.after(delay, Event::Start(number));
    }

    /// A connection breaks, or all of a server's.
    fn cut(&mut self, number: usize) {
        let all = self.random.chance(30);
        for manager in 0..MANAGERS {
            if (all || self.random.chance(40))
                && let Some(connection) = self.servers[number].links[manager]
            {
                let noticed = self.random.below(500_000);
                self.after(noticed, Event::ManagerDown(manager, connection));
                let noticed = self.random.below(3_000_000);
                self.after(noticed, Event::EndDown(connection));
            }
        }
    }

    /// A server and the leader lose sight of each other for so long that it is given up, and then the leader is
    /// deposed, perhaps before that was decided.
    fn part(&mut self, number: usize) {
        let Some(manager) = self.leader else { return };
        let Some(connection) = self.servers[number].links[manager] else { return };
        self.after(100, Event::ManagerDown(manager, connection));
        self.after(4_000_000, Event::EndDown(connection));
        let delay = 1_500_000 + self.random.below(1_500_000);
        self.after(delay, Event::Fade);
    }

    fn restart_manager(&mut self) {
        let manager = self.random.below(MANAGERS as u64) as usize;
        for connection in std::mem::take(&mut self.managers[manager].up) {
            self.after(500, Event::EndDown(connection));
        }
        let old = &self.managers[manager];
        // A mutant is not part of a snapshot.
        let cluster = match self.broken.0 {
            None => Cluster::restore(old.cluster.snapshot().collect()).unwrap(),
            Some(_) => old.cluster.clone(),
        };
        self.managers[manager] = self.node(cluster, old.executed);
        if self.leader == Some(manager) {
            self.view(manager);
        }
    }

    pub(super) fn operator(&mut self) {
        if self.calm {
            return;
        }
        let manager = self.random.below(MANAGERS as u64) as usize;
        let request = self.random.request();
        self.ask(manager, request);
        let delay = self.random.below(3_000_000);
        self.after(delay, Event::Operator);
    }
}
