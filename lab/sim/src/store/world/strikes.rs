//! Faults, as they strike. Each says whether it took effect: a fault that hit nothing is none.

use super::processes::ProcessId;
use super::{Event, Kind, World};
use crate::store::fault::Fault;
use crate::store::trouble::Trouble;
use kumo_cluster::Table;
use lot::Host;

impl World {
    pub fn strike(&mut self, fault: Fault) {
        if !self.chaos {
            return;
        }
        let effect = match fault {
            Fault::ServerCrash => self.crash(fault, Kind::Server),
            Fault::ManagerCrash => self.crash(fault, Kind::Manager),
            Fault::GatewayCrash => self.crash(fault, Kind::Gateway),
            Fault::DiskLost => self.lose_disk(),
            Fault::DiskFull => self.fill_disk(),
            Fault::DiskScarce => self.trouble_disk(fault, |random, _| Trouble::scarce(random)),
            Fault::DiskFails => self.trouble_disk(fault, |random, _| Trouble::failing(random)),
            Fault::DiskUnread => {
                self.trouble_disk(fault, |random, engine| Trouble::unreadable(random, engine.keys()))
            }
            Fault::ServerPause => self.hold(fault, Kind::Server),
            Fault::ManagerPause => self.hold(fault, Kind::Manager),
            Fault::GatewayPause => self.hold(fault, Kind::Gateway),
            Fault::Outage => self.outage(),
            Fault::Partition => self.partition(),
            Fault::OneWay => self.one_way(),
            Fault::CutPair => self.cut_pair(),
            Fault::BreakLink => self.break_link(),
            Fault::Slow => self.slow_host(),
            Fault::ClockRate => self.clock_rate(),
            Fault::WallJump => self.wall_jump(),
            Fault::Late => self.late_bytes(),
            Fault::Echo => self.echo(),
            Fault::PowerLost => self.lose_power(),
            Fault::Blackout => self.blackout(),
            Fault::Forgotten => self.forget(),
            Fault::CopiesLost => self.lose_copies(),
            Fault::Attach
            | Fault::Detach
            | Fault::Replace
            | Fault::FullReplace
            | Fault::Cancel
            | Fault::PauseJob
            | Fault::Rate
            | Fault::AutoReplace
            | Fault::Flush => unreachable!("an operator's wish does not strike"),
        };
        *self.struck.entry(fault).or_default() += u64::from(effect);
        let name = fault.name();
        self.trace.note(self.now, &[30, fault as u64, u64::from(effect)], &[], || {
            format!("fault {name}{}", if effect { "" } else { " (no effect)" })
        });
    }

    /// A number from that fault's own stream.
    pub fn draw(&mut self, fault: Fault, low: u64, high: u64) -> u64 {
        self.randoms.faults.get_mut(&fault).expect("every fault has a stream").between(low, high)
    }

    /// A running process of that kind; the master more often than another manager.
    pub(super) fn victim(&mut self, fault: Fault, kind: Kind) -> Option<ProcessId> {
        let nth = self.draw(fault, 0, 999) as usize;
        let master = self.draw(fault, 0, 1) == 0;
        let running: Vec<ProcessId> =
            self.slots[self.places(kind)].iter().filter_map(|slot| slot.listener).collect();
        let leads = |id: ProcessId| self.companion(id).into_iter().chain([id]).any(|one| self.is_master(one));
        let leading = running.iter().copied().find(|id| master && leads(*id));
        let victim = leading.or_else(|| running.get(nth % running.len().max(1)).copied())?;
        self.processes[&victim].paused.is_none().then_some(victim)
    }

    fn crash(&mut self, fault: Fault, kind: Kind) -> bool {
        let Some(victim) = self.victim(fault, kind) else { return false };
        let silent = self.draw(fault, 0, 4) == 0;
        let long = self.draw(fault, 0, 3) == 0;
        let delay = match long {
            true => self.draw(fault, 2_500_000, 9_000_000),
            false => self.draw(fault, 10_000, 2_500_000),
        };
        let slot = self.processes[&victim].slot;
        self.kill(victim, silent);
        self.schedule.put(self.now + delay, Event::Start { slot });
        true
    }

    /// Only where every arc keeps another running owner: what happens to that one next, chance decides.
    fn lose_disk(&mut self) -> bool {
        let Some(victim) = self.victim(Fault::DiskLost, Kind::Server) else { return false };
        let delay = self.draw(Fault::DiskLost, 10_000, 5_000_000);
        let silent = self.draw(Fault::DiskLost, 0, 3) == 0;
        let slot = self.processes[&victim].slot;
        if !self.may_lose(victim) || !self.cell_bears_loss(slot) || self.is_last_to_know(slot) {
            return false;
        }
        self.lose_disk_of(slot, silent);
        self.schedule.put(self.now + delay, Event::Start { slot });
        true
    }

