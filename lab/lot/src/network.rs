//! [`Network`]: what becomes of a message between two hosts.

use crate::random::Random;
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

/// A machine. Nodes and clients have one each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Host(pub u32);

/// The state of all wires.
#[derive(Debug)]
pub struct Network {
    random: Random,
    /// Directed, and counted: partitions may overlap.
    cuts: BTreeMap<(Host, Host), u32>,
    pub delay_min: u64,
    pub delay_max: u64,
    pub loss_permille: u64,
    pub duplicate_permille: u64,
    /// Messages that take many times longer than others, and so are overtaken.
    pub reorder_permille: u64,
    /// Old messages between replicas, for replays.
    old: VecDeque<(SocketAddr, Bytes)>,
}

impl Network {
    pub fn new(seed: u64) -> Network {
        let mut random = Random::new(seed, "network");
        let delay_min = random.between(50, 300);
        let delay_max = delay_min + random.between(50, 3_000);
        Network {
            random,
            cuts: BTreeMap::new(),
            delay_min,
            delay_max,
            loss_permille: 0,
            duplicate_permille: 0,
            reorder_permille: 0,
            old: VecDeque::new(),
        }
    }

    pub fn passes(&self, from: Host, to: Host) -> bool {
        !self.cuts.contains_key(&(from, to))
    }

    pub fn cut(&mut self, from: Host, to: Host) {
        *self.cuts.entry((from, to)).or_default() += 1;
    }

    pub fn mend(&mut self, from: Host, to: Host) {
        if let Some(count) = self.cuts.get_mut(&(from, to)) {
            *count -= 1;
            if *count == 0 {
                self.cuts.remove(&(from, to));
            }
        }
    }

    /// All wires whole, nothing lost or doubled.
    pub fn heal(&mut self) {
        self.cuts.clear();
        self.loss_permille = 0;
        self.duplicate_permille = 0;
        self.reorder_permille = 0;
    }

    /// How long one message is on its way.
    pub fn delay(&mut self) -> u64 {
        self.random.between(self.delay_min, self.delay_max)
    }

    pub fn fate(&mut self, from: Host, to: Host) -> Fate {
        // Drawn whether or not the wire is cut, so that a cut changes no other message's fate.
        let lost = self.random.permille(self.loss_permille);
        let twice = self.random.permille(self.duplicate_permille);
        let late = self.random.permille(self.reorder_permille);
        let mut delay = self.delay();
        if late {
            delay += self.random.between(1_000, LATE_MICROS_MAX);
        }
        let second = twice.then(|| delay + self.random.between(0, LATE_MICROS_MAX));
        let delays = match lost || !self.passes(from, to) {
            true => [None, None],
            false => [Some(delay), second],
        };
        Fate { delays, free: late || twice }
    }

    pub fn remember(&mut self, to: SocketAddr, bytes: &Bytes) {
        if bytes.len() > OLD_BYTES_MAX {
            return;
        }
        // A sample of the past, not all of it: most messages are heartbeats.
        if self.old.len() == OLD_MAX {
            let index = self.random.below(OLD_MAX as u64) as usize;
            self.old.swap_remove_back(index);
        }
        self.old.push_back((to, bytes.clone()));
    }

    /// A message that was on the wire before.
    pub fn replay(&mut self) -> Option<(SocketAddr, Bytes)> {
        let index = self.random.below(self.old.len() as u64) as usize;
        self.old.get(index).cloned()
    }
}

/// What becomes of one message.
#[derive(Clone, Copy, Debug)]
pub struct Fate {
    /// After which its copies arrive; none: it is lost.
    pub delays: [Option<u64>; 2],
    /// It may overtake, or be overtaken.
    pub free: bool,
}

/// How much longer a message may take that others overtake.
const LATE_MICROS_MAX: u64 = 300_000;
/// Messages kept for replays: some seconds of a small cell.
const OLD_MAX: usize = 512;
/// Larger ones are not kept: they would be most of the memory.
const OLD_BYTES_MAX: usize = 16 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn copies(network: &mut Network, from: Host, to: Host) -> usize {
        network.fate(from, to).delays.iter().flatten().count()
    }

    #[test]
    fn a_cut_has_a_direction_and_ends() {
        let mut network = Network::new(1);
        let (a, b) = (Host(1), Host(2));
        network.cut(a, b);
        network.cut(a, b);
        assert!(copies(&mut network, a, b) == 0 && copies(&mut network, b, a) == 1);
        network.mend(a, b);
        assert!(!network.passes(a, b));
        network.mend(a, b);
        assert!(network.passes(a, b));
    }

    #[test]
    fn loss_and_duplication_happen_as_often_as_said() {
        let mut network = Network::new(2);
        network.loss_permille = 300;
        network.duplicate_permille = 200;
        let fates: Vec<_> = (0..10_000).map(|_| copies(&mut network, Host(1), Host(2))).collect();
        let lost = fates.iter().filter(|&&copies| copies == 0).count();
        let twice = fates.iter().filter(|&&copies| copies == 2).count();
        assert!((2_700..3_300).contains(&lost), "{lost}");
        assert!((1_200..1_600).contains(&twice), "{twice}");
    }
}
