//! The voters of the managers' cell, and whether it could bear the next loss.

use kumo_cluster::control::{Stat, VoterStat};
use kumo_paxos::ReplicaState;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::IpAddr;

pub fn block(stat: &Stat) -> String {
    let mut text = "voter:\n".to_owned();
    for voter in &stat.voters {
        let kind = voter.server.map_or("manager".to_owned(), |server| format!("recruited from {server}"));
        let master = if Some(voter.address) == stat.master { ", master" } else { "" };
        text += &format!("  {} ({kind}, {}{master})\n", voter.address, state(voter));
    }
    if let Some(risk) = risk(&stat.voters) {
        text += &format!("  {risk}\n");
    }
    text
}

pub fn values(stat: &Stat) -> Vec<Value> {
    let value = |voter: &VoterStat| {
        json!({
            "address": voter.address.to_string(),
            "kind": if voter.server.is_some() { "recruited" } else { "manager" },
            "server": voter.server.map(|server| server.to_string()),
            "state": state(voter),
        })
    };
    stat.voters.iter().map(value).collect()
}

/// What the next loss would do, when it is bad.
pub fn risk(voters: &[VoterStat]) -> Option<String> {
    let all = voters.iter().filter(|voter| voter.state.is_some()).count();
    let needed = all / 2 + 1;
    let mut hosts: BTreeMap<IpAddr, usize> = BTreeMap::new();
    for voter in voters.iter().filter(|voter| voter.state == Some(ReplicaState::Voting)) {
        *hosts.entry(voter.address.ip()).or_default() += 1;
    }
    let alive: usize = hosts.values().sum();
    if all == 0 {
        return None;
    }
    if alive <= needed {
        return Some(format!(
            "one more loss stops decisions: {alive} of {all} voters answer, {needed} are needed"
        ));
    }
    let crowded = hosts.iter().find(|(_, count)| hosts.len() > 1 && alive - **count < needed)?;
    Some(format!("the loss of host {} stops decisions: {} of {all} voters are there", crowded.0, crowded.1))
}

fn state(voter: &VoterStat) -> &'static str {
    match voter.state {
        None => "joining",
        Some(ReplicaState::Voting) => "voting",
        Some(ReplicaState::Learning) => "learning",
        Some(ReplicaState::Down) => "down",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    fn voter(host: u8, port: u16, state: Option<ReplicaState>) -> VoterStat {
        let server = (port == 19900).then(|| SocketAddr::from(([10, 0, 0, host], 19800)));
        VoterStat { address: SocketAddr::from(([10, 0, 0, host], port)), server, state }
    }

    #[test]
    fn a_cell_that_cannot_bear_the_next_loss_says_so() {
        let (up, down) = (Some(ReplicaState::Voting), Some(ReplicaState::Down));
        let two = [voter(1, 19700, up), voter(2, 19700, up)];
        assert_eq!(
            risk(&two).as_deref(),
            Some("one more loss stops decisions: 2 of 2 voters answer, 2 are needed")
        );
        let three = [two[0], two[1], voter(3, 19900, up)];
        assert_eq!(risk(&three), None);
        assert!(risk(&[two[0], voter(2, 19700, down), three[2]]).is_some_and(|said| said.contains("2 of 3")));
        // One that has no vote yet does not count.
        assert!(risk(&[two[0], two[1], voter(3, 19900, None)]).is_some());
    }

    #[test]
    fn a_host_with_too_many_voters_is_named() {
        let up = Some(ReplicaState::Voting);
        let crowded = [voter(1, 19700, up), voter(2, 19700, up), voter(1, 19900, up)];
        assert_eq!(
            risk(&crowded).as_deref(),
            Some("the loss of host 10.0.0.1 stops decisions: 2 of 3 voters are there")
        );
        let alone = [voter(1, 19700, up), voter(1, 19701, up), voter(1, 19702, up)];
        assert_eq!(risk(&alone), None, "all on one machine is a choice");
    }
}
