//! [`Trace`]: everything that happened in a run, as a hash, and as text when somebody wants to read it.

/// What a run did. Two runs of one seed have the same hash, whether the text was kept or not.
#[derive(Debug, Default)]
pub struct Trace {
    hash: u64,
    lines: Option<Vec<String>>,
}

impl Trace {
    pub fn new(text: bool) -> Trace {
        Trace { hash: 0x6b75_6d6f_7369_6d00, lines: text.then(Vec::new) }
    }

    /// One thing that happened at `time`. `numbers` and `bytes` go into the hash; `text` is made only when
    /// somebody reads it.
    #[inline]
    pub fn note(&mut self, time: u64, numbers: &[u64], bytes: &[u8], text: impl FnOnce() -> String) {
        self.mix(time);
        for &number in numbers {
            self.mix(number);
        }
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.mix(u64::from_le_bytes(*word));
        }
        if !rest.is_empty() {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            self.mix(u64::from_le_bytes(word));
        }
        self.mix(bytes.len() as u64);
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{:>10.6} {}", time as f64 / 1e6, text()));
        }
    }

    pub fn hash(&self) -> u64 {
        self.hash
    }

    pub fn into_lines(self) -> Vec<String> {
        self.lines.unwrap_or_default()
    }

    #[inline]
    fn mix(&mut self, word: u64) {
        self.hash = (self.hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }
}
