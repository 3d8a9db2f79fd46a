//! [`Few`]: a handful of member indexes without an allocation: those that must acknowledge one write.

/// A(k) has at most the owners of three rings.
const FEW_MAX: usize = 3 * crate::COPIES;

/// A small set of members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Few {
    items: [u16; FEW_MAX],
    count: u8,
}

impl Few {
    pub fn push(&mut self, item: u16) {
        self.items[usize::from(self.count)] = item;
        self.count += 1;
    }

    /// True if it was there.
    pub fn remove(&mut self, item: u16) -> bool {
        let Some(at) = self.as_slice().iter().position(|&one| one == item) else { return false };
        self.count -= 1;
        self.items[at] = self.items[usize::from(self.count)];
        true
    }

    pub fn contains(&self, item: u16) -> bool {
        self.as_slice().contains(&item)
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn as_slice(&self) -> &[u16] {
        &self.items[..usize::from(self.count)]
    }
}

impl FromIterator<u16> for Few {
    fn from_iter<I: IntoIterator<Item = u16>>(items: I) -> Few {
        let mut few = Few::default();
        for item in items {
            few.push(item);
        }
        few
    }
}
