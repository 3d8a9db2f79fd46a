//! `kumoctl stat`: the seed's block, and what it has no words for.

use super::job::{JobView, awaited};
use super::voters;
use crate::failure::Failure;
use crate::output::{Out, note};
use crate::store::condition::Condition;
use crate::store::{shown, tool};
use kumo_cluster::control::Stat;
use kumo_cluster::{Member, MemberState, ServerId, Standing};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

pub async fn run(manager: SocketAddr, verbose: bool, out: Out) -> Result<(), Failure> {
    let stat = tool::stat(&[manager]).await?;
    let attached = attached(&stat);
    let free = not_attached(&stat, &attached);
    out.result(value(&stat, &attached, &free), || {
        let text = block(&stat, &attached, &free) + &wanted(&stat) + &damaged(&attached);
        text + &if verbose { more(&stat) } else { under_way(&stat) }
    })?;
    // Not part of the seed's block.
    if let Some(hint) = foreign_hint(&stat, manager) {
        note(format!("kumoctl: {hint}"));
    }
    if let Some(hint) = lost_hint(&stat) {
        note(format!("kumoctl: {hint}"));
    }
    if let Some(hint) = back_hint(&stat, &attached, &free, manager) {
        note(format!("kumoctl: {hint}"));
    }
    if let Some(risk) = risk_hint(&stat).filter(|_| !verbose && !out.is_json()) {
        note(format!("kumoctl: {risk}"));
    }
    Ok(())
}

/// Keys that nobody can reach.
fn lost_hint(stat: &Stat) -> Option<String> {
    let last: Vec<String> = awaited(&stat.space).iter().map(SocketAddr::to_string).collect();
    (!last.is_empty()).then(|| {
        format!(
            "all servers of part of the ring are lost, and its keys cannot be reached: start {}, lost last",
            last.join(" and ")
        )
    })
}

/// Lost servers that are there again, as after a power cut, and that nothing but an order brings in.
fn back_hint(
    stat: &Stat,
    attached: &BTreeMap<SocketAddr, Attached>,
    free: &BTreeSet<SocketAddr>,
    manager: SocketAddr,
) -> Option<String> {
    // With a replace under way, or keys that nobody can reach, it would be refused.
    if stat.auto_replace || stat.space.job.is_some() || !awaited(&stat.space).is_empty() {
        return None;
    }
    let is_back = |address: &&SocketAddr| attached.contains_key(*address);
    let wait = match free.iter().filter(is_back).count() {
        0 => return None,
        1 => "a server that was lost is back and waits".to_owned(),
        back => format!("{back} servers that were lost are back and wait"),
    };
    Some(format!("{wait} to be attached: `kumoctl {manager} attach`"))
}

/// Whoever starts a single manager chose that risk, and is not told of it each time.
fn risk_hint(stat: &Stat) -> Option<String> {
    voters::risk(&stat.voters).filter(|_| stat.voters.len() > 1)
}

/// Managers that know nothing, and servers that do.
fn foreign_hint(stat: &Stat, manager: SocketAddr) -> Option<String> {
    let foreign = stat.servers.iter().filter(|server| server.connected && server.foreign).count();
    (foreign > 0 && stat.space.members.is_empty()).then(|| {
        format!(
            "{foreign} connected servers belong to another cluster: if these managers take the place of lost ones, \
             `kumoctl {manager} rebuild` takes over the hash space that the servers hold; otherwise attach the others \
             by name"
        )
    })
}

/// A server of the hash space.
pub struct Attached {
    /// In the seed's block. Of one that was given up, and waits, the block's second list tells.
    pub is: Condition,
    /// It is being brought in, or is on its way out.
    pub moving: Option<&'static str>,
    /// Its disk is full.
    pub full: bool,
    /// Records that it found unreadable.
    pub unreadable: u64,
}

