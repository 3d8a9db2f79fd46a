//! Keys whose servers are all lost: who is told, and what remains in the logs when they are given up.

use crate::client::Client;
use crate::cluster::{Cluster, Node, until, words};
use crate::logs::events;

#[test]
fn an_accepted_loss_is_a_warning_that_names_what_was_given_up() {
    let mut cluster = Cluster::start(1, 1, &[]);
    log_in_binary(&mut cluster);
    cluster.until_active(1);
    assert!(Client::open(cluster.gateway.address).unwrap().set("lost", "value").unwrap());
    cluster.servers[0].kill();
    cluster.until_fault(0);
    cluster.add_server();
    until("the next one is known", || {
        (cluster.try_stat()?["not_attached"].as_array()?.len() == 1).then_some(())
    });
    // Nothing is given up unless it is said, and a plan says so before.
    let [attach, plan] = [&["attach"][..], &["plan", "attach"]].map(|order| cluster.kumoctl(order));
    assert_eq!((attach.status.code(), plan.status.code()), (Some(1), Some(1)));
    let [attach, plan] = [attach, plan].map(|output| String::from_utf8(output.stderr).unwrap());
    assert!(attach.contains(&format!("start {}", cluster.servers[0].address)), "{attach}");
    assert_eq!(plan, attach.replace("kumo: ", "kumo: the order would be refused: "));
    assert!(!cluster.managers[0].log().contains(LINE));
    cluster.order(&["attach", "--accept-data-loss"]);
    cluster.until_settled();
    cluster.until_active(1);
    let (log, lost) = (cluster.managers[0].log(), cluster.servers[0].address);
    let lines: Vec<&str> = log.lines().filter(|line| line.contains(LINE)).collect();
    let [line] = lines[..] else { panic!("one line: {lines:?}") };
    assert!(line.contains("WARN") && line.contains("100.0%"), "{line}");
    assert!(line.contains(&format!("lost_last=\"{lost}\" servers=\"{lost}\"")), "{line}");
    let binary = events(&cluster.folder.path().join(BINARY_LOG));
    assert_eq!(binary.iter().filter(|event| *event == "loss accepted").count(), 1, "{binary:?}");
}

/// The manager starts again, with a binary log.
pub fn log_in_binary(cluster: &mut Cluster) {
    let (address, control) = (cluster.managers[0].address, cluster.controls[0].port().to_string());
    cluster.managers[0].kill();
    let mut arguments = words(&["manager", "-v", "-l", &address.to_string(), "-c", &control]);
    arguments.extend(words(&["--data", "manager-0", "-g", BINARY_LOG]));
    cluster.managers[0] = Node::new(&cluster.folder, "manager 0".to_owned(), address, arguments);
    cluster.managers[0].run();
    until("the manager leads", || cluster.try_stat());
}

const LINE: &str = "loss of data accepted by an operator";
pub const BINARY_LOG: &str = "manager.mpac";