    pub(super) fn lose_disk_of(&mut self, slot: usize, silent: bool) {
        self.lost_lives.extend(self.slots[slot].engine.lives());
        if let Some(victim) = self.slots[slot].listener {
            self.kill(victim, silent);
        }
        self.slots[slot].engine.lose();
        self.lose_seat(slot);
    }

    /// Only where every arc keeps another running owner: nobody promises what one server alone had not made safe.
    fn lose_power(&mut self) -> bool {
        let fault = Fault::PowerLost;
        let Some(victim) = self.victim(fault, Kind::Server) else { return false };
        let delay = self.draw(fault, 10_000, 5_000_000);
        let slot = self.processes[&victim].slot;
        if !self.may_lose(victim) {
            return false;
        }
        let life = self.server_life(slot);
        self.kill(victim, true);
        let lost = self.slots[slot].engine.lose_power();
        if let Some(life) = life.filter(|_| lost > 0) {
            let known = self.spaces.keys().map(|(_, number)| *number).max().unwrap_or_default();
            self.forgetful.insert(life.address, (life.incarnation, known));
        }
        self.trace.note(self.now, &[34, lost as u64], &[], || format!("{lost} changes are gone"));
        self.schedule.put(self.now + delay, Event::Start { slot });
        true
    }

    fn may_lose(&self, victim: ProcessId) -> bool {
        let Some(cluster) = self.newest_cluster() else { return false };
        let space = cluster.space();
        let slot = self.processes[&victim].slot;
        let others: Vec<u16> = self
            .places(Kind::Server)
            .filter(|other| *other != slot)
            .filter_map(|other| self.server_life(other))
            .filter_map(|life| space.index_of(life))
            .collect();
        // An earlier life of the victim may be the authority of an arc.
        let here = |index: &u16| space.member(*index).address == self.slots[slot].address;
        Table::new(space).arcs().iter().all(|arc| {
            let mine = arc.owners.iter().chain(&arc.comers).chain(&arc.old).any(here);
            !mine || arc.readers.iter().any(|reader| others.contains(reader))
        })
    }

    fn hold(&mut self, fault: Fault, kind: Kind) -> bool {
        let (long, short) = (self.draw(fault, 10_000_000, 60_000_000), self.draw(fault, 20_000, 9_000_000));
        let length = if self.draw(fault, 0, 14) == 0 { long } else { short };
        let Some(victim) = self.victim(fault, kind) else { return false };
        // The trouble lasts as long as the longest pause.
        self.plan.chaos_micros = self.plan.chaos_micros.max(self.now + length);
        self.pause(victim, length);
        true
    }

    /// All servers, or all there is.
    fn outage(&mut self) -> bool {
        let all = self.draw(Fault::Outage, 0, 1) == 0;
        let silent = self.draw(Fault::Outage, 0, 3) == 0;
        let slots = if all { self.nodes() } else { self.places(Kind::Server) };
        let running: Vec<(usize, ProcessId)> =
            slots.filter_map(|slot| Some((slot, self.slots[slot].listener?))).collect();
        for (slot, victim) in &running {
            self.kill(*victim, silent);
            let delay = self.draw(Fault::Outage, 20_000, 4_000_000);
            self.schedule.put(self.now + delay, Event::Start { slot: *slot });
        }
        !running.is_empty()
    }

    fn hosts(&self) -> Vec<Host> {
        self.nodes().map(|slot| Host(slot as u32)).collect()
    }

    fn partition(&mut self) -> bool {
        let (sides, length) =
            (self.draw(Fault::Partition, 1, 1 << 30), self.draw(Fault::Partition, 200_000, 6_000_000));
        let hosts = self.hosts();
        let sides = if self.plan.islands { self.island(sides) } else { sides };
        let side = |host: &Host| sides >> (host.0 % 30) & 1;
        let mut cuts = Vec::new();
        for one in &hosts {
            cuts.extend(hosts.iter().filter(|other| side(one) != side(other)).map(|other| (*one, *other)));
        }
        self.cut(cuts, length)
    }

    /// A gateway and one server; now and then another one, or a manager.
    fn island(&self, chance: u64) -> u64 {
        let among = |kind: Kind, draw: u64| {
            let places = self.places(kind);
            1 << (places.start + draw as usize % places.len())
        };
        let mut island = among(Kind::Gateway, chance) | among(Kind::Server, chance >> 4);
        if (chance >> 8).is_multiple_of(4) {
            island |= among(Kind::Server, chance >> 12);
        }
        if (chance >> 16).is_multiple_of(4) {
            island |= among(Kind::Manager, chance >> 20);
        }
        island
    }