/// By address.
pub fn attached(stat: &Stat) -> BTreeMap<SocketAddr, Attached> {
    let heard =
        |address| stat.servers.iter().find(|server| server.connected && server.server.address == address);
    let lives: BTreeSet<ServerId> = stat.servers.iter().map(|server| server.server).collect();
    let members = stat.space.members.iter();
    let acts = |member: &&Member| !matches!(member.state, MemberState::Fault { .. });
    let unheard = members.filter(acts).filter(|member| !lives.contains(&member.id()));
    let unheard: BTreeSet<SocketAddr> = unheard.map(|member| member.address).collect();
    let shown = |address, (state, place)| Attached {
        is: match state {
            MemberState::Active if unheard.contains(&address) => Condition::Unheard,
            MemberState::Active => Condition::Active,
            MemberState::Fault { .. } => Condition::Fault,
            MemberState::Returned { .. } if unheard.contains(&address) => Condition::UnheardReturned,
            MemberState::Returned { .. } => Condition::Returned,
        },
        full: heard(address).is_some_and(|server| server.full),
        unreadable: heard(address).map_or(0, |server| server.usage.unreadable),
        moving: match place {
            Standing::Attached => None,
            Standing::Joining => Some("joining"),
            Standing::Leaving => Some("leaving"),
        },
    };
    stat.space.places().into_iter().map(|(address, place)| (address, shown(address, place))).collect()
}

/// Those that are there and not in the hash space, or in it as fault. (Seed 000, 3.1) Not one that was given up and has
/// not begun its next life: that is what can be attached.
fn not_attached(stat: &Stat, attached: &BTreeMap<SocketAddr, Attached>) -> BTreeSet<SocketAddr> {
    let is_given_up = |server: ServerId| {
        let member = stat.space.index_of(server).map(|index| stat.space.member(index).state);
        matches!(member, Some(MemberState::Fault { .. }))
    };
    let connected = stat.servers.iter().filter(|server| server.connected).map(|server| server.server);
    let connected = connected.filter(|&server| !is_given_up(server)).map(|server| server.address);
    let is_active =
        |address: &SocketAddr| attached.get(address).is_some_and(|one| one.is.state() == "active");
    connected.filter(|address| !is_active(address)).collect()
}

fn block(stat: &Stat, attached: &BTreeMap<SocketAddr, Attached>, free: &BTreeSet<SocketAddr>) -> String {
    let mut text =
        format!("hash space timestamp:\n  {}\nattached node:\n", shown::timestamp(stat.space.clock));
    for (address, one) in attached {
        let trouble = if one.full { ", disk full" } else { "" };
        text += &format!("  {address} ({}{trouble})\n", one.is);
    }
    text += "not attached node:\n";
    for address in free {
        text += &format!("  {address}\n");
    }
    text
}

/// What `attach-noreplace` and `detach-noreplace` left for the next replace. The seed has no line for it: none is
/// there as long as nothing waits.
fn wanted(stat: &Stat) -> String {
    let mut text = String::new();
    for (what, servers) in [("attach", &stat.attach_wanted), ("detach", &stat.detach_wanted)] {
        if !servers.is_empty() {
            text += &format!("{what} at the next replace:\n");
            servers.iter().for_each(|server| text += &format!("  {server}\n"));
        }
    }
    text
}

/// Servers with records that they cannot read. The seed has no line for that either.
fn damaged(attached: &BTreeMap<SocketAddr, Attached>) -> String {
    let damaged: Vec<_> = attached.iter().filter(|(_, one)| one.unreadable > 0).collect();
    if damaged.is_empty() {
        return String::new();
    }
    let mut text =
        "records that cannot be read, as far as they were met (the server's log names the file):\n"
            .to_owned();
    damaged.iter().for_each(|(address, one)| text += &format!("  {address} {}\n", one.unreadable));
    text
}

/// What to do about servers that are to be detached, and are not attached but wanted.
pub fn only_wanted(stat: &Stat, detach: &[SocketAddr]) -> Option<String> {
    let attached = attached(stat);
    let only = |server: &&SocketAddr| stat.attach_wanted.contains(server) && !attached.contains_key(server);
    let named: Vec<String> = detach.iter().filter(only).map(SocketAddr::to_string).collect();
    (!named.is_empty()).then(|| {
        format!(
            "not attached yet, only wanted by the next replace: {}; `detach-noreplace` takes that back",
            named.join(", ")
        )
    })
}

/// The replace under way, if there is one. While a fault is only being told to the servers nothing moves.
fn under_way(stat: &Stat) -> String {
    let job = JobView::of(stat).filter(|view| !view.job.switching || view.job.total.copies > 0);
    job.map(|job| replace(Some(&job))).unwrap_or_default()
}

fn replace(job: Option<&JobView>) -> String {
    let mut text = format!("replace:\n  {}\n", job.map_or("none".to_owned(), JobView::line));
    if let Some(hindrance) = job.and_then(JobView::hindrance) {
        text += &format!("  {hindrance}\n");
    }
    text
}

