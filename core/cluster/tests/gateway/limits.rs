//! What a gateway refuses because it holds too much already.

use crate::names::settings;
use bytes::Bytes;
use kumo_cluster::{
    Gateway, GatewayEffect, GatewayError, GatewayInput, GatewaySettings, Operation, key_hash,
};
use kumo_paxos::Time;

#[test]
fn workers_share_what_a_process_may_hold() {
    let alone = taken(1);
    assert!(alone > 0 && taken(4) <= alone / 4, "{alone} alone, {} of four", taken(4));
}

#[test]
fn a_share_takes_one_call_whatever_its_size() {
    assert_eq!(taken(usize::MAX), 1);
}

/// Calls with a large value that one of so many workers takes before it refuses the next.
fn taken(workers: usize) -> usize {
    let mut gateway = Gateway::new(GatewaySettings { workers, ..settings() }, Time(0));
    let data = Bytes::from(vec![b'v'; 1 << 20]);
    let mut effects = Vec::new();
    let calls = (0..4096).take_while(|&ticket| {
        let key = Bytes::from_static(b"key");
        let operation = Operation::Set { flags: 0, expiry: 0, data: data.clone() };
        let call = GatewayInput::Call { ticket, hash: key_hash(&key), key, operation };
        gateway.step(Time(0), call, &mut effects);
        let busy = |effect: &GatewayEffect| {
            matches!(effect, GatewayEffect::Done { result: Err(GatewayError::Busy), .. })
        };
        !effects.drain(..).any(|effect| busy(&effect))
    });
    calls.count()
}
