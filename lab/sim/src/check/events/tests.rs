//! The checker of events finds what it is for.

use super::*;
use crate::history::Operation;
use kumo_pfs::{Condition, EntryChange, Place, QueueChange};

/// Answers to a watcher: the count omitted, the number of the first event, and the events: a letter is a name that
/// was created, `!` a wait for the lock, `+` a post.
type Answers<'a> = &'a [(u64, u64, &'a str)];

fn history(watchers: u32) -> History {
    let mut history = History::default();
    for watcher in 0..watchers {
        for resource in [
            Resource::Directory("/e".to_owned()),
            Resource::Lock("l".to_owned()),
            Resource::Queue("q".to_owned()),
        ] {
            let watch = Call::Command(Command::Watch { resource });
            let number = history.invoke(ClientNumber(watcher), watch, 0);
            history.finish(number, Ending::Reply(Reply::Done), 1);
        }
    }
    history
}

fn create(history: &mut History, name: char, time: u64) {
    let create = Command::Write {
        path: format!("/e/{name}"),
        place: Place::Replace,
        data: Default::default(),
        ephemeral: false,
        condition: Condition::Version(0),
    };
    let number = history.invoke(ClientNumber(9), Call::Command(create), time);
    let reply = Reply::Written { count: 0, version: 1, length: 0 };
    history.finish(number, Ending::Reply(reply), time + 1);
}

fn call(history: &mut History, command: Command, time: u64, ending: Ending) {
    let number = history.invoke(ClientNumber(9), Call::Command(command), time);
    history.finish(number, ending, time + 1);
}

fn lock(exclusive: bool) -> Command {
    Command::Lock { name: "l".to_owned(), exclusive, try_only: false }
}

fn post() -> Command {
    Command::Post { queue: "q".to_owned(), data: Default::default() }
}

fn event(letter: char) -> Event {
    match letter {
        '!' => Event::Lock { name: "l".to_owned(), exclusive: true },
        '+' => Event::Queue { name: "q".to_owned(), change: QueueChange::Posted },
        name => {
            Event::Directory { path: "/e".to_owned(), name: name.to_string(), change: EntryChange::Created }
        }
    }
}

fn verdict(mut history: History, watchers: &[Answers]) -> Verdict {
    for (watcher, answers) in watchers.iter().enumerate() {
        for &(omitted, first, letters) in *answers {
            let number = history.invoke(ClientNumber(watcher as u32), Call::Events, 1000);
            let events = letters.chars().map(event).collect();
            history.finish(number, Ending::Events { omitted, first, events }, 1001);
        }
    }
    check(&history, &["/e"])
}

/// Creates "a", "b", "c" one after another; then each watcher is told some of it.
fn told(watchers: &[Answers]) -> Verdict {
    let mut history = history(watchers.len() as u32);
    for (time, name) in [(10, 'a'), (20, 'b'), (30, 'c')] {
        create(&mut history, name, time);
    }
    verdict(history, watchers)
}

#[test]
fn consecutive_events_in_order_are_fine() {
    told(&[&[(0, 1, "ab"), (0, 3, "c")], &[(0, 1, "a")]]).unwrap();
    told(&[&[(1, 2, "bc")]]).unwrap();
}

#[test]
fn gaps_repeats_inventions_omissions_and_disorder_are_found() {
    told(&[&[(0, 1, "a"), (0, 3, "c")]]).unwrap_err();
    told(&[&[(0, 1, "a"), (0, 2, "a")]]).unwrap_err();
    told(&[&[(0, 1, "ax")]]).unwrap_err();
    told(&[&[(0, 1, "ac")]]).unwrap_err();
    told(&[&[(0, 1, "ba")]]).unwrap_err();
    told(&[&[(0, 1, "c"), (1, 2, "a")]]).unwrap_err();
}

#[test]
fn an_omitted_count_that_is_not_what_was_omitted_is_found() {
    told(&[&[(2, 3, "c")]]).unwrap();
    told(&[&[(1, 2, "c")]]).unwrap_err();
    told(&[&[(3, 4, "c")]]).unwrap_err();
    told(&[&[(0, 1, "a"), (1, 3, "c")]]).unwrap();
    told(&[&[(0, 1, "a"), (2, 4, "c")]]).unwrap_err();
    told(&[&[(0, 1, "a"), (1, 2, "c")]]).unwrap_err();
}

#[test]
fn two_watchers_in_different_orders_are_found() {
    // All at one time: only what the two were told can show it.
    let together = |watchers: &[Answers]| {
        let mut history = history(2);
        for name in ['a', 'b', 'c'] {
            create(&mut history, name, 10);
        }
        verdict(history, watchers)
    };
    together(&[&[(0, 1, "bac")], &[(0, 1, "bac")]]).unwrap();
    together(&[&[(0, 1, "abc")], &[(0, 1, "bac")]]).unwrap_err();
    // One of them counts one omitted too many.
    together(&[&[(0, 1, "abc")], &[(0, 1, "a"), (1, 3, "c")]]).unwrap();
    together(&[&[(0, 1, "ab")], &[(0, 1, "a"), (1, 3, "b")]]).unwrap_err();
}

#[test]
fn waits_for_a_lock_and_posts_are_counted_between_changes() {
    let counted = |letters: &str| {
        let mut history = history(1);
        call(&mut history, lock(true), 10, Ending::Cancelled);
        call(&mut history, lock(true), 12, Ending::Reply(Reply::Granted { number: 1 }));
        call(&mut history, post(), 14, Ending::Reply(Reply::Done));
        call(&mut history, post(), 16, Ending::Unknown);
        create(&mut history, 'a', 20);
        call(&mut history, post(), 30, Ending::Reply(Reply::Done));
        create(&mut history, 'b', 40);
        verdict(history, &[&[(0, 1, letters)]])
    };
    for fine in ["!+a+b", "!!+a+b", "!++a+b", "!+a++b", "!+a", "!+"] {
        counted(fine).unwrap();
    }
    for wrong in ["+a+b", "!a+b", "!+ab", "!!!+a+b", "!+++a+b", "!+a!!+b"] {
        counted(wrong).unwrap_err();
    }
}

#[test]
fn a_wait_is_not_one_of_another_kind() {
    let mut history = history(1);
    call(&mut history, lock(false), 10, Ending::Cancelled);
    create(&mut history, 'a', 20);
    verdict(history, &[&[(0, 1, "!a")]]).unwrap_err();
}

#[test]
fn what_was_before_the_watch_is_not_told() {
    let mut early = History::default();
    create(&mut early, 'a', 0);
    let mut later = history(1).operations;
    for operation in &mut later {
        let Operation { invoked, finished, .. } = operation;
        *invoked += 10;
        finished.as_mut().unwrap().0 += 10;
    }
    early.operations.extend(later);
    create(&mut early, 'b', 20);
    verdict(early.clone(), &[&[(0, 1, "b")]]).unwrap();
    verdict(early, &[&[(1, 2, "b")]]).unwrap_err();
}
