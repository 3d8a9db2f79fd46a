//! Answers before the copies are made, for those who want them.

use crate::house::{House, set};
use kumo_cluster::{Answer, Early, Operation};

/// Which of a set, a delete and an append are answered before another server heard of them.
fn answered_alone(servers: Early, gateway: bool) -> [bool; 3] {
    let mut house = House::with(3, 3, |settings| settings.early = servers);
    let keys = house.keys_of(&[0, 1, 2], 3);
    for (seq, key) in (1..).zip(&keys) {
        house.ask(0, seq, 1, key, set("a"));
    }
    let append = Operation::Append { unique: None, data: "b".into() };
    let writes = [set("b"), Operation::Delete { unique: None }, append];
    let mut seq = 3;
    let mut at = keys.iter();
    writes.map(|operation| {
        seq += 1;
        let mut request = house.request(seq, 4, at.next().expect("a key for each"), operation);
        request.early = gateway;
        house.send_request(0, request);
        let alone = matches!(house.answers.get(&seq), Some(Answer::Reply(_)));
        house.settle();
        assert!(matches!(house.answers.get(&seq), Some(Answer::Reply(_))), "all are answered at last");
        alone
    })
}

#[test]
fn a_server_answers_early_what_its_operator_or_the_gateway_asked_for() {
    let none = Early::default();
    assert_eq!(answered_alone(none, false), [false; 3]);
    assert_eq!(answered_alone(Early { set: true, ..none }, false), [true, false, false]);
    assert_eq!(answered_alone(Early { delete: true, ..none }, false), [false, true, false]);
    assert_eq!(answered_alone(none, true), [true; 3], "the gateway asks for what it may");
}
