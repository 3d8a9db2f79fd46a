//! `kumohash`: where keys lie on the ring, and who owns them.

use super::common::CONTROL_PORT;
use super::condition::{Condition, Lives};
use super::tool;
use crate::address;
use crate::failure::Failure;
use crate::output::{Format, Out, row, table};
use clap::{Args, Command, Subcommand, ValueEnum};
use kumo_cluster::control::Stat;
use kumo_cluster::{COPIES, KeyHash, POINTS, Space, Table, key_hash, points};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::net::SocketAddr;

/// Where keys lie on the ring
#[derive(Args, Clone, Debug)]
pub struct Kumohash {
    /// The manager whose hash space is asked
    #[arg(short = 'm', long, global = true, value_name = "ADDR[:19799]")]
    manager: Option<String>,
    #[command(subcommand)]
    question: Question,
    /// How results are printed
    #[arg(long, global = true, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Subcommand, Clone, Debug)]
enum Question {
    /// The place of a key: 16 hexadecimal digits; needs no manager
    Hash {
        /// Keys as clients name them, behind the --key-prefix of their gateway
        #[arg(value_name = "KEY", required = true)]
        keys: Vec<OsString>,
    },
    /// The servers of a key, in order: the first that is not fault takes its writes
    Assign {
        /// Keys as clients name them, behind the --key-prefix of their gateway
        #[arg(value_name = "KEY", required = true)]
        keys: Vec<OsString>,
    },
    /// The points of all servers, in their order on the ring; of a key, those passed on the way up to its servers
    Dump {
        /// Keys as clients name them, behind the --key-prefix of their gateway; none: the whole ring
        #[arg(value_name = "KEY")]
        keys: Vec<OsString>,
        /// The ring that keys are read by, or the one that a replace goes to
        #[arg(long, value_enum, default_value_t = Ring::Rhs)]
        ring: Ring,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Ring {
    Rhs,
    Whs,
}

pub fn command_line() -> Command {
    Kumohash::augment_args(Command::new("kumohash"))
        .version(env!("CARGO_PKG_VERSION"))
        .about("Where keys lie on the ring, and who owns them")
        .after_help(EXAMPLES)
}

pub fn run(kumohash: Kumohash) -> Result<(), Failure> {
    let out = Out::new(kumohash.format);
    let manager = || match &kumohash.manager {
        Some(manager) => address::one(manager, CONTROL_PORT),
        None => Err(Failure::usage("-m MANAGER is missing: it has the hash space")),
    };
    match &kumohash.question {
        Question::Hash { keys } => hashes(keys, out),
        Question::Assign { keys } => {
            let manager = manager()?;
            crate::block_on(async move { owners(&tool::stat(&[manager]).await?, keys, out) })
        }
        Question::Dump { keys, ring } => {
            let manager = manager()?;
            crate::block_on(async move { dump(&tool::stat(&[manager]).await?, keys, *ring, out) })
        }
    }
}

fn hashes(keys: &[OsString], out: Out) -> Result<(), Failure> {
    let hash = |key: &OsString| key_hash(key.as_encoded_bytes()).to_string();
    let hashes: Vec<(Cow<str>, String)> = keys.iter().map(|key| (key.to_string_lossy(), hash(key))).collect();
    let values: Vec<Value> = hashes.iter().map(|(key, hash)| json!({ "key": key, "hash": hash })).collect();
    out.result(json!(values), || match &hashes[..] {
        [(_, hash)] => hash.clone(),
        many => table(&many.iter().map(|(key, hash)| row([hash, key])).collect::<Vec<_>>()),
    })
}

fn owners(stat: &Stat, keys: &[OsString], out: Out) -> Result<(), Failure> {
    let (space, lives) = (&stat.space, Lives::of(stat));
    if space.rhs.is_empty() {
        return Err(Failure::refused("no server is attached"));
    }
    let rhs = Table::new(space);
    // A space in which keys are read where the replace goes to: its owners are those of the other ring.
    let whs = Table::new(&Space { rhs: space.whs.clone(), old: Vec::new(), ..space.clone() });
    let moving = space.rhs != space.whs;
    let mut rows = vec![row([&"KEY", &"HASH", &"RING", &"SERVERS"])];
    let mut values = Vec::new();
    for key in keys {
        let (key, hash) = (key.to_string_lossy(), key_hash(key.as_encoded_bytes()));
        let named = |table: &Table| -> Vec<(SocketAddr, Condition)> {
            let members = table.arc(hash).owners.iter().map(|&index| space.member(index));
            members.map(|member| (member.address, lives.condition(space, member))).collect()
        };
        let (read, written) = (named(&rhs), named(&whs));
        rows.push(row([&key, &hash, &"rhs", &line(&read)]));
        if moving {
            rows.push(row([&"", &"", &"whs", &line(&written)]));
        }
        let hash = hash.to_string();
        values.push(json!({ "key": key, "hash": hash, "rhs": listed(&read), "whs": listed(&written) }));
    }
    out.result(json!(values), || table(&rows))
}

fn line(owners: &[(SocketAddr, Condition)]) -> String {
    owners.iter().map(|(address, is)| format!("{address} ({is})")).collect::<Vec<_>>().join(", ")
}

fn listed(owners: &[(SocketAddr, Condition)]) -> Value {
    let listed = owners.iter().map(|(address, is)| {
        json!({ "address": address.to_string(), "state": is.state(), "condition": is.name() })
    });
    listed.collect()
}

fn dump(stat: &Stat, keys: &[OsString], ring: Ring, out: Out) -> Result<(), Failure> {
    let space = &stat.space;
    let members = match ring {
        Ring::Rhs => &space.rhs,
        Ring::Whs => &space.whs,
    };
    let all = all_points(space, members, &Lives::of(stat));
    if keys.is_empty() {
        return out.result(points_listed(&all), || points_shown(&all));
    }
    let walks: Vec<(Cow<str>, KeyHash, Vec<Point>)> = keys
        .iter()
        .map(|key| {
            let hash = key_hash(key.as_encoded_bytes());
            (key.to_string_lossy(), hash, walk(&all, members.len(), hash))
        })
        .collect();
    let values = walks.iter().map(|(key, hash, passed)| {
        json!({ "key": key, "hash": hash.to_string(), "points": points_listed(passed) })
    });
    out.result(values.collect(), || {
        walks.iter().map(|(key, hash, passed)| format!("{hash} {key}\n{}", points_shown(passed))).collect()
    })
}

/// In their order on the ring.
fn all_points(space: &Space, members: &[u16], lives: &Lives) -> Vec<Point> {
    let mut all = Vec::with_capacity(members.len() * POINTS);
    for &index in members {
        let member = space.member(index);
        let condition = lives.condition(space, member);
        all.extend(points(member.address).map(|point| (point, member.address, condition)));
    }
    all.sort_unstable();
    all
}

type Point = (KeyHash, SocketAddr, Condition);

/// The points on the way up from a key, around the end if need be, until all its servers are met.
fn walk(all: &[Point], servers: usize, hash: KeyHash) -> Vec<Point> {
    let start = all.partition_point(|(point, ..)| *point < hash);
    let (mut passed, mut met) = (Vec::new(), BTreeSet::new());
    for &point in all[start..].iter().chain(&all[..start]) {
        if met.len() == COPIES.min(servers) {
            break;
        }
        met.insert(point.1);
        passed.push(point);
    }
    passed
}

fn points_listed(points: &[Point]) -> Value {
    let listed = points.iter().map(|(point, address, is)| {
        json!({
            "point": point.to_string(),
            "address": address.to_string(),
            "state": is.state(),
            "condition": is.name(),
        })
    });
    listed.collect()
}

fn points_shown(points: &[Point]) -> String {
    points.iter().map(|(point, address, is)| format!("{point} {address} ({is})\n")).collect()
}

const EXAMPLES: &str = "\
Behind each server stands what kumoctl stat says of it: active, fault, and what it is beside that. `fault, back: not
attached` is lost, and was started again since: it serves when it is attached.

Examples:
  kumohash hash foo                          db0f3feab5c7ee0b
  kumohash -m localhost assign user:1 user:2
  kumohash -m localhost dump | head
  kumohash -m localhost dump user:1          the points from it up to its servers

Exit status:
  0 done   1 refused   2 usage   4 unreachable   5 no master";

#[cfg(test)]
mod tests {
    use super::*;
    use kumo_cluster::{Incarnation, Member, MemberState, SpaceNumber};

    #[test]
    fn the_way_up_from_a_key_meets_its_servers_in_order() {
        let member = |port| {
            let address = SocketAddr::from(([127, 0, 0, 1], port));
            Member { address, incarnation: Incarnation(1), state: MemberState::Active }
        };
        for servers in 1..=5u16 {
            let members = (1..=servers).map(member).collect();
            let rhs: Vec<u16> = (0..servers).collect();
            let empty = Space::empty(Default::default(), SpaceNumber(1));
            let space = Space { members, whs: rhs.clone(), rhs, ..empty };
            let lives = Lives::alone(space.server(0));
            let (all, table) = (all_points(&space, &space.rhs, &lives), Table::new(&space));
            assert_eq!(all.len(), usize::from(servers) * POINTS);
            for key in 0..200 {
                let hash = key_hash(format!("key-{key}").as_bytes());
                let passed = walk(&all, space.rhs.len(), hash);
                let mut met: Vec<SocketAddr> = Vec::new();
                for (_, address, _) in &passed {
                    if !met.contains(address) {
                        met.push(*address);
                    }
                }
                let owners = table.arc(hash).owners.iter().map(|&index| space.member(index).address);
                assert_eq!(met, owners.collect::<Vec<_>>());
                // The last point is that of the last server, and no further.
                let last = passed.last().expect("one at least").1;
                assert_eq!(passed.iter().filter(|(_, address, _)| *address == last).count(), 1);
            }
        }
    }
}
