//! Servers that are killed and stopped while clients work.

use crate::client::Client;
use crate::cluster::{Cluster, until};
use crate::load::Load;
use rustix::process::Signal;
use std::time::{Duration, Instant};

#[test]
fn two_of_three_servers_are_killed_one_after_the_other() {
    let mut cluster = Cluster::start(3, 3, &[]);
    let others = [&[][..], &["--spread-reads"]].map(|options| cluster.second_gateway(options));
    let load = Load::watched(&cluster, &others.each_ref());
    load.further(OPERATIONS_BETWEEN);
    let mut noticed = Vec::new();
    for (server, phase) in [(0, "kill -9 of one"), (1, "kill -9 of the second")] {
        load.phase(phase);
        let killed = Instant::now();
        cluster.servers[server].kill();
        cluster.until_fault(server);
        noticed.push(killed.elapsed().as_millis());
        load.further(OPERATIONS_BETWEEN);
    }
    load.phase("two come back");
    cluster.servers[0].run();
    cluster.servers[1].run();
    until("both are known", || (cluster.try_stat()?["not_attached"].as_array()?.len() == 2).then_some(()));
    cluster.attach();
    cluster.until_active(3);
    load.further(OPERATIONS_BETWEEN);
    // What came back holds everything: the third may go now.
    load.phase("kill -9 of the third");
    cluster.servers[2].kill();
    cluster.until_fault(2);
    load.further(OPERATIONS_BETWEEN);
    let tally = load.finish();
    println!("kill -9 of servers: 3 of 3 took effect, declared fault after {noticed:?} ms; {tally}");
    assert!(tally.operations() >= 5 * OPERATIONS_BETWEEN);
}

#[test]
fn a_stopped_server_serves_nothing_old_when_it_goes_on() {
    let cluster = Cluster::start(3, 3, &[]);
    let others = [&[][..], &["--spread-reads"]].map(|options| cluster.second_gateway(options));
    let load = Load::watched(&cluster, &others.each_ref());
    load.further(OPERATIONS_BETWEEN);
    // They stop with the server, and know as little of what is written meanwhile as it does.
    let asleep = [&[][..], &["--spread-reads"]].map(|options| cluster.second_gateway(options));
    let mut sleepers = asleep.each_ref().map(|gateway| load.sleeper(gateway));
    load.phase("stopped");
    let stopped = Instant::now();
    let stopping = [&cluster.servers[1], &asleep[0], &asleep[1]];
    stopping.iter().for_each(|node| node.signal(Signal::STOP));
    cluster.until_fault(1);
    let noticed = stopped.elapsed();
    load.further(OPERATIONS_BETWEEN);
    // The stop itself is the fault: it lasts so long, whatever else has happened by then.
    until("the stop is over", || (stopped.elapsed() >= STOP).then_some(()));
    load.phase("continued");
    let changed = sleepers.each_mut().map(|sleeper| sleeper.ask());
    stopping.iter().for_each(|node| node.signal(Signal::CONT));
    let read = sleepers.each_mut().map(|sleeper| sleeper.answers());
    let some = changed.iter().all(|&changed| changed > 0) && read.iter().all(|&read| read > 0);
    assert!(some, "written meanwhile: {changed:?}, answered: {read:?}");
    until("it is back, not attached", || {
        let stat = cluster.try_stat()?;
        let free = stat["not_attached"].as_array()?;
        free.iter().any(|one| one == &cluster.servers[1].address.to_string()).then_some(())
    });
    load.further(OPERATIONS_BETWEEN);
    load.phase("attached again");
    cluster.attach();
    cluster.until_active(3);
    load.further(OPERATIONS_BETWEEN);
    let tally = load.finish();
    println!(
        "SIGSTOP of a server: 1 of 1 took effect, fault after {} ms; {changed:?} keys were written meanwhile, and {read:?} \
         read by gateways that were stopped with it; {tally}",
        noticed.as_millis()
    );
    assert!(tally.operations() >= 4 * OPERATIONS_BETWEEN);
}

#[test]
fn everything_is_killed_and_started_again() {
    let mut cluster = Cluster::start(3, 3, &[]);
    // This one lives on, with what it knows.
    let other = cluster.second_gateway(&["--spread-reads"]);
    let load = Load::watched(&cluster, &[&other]);
    load.further(4 * OPERATIONS_BETWEEN);
    load.phase("kill -9 of everything");
    cluster.nodes().for_each(|node| node.signal(Signal::KILL));
    let killed = cluster.nodes().map(|node| node.kill()).count();
    let began = Instant::now();
    cluster.nodes().for_each(|node| node.run());
    // Which of them must be attached again, and when they can be, is for the managers to say.
    until("all serve again", || {
        cluster.kumoctl(&["attach"]);
        let stat = cluster.try_stat()?;
        let active = stat["attached"].as_array()?.iter().filter(|one| one["state"] == "active").count();
        let mut client = Client::open(cluster.gateway.address)?;
        (active == 3 && stat["job"].is_null() && client.set("served", "again").ok()?).then_some(())
    });
    let served = began.elapsed();
    load.phase("served again");
    load.further(OPERATIONS_BETWEEN);
    let tally = load.finish();
    println!("all killed: {killed} of 7 took effect, served again after {} ms; {tally}", served.as_millis());
    assert_eq!(killed, 7);
    assert!(tally.operations() >= 5 * OPERATIONS_BETWEEN);
}

/// So that every fault meets a store at work.
const OPERATIONS_BETWEEN: u64 = 500;

/// Far longer than it takes to notice.
const STOP: Duration = Duration::from_secs(20);
