//! Histories in which more was lost than the store promises to bear: what may be gone then, and what may not.

use super::samples::{FAR, append, call, done, get, perhaps, set, value};
use super::{Verdict, counts, linear};
use crate::store::history::{Call, Loss};
use kumo_cluster::{Answer, Operation, Reply};

/// An operator gave up all copies then.
const GIVEN_UP: [Loss; 1] = [Loss::Gone { at: 100 }];

fn verdict(calls: &[Call], losses: &[Loss]) -> Verdict {
    linear::check(calls.iter(), [].iter(), losses, FAR)
}

fn missing(times: (u64, u64)) -> Call {
    call(times, Operation::Get, Answer::Missing)
}

#[test]
fn what_was_written_before_a_loss_is_there_after_it() {
    let loss = [Loss::Back { from: 100, upto: 200 }];
    let verdict = |calls: &[Call]| verdict(calls, &loss);
    let missing = call((210, 220), Operation::Get, Answer::Missing);
    verdict(&[call((0, 10), set(1), done(4)), missing]).unwrap_err();
    let calls = [
        call((0, 10), set(1), done(4)),
        call((110, 120), set(2), done(5)),
        get((130, 140), 5, 2),
        call((150, 160), set(3), done(6)),
    ];
    // Any of those that were there in that time, and then that one.
    for (number, clock) in [(1, 4), (2, 5), (3, 6)] {
        verdict(&[&calls[..], &[get((210, 220), clock, number)]].concat()).unwrap();
    }
    let both = [get((210, 220), 4, 1), get((230, 240), 5, 2)];
    verdict(&[&calls[..], &both].concat()).unwrap_err();
    // Before it, nothing is lost.
    verdict(&[&calls[..], &[get((170, 180), 5, 2)]].concat()).unwrap_err();
    // One of unknown outcome that was seen before the loss is there afterwards, or is not.
    let seen = [perhaps(20, set(2)), get((130, 140), 5, 2)];
    for (number, clock) in [(1, 4), (2, 5)] {
        verdict(&[&calls[..1], &seen, &[get((210, 220), clock, number)]].concat()).unwrap();
    }
}

#[test]
fn what_was_given_up_is_gone() {
    let before = [call((0, 10), set(1), done(4)), call((20, 30), set(2), done(5))];
    let after = |calls: &[Call]| verdict(&[&before[..], calls].concat(), &GIVEN_UP);
    after(&[missing((110, 120))]).unwrap();
    after(&[missing((110, 120)), call((130, 140), set(3), done(3)), get((150, 160), 3, 3)]).unwrap();
    // Neither the last nor an older version comes back, nor does anything vanish that was written since.
    after(&[get((110, 120), 5, 2)]).unwrap_err();
    after(&[get((110, 120), 4, 1)]).unwrap_err();
    after(&[missing((110, 120)), get((130, 140), 5, 2)]).unwrap_err();
    after(&[call((110, 120), set(3), done(6)), missing((130, 140))]).unwrap_err();
    // It is given up once, and not before.
    after(&[missing((50, 60))]).unwrap_err();
    verdict(&[&before[..], &[missing((110, 120))]].concat(), &[]).unwrap_err();
}

#[test]
fn what_is_under_way_when_its_key_is_given_up_counts_before_it_or_after_it() {
    let across = [call((0, 10), set(1), done(4)), call((90, 110), set(2), done(5))];
    verdict(&[&across[..], &[missing((120, 130))]].concat(), &GIVEN_UP).unwrap();
    verdict(&[&across[..], &[get((120, 130), 5, 2)]].concat(), &GIVEN_UP).unwrap();
    verdict(&[&across[..], &[get((120, 130), 4, 1)]].concat(), &GIVEN_UP).unwrap_err();
}

#[test]
fn what_was_seen_before_its_key_was_given_up_is_not_executed_again() {
    let calls = [
        call((0, 10), set(1), done(4)),
        perhaps(20, append(2)),
        call((30, 40), Operation::Get, value(5, b"<1><2>")),
        call((110, 120), set(3), done(6)),
    ];
    let after = |data| [&calls[..], &[call((130, 140), Operation::Get, value(7, data))]].concat();
    verdict(&after(b"<3><2>"), &GIVEN_UP).unwrap_err();
    // Nobody saw it before: it may have waited until then.
    let unseen = [&calls[..2], &after(b"<3><2>")[3..]].concat();
    verdict(&unseen, &GIVEN_UP).unwrap();
}

#[test]
fn a_key_that_was_given_up_counts_and_logs_what_came_since_once() {
    let up = |times| {
        let operation = Operation::Add64 { unique: None, delta: 1, down: false, initial: None, touch: None };
        call(times, operation, Answer::Reply(Reply::Number { clock: 1, number: 1, ttl: None }))
    };
    let count = |value: &[u8]| {
        counts::counter([up((0, 10)), up((90, 110)), up((120, 130))].iter(), &GIVEN_UP, Some(value))
    };
    count(b"1").unwrap();
    count(b"2").unwrap();
    count(b"0").unwrap_err();
    count(b"3").unwrap_err();
    let log = |value: &[u8]| {
        let calls = [(1, (0, 10)), (2, (90, 110)), (3, (120, 130))];
        let calls = calls.map(|(number, times)| call(times, append(number), done(1)));
        counts::log(calls.iter(), &GIVEN_UP, Some(value))
    };
    log(b"<3>").unwrap();
    log(b"<2><3>").unwrap();
    log(b"<2>").unwrap_err();
    log(b"<1><3>").unwrap_err();
    log(b"<3><3>").unwrap_err();
}
