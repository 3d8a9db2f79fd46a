//! To whom a master grants leases.

use crate::bench::Bench;
use crate::log::server;
use kumo_cluster::{CellView, ManagerInput, MemberState, SpaceNumber};

/// A cell that was rebuilt from what the servers had goes on above the space of this one, which does not know of it.
#[test]
fn a_server_that_knows_a_later_space_gets_no_lease() {
    let mut bench = Bench::with_servers(1..=3);
    for (ahead, granted) in [(0, true), (1, false), (1 << 40, false), (0, true)] {
        let before = bench.leases_to(1);
        bench.now += 100_000;
        let mut sign = bench.sign(server(1, 1));
        sign.space = SpaceNumber(sign.space.0 + ahead);
        bench.alive(1, sign);
        assert_eq!(bench.leases_to(1) > before, granted, "{ahead} spaces ahead");
    }
}

/// The manager's clock goes a tenth too fast and the server's a tenth too slow.
#[test]
fn a_slow_clock_has_counted_its_lease_when_the_fault_is_put_up() {
    for another_term in [false, true] {
        let mut bench = Bench::with_servers(1..=3);
        let all = [1, 2, 3].map(|number| (u64::from(number), server(number, 1)));
        bench.pass(3_000_000, &all);
        let granted = bench.now;
        if another_term {
            bench.step(ManagerInput::Cell(CellView::default()));
            bench.lead();
        }
        bench.down(1);
        while bench.state(server(1, 1)) == Some(MemberState::Active) {
            bench.pass(10_000, &all[1..]);
        }
        let counted = (bench.now - granted) * 9 / 11;
        assert!(counted >= 1_500_000, "{counted} us of its lease");
        assert!(bench.now - granted <= 2_000_000, "a killed server is noticed within 2 s");
    }
}
