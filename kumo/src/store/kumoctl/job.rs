//! `kumoctl job`, and [`JobView`]: how far a replace is.

use crate::failure::Failure;
use crate::output::{Out, row, table};
use crate::store::{shown, tool};
use clap::Subcommand;
use kumo_cluster::control::{ControlRequest, JobStat, Stat};
use kumo_cluster::{MemberState, Progress, Space, SpaceNumber, Table, stranded};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::Instant;

#[derive(Subcommand, Clone, Debug)]
pub enum JobOrder {
    /// How far it is, server by server
    Show,
    /// Show progress until it has ended; status 1 when it was cancelled
    Wait,
    /// Send nothing more until it is resumed
    Pause,
    /// Go on
    Resume,
    /// Give it up: the data stays where it was
    Cancel,
    /// How much each server may send for it
    Rate {
        /// A second, with or without K, M or G, whether clients ask meanwhile or not; 0: as fast as leaves them in peace
        #[arg(value_name = "BYTES", value_parser = shown::parse_bytes)]
        bytes: u64,
    },
}

pub async fn run(manager: SocketAddr, order: JobOrder, out: Out) -> Result<(), Failure> {
    let (request, done) = match order {
        JobOrder::Show => return show(manager, out).await,
        JobOrder::Wait => return super::wait::follow(manager, out).await,
        JobOrder::Pause => (ControlRequest::Pause, "paused".to_owned()),
        JobOrder::Resume => (ControlRequest::Resume, "resumed".to_owned()),
        JobOrder::Cancel => (ControlRequest::Cancel, "cancelled".to_owned()),
        JobOrder::Rate { bytes } => (ControlRequest::Rate { bytes }, limited(bytes)),
    };
    // Whoever gives the order may think of another one.
    let view = JobView::of(&tool::stat(&[manager]).await?).ok_or_else(|| Failure::refused(NO_JOB))?;
    let name = view.name();
    if view.job.switching {
        return Err(Failure::refused(format!("{name}: all data is where it belongs, it ends by itself")));
    }
    tool::control(manager, &request).await.map_err(|failure| match failure {
        Failure::Line(why, status) => Failure::Line(format!("{name}: {why}"), status),
        other => other,
    })?;
    let job = json!({ "kind": view.job.kind(), "number": view.number().to_string() });
    out.result(json!({ "done": true, "job": job }), || format!("{name}: {done}"))
}

fn limited(bytes: u64) -> String {
    match bytes {
        0 => "no limit".to_owned(),
        bytes => format!("max {}/s each", shown::bytes(bytes)),
    }
}

/// Looks twice, because a rate is what happens in between.
async fn show(manager: SocketAddr, out: Out) -> Result<(), Failure> {
    let mut job = JobView::of(&tool::stat(&[manager]).await?);
    // One that is paused sends nothing.
    if let Some(before) = job.as_ref().filter(|before| !before.job.paused) {
        let began = Instant::now();
        tokio::time::sleep(RATE_INTERVAL).await;
        // One that has ended meanwhile is shown as it was.
        if let Some(mut now) = JobView::of(&tool::stat(&[manager]).await?) {
            now.measure(&before.job, began.elapsed());
            job = Some(now);
        }
    }
    out.result(json!({ "job": job.as_ref().map(JobView::value) }), || match &job {
        Some(job) => {
            let hindrance = job.hindrance().map(|hindrance| hindrance + "\n").unwrap_or_default();
            format!("{}\n{hindrance}{}", job.line(), job.table())
        }
        None => NO_JOB.to_owned(),
    })
}

/// A replace under way, as it is shown.
pub struct JobView {
    pub job: JobStat,
    /// Lost servers without which it cannot go on: of some keys they alone have all that was acknowledged.
    awaited: BTreeSet<SocketAddr>,
    /// Lost servers of the ring that it goes to, without which it cannot end.
    stranded: BTreeSet<SocketAddr>,
    /// Bytes a second that servers send, where that was measured.
    rates: BTreeMap<SocketAddr, u64>,
}

impl JobView {
    pub fn of(stat: &Stat) -> Option<JobView> {
        let job = stat.job()?;
        // A full replace compares the copies there are.
        let goes_on = job.switching || job.full || stat.loss_accepted;
        let awaited = if goes_on { BTreeSet::new() } else { awaited(&stat.space) };
        let stranded = if awaited.is_empty() { stranded(&stat.space) } else { BTreeSet::new() };
        Some(JobView { job, awaited, stranded, rates: BTreeMap::new() })
    }