fn more(stat: &Stat) -> String {
    let mut text = format!("hash space number:\n  {}\n", stat.space.number);
    text += &voters::block(stat);
    text += &format!("gateways:\n  {}\n", stat.gateways);
    text += &format!("auto-replace:\n  {}\n", if stat.auto_replace { "on" } else { "off" });
    text + &replace(JobView::of(stat).as_ref())
}

fn value(
    stat: &Stat,
    attached: &BTreeMap<SocketAddr, Attached>,
    free: &BTreeSet<SocketAddr>,
) -> serde_json::Value {
    let space = &stat.space;
    let attached: Vec<_> = attached
        .iter()
        .map(|(address, one)| {
            json!({
                "address": address.to_string(),
                "state": one.is.state(),
                "returned": one.is.is_returned(),
                "heard": one.is.is_heard(),
                "moving": one.moving,
                "full": one.full,
                "unreadable": one.unreadable,
            })
        })
        .collect();
    json!({
        "space": {
            "number": space.number.to_string(),
            "time": space.clock.unix_seconds(),
            "clock": space.clock.counter(),
        },
        "attached": attached,
        "not_attached": strings(free),
        "awaited": strings(&awaited(&stat.space)),
        "voters": voters::values(stat),
        "risk": voters::risk(&stat.voters),
        "master": stat.master.map(|master| master.to_string()),
        "auto_replace": stat.auto_replace,
        "attach_wanted": strings(&stat.attach_wanted),
        "detach_wanted": strings(&stat.detach_wanted),
        "gateways": stat.gateways,
        "job": JobView::of(stat).map(|job| job.value()),
    })
}

