//! [`Keys`]: what the generator knows of each key, so that a wrong, lost or old value is seen.

use super::super::value::Values;

/// Keys by number. Each is written by one connection only, so its values come in the order of their numbers.
pub struct Keys {
    values: Values,
    known: Vec<Known>,
}

#[derive(Clone, Copy, Default)]
struct Known {
    /// The number of the newest value sent, and of the newest acknowledged.
    sent: u32,
    acknowledged: u32,
    /// The outcome of a set is not known: it may still take effect, after later ones.
    uncertain: bool,
}

impl Keys {
    pub fn new(count: u32, size: usize) -> Keys {
        Keys { values: Values::new(size), known: vec![Known::default(); count as usize] }
    }

    pub fn count(&self) -> u32 {
        self.known.len() as u32
    }

    /// The next value of a key, and its number.
    pub fn next(&mut self, key: u32) -> (bytes::Bytes, u32) {
        let known = &mut self.known[key as usize];
        known.sent = known.sent.wrapping_add(1);
        (self.values.make(key.into(), known.sent.into()), known.sent)
    }

    pub fn stored(&mut self, key: u32, number: u32) {
        let known = &mut self.known[key as usize];
        known.acknowledged = known.acknowledged.max(number);
    }

    pub fn lost(&mut self, key: u32) {
        self.known[key as usize].uncertain = true;
    }

    /// No get that is sent now may show an older value.
    pub fn floor(&self, key: u32) -> u32 {
        let known = self.known[key as usize];
        if known.uncertain { 0 } else { known.acknowledged }
    }

    /// Whether a get of `key`, sent when its floor was that, may show this value.
    pub fn is_right(&self, key: u32, floor: u32, value: &[u8]) -> bool {
        if !self.values.are_signed() {
            return value.len() == self.values.size();
        }
        let known = self.known[key as usize];
        let floor = if known.uncertain { 0 } else { u64::from(floor) };
        self.values.read(value).is_some_and(|(maker, number)| {
            maker == u64::from(key) && (floor..=u64::from(known.sent)).contains(&number)
        })
    }

    /// A key's name.
    pub fn name(key: u32) -> [u8; NAME_BYTES] {
        let mut name = *b"kumo-bench-0000000000";
        let mut rest = key;
        for digit in name[PREFIX.len()..].iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        name
    }

    /// The number of a name that is one of ours.
    pub fn numbered(&self, name: &[u8]) -> Option<u32> {
        let digits = name.strip_prefix(PREFIX).filter(|digits| digits.len() == NAME_BYTES - PREFIX.len())?;
        let number: u32 = std::str::from_utf8(digits).ok()?.parse().ok()?;
        (number < self.count()).then_some(number)
    }
}

const PREFIX: &[u8] = b"kumo-bench-";
pub const NAME_BYTES: usize = 21;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        let keys = Keys::new(5, 100);
        assert_eq!(keys.numbered(&Keys::name(4)), Some(4));
        assert_eq!(keys.numbered(&Keys::name(5)), None);
        assert_eq!(keys.numbered(b"kumo-bench-4"), None);
    }

    #[test]
    fn an_older_value_and_another_keys_are_wrong() {
        let mut keys = Keys::new(2, 100);
        let (old, first) = keys.next(0);
        let (new, second) = keys.next(0);
        keys.stored(0, first);
        let floor = keys.floor(0);
        assert!(keys.is_right(0, floor, &old) && keys.is_right(0, floor, &new));
        keys.stored(0, second);
        assert!(!keys.is_right(0, keys.floor(0), &old), "it is older than one acknowledged before");
        assert!(!keys.is_right(1, 0, &new), "it was never written there");
        keys.lost(0);
        assert!(keys.is_right(0, keys.floor(0), &old), "a set without an answer may come late");
    }
}
