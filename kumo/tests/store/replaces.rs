//! Servers that come and go while clients work.

use crate::client::Client;
use crate::cluster::{Cluster, until};
use crate::load::Load;
use rustix::process::Signal;

#[test]
fn servers_come_and_go_under_load() {
    let mut cluster = Cluster::start(3, 3, &[]);
    let others = [&[][..], &["--spread-reads"]].map(|options| cluster.second_gateway(options));
    let load = Load::watched(&cluster, &others.each_ref());
    load.further(OPERATIONS_BETWEEN);
    // They miss every change until those that they know have left, and hold what they held.
    let asleep = [&[][..], &["--spread-reads"]].map(|options| cluster.second_gateway(options));
    let mut sleepers = asleep.each_ref().map(|gateway| load.sleeper(gateway));
    asleep.iter().for_each(|gateway| gateway.signal(Signal::STOP));
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
    load.further(OPERATIONS_BETWEEN);
    load.phase("gateways go on");
    let changed = sleepers.each_mut().map(|sleeper| sleeper.ask());
    asleep.iter().for_each(|gateway| gateway.signal(Signal::CONT));
    let read = sleepers.each_mut().map(|sleeper| sleeper.answers());
    let some = changed.iter().all(|&changed| changed > 0) && read.iter().all(|&read| read > 0);
    assert!(some, "written meanwhile: {changed:?}, answered: {read:?}");
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
    println!(
        "attach and detach: {replaces} of 4 replaces took effect; {changed:?} keys were written meanwhile, and {read:?} read \
         by gateways that knew of none; {tally}"
    );
    assert!(tally.operations() >= 5 * OPERATIONS_BETWEEN);
}

#[test]
fn an_order_about_a_job_names_it_or_says_that_there_is_none() {
    let mut cluster = Cluster::start(1, 2, &[]);
    for order in ["pause", "resume", "cancel"] {
        assert_eq!(told(&cluster, &["job", order]), (1, "kumo: no replace is under way\n".to_owned()));
    }
    Client::open(cluster.gateway.address).unwrap().fill(RECORDS, RECORD_BYTES);
    cluster.add_server();
    until("the newcomer is known", || {
        (cluster.try_stat()?["not_attached"].as_array()?.len() == 1).then_some(())
    });
    cluster.order(&["attach"]);
    let (status, said) = told(&cluster, &["job", "pause"]);
    let number = cluster.try_stat().unwrap()["job"]["number"].as_str().expect("it is under way").to_owned();
    let name = format!("replace of hash space {number}");
    assert_eq!((status, said), (0, format!("{name}: paused\n")));
    for (order, status, what) in [
        (&["pause"][..], 1, "nothing to do"),
        (&["rate", "0"], 1, "nothing to do"),
        (&["rate", "1"], 1, "a rate is at least 20 bytes a second; 0: no limit"),
        (&["rate", "1K"], 0, "max 1.0 KiB/s each"),
        (&["resume"], 0, "resumed"),
        (&["cancel"], 0, "cancelled"),
    ] {
        let prefix = if status == 0 { "" } else { "kumo: " };
        let (ended, said) = told(&cluster, &[&["job"], order].concat());
        assert_eq!((ended, said), (status, format!("{prefix}{name}: {what}\n")), "{order:?}");
    }
    assert_eq!(told(&cluster, &["job", "cancel"]).0, 1, "it is over");
}

/// How `kumoctl` ends, and all that it says.
fn told(cluster: &Cluster, arguments: &[&str]) -> (i32, String) {
    let output = cluster.kumoctl(arguments);
    let said = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap(), String::from_utf8(said).unwrap())
}

/// Enough to be under way for longer than an order takes.
const RECORDS: usize = 20_000;
const RECORD_BYTES: usize = 2_000;

const OPERATIONS_BETWEEN: u64 = 500;
