//! [`Holdings`]: what a store that belongs to no cluster brings along.

use super::catching::digest_on;
use crate::{KeyHash, SpaceNumber, Store};

/// Found at the start of a life: nothing changes in the store before it belongs to a cluster. See
/// [`Alive::stamped`](crate::Alive::stamped) and [`Alive::digest`](crate::Alive::digest).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Holdings {
    /// The greatest space in any record's stamp. Of a store that cannot say it is the greatest of all: no space leads
    /// it, and so it is not attached.
    pub stamped: SpaceNumber,
    pub digest: u64,
}

impl Holdings {
    pub fn of(store: &impl Store) -> Holdings {
        let (mut holdings, mut after) = (Holdings::default(), None);
        loop {
            let Ok(found) = store.scan(KeyHash(0), KeyHash(u64::MAX), after.as_ref(), SCAN_BATCH) else {
                return Holdings { stamped: SpaceNumber(u64::MAX), ..holdings };
            };
            let spaces = found.iter().map(|(_, head)| head.stamp.space);
            holdings.stamped = spaces.fold(holdings.stamped, SpaceNumber::max);
            holdings.digest = digest_on(holdings.digest, &found);
            if found.len() < SCAN_BATCH {
                return holdings;
            }
            after = found.into_iter().last().map(|(key, _)| key);
        }
    }
}

/// Records looked at at once.
const SCAN_BATCH: usize = 4096;
