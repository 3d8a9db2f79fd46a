//! [`Link`]: what a server has under way with another one, in one epoch (a space's number).

use crate::StoreKey;
use crate::limits::RESENT_BYTES;
use crate::server::few::Few;
use kumo_paxos::Time;
use std::collections::{BTreeSet, VecDeque};

/// Writes sent to one member and not committed yet, and marks received from it. An epoch's frames are numbered
/// from 1; a new space begins a new epoch on every link.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub up: bool,
    /// The other was sent the space of this epoch: it arrives, or the link breaks.
    pub given: bool,
    /// The other's disk is full: nothing more is stamped for its keys until it says otherwise.
    full: bool,
    /// Frames that it had no room for, to be sent again when it has some.
    refused: BTreeSet<u64>,
    /// Frames above the watermark, in order of their numbers.
    frames: VecDeque<Frame>,
    /// Every frame up to it is committed, or stands again further behind.
    pub watermark: u64,
    pub watermark_sent: u64,
    /// The oldest frame whose acknowledgement is waited for, and when it came to be that or one was last sent to see whether
    /// the other takes any.
    oldest: (u64, Time),
    /// The one that was sent to see that; 0: none yet.
    probe: u64,
    /// Frames sent since the link is up, those sent again included.
    sendings: u64,
    /// The last of them that was acknowledged. Frames are taken in the order they are sent: what was sent before and is not
    /// acknowledged was not taken. (If the one that was acknowledged is an earlier sending of the same frame, some are sent
    /// again for nothing.)
    taken: u64,
    /// What is not on its way was sent again up to here, and is to be up to there.
    again: (u64, u64),
    /// From the other, in this epoch.
    pub heard: u64,
    /// Marks by frame number, ascending, for the other's watermark to clear.
    pub marks: VecDeque<(u64, StoreKey)>,
}

#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub key: StoreKey,
    bytes: u32,
    pub acknowledged: bool,
    pub committed: bool,
    /// It stands again under a later number.
    again: bool,
    /// It was not sent for the first time when it was sent last.
    resent: bool,
    /// Which sending was its last; 0: none since the link is up, or the other had no room for it.
    sent: u64,
    /// The number under which it stood before; 0: this is its first.
    before: u64,
}

impl Frame {
    /// What it counts as when it is sent again. One that is committed is not.
    fn resent_bytes(&self) -> usize {
        if self.committed { 0 } else { RESENT_BYTES.max(self.bytes as usize) }
    }

    /// It was sent, and so long as later sendings are not taken it may still be.
    fn is_on_its_way(&self, taken: u64) -> bool {
        self.sent > taken && !self.acknowledged
    }
}

impl Link {
    pub fn new(now: Time) -> Link {
        Link {
            up: false,
            given: false,
            full: false,
            refused: BTreeSet::new(),
            frames: VecDeque::new(),
            watermark: 0,
            watermark_sent: 0,
            oldest: (0, now),
            probe: 0,
            sendings: 0,
            taken: 0,
            again: (0, 0),
            heard: 0,
            marks: VecDeque::new(),
        }
    }

    /// The number of a new frame with so many bytes, which is sent at once if the link is up.
    pub fn push(&mut self, key: StoreKey, bytes: usize) -> u64 {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.sendings += u64::from(self.up);
        let sent = if self.up { self.sendings } else { 0 };
        let (acknowledged, committed, again, resent) = (false, false, false, false);
        self.frames.push_back(Frame { key, bytes, acknowledged, committed, again, resent, sent, before: 0 });
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
        let (key, bytes) = (front.key.clone(), front.bytes as usize);
        let seq = self.push(key, bytes);
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
        if let Some(frame) = self.frame_mut(seq).filter(|frame| !frame.acknowledged) {
            frame.sent = 0;
            self.full = true;
            self.refused.insert(seq);
        }
    }