fn strings<'a>(addresses: impl IntoIterator<Item = &'a SocketAddr>) -> Vec<String> {
    addresses.into_iter().map(SocketAddr::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kumo_cluster::control::ServerStat;
    use kumo_cluster::{Clock, Incarnation, Job, Member, Progress, Space, SpaceNumber, Usage};

    fn address(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    fn heard(port: u16) -> ServerStat {
        ServerStat {
            server: ServerId { address: address(port), incarnation: Incarnation(u128::from(port)) },
            connected: true,
            heard_ms: 0,
            space: SpaceNumber(1),
            usage: Usage::default(),
            progress: Progress::default(),
            gets: 0,
            sets: 0,
            deletes: 0,
            foreign: false,
            full: false,
        }
    }

    fn stat(servers: Vec<ServerStat>) -> Stat {
        let member = |port, state| Member {
            address: address(port),
            incarnation: Incarnation(u128::from(port)),
            state,
        };
        let mut space = Space::empty(Default::default(), SpaceNumber(9));
        space.clock = Clock(1_228_310_145 << 32 | 58);
        space.members =
            vec![member(8000, MemberState::Active), member(8001, MemberState::Fault { order: 1 })];
        (space.rhs, space.whs) = (vec![0, 1], vec![0, 1]);
        Stat {
            space,
            servers,
            auto_replace: false,
            attach_wanted: Vec::new(),
            detach_wanted: Vec::new(),
            gateways: 0,
            managers: vec![address(19700)],
            master: Some(address(19700)),
            voters: Vec::new(),
            loss_accepted: false,
        }
    }

    #[test]
    fn the_block_is_the_seeds() {
        // 8001 went on after it was given up, and does not know yet.
        let stat = stat(vec![heard(8000), heard(8001), heard(8002)]);
        let attached = attached(&stat);
        assert_eq!(wanted(&stat) + &damaged(&attached), "", "nothing follows it");
        let text = block(&stat, &attached, &not_attached(&stat, &attached));
        let (time, nodes) = text.split_once("attached node:").unwrap();
        assert!(
            time.starts_with("hash space timestamp:\n  ") && time.ends_with(" 2008 clock 58\n"),
            "{time}"
        );
        assert_eq!(
            nodes,
            "\n  127.0.0.1:8000 (active)\n  127.0.0.1:8001 (fault)\nnot attached node:\n  127.0.0.1:8002\n"
        );
    }

    #[test]
    fn one_that_was_not_heard_of_is_not_said_to_be_there() {
        // A new life of the first is there; the managers' own is too young to have heard of the one before.
        let mut stat = stat(vec![heard(8000)]);
        stat.servers[0].server.incarnation = Incarnation(1);
        let attached = attached(&stat);
        let text = block(&stat, &attached, &BTreeSet::new());
        assert!(
            text.contains("  127.0.0.1:8000 (active, not heard of yet)\n  127.0.0.1:8001 (fault)\n"),
            "{text}"
        );
        let attached = &value(&stat, &attached, &BTreeSet::new())["attached"];
        assert_eq!((&attached[0]["state"], &attached[0]["heard"]), (&json!("active"), &json!(false)));
        assert_eq!(attached[1]["heard"], true, "until it was lost");
    }

    #[test]
    fn damage_is_told_behind_the_block() {
        let mut stat = stat(vec![heard(8000), heard(8001)]);
        stat.servers[0].usage.unreadable = 3;
        let attached = attached(&stat);
        let text = block(&stat, &attached, &BTreeSet::new());
        assert!(text.contains("  127.0.0.1:8000 (active)\n"), "the seed's line is as it was: {text}");
        assert!(damaged(&attached).ends_with(":\n  127.0.0.1:8000 3\n"), "{}", damaged(&attached));
        assert_eq!(value(&stat, &attached, &BTreeSet::new())["attached"][0]["unreadable"], 3);
    }

    #[test]
    fn who_must_be_started_is_named() {
        let mut stat = stat(vec![heard(8000)]);
        assert_eq!(lost_hint(&stat), None, "one that acts has it all");
        stat.space.members[0].state = MemberState::Fault { order: 2 };
        assert!(lost_hint(&stat).unwrap().contains("start 127.0.0.1:8000, lost last"));
    }

    #[test]
    fn one_that_is_back_for_what_only_it_has_is_told_apart_and_to_be_attached() {
        let mut stat = stat(vec![heard(8000), heard(8002)]);
        let shown = |stat: &Stat| {
            let attached = attached(stat);
            let free = not_attached(stat, &attached);
            (block(stat, &attached, &free), back_hint(stat, &attached, &free, address(19799)))
        };
        assert_eq!(shown(&stat).1, None, "8002 was never attached");
        stat.space.members[0].state = MemberState::Returned { order: 2 };
        let (text, hint) = shown(&stat);
        assert!(text.contains("  127.0.0.1:8000 (fault, back: serves what only it has)\n"), "{text}");
        assert_eq!(
            hint.as_deref(),
            Some("a server that was lost is back and waits to be attached: `kumoctl 127.0.0.1:19799 attach`")
        );
        let attached = &value(&stat, &attached(&stat), &BTreeSet::new())["attached"];
        assert_eq!((&attached[0]["state"], &attached[0]["returned"]), (&json!("fault"), &json!(true)));
        assert_eq!(attached[1]["returned"], false);
        // Another life of the other one.
        stat.servers.push(ServerStat {
            server: ServerId { address: address(8001), incarnation: Incarnation(1) },
            ..heard(8001)
        });
        assert!(
            shown(&stat)
                .1
                .is_some_and(|hint| hint.starts_with("2 servers that were lost are back and wait "))
        );
        stat.space.job = Some(Job { full: false, paused: false, rate: 0 });
        assert_eq!(shown(&stat).1, None, "that is what the replace is for");
    }

    #[test]
    fn a_replace_under_way_is_told_behind_the_block() {
        let mut stat = stat(vec![heard(8000)]);
        assert_eq!(under_way(&stat), "", "nothing follows it");
        stat.space.job = Some(Job { full: false, paused: true, rate: 0 });
        assert_eq!(under_way(&stat), "replace:\n  replace 0.0 %, paused, not counted yet\n");
        assert!(more(&stat).ends_with(&under_way(&stat)), "{}", more(&stat));
    }

    #[test]
    fn who_is_only_wanted_is_shown_and_a_detach_says_what_to_do() {
        let mut stat = stat(vec![heard(8000), heard(8002)]);
        stat.attach_wanted = vec![address(8000), address(8002)];
        assert_eq!(wanted(&stat), "attach at the next replace:\n  127.0.0.1:8000\n  127.0.0.1:8002\n");
        let said = only_wanted(&stat, &[address(8000), address(8002)]).unwrap();
        assert!(said.contains(": 127.0.0.1:8002; "), "{said}");
        assert_eq!(only_wanted(&stat, &[address(8000)]), None, "that one is attached");
        assert_eq!(only_wanted(&stat, &[address(8003)]), None, "of that one the managers know nothing");
    }
}
