//! `--wait`: how far a replace is, until it has ended or was cancelled; and the limit of what it may send.

use crate::client::Client;
use crate::cluster::{Cluster, KUMO, strings, until};
use serde_json::Value;
use std::io::{ErrorKind, Read};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

#[test]
fn who_waits_sees_how_far_it_is_and_how_it_ended() {
    let mut cluster = Cluster::start(1, 2, &[]);
    Client::open(cluster.gateway.address).unwrap().fill(RECORDS, RECORD_BYTES);
    cluster.add_server();
    until("the newcomer is known", || {
        (strings(&cluster.try_stat()?["not_attached"]).len() == 1).then_some(())
    });
    // On a terminal there is a bar, which goes when it was cancelled.
    if let Some((status, screen)) = on_a_terminal(&cluster, "attach --wait") {
        assert_eq!(status, Some(1), "{screen}");
        assert!(screen.contains("[=") || screen.contains("[>") || screen.contains("[ "), "a bar: {screen}");
        assert!(screen.contains(" %") && screen.contains("\x1b[2K"), "drawn and cleared: {screen}");
        assert!(screen.trim_end().ends_with("kumo: the replace was cancelled"), "{screen}");
        cluster.until_settled();
    }

    // Elsewhere there are lines, for logs.
    let waiting = spawn(&cluster, &["attach", "--wait", "--format", "json"]);
    let job = until("it is under way", || cluster.try_stat().filter(|stat| !stat["job"].is_null()));
    cluster.order(&["job", "rate", &RATE.to_string()]);
    // Who was given more before has sent that in a second.
    let sent = |stat: &Value| {
        stat["job"]["servers"].as_array().map(|servers| {
            servers.iter().map(|one| one["bytes_sent"].as_u64().unwrap()).collect::<Vec<u64>>()
        })
    };
    until("both send", || {
        sent(&cluster.try_stat()?).filter(|sent| sent.len() == 2 && sent.iter().all(|&sent| sent > 0))
    });
    let settle = Instant::now();
    until("the limit holds", || (settle.elapsed().as_secs() >= 2).then_some(()));
    let (before, began) = (sent(&cluster.try_stat().unwrap()).expect("it is under way"), Instant::now());
    until("some was sent", || (began.elapsed().as_secs() >= 3).then_some(()));
    let (after, took) = (sent(&cluster.try_stat().unwrap()).expect("it is under way"), began.elapsed());
    let paces: Vec<f64> = after
        .iter()
        .zip(&before)
        .map(|(after, before)| (after - before) as f64 / took.as_secs_f64())
        .collect();
    // Servers tell in steps of half a second or so: one more than that time may be counted.
    let most = RATE as f64 * (1.0 + 1.0 / took.as_secs_f64());
    assert!(paces.iter().all(|&pace| pace <= most), "{paces:?} of {RATE}");
    assert!(paces.iter().any(|&pace| pace > 0.0), "{paces:?}");
    cluster.order(&["job", "rate", "0"]);
    let output = waiting.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let done: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(done["done"] == true && done["bytes_sent"].as_u64() > Some(0), "{done}");
    let lines = String::from_utf8(output.stderr).unwrap();
    let line = lines.lines().rfind(|line| line.contains(" left")).expect("how long it takes");
    for part in ["replace ", " %, ", " sent at ", "/s, ", ", max 1.0 MiB/s each"] {
        assert!(lines.lines().any(|line| line.contains(part)), "{part} in {lines}");
    }
    cluster.until_active(3);

    // Where copies are equal nothing is sent, whoever compares them.
    let compared =
        spawn(&cluster, &["full-replace", "--wait", "--format", "json"]).wait_with_output().unwrap();
    assert_eq!(compared.status.code(), Some(0), "{compared:?}");
    for server in &cluster.servers {
        let told =
            Command::new(KUMO).args(["stat", &server.address.to_string(), "replstat"]).output().unwrap();
        let told = String::from_utf8(told.stdout).unwrap();
        assert!(told.contains("records_sent 0\n") && told.contains("bytes_sent 0\n"), "{told}");
    }
    println!(
        "waited: {line}\nlimited to {RATE} bytes a second: {paces:.0?}; began as {}",
        job["job"]["kind"]
    );
}

fn spawn(cluster: &Cluster, arguments: &[&str]) -> Child {
    let mut command = Command::new(KUMO);
    command.arg("ctl").arg(cluster.controls[0].to_string()).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Cancels the job that this begins, and returns how it ended and all that was drawn meanwhile.
fn on_a_terminal(cluster: &Cluster, order: &str) -> Option<(Option<i32>, String)> {
    let command = format!("stty rows 40 cols 120; exec '{KUMO}' ctl {} {order}", cluster.controls[0]);
    let mut script = Command::new("script");
    script.args(["-qfec", &command, "/dev/null"]).env("TERM", "xterm");
    let mut child = match script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            println!("skipped: a bar needs a terminal, and script is not installed (Debian: bsdutils)");
            return None;
        }
        child => child.unwrap(),
    };
    until("it is under way", || cluster.try_stat().filter(|stat| !stat["job"].is_null()));
    cluster.order(&["job", "rate", &RATE.to_string()]);
    // Long enough to be drawn.
    let drawn = Instant::now();
    until("it was looked at", || (drawn.elapsed().as_secs() >= 1).then_some(()));
    cluster.order(&["job", "cancel"]);
    let mut screen = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut screen).unwrap();
    Some((child.wait().unwrap().code(), String::from_utf8_lossy(&screen).into_owned()))
}

/// Bytes a second of each server, as `kumoctl` shows them: so few that the replace takes a while.
const RATE: u64 = 1 << 20;

const RECORDS: usize = 20_000;
const RECORD_BYTES: usize = 2_000;
