//! Servers that come and go while clients work.

use crate::cluster::{Cluster, until};
use crate::load::Load;

#[test]
fn servers_come_and_go_under_load() {
    let mut cluster = Cluster::start(3, 3, &[]);
    let load = Load::start(&cluster);
    load.further(OPERATIONS_BETWEEN);
    let mut replaces = 0;
    for (count, phase) in [(1, "attach of a fourth"), (3, "attach of three at once")] {
        (0..count).for_each(|_| cluster.add_server());
        until("the newcomers are known", || {
            (cluster.try_stat()?["not_attached"].as_array()?.len() == count).then_some(())
        });
        load.phase(phase);
        cluster.attach();
        cluster.until_active(cluster.servers.len());
        load.further(OPERATIONS_BETWEEN);
        replaces += 1;
    }
    // The first three are those that everything was written to.
    let leaving: Vec<String> = cluster.servers[..3].iter().map(|server| server.address.to_string()).collect();
    load.phase("detach of three");
    let mut order = vec!["detach"];
    order.extend(leaving.iter().map(String::as_str));
    cluster.order(&order);
    cluster.until_settled();
    cluster.until_active(4);
    cluster.servers[..3].iter_mut().for_each(|server| server.kill());
    load.phase("those killed");
    load.further(OPERATIONS_BETWEEN);
    replaces += 1;
    load.phase("fault and detach");
    cluster.servers[3].kill();
    cluster.until_fault(3);
    cluster.order(&["detach"]);
    cluster.until_settled();
    cluster.until_active(3);
    load.further(OPERATIONS_BETWEEN);
    replaces += 1;
    let tally = load.finish();
    println!("attach and detach: {replaces} of 4 replaces took effect; {tally}");
    assert!(tally.operations() >= 5 * OPERATIONS_BETWEEN);
}

const OPERATIONS_BETWEEN: u64 = 500;
