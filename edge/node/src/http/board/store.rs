//! The store in a snapshot: the hash space, and a row a server.

use super::job;
use super::looks::{Look, StoreLook};
use super::rates::{Rates, add_up, rates};
use kumo_cluster::control::{ServerReport, ServerStat, Stat};
use kumo_cluster::{COPIES, MemberState, Standing};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use tokio::time::Instant;

pub fn state(state: MemberState) -> &'static str {
    match state {
        MemberState::Active => "active",
        MemberState::Fault { .. } => "fault",
        MemberState::Returned { .. } => "returned",
    }
}

pub fn place(place: Standing) -> &'static str {
    match place {
        Standing::Attached => "attached",
        Standing::Joining => "joining",
        Standing::Leaving => "leaving",
    }
}

pub fn value(seen: &StoreLook, at: Instant, before: Option<&Look>) -> Value {
    let stat = &seen.stat;
    let earlier = before.and_then(|before| Some((before.at, before.store.as_ref().ok()?)));
    let seconds = earlier.map_or(0.0, |(then, _)| (at - then).as_secs_f64());
    let places = stat.space.places();
    let mut all = Vec::new();
    let mut servers = Vec::new();
    for address in addresses(stat, &places) {
        let report = seen.reports.get(&address);
        let known = earlier.and_then(|(_, earlier)| earlier.reports.get(&address)?.as_ref().ok());
        let rates = report.and_then(|report| rates(report.as_ref().ok()?, known?, seconds));
        let row = Row {
            address,
            place: places.get(&address).copied(),
            heard: heard(stat, address),
            report: report.and_then(|report| report.as_ref().ok()),
            error: report.and_then(|report| report.as_ref().err()),
            rates: rates.as_ref(),
        };
        servers.push(row.value(seen));
        all.extend(rates);
    }
    let space = &stat.space;
    let job = seen.job.as_ref().map(|job| {
        let before = earlier.and_then(|(_, earlier)| earlier.job.as_ref());
        job::value(job, before, seconds)
    });
    json!({
        "space": {
            "number": space.number.to_string(),
            "made_at": u64::from(space.clock.unix_seconds()) * 1000,
            "settled": space.settled(),
        },
        "copies": COPIES,
        "master": stat.master.map(|master| master.to_string()),
        "managers": strings(&stat.managers),
        "gateways": stat.gateways,
        "auto_replace": stat.auto_replace,
        "attach_wanted": strings(&stat.attach_wanted),
        "detach_wanted": strings(&stat.detach_wanted),
        "rates": add_up(&all).map(|rates| rates.value()),
        "servers": servers,
        "job": job,
    })
}

/// One server, from what the master, the hash space and the server itself say.
struct Row<'a> {
    address: SocketAddr,
    /// None: it is not in the hash space.
    place: Option<(MemberState, Standing)>,
    heard: Option<&'a ServerStat>,
    report: Option<&'a ServerReport>,
    error: Option<&'a String>,
    rates: Option<&'a Rates>,
}

impl Row<'_> {
    fn value(&self, seen: &StoreLook) -> Value {
        let Row { heard, report, .. } = self;
        let usage = report.map(|report| report.usage).or(heard.map(|heard| heard.usage));
        let counted = heard.map(|heard| (heard.gets, heard.sets, heard.deletes));
        let totals = report.map(|report| (report.gets, report.sets, report.deletes)).or(counted);
        let error = match (self.error, heard.is_some_and(|heard| heard.connected)) {
            (Some(error), _) => Some(error.as_str()),
            (None, false) => Some("not connected"),
            (None, true) => None,
        };
        json!({
            "address": self.address.to_string(),
            "state": self.place.map_or("waiting", |(is, _)| state(is)),
            "place": self.place.map_or("none", |(_, at)| place(at)),
            "connected": heard.is_some_and(|heard| heard.connected),
            "answers": report.is_some(),
            "error": error,
            "share": seen.coverage.share(self.address),
            "items": usage.map(|usage| usage.items),
            "tombstones": usage.map(|usage| usage.tombstones),
            "bytes": usage.map(|usage| usage.live_bytes),
            "file_bytes": usage.map(|usage| usage.file_bytes),
            "unreadable": usage.map(|usage| usage.unreadable),
            "rates": self.rates.map(Rates::value),
            "totals": totals.map(|(gets, sets, deletes)| json!({ "gets": gets, "sets": sets, "deletes": deletes })),
            "lease_ms": report.map(|report| report.lease_ms),
            "lag": {
                "heard_ms": heard.map(|heard| heard.heard_ms),
                "behind": heard.filter(|_| self.place.is_some()).map(|heard| heard.space < seen.stat.space.number),
                "pending": report.map(|report| report.pending),
                "dirty": report.map(|report| report.dirty),
            },
            "uptime_ms": report.map(|report| report.uptime_ms),
            "pid": report.map(|report| report.pid),
            "version": report.map(|report| report.version.as_str()),
        })
    }
}

/// Those of the hash space, and those that are there without being in it.
fn addresses(stat: &Stat, places: &BTreeMap<SocketAddr, (MemberState, Standing)>) -> BTreeSet<SocketAddr> {
    let connected = stat.servers.iter().filter(|server| server.connected).map(|server| server.server.address);
    places.keys().copied().chain(connected).collect()
}

/// The life at that address that is connected, or was heard last.
pub fn heard(stat: &Stat, address: SocketAddr) -> Option<&ServerStat> {
    let lives = stat.servers.iter().filter(|server| server.server.address == address);
    lives.min_by_key(|server| (!server.connected, server.heard_ms))
}

fn strings(addresses: &[SocketAddr]) -> Vec<String> {
    addresses.iter().map(SocketAddr::to_string).collect()
}
