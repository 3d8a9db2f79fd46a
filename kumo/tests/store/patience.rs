//! Options that say how long something is waited for. No time is measured: what is told to wait less is done before what
//! is told nothing, or to wait longer, though that began before it.

use crate::client::Client;
use crate::cluster::{Cluster, Node, strings, until};
use rustix::process::Signal;

#[test]
fn a_request_is_given_up_when_its_time_is_over() {
    let cluster = patient_cluster();
    // Its tries would be over after four times five seconds, with another answer.
    let gateway = cluster.second_gateway(&["--request-timeout", "1", "--set-retry", "3"]);
    let mut client = Client::open(gateway.address).unwrap();
    cluster.servers.iter().for_each(|server| server.signal(Signal::STOP));
    client.send(SET).unwrap();
    assert_eq!(answer(&mut client), "SERVER_ERROR timed out, the outcome is unknown");
}

#[test]
fn each_kind_of_request_has_its_own_number_of_tries() {
    let cluster = patient_cluster();
    let limited = [
        ("-G", GET, SET, "no server of this key answers"),
        ("-S", SET, DELETE, "the outcome is unknown"),
        ("-D", DELETE, SET, "the outcome is unknown"),
    ];
    let asking = limited.map(|(option, few, many, reason)| {
        // A try takes ten steps of the clock, and all of them together as long as they like.
        let options = ["-Ci", "0.2", "--request-timeout", "100000", option, "1"];
        let gateway = cluster.second_gateway(&options);
        let clients = [many, few].map(|request| (Client::open(gateway.address).unwrap(), request));
        (gateway, clients, reason)
    });
    cluster.servers.iter().for_each(|server| server.signal(Signal::STOP));
    // The request with the default of 20 tries goes first: with as many the other one would not be answered before it.
    let asked = asking.map(|(gateway, clients, reason)| {
        let clients = clients.map(|(mut client, request)| {
            client.send(request).unwrap();
            client
        });
        (gateway, clients, reason)
    });
    for (gateway, [many, mut few], reason) in asked {
        assert_eq!(answer(&mut few), format!("SERVER_ERROR {reason}"), "{}", gateway.log());
        assert!(many.is_silent(), "{}", gateway.log());
    }
}

#[test]
fn managers_are_as_patient_with_a_silent_server_as_they_are_told() {
    // Each of these makes more of the default of 4 tries in 3 steps of 0.5 s: two minutes and a half, or much more.
    let patient: [&[&str]; 4] =
        [&["-Yn", "100"], &["-Ys", "1000"], &["--connect-timeout-steps", "100"], &["-Ci", "1000"]];
    // Half as long again as the default: whose option did nothing would have lost its server by then. And as long as the
    // first, with signs of life that are due forty times as often.
    let hasty: [&[&str]; 3] = [&["-Yn", "6"], &["-Ci", "0.75"], &["-Yn", "100", "-k", "0.05"]];
    let patient = patient.map(|options| (options, heard(options)));
    let hasty = hasty.map(heard);
    for cluster in patient.iter().map(|(_, cluster)| cluster).chain(&hasty) {
        cluster.servers[1].signal(Signal::STOP);
    }
    hasty.iter().for_each(|cluster| cluster.until_fault(1));
    for (options, cluster) in patient {
        let state = until("the manager answers", || cluster.state(1));
        assert_eq!(state, "active", "{options:?}");
    }
}

#[test]
fn auto_replace_waits_for_as_much_quiet_as_it_is_told() {
    let waiting = |options: &[&str]| {
        let mut cluster = Cluster::start_detached(1, 1, &[]);
        restart(&mut cluster.managers[0], options);
        until("its server is known", || {
            (strings(&cluster.try_stat()?["not_attached"]).len() == 1).then_some(())
        });
        cluster.order(&["enable-auto-replace"]);
        cluster
    };
    let slow = waiting(&["-Rs", "1000"]);
    waiting(&[]).until_active(1);
    let stat = until("the manager answers", || slow.try_stat());
    assert_eq!(strings(&stat["not_attached"]), [slow.servers[0].address.to_string()], "{stat}");
}

/// Two servers that nobody declares fault.
fn patient_cluster() -> Cluster {
    heard(&["-Yn", "100", "--connect-timeout-steps", "100"])
}

/// Two servers, and a manager with these options that has heard of them.
fn heard(options: &[&str]) -> Cluster {
    let mut cluster = Cluster::start(1, 2, &[]);
    cluster.gateway.end();
    restart(&mut cluster.managers[0], options);
    until("they are heard of", || {
        let stat = cluster.try_stat()?;
        let attached = stat["attached"].as_array().expect("a list");
        attached.iter().all(|one| one["heard"] == true && one["state"] == "active").then_some(())
    });
    cluster
}

/// With further options.
fn restart(node: &mut Node, options: &[&str]) {
    node.end();
    node.add_options(options);
    node.run();
}

/// Whenever it comes.
fn answer(client: &mut Client) -> String {
    until("it is answered", || client.line().ok())
}

const GET: &str = "get key\r\n";
const SET: &str = "set key 0 0 5\r\nvalue\r\n";
const DELETE: &str = "delete key\r\n";
