//! Two managers that are cut from each other: at most one side decides.

use crate::cluster::until;
use crate::namespaces::{self, Links};
use crate::pair::{Ledger, Pair};
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;

#[test]
fn managers_that_are_cut_from_each_other_never_both_decide() {
    if namespaces::inside() {
        return cut_managers();
    }
    match namespaces::run_inside("pair_cuts::managers_that_are_cut_from_each_other_never_both_decide") {
        Err(reason) => {
            println!("skipped: links are cut in network namespaces, and there are none here ({reason})")
        }
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout);
            print!("{text}");
            assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
            assert!(text.contains(REPORT), "the test inside ran: {text}");
        }
    }
}

fn cut_managers() {
    let links = Links::new(6);
    let mut pair = Pair::start_whole(&links.hosts(), &[]);
    let mut ledger = Ledger::new(&pair.gateways[0]);
    let mut seen = Seen::default();
    ledger.write(100);
    // The managers do not hear each other, and each does not hear who else is on the other's host; all others hear both.
    both(0, 1).for_each(|(from, to)| manager_rule(&links, "add", from, to));
    pair.servers[3].kill();
    until("the server is declared fault", || {
        (0..2).for_each(|manager| seen.look(&pair, manager));
        (seen.state_of(&pair, 3)? == "fault").then_some(())
    });
    ledger.write(100);
    pair.servers[3].run();
    until("the server is attached again", || {
        (0..2).for_each(|manager| seen.look(&pair, manager));
        // The manager that does not lead hears nothing of the one that does: operators have to ask both.
        (0..2).for_each(|manager| drop(pair.kumoctl(manager, &["attach"])));
        (seen.state_of(&pair, 3)? == "active").then_some(())
    });
    both(0, 1).for_each(|(from, to)| manager_rule(&links, "del", from, to));
    // The server beside the manager that did not lead could not be heard by the one that did.
    pair.attach();
    pair.until_voting(5);
    // Each manager with one more server host on its side: the side with most voters goes on, the other stops.
    let sides = [[0, 2, 4], [1, 3, 5]];
    let crossing =
        sides[0].into_iter().flat_map(|one| sides[1].into_iter().flat_map(move |other| both(one, other)));
    let crossing: Vec<(usize, usize)> = crossing.collect();
    let recruited = pair.recruited();
    let more = sides[0].into_iter().filter(|host| recruited.contains(host)).count() >= 2;
    let (major, minor) = if more { (0, 1) } else { (1, 0) };
    let mut ledger_there = Ledger::new(&pair.gateways[major]);
    crossing.iter().for_each(|&(from, to)| links.cut(from, to));
    until("those on the other side are declared fault", || {
        (0..2).for_each(|manager| seen.look(&pair, manager));
        let newest = seen.newest()?;
        (newest.matches("fault").count() == 2).then_some(())
    });
    for _ in 0..4 {
        (0..2).for_each(|manager| seen.look(&pair, manager));
        let order = ["enable-auto-replace", "disable-auto-replace"];
        let _ = pair.kumoctl(minor, &order[..1]);
        until("most voters decide", || pair.kumoctl(major, &order[1..]).status.success().then_some(()));
    }
    let hosts: Vec<String> = sides[major].iter().map(|host| links.hosts()[*host].0.to_string()).collect();
    assert!(seen.masters_now(&pair).iter().all(|master| hosts.iter().any(|host| master.starts_with(host))));
    ledger_there.write(100);
    crossing.iter().for_each(|&(from, to)| links.mend(from, to));
    pair.attach();
    pair.until_voting(5);
    ledger.check();
    println!("{REPORT} 2 of 2 took effect, {} spaces were seen", seen.spaces.len());
}

/// Spaces as the managers told of them, by number.
#[derive(Default)]
struct Seen {
    spaces: BTreeMap<(u64, u64), String>,
}

impl Seen {
    fn look(&mut self, pair: &Pair, manager: usize) {
        let Some(stat) = pair.stat_at(manager) else { return };
        let number =
            stat["space"]["number"].as_str().expect("a number").split_once('.').expect("of a generation");
        let number = (number.0.parse().unwrap(), number.1.parse().unwrap());
        // What the managers hear of servers is told beside, and is another thing.
        let attached = stat["attached"].as_array().expect("a list").iter();
        let states =
            attached.map(|one| format!("{{\"address\":{},\"state\":{}}}", one["address"], one["state"]));
        let content = format!("{} {}", stat["space"], states.collect::<String>());
        let known = self.spaces.entry(number).or_insert_with(|| content.clone());
        assert_eq!(*known, content, "two hash spaces with one number");
    }

    /// How a server stands in the newest one.
    fn state_of(&self, pair: &Pair, server: usize) -> Option<&'static str> {
        let newest = self.newest()?;
        let address = format!("\"address\":\"{}\"", pair.servers[server].address);
        let (_, entry) = newest.split_once(&address)?;
        let entry = entry.split_once('}').map_or(entry, |(entry, _)| entry);
        ["fault", "active"].into_iter().find(|state| entry.contains(&format!("\"state\":\"{state}\"")))
    }

    fn newest(&self) -> Option<String> {
        self.spaces.last_key_value().map(|(_, content)| content.clone())
    }

    /// Who leads, by the word of everybody who answers.
    fn masters_now(&self, pair: &Pair) -> Vec<String> {
        let stats = (0..2).filter_map(|manager| pair.stat_at(manager));
        stats.filter_map(|stat: Value| stat["master"].as_str().map(str::to_owned)).collect()
    }
}

/// What one host sends to the manager's port of another is lost from now on, or no longer.
fn manager_rule(links: &Links, verb: &str, from: usize, to: usize) {
    let hosts = links.hosts();
    let rule =
        format!("rule {verb} from {} to {} ipproto tcp dport 19700 blackhole", hosts[from].0, hosts[to].0);
    let output = Command::new("ip").args(rule.split(' ')).output().unwrap();
    assert!(output.status.success(), "ip {rule}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Both ways between two hosts.
fn both(one: usize, other: usize) -> impl Iterator<Item = (usize, usize)> {
    [(one, other), (other, one)].into_iter()
}

const REPORT: &str = "managers cut from each other:";
