//! Exactly once: counters and logs hold every acknowledged call once, every unknown one at most once, and nothing
//! else.

use super::Verdict;
use crate::store::history::{Call, Loss, tokens};
use kumo_cluster::{Answer, Operation};
use std::collections::BTreeMap;

/// A counter that is never deleted: acknowledged ≤ value ≤ acknowledged + unknown. What may be lost is unknown, and what is
/// lost counts for nothing.
pub fn counter<'a>(calls: impl Iterator<Item = &'a Call>, losses: &[Loss], value: Option<&[u8]>) -> Verdict {
    let (mut acknowledged, mut unknown) = (0, 0);
    for call in calls {
        let Operation::Add64 { delta, .. } = call.operation else { continue };
        match call.answer() {
            Some(Answer::Reply(_)) if call.is_lost(losses) => {}
            Some(Answer::Reply(_)) if call.may_be_lost(losses) => unknown += delta,
            Some(Answer::Reply(_)) => acknowledged += delta,
            Some(answer) => return Err(format!("counting up was answered {answer:?}")),
            None if call.is_unclear() => unknown += delta,
            None => {}
        }
    }
    let text = value.map_or(Ok("0"), std::str::from_utf8).map_err(|_| "not text".to_owned())?;
    let value: u64 = text.parse().map_err(|_| format!("not a number: {text:?}"))?;
    match (acknowledged..=acknowledged + unknown).contains(&value) {
        true => Ok(()),
        false => Err(format!("is {value}; acknowledged {acknowledged}, unknown {unknown}")),
    }
}

/// A log that is never deleted.
pub fn log<'a>(calls: impl Iterator<Item = &'a Call>, losses: &[Loss], value: Option<&[u8]>) -> Verdict {
    let mut found: BTreeMap<u64, u64> = BTreeMap::new();
    for token in tokens(value.unwrap_or_default())? {
        *found.entry(token).or_default() += 1;
    }
    for call in calls {
        let Operation::Append { data, .. } = &call.operation else { continue };
        let token = tokens(data)?.first().copied().ok_or("an append of nothing")?;
        let times = found.remove(&token).unwrap_or(0);
        let fits = match call.answer() {
            Some(Answer::Reply(_)) if call.is_lost(losses) => times == 0,
            Some(Answer::Reply(_)) if call.may_be_lost(losses) => times <= 1,
            Some(Answer::Reply(_)) => times == 1,
            Some(_) => times == 0,
            None if call.is_unclear() => times <= 1,
            None => times == 0,
        };
        if !fits {
            return Err(format!("<{token}> is there {times} times; it ended {:?}", call.ending));
        }
    }
    match found.is_empty() {
        true => Ok(()),
        false => Err(format!("holds what nobody appended: {found:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::history::{Ending, token};
    use kumo_cluster::Reply;

    fn call(operation: Operation, ending: Option<Ending>) -> Call {
        Call { key: 0, caller: 0, operation, invoked: 0, ending: ending.map(|ending| (1, ending)) }
    }

    fn done() -> Option<Ending> {
        Some(Ending::Answer(Answer::Reply(Reply::Done { clock: 1 })))
    }

    fn up(delta: u64, ending: Option<Ending>) -> Call {
        call(Operation::Add64 { unique: None, delta, down: false, initial: None, touch: None }, ending)
    }

    fn append(number: u64, ending: Option<Ending>) -> Call {
        call(Operation::Append { unique: None, data: token(number) }, ending)
    }

    #[test]
    fn a_counter_is_between_what_is_sure_and_what_may_be() {
        let calls = [up(3, done()), up(4, None), up(5, done())];
        for value in ["8", "12"] {
            counter(calls.iter(), &[], Some(value.as_bytes())).unwrap();
        }
        for value in ["7", "13"] {
            counter(calls.iter(), &[], Some(value.as_bytes())).unwrap_err();
        }
        counter(calls.iter(), &[], None).unwrap_err();
        counter(calls.iter(), &[Loss::Back { from: 1, upto: 2 }], None).unwrap();
        counter(calls.iter(), &[Loss::Back { from: 2, upto: 3 }], None).unwrap_err();
    }

    #[test]
    fn a_log_has_every_append_once() {
        let calls = [append(1, done()), append(2, None), append(3, Some(Ending::Answer(Answer::NotStored)))];
        for value in ["<1>", "<1><2>", "<2><1>"] {
            log(calls.iter(), &[], Some(value.as_bytes())).unwrap();
        }
        for value in ["", "<2>", "<1><1>", "<1><2><2>", "<1><3>", "<1><9>"] {
            log(calls.iter(), &[], Some(value.as_bytes())).unwrap_err();
        }
        log(calls.iter(), &[Loss::Back { from: 1, upto: 2 }], None).unwrap();
    }
}