    /// Frames that the other had no room for, now that it has some, and that are sent again now; as much as is let be on
    /// its way.
    pub fn next_refused(&mut self, bytes_max: usize) -> Vec<(u64, StoreKey)> {
        let mut next = Vec::new();
        if self.full || self.refused.is_empty() {
            return next;
        }
        let (mut room, taken) = (self.room(bytes_max), self.taken);
        while let Some(seq) = self.refused.pop_first() {
            let waits = |frame: &&mut Frame| !frame.acknowledged && !frame.is_on_its_way(taken);
            let Some(frame) = self.frame_mut(seq).filter(waits) else { continue };
            let key = frame.key.clone();
            if !room.takes(frame.resent_bytes()) {
                self.refused.insert(seq);
                break;
            }
            self.sent_again(seq);
            next.push((seq, key));
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
        let (key, before, sent) = (frame.key.clone(), frame.before, frame.sent);
        self.taken = self.taken.max(sent);
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

    /// Whether the oldest frame without an acknowledgement has been so for that long, and as long as it takes to be brought:
    /// one is to be sent again.
    pub fn must_resend(&mut self, now: Time, micros: u64) -> bool {
        let Some((seq, frame)) = self.waiting().next() else { return false };
        let bytes = frame.bytes.max(self.frame(self.probe).map_or(0, |probe| probe.bytes));
        if self.oldest.0 != seq {
            (self.oldest, self.probe) = ((seq, now), 0);
        }
        now.since(self.oldest.1) > micros + brought_micros(u64::from(bytes))
    }

    /// Whether frames were not taken though later ones were: the other's disk failed, or it was not in this space yet. They
    /// are to be sent again, in batches.
    pub fn has_overlooked(&mut self) -> bool {
        let Some((seq, frame)) = self.waiting().next() else { return false };
        let overlooked = frame.sent != 0 && frame.sent < self.taken && !self.full;
        if overlooked {
            self.again = (seq - 1, self.last());
        }
        overlooked
    }

    /// What is due of the oldest that is not acknowledged is done now.
    pub fn resent(&mut self, now: Time) {
        self.oldest.1 = now;
    }

    /// The first whose acknowledgement is waited for is sent again now, and the others in turn when that does not help: the
    /// first may be one that the other's disk never takes, and all have been dropped.
    pub fn next_probe(&mut self) -> Option<(u64, StoreKey)> {
        let next = self.waiting().find(|(seq, _)| *seq > self.probe).or_else(|| self.waiting().next());
        let (seq, key) = next.map(|(seq, frame)| (seq, frame.key.clone()))?;
        self.probe = seq;
        self.sent_again(seq);
        Some((seq, key))
    }

    /// The link is new: nothing that is not acknowledged can be relied upon to have arrived.
    pub fn begin_again(&mut self) {
        self.again = (self.watermark, self.last());
        (self.sendings, self.taken, self.probe) = (0, 0, 0);
        for frame in &mut self.frames {
            (frame.sent, frame.resent) = (0, false);
        }
    }

    /// What is sent again now of all that is to be; as much as is let be on its way.
    pub fn next_again(&mut self, bytes_max: usize) -> Vec<(u64, StoreKey)> {
        let mut next = Vec::new();
        if self.again.0 >= self.again.1 {
            return next;
        }
        let (mut room, taken) = (self.room(bytes_max), self.taken);
        for seq in self.again.0.max(self.watermark) + 1..=self.again.1.min(self.last()) {
            let waits = |frame: &&mut Frame| !frame.acknowledged && !frame.is_on_its_way(taken);
            let Some(frame) = self.frame_mut(seq).filter(waits) else { continue };
            let key = frame.key.clone();
            if !room.takes(frame.resent_bytes()) {
                self.again.0 = seq - 1;
                return next;
            }
            self.sent_again(seq);
            next.push((seq, key));
        }
        self.again.0 = self.again.1;
        next
    }

    fn sent_again(&mut self, seq: u64) {
        self.sendings += 1;
        let sent = self.sendings;
        if let Some(frame) = self.frame_mut(seq) {
            (frame.sent, frame.resent) = (sent, true);
        }
    }

    fn room(&self, bytes_max: usize) -> Room {
        let resent = self.frames.iter().filter(|frame| frame.resent && frame.is_on_its_way(self.taken));
        Room { on_its_way: resent.map(Frame::resent_bytes).sum(), bytes_max }
    }

    /// Those whose acknowledgement is waited for. One that stands for a write sent again may be committed without.
    fn waiting(&self) -> impl Iterator<Item = (u64, &Frame)> {
        let numbered = (self.watermark + 1..).zip(&self.frames);
        numbered.filter(|(_, frame)| !frame.acknowledged && !frame.committed)
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

    fn frame(&self, seq: u64) -> Option<&Frame> {
        let at = seq.checked_sub(self.watermark + 1)?;
        self.frames.get(at as usize)
    }

    fn frame_mut(&mut self, seq: u64) -> Option<&mut Frame> {
        let at = seq.checked_sub(self.watermark + 1)?;
        self.frames.get_mut(at as usize)
    }
}

/// For frames that are sent again, beside those that were and may still be taken.
struct Room {
    on_its_way: usize,
    bytes_max: usize,
}

impl Room {
    /// The first is let in whatever its size.
    fn takes(&mut self, bytes: usize) -> bool {
        let fits = self.on_its_way == 0 || self.on_its_way + bytes <= self.bytes_max;
        self.on_its_way += if fits { bytes } else { 0 };
        fits
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

/// How long a link may take to bring so much. Whoever waits longer for it may send it again: no link that is worth waiting
/// for is filled by that.
pub(crate) fn brought_micros(bytes: u64) -> u64 {
    bytes / BYTES_PER_MICRO
}

/// 32 Mbit/s.
const BYTES_PER_MICRO: u64 = 4;

/// Frames of one link in all: far above those behind which one is sent again under a new number. It is reached when the
/// other takes other writes and not the first, as one whose disk has room for small values only.
const FRAMES_MAX: usize = 65_536;
