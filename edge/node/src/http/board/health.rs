//! [`Verdict`]: what the banner says, and why.

use super::looks::{Look, StoreLook};
use super::store::heard;
use kumo_cluster::{COPIES, MemberState};
use pfs::{ReplicaState, Role, Status};
use serde_json::{Value, json};

/// From best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Healthy,
    UnderReplicated,
    OneLoss,
    Stopped,
}

pub struct Verdict {
    reasons: Vec<(Level, String)>,
}

impl Verdict {
    pub fn level(&self) -> Level {
        self.reasons.iter().map(|(level, _)| *level).max().unwrap_or(Level::Healthy)
    }

    /// The worst reasons first.
    pub fn value(&self) -> Value {
        let mut reasons: Vec<&(Level, String)> = self.reasons.iter().collect();
        reasons.sort_by_key(|(level, _)| std::cmp::Reverse(*level));
        let reasons: Vec<Value> =
            reasons.iter().map(|(level, text)| json!({ "level": level.name(), "text": text })).collect();
        json!({ "level": self.level().name(), "summary": self.level().summary(), "reasons": reasons })
    }
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Level::Healthy => "healthy",
            Level::UnderReplicated => "under_replicated",
            Level::OneLoss => "one_loss",
            Level::Stopped => "stopped",
        }
    }

    fn summary(self) -> &'static str {
        match self {
            Level::Healthy => "healthy",
            Level::UnderReplicated => "under-replicated",
            Level::OneLoss => "one loss from stopping",
            Level::Stopped => "stopped",
        }
    }
}

/// `store`: there is one to judge.
pub fn judge(store: bool, look: &Look) -> Verdict {
    let mut reasons = Vec::new();
    match &look.cell {
        Ok(answer) => judge_cell(&answer.status, &mut reasons),
        Err(error) => reasons.push((Level::Stopped, error.clone())),
    }
    if store {
        match &look.store {
            Ok(seen) => judge_store(seen, &mut reasons),
            Err(error) => reasons.push((Level::Stopped, error.clone())),
        }
    }
    Verdict { reasons }
}

/// Those that vote, of those that should.
pub fn voting(status: &Status) -> (usize, usize) {
    let core = status.replicas.iter().filter(|replica| replica.member.role != Role::Extension);
    let voting = core.clone().filter(|replica| replica.state == ReplicaState::Voting);
    (voting.count(), core.count())
}

fn judge_cell(status: &Status, reasons: &mut Vec<(Level, String)>) {
    if let Some(trouble) = &status.trouble {
        reasons.push((Level::Stopped, trouble.clone()));
    }
    let (voting, voters) = voting(status);
    let majority = voters / 2 + 1;
    if status.master.is_none() {
        reasons.push((Level::Stopped, "there is no master: nothing is decided".to_owned()));
    }
    if voters == 0 {
        return;
    }
    if voting < majority {
        let text = format!("{voting} of {voters} voters vote: {majority} are needed to decide anything");
        reasons.push((Level::Stopped, text));
    } else if voters == 1 {
        reasons.push((Level::OneLoss, "there is one voter: without it nothing is decided".to_owned()));
    } else if voting == majority {
        let text = format!("{voting} of {voters} voters vote: without one of them nothing is decided");
        reasons.push((Level::OneLoss, text));
    } else if voting < voters {
        reasons.push((Level::UnderReplicated, format!("{voting} of {voters} voters vote")));
    }
}

