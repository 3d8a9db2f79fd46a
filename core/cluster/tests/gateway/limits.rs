//! What a gateway refuses because it holds too much already.

use crate::names::settings;
use bytes::Bytes;
use kumo_cluster::{
    Gateway, GatewayEffect, GatewayError, GatewayId, GatewayInput, GatewayNote, GatewaySettings, Message,
    Operation, key_hash,
};
use kumo_paxos::Time;
use std::net::SocketAddr;

#[test]
fn workers_share_what_a_process_may_hold() {
    let alone = taken(1);
    assert!(alone > 0 && taken(4) <= alone / 4 + 1, "{alone} alone, {} of four", taken(4));
}

#[test]
fn a_share_takes_one_call_whatever_its_size() {
    assert_eq!(taken(usize::MAX), 1);
}

#[test]
fn a_call_larger_than_a_share_goes_beside_small_ones() {
    let mut gateway = Gateway::new(GatewaySettings { workers: 512, ..settings() }, Time(0));
    let mut effects = Vec::new();
    for (ticket, bytes) in [(0, 1), (1, 4 << 20)] {
        let (key, data) = (Bytes::from_static(b"key"), Bytes::from(vec![b'v'; bytes]));
        let operation = Operation::Set { flags: 0, expiry: 0, data };
        let call = GatewayInput::Call { ticket, hash: key_hash(&key), key, operation };
        gateway.step(Time(0), call, &mut effects);
    }
    assert_eq!(effects, []);
}

#[test]
fn a_refused_write_is_told_of_with_all_it_wanted() {
    let mut gateway = Gateway::new(GatewaySettings { workers: usize::MAX, ..settings() }, Time(0));
    let key = Bytes::from_static(b"key");
    let operation = Operation::Set { flags: 1, expiry: 2, data: Bytes::from_static(b"value") };
    let mut effects = Vec::new();
    for ticket in 0..2 {
        let (key, operation) = (key.clone(), operation.clone());
        let call = GatewayInput::Call { ticket, hash: key_hash(&key), key, operation };
        gateway.step(Time(0), call, &mut effects);
    }
    let error = GatewayError::Busy;
    let done = GatewayEffect::Done { ticket: 1, result: Err(error) };
    assert_eq!(effects, [done, GatewayEffect::Note(GatewayNote::Failed { key, operation, error })]);
}

#[test]
fn signs_of_life_come_in_time_whatever_is_set() {
    let settings = GatewaySettings { keepalive_micros: 3_600_000_000, ..settings() };
    let nonce = settings.nonce;
    let manager = SocketAddr::from(([10, 0, 0, 2], 1));
    let mut gateway = Gateway::new(settings, Time(0));
    gateway.step(Time(0), GatewayInput::ManagerUp(manager), &mut Vec::new());
    let registered = Message::Registered { nonce, gateway: GatewayId(1), cluster: crate::names::CLUSTER };
    gateway.step(Time(0), GatewayInput::Manager(manager, registered), &mut Vec::new());
    let mut signs = 0;
    for now in (0..60).map(|second| Time(second * 1_000_000)) {
        let mut effects = Vec::new();
        gateway.step(now, GatewayInput::Timeout, &mut effects);
        let is_sign = |effect: &&GatewayEffect| {
            matches!(effect, GatewayEffect::Manager(_, Message::GatewayAlive { .. }))
        };
        signs += effects.iter().filter(is_sign).count();
    }
    assert!(signs >= 5, "{signs} in the minute after which it would be given up");
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
