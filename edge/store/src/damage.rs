//! [`Damage`]: records that were found unreadable, for whoever looks after the disk.

use crate::entry::Place;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Where records are current and could not be read when somebody last tried. Not all that is damaged: nobody may have
/// tried yet.
#[derive(Default)]
pub struct Damage {
    places: Mutex<BTreeSet<Place>>,
    /// How many: there are none nearly always, and then nobody waits for the lock.
    count: AtomicUsize,
}

impl Damage {
    /// Call it while the index cannot be changed, and points there.
    pub fn found(&self, place: Place) {
        let mut places = self.places.lock().expect("no panic under this lock");
        if places.len() < PLACES_MAX {
            places.insert(place);
            self.count.store(places.len(), Ordering::Relaxed);
        }
    }

    /// What is there can be read, or is not current any more.
    pub fn gone(&self, place: Place) {
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut places = self.places.lock().expect("no panic under this lock");
        places.remove(&place);
        self.count.store(places.len(), Ordering::Relaxed);
    }

    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    pub fn is_in(&self, segment: u32) -> bool {
        self.count() > 0
            && self
                .places
                .lock()
                .expect("no panic under this lock")
                .iter()
                .any(|place| place.segment == segment)
    }
}

/// Places that are remembered. Of more, a person looks at the disk anyway.
const PLACES_MAX: usize = 1024;
