//! A line cut at its spaces: several in a row count as one, as memcached has it. No other byte separates.

use std::ops::Range;

/// Walks the words of a line, as ranges of it.
#[derive(Clone)]
pub(super) struct Words<'a> {
    line: &'a [u8],
    at: usize,
}

impl<'a> Words<'a> {
    pub fn of(line: &'a [u8]) -> Words<'a> {
        Words { line, at: 0 }
    }

    /// What has not been walked yet, without the spaces before it.
    pub fn rest(&self) -> Range<usize> {
        let spaces = self.line[self.at..].iter().take_while(|&&byte| byte == b' ').count();
        self.at + spaces..self.line.len()
    }
}

impl Iterator for Words<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        let start = self.rest().start;
        let tail = &self.line[start..];
        // Words are short: a plain loop beats a vector search.
        let length = tail.iter().position(|&byte| byte == b' ').unwrap_or(tail.len());
        self.at = start + length;
        (length > 0).then_some(start..self.at)
    }
}

/// The words of a line that has few of them.
pub(super) struct FewWords<'a> {
    line: &'a [u8],
    words: [(usize, usize); FEW],
    /// How many there are; `FEW` means that there are too many.
    pub count: usize,
}

impl<'a> FewWords<'a> {
    pub fn of(line: &'a [u8]) -> FewWords<'a> {
        let mut few = FewWords { line, words: [(0, 0); FEW], count: 0 };
        for word in Words::of(line).take(FEW) {
            few.words[few.count] = (word.start, word.end);
            few.count += 1;
        }
        few
    }

    pub fn range(&self, index: usize) -> Range<usize> {
        self.words[index].0..self.words[index].1
    }

    pub fn word(&self, index: usize) -> &'a [u8] {
        &self.line[self.range(index)]
    }

    /// Whether the client wants no answer: it says so in the last word.
    pub fn noreply(&self) -> bool {
        self.count > 0 && self.word(self.count - 1) == b"noreply"
    }
}

/// One more than the longest such line has: `cas key flags expiry bytes unique noreply`.
const FEW: usize = 8;
