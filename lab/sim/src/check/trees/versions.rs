//! [`Versions`]: what is known of the versions that changes of a tree gave. One counter gives them all, so they
//! grow with every change; some are told in the answer, others only when somebody looks.

/// One change of a tree.
pub type ChangeNumber = u64;

/// The changes that anything in the tree still has its version from, in the order they were made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Versions {
    changes: Vec<Bounds>,
    /// No later change has a version up to this one.
    passed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Bounds {
    change: ChangeNumber,
    least: u64,
    greatest: u64,
}

impl Versions {
    /// A change is made, with that version if its answer told it. `None`: it cannot have been made here.
    pub fn made(&mut self, change: ChangeNumber, version: Option<u64>) -> Option<()> {
        let least = version.unwrap_or(self.passed + 1);
        if least <= self.passed {
            return None;
        }
        self.passed = least;
        let place = self.changes.len();
        self.changes.push(Bounds { change, least, greatest: version.unwrap_or(u64::MAX) });
        version.map_or(Some(()), |version| self.at(place, version))
    }

    /// Somebody was told that this change gave that version. `None`: it did not.
    pub fn seen(&mut self, change: ChangeNumber, version: u64) -> Option<()> {
        let place = self.changes.iter().position(|bounds| bounds.change == change)?;
        self.at(place, version)
    }

    /// Forgets what nothing has its version from any more.
    pub fn keep(&mut self, live: impl Fn(ChangeNumber) -> bool) {
        self.changes.retain(|bounds| live(bounds.change));
    }

    /// The change at that place has that version: earlier ones have a smaller, later ones a greater one.
    fn at(&mut self, place: usize, version: u64) -> Option<()> {
        for (index, bounds) in self.changes.iter_mut().enumerate() {
            match index.cmp(&place) {
                std::cmp::Ordering::Less => bounds.greatest = bounds.greatest.min(version.checked_sub(1)?),
                std::cmp::Ordering::Equal => {
                    bounds.least = bounds.least.max(version);
                    bounds.greatest = bounds.greatest.min(version);
                }
                std::cmp::Ordering::Greater => bounds.least = bounds.least.max(version + 1),
            }
            if bounds.least > bounds.greatest {
                return None;
            }
            self.passed = self.passed.max(bounds.least);
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_grow_in_the_order_of_the_changes() {
        let mut versions = Versions::default();
        versions.made(1, Some(5)).unwrap();
        versions.made(2, None).unwrap();
        versions.made(3, Some(9)).unwrap();
        assert_eq!(versions.clone().made(4, Some(9)), None);
        assert_eq!(versions.clone().seen(2, 5), None);
        assert_eq!(versions.clone().seen(2, 9), None);
        assert_eq!(versions.clone().seen(1, 6), None);
        versions.seen(2, 7).unwrap();
        assert_eq!(versions.seen(2, 8), None);
    }

    #[test]
    fn what_was_seen_bounds_what_was_not() {
        let mut versions = Versions::default();
        for change in 1..4 {
            versions.made(change, None).unwrap();
        }
        versions.seen(2, 10).unwrap();
        assert_eq!(versions.clone().seen(1, 10), None);
        assert_eq!(versions.clone().seen(3, 10), None);
        assert_eq!(versions.clone().made(4, Some(11)), None);
        versions.keep(|change| change == 3);
        assert_eq!(versions.seen(2, 10), None);
        versions.seen(3, 11).unwrap();
    }
}
