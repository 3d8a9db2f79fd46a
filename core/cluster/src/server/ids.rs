//! [`Ids`]: requests that were executed, with their replies, as long as a gateway may ask again.

use crate::{Answer, GatewayId, KeyHash, Range, Remembered, Reply, RequestId};
use std::collections::BTreeMap;

/// Request ids and replies by gateway. All owners of a key remember the same, so the next primary answers a
/// retry instead of executing it again. (REPLICATION.md, rule 22)
#[derive(Debug, Default)]
pub(crate) struct Ids {
    gateways: BTreeMap<GatewayId, OfGateway>,
}

#[derive(Debug, Default)]
struct OfGateway {
    /// Below it the gateway has all answers.
    lowest_open: u64,
    replies: BTreeMap<u64, (KeyHash, Reply)>,
    /// Requests that this server answered without writing anything. The others need not know: none of them can
    /// have executed one that the primary did not.
    negatives: BTreeMap<u64, Answer>,
}

/// What is known of a request id.
pub(crate) enum Known<'a> {
    No,
    /// Executed and committed.
    Done(&'a Reply),
    /// Answered here without writing.
    Negative(&'a Answer),
    /// The gateway had its answer long ago: never executed again.
    Closed,
}

impl Ids {
    pub fn look(&self, id: RequestId) -> Known<'_> {
        let Some(of) = self.gateways.get(&id.gateway) else { return Known::No };
        if let Some((_, reply)) = of.replies.get(&id.seq) {
            return Known::Done(reply);
        }
        if let Some(answer) = of.negatives.get(&id.seq) {
            return Known::Negative(answer);
        }
        if id.seq < of.lowest_open { Known::Closed } else { Known::No }
    }

    pub fn remember(&mut self, id: RequestId, hash: KeyHash, reply: Reply) {
        let of = self.gateways.entry(id.gateway).or_default();
        if id.seq >= of.lowest_open {
            of.replies.insert(id.seq, (hash, reply));
        }
    }

    pub fn negative(&mut self, id: RequestId, answer: Answer) {
        let of = self.gateways.entry(id.gateway).or_default();
        if id.seq >= of.lowest_open {
            of.negatives.insert(id.seq, answer);
        }
    }

    /// The gateway has an answer to every request below.
    pub fn close(&mut self, gateway: GatewayId, lowest_open: u64) {
        let of = self.gateways.entry(gateway).or_default();
        if lowest_open <= of.lowest_open {
            return;
        }
        of.lowest_open = lowest_open;
        if !of.negatives.is_empty() {
            of.negatives = of.negatives.split_off(&lowest_open);
        }
        while let Some(entry) = of.replies.first_entry() {
            if *entry.key() >= lowest_open {
                break;
            }
            entry.remove();
        }
    }

    /// Those of keys in these ranges.
    pub fn in_ranges(&self, ranges: &[Range]) -> Vec<Remembered> {
        let inside = |hash: KeyHash| ranges.iter().any(|range| range.contains(hash));
        let of_gateway = |(&gateway, of): (&GatewayId, &OfGateway)| {
            let list = of.replies.iter().filter(|(_, (hash, _))| inside(*hash));
            list.map(|(&seq, (hash, reply))| Remembered {
                id: RequestId { gateway, seq },
                hash: *hash,
                reply: reply.clone(),
            })
            .collect::<Vec<_>>()
        };
        self.gateways.iter().flat_map(of_gateway).collect()
    }

    pub fn lowest_open(&self) -> Vec<(GatewayId, u64)> {
        self.gateways.iter().map(|(&gateway, of)| (gateway, of.lowest_open)).collect()
    }

    /// Forgets what belongs to keys that `gone` names.
    pub fn forget(&mut self, gone: impl Fn(KeyHash) -> bool) {
        for of in self.gateways.values_mut() {
            of.replies.retain(|_, (hash, _)| !gone(*hash));
        }
    }

    pub fn expire(&mut self, expired: impl Fn(GatewayId) -> bool) {
        self.gateways.retain(|&gateway, _| !expired(gateway));
    }
}