    /// Takes the rates from how far it was that long ago. None is one of now when it was paused meanwhile.
    fn measure(&mut self, before: &JobStat, since: Duration) {
        if self.job.paused {
            return;
        }
        let earlier: BTreeMap<SocketAddr, u64> =
            before.servers.iter().map(|(address, one)| (*address, one.bytes_sent)).collect();
        let micros = since.as_micros().max(1);
        for (address, one) in &self.job.servers {
            // A server that came back counts from 0 again.
            let sent = earlier.get(address).and_then(|before| one.bytes_sent.checked_sub(*before));
            // One that told of nothing new may be about to: that is not known to be standing still.
            if let Some(sent) = sent.filter(|&sent| sent > 0) {
                self.rates.insert(*address, (u128::from(sent) * 1_000_000 / micros) as u64);
            }
        }
    }

    /// Seconds until that server is done, at the rate that was measured.
    fn seconds_left(&self, address: &SocketAddr, one: &Progress) -> Option<u64> {
        let rate = self.rates.get(address).filter(|_| is_counted(one))?;
        one.bytes_left.checked_div(*rate)
    }

    /// What it waits for, and how to go on; nothing as long as it goes on by itself.
    pub fn hindrance(&self) -> Option<String> {
        if !self.stranded.is_empty() {
            return Some(format!(
                "it cannot end: {} of the ring that it goes to are lost, and part of that ring would have no acting server, or one copy \
                 where there are more now; `job cancel`, then `attach` those that are there",
                names(&self.stranded)
            ));
        }
        if self.awaited.is_empty() {
            return self.unreadable();
        }
        Some(format!(
            "it waits for {}: all servers of part of the ring are lost, and these were lost last; start them again, or \
             give up what only they have: `job cancel`, then `attach --accept-data-loss`",
            names(&self.awaited)
        ))
    }

    /// Records that some server cannot read, and without which its part is no copy.
    fn unreadable(&self) -> Option<String> {
        let damaged = self.job.servers.iter().filter(|(_, one)| one.unreadable > 0);
        let named: Vec<String> =
            damaged.map(|(address, one)| format!("{} on {address}", one.unreadable)).collect();
        (!named.is_empty()).then(|| {
            format!(
                "it waits for records that cannot be read: {}; that server's log names the file; while other servers have \
                 copies, stop that server, empty its store and attach it again; else write the records anew, or `job \
                 cancel`",
                named.join(", ")
            )
        })
    }

    /// The hash space with which it began.
    fn number(&self) -> SpaceNumber {
        self.job.total.job
    }

    /// Which one it is.
    fn name(&self) -> String {
        format!("{} of hash space {}", self.job.kind(), self.number())
    }

    /// What it is, and how far.
    pub fn line(&self) -> String {
        format!("{} {}", self.job.kind(), self.facts(None))
    }

    /// How far it is, with the pace in bytes a second where that is known. The limit is last: a terminal cuts the end.
    pub fn facts(&self, pace: Option<u64>) -> String {
        let job = &self.job;
        let state = match (job.switching, job.paused) {
            (true, _) => ", servers are told",
            (false, true) => ", paused",
            (false, false) => "",
        };
        let total = &job.total;
        let speed = pace.map(|pace| format!(" at {}/s", shown::bytes(pace))).unwrap_or_default();
        let seconds = pace.and_then(|pace| total.bytes_left.checked_div(pace));
        let time = seconds.map(|seconds| format!(", {}", shown::duration(Duration::from_secs(seconds))));
        let time = time.filter(|_| !job.switching).unwrap_or_default();
        let sent = format!(", {} sent{speed}", shown::bytes(total.bytes_sent));
        let amounts = match (is_counted(total), total.bytes_sent) {
            (true, _) => format!("{sent}, {}{time} left", shown::bytes(total.bytes_left)),
            (false, 0) if job.switching => String::new(),
            (false, 0) => ", not counted yet".to_owned(),
            (false, _) => format!("{sent}, rest not counted yet"),
        };
        let limit = match job.rate {
            0 => String::new(),
            rate => format!(", max {}/s each", shown::bytes(rate)),
        };
        format!("{:.1} %{state}{amounts}{limit}", job.percent())
    }

