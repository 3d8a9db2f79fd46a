//! [`Link`]: what a server has under way with another one, in one epoch (a space's number).

use crate::StoreKey;
use crate::server::few::Few;
use kumo_paxos::Time;
use std::collections::VecDeque;

/// Writes sent to one member and not committed yet, and marks received from it. An epoch's frames are numbered
/// from 1; a new space begins a new epoch on every link.
#[derive(Debug)]
pub(crate) struct Link {
    pub up: bool,
    /// The other's disk is full: nothing more is stamped for its keys until it says otherwise.
    pub full: bool,
    /// Frames above the watermark, in order of their numbers.
    frames: VecDeque<Frame>,
    /// Every frame up to it is committed.
    pub watermark: u64,
    pub watermark_sent: u64,
    /// Of the oldest frame that is not acknowledged, or of the last progress.
    pub sent_at: Time,
    /// From the other, in this epoch.
    pub heard: u64,
    /// Marks by frame number, ascending, for the other's watermark to clear.
    pub marks: VecDeque<(u64, StoreKey)>,
}

#[derive(Debug)]
pub(crate) struct Frame {
    pub key: StoreKey,
    pub acknowledged: bool,
    pub committed: bool,
}

impl Link {
    pub fn new(now: Time) -> Link {
        Link {
            up: false,
            full: false,
            frames: VecDeque::new(),
            watermark: 0,
            watermark_sent: 0,
            sent_at: now,
            heard: 0,
            marks: VecDeque::new(),
        }
    }

    /// The number of a new frame.
    pub fn push(&mut self, now: Time, key: StoreKey) -> u64 {
        if self.frames.is_empty() {
            self.sent_at = now;
        }
        self.frames.push_back(Frame { key, acknowledged: false, committed: false });
        self.watermark + self.frames.len() as u64
    }

    /// The key of a frame that was acknowledged for the first time.
    pub fn acknowledge(&mut self, now: Time, seq: u64) -> Option<StoreKey> {
        let frame = self.frame_mut(seq)?;
        if std::mem::replace(&mut frame.acknowledged, true) {
            return None;
        }
        let key = frame.key.clone();
        self.sent_at = now;
        Some(key)
    }

    pub fn commit(&mut self, seq: u64) {
        let Some(frame) = self.frame_mut(seq) else { return };
        frame.committed = true;
        while self.frames.front().is_some_and(|frame| frame.committed) {
            self.frames.pop_front();
            self.watermark += 1;
        }
    }

    /// Frames that were sent and not acknowledged.
    pub fn unacknowledged(&self) -> impl Iterator<Item = (u64, &StoreKey)> {
        let numbered = self.frames.iter().zip(self.watermark + 1..);
        numbered.filter(|(frame, _)| !frame.acknowledged).map(|(frame, seq)| (seq, &frame.key))
    }

    /// Notes that the other's frame `seq` left a mark.
    pub fn mark(&mut self, seq: u64, key: StoreKey) {
        match self.marks.back() {
            // Frames come in order but for repetitions.
            Some(&(last, _)) if last >= seq => {
                let at = self.marks.partition_point(|&(one, _)| one < seq);
                if self.marks.get(at).is_none_or(|&(one, _)| one != seq) {
                    self.marks.insert(at, (seq, key));
                }
            }
            _ => self.marks.push_back((seq, key)),
        }
    }

    fn frame_mut(&mut self, seq: u64) -> Option<&mut Frame> {
        let at = seq.checked_sub(self.watermark + 1)?;
        self.frames.get_mut(at as usize)
    }
}

/// Frames of one pending write: to whom, and its number there.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Frames {
    to: Few,
    seqs: [u64; 3 * crate::COPIES],
}

impl Frames {
    pub fn push(&mut self, to: u16, seq: u64) {
        self.seqs[self.to.as_slice().len()] = seq;
        self.to.push(to);
    }

    pub fn iter(&self) -> impl Iterator<Item = (u16, u64)> + '_ {
        self.to.as_slice().iter().copied().zip(self.seqs)
    }
}
