//! To whom a master grants leases.

use crate::bench::Bench;
use crate::log::server;
use kumo_cluster::SpaceNumber;

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