    fn table(&self) -> String {
        let mut rows =
            vec![row([&"SERVER", &"DONE", &"RANGES", &"RECORDS", &"SENT", &"LEFT", &"RATE", &"TIME LEFT"])];
        for (address, one) in &self.job.servers {
            let rate = self.rates.get(address).map_or("-".to_owned(), |rate| shown::bytes(*rate) + "/s");
            let left = self.seconds_left(address, one).map(Duration::from_secs);
            rows.push(row([
                address,
                &format!("{:.1} %", one.percent()),
                &format!("{}/{}", one.copies_done, one.copies),
                &one.records_sent,
                &shown::bytes(one.bytes_sent),
                &if is_counted(one) { shown::bytes(one.bytes_left) } else { "-".to_owned() },
                &rate,
                &left.map_or("-".to_owned(), shown::duration),
            ]));
        }
        table(&rows)
    }

    pub fn value(&self) -> Value {
        let job = &self.job;
        let mut value = progress_value(&job.total);
        value["kind"] = json!(job.kind());
        value["number"] = json!(self.number().to_string());
        value["paused"] = json!(job.paused);
        value["rate"] = json!(job.rate);
        value["switching"] = json!(job.switching);
        value["percent"] = json!(job.percent());
        value["awaited"] = self.awaited.iter().map(SocketAddr::to_string).collect();
        value["stranded"] = self.stranded.iter().map(SocketAddr::to_string).collect();
        let servers = job.servers.iter().map(|(address, one)| {
            let mut server = progress_value(one);
            server["address"] = json!(address.to_string());
            server["bytes_s"] = json!(self.rates.get(address));
            server["seconds_left"] = json!(self.seconds_left(address, one));
            server
        });
        value["servers"] = servers.collect();
        value
    }
}

/// What is left is judged by the ranges that are done: before the first, it is 0 because nothing is known.
fn is_counted(progress: &Progress) -> bool {
    progress.copies_done > 0
}

/// Of every arc without an owner that acts, the owner that was lost last.
pub fn awaited(space: &Space) -> BTreeSet<SocketAddr> {
    let table = Table::new(space);
    let dark = table.arcs().iter().filter(|arc| arc.readers.is_empty());
    let lost_last = dark.filter_map(|arc| {
        let owners = arc.owners.iter().map(|&index| space.member(index));
        owners.max_by_key(|member| match member.state {
            MemberState::Active => 0,
            MemberState::Fault { order } | MemberState::Returned { order } => order,
        })
    });
    lost_last.map(|member| member.address).collect()
}

fn names(servers: &BTreeSet<SocketAddr>) -> String {
    servers.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(" and ")
}

fn progress_value(progress: &Progress) -> Value {
    json!({
        "percent": progress.percent(),
        "copies": progress.copies,
        "copies_done": progress.copies_done,
        "records_sent": progress.records_sent,
        "bytes_sent": progress.bytes_sent,
        "bytes_left": progress.bytes_left,
        "unreadable": progress.unreadable,
    })
}

pub const NO_JOB: &str = "no replace is under way";