    fn one_way(&mut self) -> bool {
        let hosts = self.hosts();
        let one = hosts[self.draw(Fault::OneWay, 0, 999) as usize % hosts.len()];
        let length = self.draw(Fault::OneWay, 200_000, 5_000_000);
        let outwards = self.draw(Fault::OneWay, 0, 1) == 0;
        let bits = self.draw(Fault::OneWay, 1, 1 << 30);
        let others = hosts.into_iter().filter(|other| *other != one && bits >> (other.0 % 30) & 1 == 1);
        let cuts = others.map(|other| if outwards { (one, other) } else { (other, one) }).collect();
        self.cut(cuts, length)
    }

    fn cut_pair(&mut self) -> bool {
        let hosts = self.hosts();
        let one = hosts[self.draw(Fault::CutPair, 0, 999) as usize % hosts.len()];
        let other = hosts[self.draw(Fault::CutPair, 0, 999) as usize % hosts.len()];
        let length = self.draw(Fault::CutPair, 200_000, 9_000_000);
        let cuts = if one == other { Vec::new() } else { vec![(one, other), (other, one)] };
        self.cut(cuts, length)
    }

    fn cut(&mut self, cuts: Vec<(Host, Host)>, length: u64) -> bool {
        if cuts.is_empty() {
            return false;
        }
        self.trace.note(self.now, &[32, length], &[], || format!("cut {cuts:?}"));
        for (from, to) in &cuts {
            self.network.cut(*from, *to);
        }
        self.schedule.put(self.now + length, Event::Mend(cuts));
        true
    }

    pub fn mend(&mut self, cuts: Vec<(Host, Host)>) {
        self.trace.note(self.now, &[33], &[], || format!("mend {cuts:?}"));
        for (from, to) in cuts {
            self.network.mend(from, to);
        }
    }

    fn break_link(&mut self) -> bool {
        let up = self.connections_up();
        let nth = self.draw(Fault::BreakLink, 0, 9_999) as usize;
        let Some(connection) = up.get(nth % up.len().max(1)).copied() else { return false };
        self.snap(connection);
        true
    }

    fn late_bytes(&mut self) -> bool {
        let up = self.store_connections_up();
        let nth = self.draw(Fault::Late, 0, 9_999) as usize;
        let micros = self.draw(Fault::Late, 300_000, 8_000_000);
        let given_up = self.draw(Fault::Late, 1_000, 400_000);
        let Some(connection) = up.get(nth % up.len().max(1)).copied() else { return false };
        self.make_late(connection, micros);
        self.schedule.put(self.now + given_up, Event::GiveUpLate(connection));
        true
    }

    fn echo(&mut self) -> bool {
        let up = self.store_connections_up();
        let nth = self.draw(Fault::Echo, 0, 9_999) as usize;
        let length = self.draw(Fault::Echo, 100_000, 3_000_000);
        let later = self.draw(Fault::Echo, 1, 2_000_000);
        let Some(connection) = up.get(nth % up.len().max(1)).copied() else { return false };
        self.make_echo(connection, self.now + length, later);
        true
    }

    fn slow_host(&mut self) -> bool {
        let hosts = self.hosts();
        let host = hosts[self.draw(Fault::Slow, 0, 999) as usize % hosts.len()];
        let most = self.draw(Fault::Slow, 10_000, 700_000);
        let length = self.draw(Fault::Slow, 300_000, 6_000_000);
        self.slow.insert(host, most);
        self.schedule.put(self.now + length, Event::Quicken(host));
        true
    }

    fn clock_rate(&mut self) -> bool {
        let slot = self.draw(Fault::ClockRate, 0, 999) as usize % self.nodes().len();
        let (slowest, fastest) = self.plan.rate_permille;
        let rate = self.draw(Fault::ClockRate, slowest, fastest);
        self.slots[slot].clock.set_rate(self.now, rate);
        if let Some(id) = self.slots[slot].listener {
            self.arm(id);
            self.companion(id).into_iter().for_each(|companion| self.arm(companion));
        }
        true
    }

    fn wall_jump(&mut self) -> bool {
        let slot = self.draw(Fault::WallJump, 0, 999) as usize % self.nodes().len();
        let day_millis = 86_400_000;
        let millis = self.draw(Fault::WallJump, 0, 2 * day_millis) as i64 - day_millis as i64;
        self.slots[slot].clock.jump_wall(millis);
        true
    }
}
