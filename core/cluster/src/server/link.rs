//! [`Link`]: what a server has under way with another one, in one epoch (a space's number).

use crate::StoreKey;
use crate::server::few::Few;
use kumo_paxos::Time;
use std::collections::{BTreeSet, VecDeque};

/// Writes sent to one member and not committed yet, and marks received from it. An epoch's frames are numbered
/// from 1; a new space begins a new epoch on every link.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub up: bool,
    /// The other's disk is full: nothing more is stamped for its keys until it says otherwise.
    full: bool,
    /// Frames that it had no room for, to be sent again when it has some.
    refused: BTreeSet<u64>,
    /// Frames above the watermark, in order of their numbers.
    frames: VecDeque<Frame>,
    /// Every frame up to it is committed, or stands again further behind.
    pub watermark: u64,
    pub watermark_sent: u64,
    /// The oldest frame whose acknowledgement is waited for, and when it was last sent or came to be the oldest.
    oldest: (u64, Time),
    /// The newest that was acknowledged since the link is up. Frames are taken in order: what is older and was not
    /// acknowledged was not taken.
    taken: u64,
    /// Since the link is up, what was not acknowledged was sent again up to here, and is to be up to there.
    again: (u64, u64),
    /// From the other, in this epoch.
    pub heard: u64,
    /// Marks by frame number, ascending, for the other's watermark to clear.
    pub marks: VecDeque<(u64, StoreKey)>,
}

#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub key: StoreKey,
    pub acknowledged: bool,
    pub committed: bool,
    /// It stands again under a later number.
    again: bool,
    /// The number under which it stood before; 0: this is its first.
    before: u64,
}

impl Link {
    pub fn new(now: Time) -> Link {
        Link {
            up: false,
            full: false,
            refused: BTreeSet::new(),
            frames: VecDeque::new(),
            watermark: 0,
            watermark_sent: 0,
            oldest: (0, now),
            taken: 0,
            again: (0, 0),
            heard: 0,
            marks: VecDeque::new(),
        }
    }

    /// The number of a new frame.
    pub fn push(&mut self, key: StoreKey) -> u64 {
        self.frames.push_back(Frame { key, acknowledged: false, committed: false, again: false, before: 0 });
        self.last()
    }

    /// The number of the newest frame.
    pub fn last(&self) -> u64 {
        self.watermark + self.frames.len() as u64
    }

    /// A write that the other has acknowledged, and that cannot be committed, holds up the watermark of so many that are.
    pub fn held_up_by(&self, held_max: usize) -> Option<(u64, &StoreKey)> {
        let front = self.frames.front().filter(|front| front.acknowledged && !front.again)?;
        (self.frames.len() > held_max).then_some((self.watermark + 1, &front.key))
    }

    /// The first frame's new number. The old one is passed when the new one is acknowledged: then the other's mark
    /// bears the new number, and is not cleared with the old one.
    pub fn push_again(&mut self) -> Option<u64> {
        let before = self.watermark + 1;
        let front = self.frames.front_mut()?;
        front.again = true;
        let key = front.key.clone();
        let seq = self.push(key);
        self.frames.back_mut()?.before = before;
        Some(seq)
    }

    /// So many writes wait for this one server that no more are begun.
    pub fn is_busy(&self) -> bool {
        self.frames.len() >= FRAMES_MAX
    }

    pub fn is_full(&self) -> bool {
        self.full
    }

    /// The other had no room for that frame. Said late of one that it has taken since, it says nothing: no frame would
    /// be under way whose acknowledgement could tell that there is room again.
    pub fn refuse(&mut self, seq: u64) {
        if self.frame_mut(seq).is_some_and(|frame| !frame.acknowledged) {
            self.full = true;
            self.refused.insert(seq);
        }
    }

    /// Frames that the other had no room for, now that it has some; at most so many.
    pub fn next_refused(&mut self, count: usize) -> Vec<(u64, StoreKey)> {
        let mut next = Vec::new();
        while !self.full && next.len() < count {
            let Some(seq) = self.refused.pop_first() else { break };
            let waits = self.frame_mut(seq).filter(|frame| !frame.acknowledged);
            next.extend(waits.map(|frame| (seq, frame.key.clone())));
        }
        next
    }