/// Long enough for servers to tell several times, which they do in steps; short enough to wait for.
const RATE_INTERVAL: Duration = Duration::from_millis(2500);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::kumoctl::wait::BAR_WIDTH;
    use kumo_cluster::{Incarnation, Job, Member};

    /// A full replace of that much, as it is shown.
    fn moving(total: Progress) -> JobView {
        let server = SocketAddr::from(([127, 0, 0, 1], 8000));
        let job = JobStat {
            full: true,
            paused: false,
            rate: 100 << 20,
            switching: false,
            total,
            servers: vec![(server, total)],
        };
        JobView { job, awaited: BTreeSet::new(), stranded: BTreeSet::new(), rates: BTreeMap::new() }
    }

    #[test]
    fn eighty_columns_show_how_much_how_fast_and_how_long() {
        const TENTH_OF_TIB: u64 = (1 << 40) / 10;
        let total = Progress {
            copies: 1000,
            copies_done: 999,
            bytes_sent: 10_239 * TENTH_OF_TIB,
            bytes_left: 3_515 * TENTH_OF_TIB,
            ..Progress::default()
        };
        let facts = moving(total).facts(Some((10_239 << 20) / 10));
        let needed = "99.9 %, 1023.9 TiB sent at 1023.9 MiB/s, 351.5 TiB, 99 h 59 min left";
        assert_eq!(facts, format!("{needed}, max 100.0 MiB/s each"));
        assert!("[] ".len() + BAR_WIDTH + needed.len() <= 80, "{needed}");
    }

    #[test]
    fn what_is_not_known_is_not_shown_as_nothing() {
        let line = |total, switching| {
            let mut view = moving(total);
            (view.job.rate, view.job.switching) = (0, switching);
            view.line()
        };
        let none = Progress::default();
        assert_eq!(line(none, false), "full-replace 0.0 %, not counted yet");
        assert_eq!(line(none, true), "full-replace 100.0 %, servers are told");
        let some = Progress { copies: 2, bytes_sent: 1024, ..none };
        assert_eq!(line(some, false), "full-replace 0.0 %, 1.0 KiB sent, rest not counted yet");
        let done = Progress { copies: 2, copies_done: 1, bytes_sent: 1024, bytes_left: 1024, ..none };
        assert_eq!(line(done, false), "full-replace 50.0 %, 1.0 KiB sent, 1.0 KiB left");
    }

    #[test]
    fn a_rate_is_told_where_something_moved() {
        let at = |bytes_sent| Progress {
            copies: 2,
            copies_done: 1,
            bytes_sent,
            bytes_left: 4000,
            ..Progress::default()
        };
        let (before, mut moved, mut still) = (moving(at(1000)), moving(at(6000)), moving(at(1000)));
        moved.measure(&before.job, RATE_INTERVAL);
        still.measure(&before.job, RATE_INTERVAL);
        let table = moved.table();
        assert!(table.contains("2.0 KiB/s") && table.contains("2 s"), "{table}");
        assert!(!still.table().contains("/s"), "{}", still.table());
        let mut paused = moving(at(6000));
        paused.job.paused = true;
        paused.measure(&before.job, RATE_INTERVAL);
        let last = paused.table().lines().last().unwrap().to_owned();
        assert!(last.split_whitespace().rev().take(2).eq(["-", "-"]), "neither rate nor time left: {last}");
        let mut unknown = moving(Progress { copies_done: 0, bytes_left: 0, ..at(6000) });
        unknown.measure(&before.job, RATE_INTERVAL);
        let table = unknown.table();
        assert!(table.contains("2.0 KiB/s") && !table.contains("0 s"), "{table}");
    }

    fn member(port: u16, state: MemberState) -> Member {
        let incarnation = Incarnation(u128::from(port));
        Member { address: SocketAddr::from(([127, 0, 0, 1], port)), incarnation, state }
    }

    /// What an operator reads of a replace from one ring to another.
    fn read_of(members: Vec<Member>, rhs: &[u16], whs: &[u16]) -> String {
        let mut space = Space::empty(Default::default(), SpaceNumber(9));
        space.job = Some(Job { full: false, paused: false, rate: 0 });
        (space.members, space.rhs, space.whs) = (members, rhs.to_vec(), whs.to_vec());
        let stat = Stat {
            space,
            servers: Vec::new(),
            auto_replace: false,
            attach_wanted: Vec::new(),
            detach_wanted: Vec::new(),
            gateways: 0,
            managers: Vec::new(),
            master: None,
            voters: Vec::new(),
            loss_accepted: false,
        };
        JobView::of(&stat).and_then(|job| job.hindrance()).unwrap_or_default()
    }

    #[test]
    fn a_job_whose_new_owners_are_lost_says_how_to_end_it() {
        let lost = MemberState::Fault { order: 1 };
        let to = |state| vec![member(8000, MemberState::Active), member(8001, state)];
        assert_eq!(
            read_of(to(lost), &[0], &[1]),
            "it cannot end: 127.0.0.1:8001 of the ring that it goes to are lost, and part of that ring would have no acting \
             server, or one copy where there are more now; `job cancel`, then `attach` those that are there"
        );
        assert_eq!(read_of(to(MemberState::Active), &[0], &[1]), "");
        let mut more = vec![member(7998, MemberState::Active), member(7999, MemberState::Active)];
        more.extend(to(lost));
        assert!(
            read_of(more, &[0, 1], &[2, 3]).contains("127.0.0.1:8001"),
            "two copies are not given up for one"
        );
        assert_eq!(read_of(to(lost), &[0], &[0, 1]), "", "one that is lost on the way is worked around");
    }

    #[test]
    fn a_job_without_any_owner_names_who_was_lost_last() {
        let lost = |order| MemberState::Fault { order };
        let mut space = Space::empty(Default::default(), SpaceNumber(9));
        space.job = Some(Job { full: false, paused: false, rate: 0 });
        space.members = vec![
            member(8000, lost(1)),
            member(8001, lost(3)),
            member(8002, lost(2)),
            member(8003, MemberState::Active),
        ];
        (space.rhs, space.whs) = (vec![0, 1, 2], vec![1, 2, 3]);
        assert_eq!(awaited(&space), BTreeSet::from([space.members[1].address]));
        space.members[2].state = MemberState::Active;
        assert!(awaited(&space).is_empty(), "one that acts has it all");
    }
}
