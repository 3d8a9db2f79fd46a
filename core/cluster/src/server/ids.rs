//! [`Ids`]: requests that were executed, with their replies, as long as a gateway may ask again.

use super::replies::Replies;
use crate::{Answer, GatewayId, KeyHash, Remembered, Reply, RequestId};
use std::collections::BTreeMap;

/// Request ids and replies by gateway. All owners of a key remember the same, so the next primary answers a
/// retry instead of executing it again. (REPLICATION.md, rule 22)
#[derive(Clone, Debug, Default)]
pub(crate) struct Ids {
    gateways: BTreeMap<GatewayId, OfGateway>,
}

#[derive(Clone, Debug, Default)]
struct OfGateway {
    /// Those that were executed, or may have been. Closed up to the lowest that the gateway has no answer to.
    replies: Replies,
    /// Requests that this server answered without writing anything. The others need not know: none of them can
    /// have executed one that the primary did not.
    negatives: BTreeMap<u64, Answer>,
}

impl OfGateway {
    fn lowest_open(&self) -> u64 {
        self.replies.closed()
    }

    fn bytes(&self) -> usize {
        self.replies.bytes() + self.negatives.len() * NEGATIVE_BYTES
    }
}

/// Some of what is remembered, and up to where that is all; none: there is no more.
pub(crate) struct Part {
    pub remembered: Vec<Remembered>,
    pub bytes: usize,
    pub next: Option<RequestId>,
}

/// What is known of a request id.
pub(crate) enum Known<'a> {
    No,
    /// Executed and committed.
    Done(&'a Reply),
    /// It may have been executed, and nobody can say.
    Unknown,
    /// Answered here without writing.
    Negative(&'a Answer),
    /// The gateway had its answer long ago: never executed again.
    Closed,
}

impl Ids {
    pub fn look(&self, id: RequestId) -> Known<'_> {
        let Some(of) = self.gateways.get(&id.gateway) else { return Known::No };
        if let Some((_, reply)) = of.replies.get(id.seq) {
            return reply.as_ref().map_or(Known::Unknown, Known::Done);
        }
        if let Some(answer) = of.negatives.get(&id.seq) {
            return Known::Negative(answer);
        }
        if id.seq < of.lowest_open() { Known::Closed } else { Known::No }
    }

    /// So much is remembered for that gateway that nothing new of it is taken on before it has acknowledged some. But
    /// the lowest request that it has open is: nothing else is acknowledged before that one is answered.
    pub fn must_wait(&self, id: RequestId) -> bool {
        let full = |of: &&OfGateway| of.bytes() >= REMEMBERED_BYTES_MAX;
        self.gateways.get(&id.gateway).filter(full).is_some_and(|of| id.seq > of.lowest_open())
    }

    pub fn remember(&mut self, id: RequestId, hash: KeyHash, reply: Reply) {
        let of = self.gateways.entry(id.gateway).or_default();
        of.replies.insert(id.seq, hash, Some(reply));
    }

    /// It may have been executed. Whoever knows what it came to knows better.
    pub fn unknown(&mut self, id: RequestId, hash: KeyHash) {
        let of = self.gateways.entry(id.gateway).or_default();
        if of.replies.get(id.seq).is_none() {
            of.replies.insert(id.seq, hash, None);
        }
    }

    pub fn negative(&mut self, id: RequestId, answer: Answer) {
        let of = self.gateways.entry(id.gateway).or_default();
        if id.seq >= of.lowest_open() {
            of.negatives.insert(id.seq, answer);
        }
    }

    /// The gateway has an answer to every request below.
    pub fn close(&mut self, gateway: GatewayId, lowest_open: u64) {
        let of = self.gateways.entry(gateway).or_default();
        if lowest_open <= of.lowest_open() {
            return;
        }
        while let Some(entry) = of.negatives.first_entry().filter(|entry| *entry.key() < lowest_open) {
            entry.remove();
        }
        of.replies.close(lowest_open);
    }

    /// Those of keys that are `inside`, after that one, as many as one message and one step take, which looks at so many.
    pub fn part(
        &self,
        after: Option<RequestId>,
        looked_max: usize,
        inside: impl Fn(RequestId, KeyHash) -> bool,
    ) -> Part {
        let mut part = Part { remembered: Vec::new(), bytes: 0, next: None };
        let mut looked = 0;
        let from = after.map_or(GatewayId(0), |after| after.gateway);
        for (&gateway, of) in self.gateways.range(from..) {
            let first = match after {
                Some(after) if after.gateway == gateway => after.seq.checked_add(1),
                _other => Some(0),
            };
            let Some(first) = first else { continue };
            for (seq, (hash, reply)) in of.replies.from(first) {
                let id = RequestId { gateway, seq };
                looked += 1;
                if inside(id, *hash) {
                    part.bytes += bytes_of(reply);
                    part.remembered.push(Remembered { id, hash: *hash, reply: reply.clone() });
                }
                if part.bytes >= PART_BYTES_MAX || looked >= looked_max {
                    part.next = Some(id);
                    return part;
                }
            }
        }
        part
    }

    pub fn lowest_open(&self) -> Vec<(GatewayId, u64)> {
        self.gateways.iter().map(|(&gateway, of)| (gateway, of.lowest_open())).collect()
    }

    /// Its write is not to be had here: this server cannot say that it was done.
    pub fn disown(&mut self, id: RequestId) {
        let Some(of) = self.gateways.get_mut(&id.gateway) else { return };
        of.replies.remove(id.seq);
    }

    /// Forgets what belongs to keys that `gone` names.
    pub fn forget(&mut self, gone: impl Fn(KeyHash) -> bool) {
        for of in self.gateways.values_mut() {
            of.replies.retain(|hash| !gone(hash));
        }
    }

    pub fn expire(&mut self, expired: impl Fn(GatewayId) -> bool) {
        self.gateways.retain(|&gateway, _| !expired(gateway));
    }
}

fn bytes_of(reply: &Option<Reply>) -> usize {
    match reply {
        None | Some(Reply::Done { .. } | Reply::Number { .. } | Reply::Touched { .. }) => ENTRY_BYTES,
        Some(Reply::Value { data, .. }) => ENTRY_BYTES + data.len(),
    }
}

/// What is remembered for one gateway before its requests have to wait: over a million replies, which take it ten
/// seconds at a hundred thousand requests a second with its lowest one unanswered.
const REMEMBERED_BYTES_MAX: usize = 128 << 20;

/// One in a message, without its data.
const ENTRY_BYTES: usize = 112;

/// One in its map.
const NEGATIVE_BYTES: usize = 112;

/// Replies in one message.
const PART_BYTES_MAX: usize = 1 << 20;
