//! `kumoctl job`, and [`JobView`]: how far a replace is.

use crate::failure::Failure;
use crate::output::{Out, row, table};
use crate::store::{shown, tool};
use clap::Subcommand;
use kumo_cluster::Progress;
use kumo_cluster::control::{ControlRequest, Stat};
use serde_json::{Value, json};
use std::net::SocketAddr;

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
        /// A second, with or without K, M or G; 0: no limit
        #[arg(value_name = "BYTES", value_parser = shown::parse_bytes)]
        bytes: u64,
    },
}

pub async fn run(manager: SocketAddr, order: JobOrder, out: Out) -> Result<(), Failure> {
    let request = match order {
        JobOrder::Show => return show(manager, out).await,
        JobOrder::Wait => return super::wait::run(manager, out).await,
        JobOrder::Pause => ControlRequest::Pause,
        JobOrder::Resume => ControlRequest::Resume,
        JobOrder::Cancel => ControlRequest::Cancel,
        JobOrder::Rate { bytes } => ControlRequest::Rate { bytes },
    };
    tool::control(manager, &request).await?;
    out.result(json!({ "done": true }), String::new)
}

async fn show(manager: SocketAddr, out: Out) -> Result<(), Failure> {
    let stat = tool::stat(&[manager]).await?;
    let job = JobView::of(&stat);
    out.result(json!({ "job": job.as_ref().map(JobView::value) }), || match &job {
        Some(job) => format!("{}\n{}", job.line(), job.table()),
        None => "no replace is under way".to_owned(),
    })
}

/// A replace under way, from what its servers reported last.
pub struct JobView {
    kind: &'static str,
    paused: bool,
    rate: u64,
    /// All data is where it belongs, and the servers are being told.
    pub switching: bool,
    pub total: Progress,
    servers: Vec<(SocketAddr, Progress)>,
}

impl JobView {
    pub fn of(stat: &Stat) -> Option<JobView> {
        let space = &stat.space;
        if space.job.is_none() && space.settled() {
            return None;
        }
        let about = |progress: &Progress| progress.job == space.whs_since && progress.copies > 0;
        let servers: Vec<(SocketAddr, Progress)> = stat
            .servers
            .iter()
            .filter(|server| about(&server.progress))
            .map(|server| (server.server.address, server.progress))
            .collect();
        let mut total = Progress { job: space.whs_since, ..Progress::default() };
        for (_, one) in &servers {
            total.copies += one.copies;
            total.copies_done += one.copies_done;
            total.records_sent += one.records_sent;
            total.bytes_sent += one.bytes_sent;
            total.bytes_left += one.bytes_left;
        }
        Some(JobView {
            kind: if space.job.is_some_and(|job| job.full) { "full-replace" } else { "replace" },
            paused: space.job.is_some_and(|job| job.paused),
            rate: space.job.map_or(0, |job| job.rate),
            switching: space.job.is_none(),
            total,
            servers,
        })
    }

    /// Of 100. Ranges count, not bytes: those that are equal already need none.
    pub fn percent(&self) -> f64 {
        if self.switching { 100.0 } else { percent(&self.total) }
    }

    pub fn line(&self) -> String {
        let state = match (self.switching, self.paused) {
            (true, _) => ", servers are told",
            (false, true) => ", paused",
            (false, false) => "",
        };
        let limit = match self.rate {
            0 => String::new(),
            rate => format!(", at most {}/s a server", shown::bytes(rate)),
        };
        let (sent, left) = (shown::bytes(self.total.bytes_sent), shown::bytes(self.total.bytes_left));
        format!("{} {:.1} %{state}, {sent} sent, {left} left{limit}", self.kind, self.percent())
    }

    fn table(&self) -> String {
        let mut rows = vec![row([&"SERVER", &"DONE", &"RANGES", &"RECORDS", &"SENT", &"LEFT"])];
        for (address, one) in &self.servers {
            rows.push(row([
                address,
                &format!("{:.1} %", percent(one)),
                &format!("{}/{}", one.copies_done, one.copies),
                &one.records_sent,
                &shown::bytes(one.bytes_sent),
                &shown::bytes(one.bytes_left),
            ]));
        }
        table(&rows)
    }

    pub fn value(&self) -> Value {
        let mut value = progress_value(&self.total);
        value["kind"] = json!(self.kind);
        value["paused"] = json!(self.paused);
        value["rate"] = json!(self.rate);
        value["switching"] = json!(self.switching);
        value["percent"] = json!(self.percent());
        let servers = self.servers.iter().map(|(address, one)| {
            let mut server = progress_value(one);
            server["address"] = json!(address.to_string());
            server
        });
        value["servers"] = servers.collect();
        value
    }
}

fn percent(progress: &Progress) -> f64 {
    match progress.copies {
        0 => 0.0,
        copies => 100.0 * progress.copies_done.min(copies) as f64 / copies as f64,
    }
}

fn progress_value(progress: &Progress) -> Value {
    json!({
        "percent": percent(progress),
        "copies": progress.copies,
        "copies_done": progress.copies_done,
        "records_sent": progress.records_sent,
        "bytes_sent": progress.bytes_sent,
        "bytes_left": progress.bytes_left,
    })
}