fn judge_store(seen: &StoreLook, reasons: &mut Vec<(Level, String)>) {
    let space = &seen.stat.space;
    if space.rhs.is_empty() {
        let text = match space.whs.is_empty() {
            true => "no server is attached: nothing can be stored",
            false => "the first servers are being attached: nothing can be stored yet",
        };
        return reasons.push((Level::Stopped, text.to_owned()));
    }
    for acting in 0..COPIES {
        let part = seen.coverage.with_acting(acting);
        if part == 0.0 {
            continue;
        }
        let (level, text) = match acting {
            0 => (Level::Stopped, "has no server that acts: its keys cannot be reached".to_owned()),
            1 => (Level::OneLoss, "has one copy: without that server its keys cannot be reached".to_owned()),
            copies => (Level::UnderReplicated, format!("has {copies} copies instead of {COPIES}")),
        };
        reasons.push((level, format!("{} of the ring {text}", percent(part))));
    }
    for (address, (state, _)) in space.places() {
        let there = heard(&seen.stat, address).filter(|heard| heard.connected);
        if there.is_some_and(|heard| heard.full) {
            let text = format!("{address} has no space left on its disk: its keys can be read, not written");
            reasons.push((Level::Stopped, text));
        }
        if let Some(records) = there.map(|heard| heard.usage.unreadable).filter(|&records| records > 0) {
            let text = format!("{address} cannot read {records} of its records: its log names the file");
            reasons.push((Level::UnderReplicated, text));
        }
        let text = match (state, there.is_some()) {
            (MemberState::Active, true) => continue,
            (MemberState::Active, false) => format!("{address} is not connected"),
            (MemberState::Returned { .. }, _) => {
                format!("{address} is back for what only it has: attach it again")
            }
            (MemberState::Fault { .. }, true) => format!("{address} was lost and is back: attach it again"),
            (MemberState::Fault { .. }, false) => format!("{address} is fault"),
        };
        reasons.push((Level::UnderReplicated, text));
    }
}

fn percent(part: f64) -> String {
    match part * 100.0 {
        percent if percent >= 99.95 => "all".to_owned(),
        percent if percent < 1.0 => "less than 1 %".to_owned(),
        percent => format!("{percent:.0} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::board::coverage::Coverage;
    use kumo_cluster::control::{ServerStat, Stat};
    use kumo_cluster::{Incarnation, Member, Progress, ServerId, Space, SpaceNumber, Usage};
    use std::collections::BTreeMap;
    use std::net::SocketAddr;
    use std::sync::Arc;

    fn judged(states: &[MemberState]) -> (Level, Vec<String>) {
        let mut space = Space::empty(Default::default(), SpaceNumber(3));
        let mut servers = Vec::new();
        for (index, &state) in states.iter().enumerate() {
            let address = SocketAddr::from(([127, 0, 0, 1], 19801 + index as u16));
            let incarnation = Incarnation(1);
            space.members.push(Member { address, incarnation, state });
            space.rhs.push(index as u16);
            servers.push(ServerStat {
                server: ServerId { address, incarnation },
                connected: state == MemberState::Active,
                heard_ms: 0,
                space: space.number,
                usage: Usage::default(),
                progress: Progress::default(),
                gets: 0,
                sets: 0,
                deletes: 0,
                foreign: false,
                full: false,
            });
        }
        space.whs = space.rhs.clone();
        let coverage = Arc::new(Coverage::new(&space));
        let stat = Stat {
            space,
            servers,
            auto_replace: false,
            attach_wanted: Vec::new(),
            detach_wanted: Vec::new(),
            gateways: 0,
            managers: Vec::new(),
            master: None,
            voters: Vec::new(),
            loss_accepted: false,
        };
        let mut reasons = Vec::new();
        judge_store(&StoreLook { stat, reports: BTreeMap::new(), coverage, job: None }, &mut reasons);
        let verdict = Verdict { reasons };
        (verdict.level(), verdict.reasons.into_iter().map(|(_, text)| text).collect())
    }

    #[test]
    fn the_banner_says_how_many_losses_the_store_survives() {
        let (up, lost) = (MemberState::Active, MemberState::Fault { order: 1 });
        assert_eq!(judged(&[up; 3]), (Level::Healthy, Vec::new()));
        let (level, reasons) = judged(&[up, up, lost]);
        assert_eq!(level, Level::UnderReplicated);
        assert_eq!(reasons, ["all of the ring has 2 copies instead of 3", "127.0.0.1:19803 is fault"]);
        assert_eq!(judged(&[up, lost, lost]).0, Level::OneLoss);
        assert_eq!(judged(&[lost; 3]).0, Level::Stopped);
        // All were lost, and the last of them is back.
        let (level, reasons) = judged(&[lost, MemberState::Returned { order: 2 }]);
        assert_eq!(level, Level::OneLoss);
        assert!(reasons[0].starts_with("all of the ring has one copy"), "{reasons:?}");
        assert_eq!(reasons[2], "127.0.0.1:19802 is back for what only it has: attach it again");
        assert_eq!(judged(&[]).0, Level::Stopped);
        assert_eq!(judged(&[up]).0, Level::OneLoss);
    }
}
