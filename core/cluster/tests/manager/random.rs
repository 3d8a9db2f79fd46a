//! [`Random`]: numbers from a seed, and operators' requests.

use crate::log::address;
use kumo_cluster::control::ControlRequest;

/// A linear congruential generator: enough to choose by, the same everywhere.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % bound
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub fn request(&mut self) -> ControlRequest {
        let server = address(self.below(6) as u16);
        let replace = self.chance(70);
        match self.below(16) {
            0..6 => ControlRequest::Attach { servers: Vec::new(), replace, accept_data_loss: false },
            6 => ControlRequest::Attach { servers: vec![server], replace, accept_data_loss: true },
            7 => ControlRequest::Detach { servers: vec![server], replace },
            8 => ControlRequest::Detach { servers: Vec::new(), replace },
            9 => ControlRequest::Replace,
            10 => ControlRequest::FullReplace,
            11 => ControlRequest::Pause,
            12 => ControlRequest::Resume,
            13 => ControlRequest::Cancel,
            14 => ControlRequest::AutoReplace { on: self.chance(50) },
            _ => ControlRequest::Stat,
        }
    }
}
