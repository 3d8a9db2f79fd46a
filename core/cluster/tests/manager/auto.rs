//! What auto-replace does by itself, and what it does not let stand in its way.

use crate::bench::Bench;
use crate::log::{CELL, server};
use kumo_cluster::control::ControlRequest;
use kumo_cluster::{Command, Incarnation, ManagerInput, ManagerNote, MemberState, Order};
use kumo_session::ConnectionId;

fn auto(numbers: std::ops::RangeInclusive<u16>) -> Bench {
    Bench::with(|settings| settings.auto_replace = true).attached(numbers)
}

/// A fourth server comes and is attached by itself; the copies stay undone.
fn in_a_replace() -> Bench {
    let mut bench = auto(1..=3);
    bench.connect(4, server(4, 1));
    let end = bench.now + 6_000_000;
    while bench.now < end {
        bench.now += 100_000;
        for number in 1..=4 {
            let mut sign = bench.sign(server(number, 1));
            sign.progress.copies = 9;
            bench.alive(u64::from(number), sign);
        }
        bench.step(ManagerInput::Timeout);
    }
    assert!(bench.log.cluster.space().job.is_some());
    bench
}

/// All restart, with their disks, in the middle of a replace: the last owner leads again, and of the ring that was being
/// gone to nobody else is there.
fn blackout(bench: &mut Bench) {
    (1..=4).for_each(|connection| bench.down(connection));
    (11..=14).for_each(|connection| bench.step(ManagerInput::Up(ConnectionId(connection))));
}

fn pass_after(bench: &mut Bench, micros: u64) {
    let end = bench.now + micros;
    while bench.now < end {
        bench.now += 100_000;
        for number in 1..=4 {
            let mut sign = bench.sign(server(number, 2));
            (sign.previous, sign.cluster) = (vec![Incarnation(1)], Some(CELL));
            bench.alive(u64::from(number) + 10, sign);
        }
        bench.step(ManagerInput::Timeout);
    }
}

#[test]
fn a_replace_that_cannot_end_is_given_up_for_one_that_can() {
    let mut bench = in_a_replace();
    blackout(&mut bench);
    pass_after(&mut bench, 60_000_000);
    for number in 1..=4 {
        assert_eq!(bench.state(server(number, 2)), Some(MemberState::Active), "{number}");
    }
    let given_up = bench.notes.iter().filter(|note| matches!(note, ManagerNote::Hopeless { .. })).count();
    assert_eq!(given_up, 1);
}

#[test]
fn a_replace_that_cannot_end_is_the_operators_while_auto_replace_is_off_or_it_is_paused() {
    for request in [ControlRequest::AutoReplace { on: false }, ControlRequest::Pause] {
        let mut bench = in_a_replace();
        bench.ask(request);
        blackout(&mut bench);
        pass_after(&mut bench, 60_000_000);
        assert!(bench.log.cluster.is_hopeless());
        let cancels =
            |command: &Command| matches!(command, Command::Order { order: Order::Cancel { .. }, .. });
        assert!(!bench.proposed.iter().any(cancels));
    }
}

/// One server lives for a second and a half, every three seconds.
#[test]
fn who_comes_and_goes_does_not_put_it_off_for_ever() {
    let mut bench = auto(1..=4);
    let mut others = vec![(1, server(1, 1)), (2, server(2, 1)), (3, server(3, 1))];
    bench.pass(3_000_000, &[&others[..], &[(4, server(4, 1))]].concat());
    bench.down(4);
    // One that stays comes too.
    bench.connect(5, server(5, 1));
    others.push((5, server(5, 1)));
    let began = bench.now;
    let mut connection = 100;
    while bench.now < began + 600_000_000 && bench.state(server(4, 1)).is_some() {
        connection += 1;
        let life = server(4, u128::from(connection));
        bench.connect(connection, life);
        bench.pass(1_500_000, &[&others[..], &[(connection, life)]].concat());
        bench.down(connection);
        bench.pass(1_500_000, &others);
    }
    let seconds = (bench.now - began) / 1_000_000;
    assert!((40..50).contains(&seconds), "{seconds} s");
    assert_eq!(bench.log.rings()[0], [(1, 1), (2, 1), (3, 1), (5, 1)]);
}