    /// The key of a frame that was acknowledged for the first time.
    pub fn acknowledge(&mut self, seq: u64) -> Option<StoreKey> {
        self.full = false;
        let frame = self.frame_mut(seq)?;
        if std::mem::replace(&mut frame.acknowledged, true) {
            return None;
        }
        let (key, before) = (frame.key.clone(), frame.before);
        self.taken = self.taken.max(seq);
        self.pass(before);
        Some(key)
    }

    pub fn commit(&mut self, seq: u64) {
        let Some(frame) = self.frame_mut(seq) else { return };
        let before = frame.before;
        self.pass(seq);
        self.pass(before);
    }

    /// Frames are committed, and the other does not know it.
    pub fn is_unsaid(&self) -> bool {
        self.up && self.watermark > self.watermark_sent
    }

    /// The watermark may pass that frame.
    fn pass(&mut self, seq: u64) {
        let Some(frame) = self.frame_mut(seq) else { return };
        frame.committed = true;
        while self.frames.front().is_some_and(|frame| frame.committed) {
            self.frames.pop_front();
            self.watermark += 1;
        }
    }

    /// Whether the oldest frame without an acknowledgement has been so for that long, and is to be sent again.
    pub fn must_resend(&mut self, now: Time, micros: u64) -> bool {
        let Some((seq, _)) = self.first_waiting() else { return false };
        if self.oldest.0 != seq {
            self.oldest = (seq, now);
        }
        now.since(self.oldest.1) > micros
    }

    /// Whether frames were not taken though later ones were: the other's disk failed, or it was not in this space yet. They
    /// are to be sent again, in batches.
    pub fn has_overlooked(&mut self) -> bool {
        let Some((seq, _)) = self.first_waiting() else { return false };
        let overlooked = seq < self.taken && !self.full;
        if overlooked {
            self.again = (seq - 1, self.taken);
        }
        overlooked
    }

    /// The oldest that is not acknowledged was just sent again.
    pub fn resent(&mut self, now: Time) {
        self.oldest.1 = now;
    }

    /// The link is new: nothing that is not acknowledged can be relied upon to have arrived.
    pub fn begin_again(&mut self) {
        self.again = (self.watermark, self.last());
        self.taken = 0;
    }

    /// What is to be sent again next on a link that is new, at most so many.
    pub fn next_again(&mut self, count: usize) -> Vec<(u64, StoreKey)> {
        let (upto, end) = self.again;
        let inside = |(seq, _): &(u64, &StoreKey)| upto < *seq && *seq <= end;
        let next = self.unacknowledged().filter(inside).take(count);
        let next: Vec<(u64, StoreKey)> = next.map(|(seq, key)| (seq, key.clone())).collect();
        self.again.0 = if next.len() < count { end } else { next.last().map_or(end, |(seq, _)| *seq) };
        next
    }

    pub fn is_behind(&self) -> bool {
        self.again.0 < self.again.1
    }

    /// The first whose acknowledgement is waited for.
    pub fn first_waiting(&self) -> Option<(u64, &StoreKey)> {
        let numbered = self.frames.iter().zip(self.watermark + 1..);
        let mut waiting = numbered.filter(|(frame, _)| !frame.acknowledged && !frame.committed);
        waiting.next().map(|(frame, seq)| (seq, &frame.key))
    }

    /// Frames that were sent and not acknowledged. One that stands for a write sent again may be committed nevertheless.
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

    /// The number there is another one now.
    pub fn renumber(&mut self, to: u16, seq: u64) {
        if let Some(at) = self.to.as_slice().iter().position(|&one| one == to) {
            self.seqs[at] = seq;
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (u16, u64)> + '_ {
        self.to.as_slice().iter().copied().zip(self.seqs)
    }
}

/// Frames of one link in all: far above those behind which one is sent again under a new number. It is reached when the
/// other takes other writes and not the first, as one whose disk has room for small values only.
const FRAMES_MAX: usize = 65_536;
