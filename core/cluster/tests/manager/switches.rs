//! When a replace has done its part: the servers say so, each for itself.

use crate::bench::{Bench, addresses};
use crate::log::server;
use kumo_cluster::control::ControlRequest;
use kumo_cluster::{ManagerInput, Progress};

/// A tenth of a second, in which all four say how many copies they have left.
fn say(bench: &mut Bench, left: [u64; 4]) {
    bench.now += 100_000;
    for (number, left) in (1..=4).zip(left) {
        let mut sign = bench.sign(server(number, 1));
        sign.progress = Progress { copies: 9, copies_done: 9 - left, ..sign.progress };
        bench.alive(u64::from(number), sign);
    }
    bench.step(ManagerInput::Timeout);
}

/// The last one leads nothing yet; it may have something in memory alone that those who leave have on their disks.
#[test]
fn the_switch_waits_for_all_who_lead_and_all_who_stay() {
    for waited_for in 0..4 {
        let mut bench = Bench::with_servers(1..=3);
        bench.connect(4, server(4, 1));
        bench.ask(ControlRequest::Attach { servers: addresses([4]), replace: true, accept_data_loss: false });
        let mut left = [0; 4];
        left[waited_for] = 1;
        (0..20).for_each(|_| say(&mut bench, left));
        assert!(bench.log.cluster.space().job.is_some(), "{waited_for} is not done");
        (0..20).for_each(|_| say(&mut bench, [0; 4]));
        assert!(bench.log.cluster.space().job.is_none());
    }
}
