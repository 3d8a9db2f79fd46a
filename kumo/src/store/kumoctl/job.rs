//! `kumoctl job`, and [`JobView`]: how far a replace is.

use crate::failure::Failure;
use crate::output::{Out, row, table};
use crate::store::{shown, tool};
use clap::Subcommand;
use kumo_cluster::Progress;
use kumo_cluster::control::{ControlRequest, JobStat, Stat};
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

/// A replace under way, as it is shown.
pub struct JobView(pub JobStat);

impl JobView {
    pub fn of(stat: &Stat) -> Option<JobView> {
        stat.job().map(JobView)
    }

    pub fn line(&self) -> String {
        let job = &self.0;
        let state = match (job.switching, job.paused) {
            (true, _) => ", servers are told",
            (false, true) => ", paused",
            (false, false) => "",
        };
        let limit = match job.rate {
            0 => String::new(),
            rate => format!(", at most {}/s a server", shown::bytes(rate)),
        };
        let (sent, left) = (shown::bytes(job.total.bytes_sent), shown::bytes(job.total.bytes_left));
        format!("{} {:.1} %{state}, {sent} sent, {left} left{limit}", job.kind(), job.percent())
    }

    fn table(&self) -> String {
        let mut rows = vec![row([&"SERVER", &"DONE", &"RANGES", &"RECORDS", &"SENT", &"LEFT"])];
        for (address, one) in &self.0.servers {
            rows.push(row([
                address,
                &format!("{:.1} %", one.percent()),
                &format!("{}/{}", one.copies_done, one.copies),
                &one.records_sent,
                &shown::bytes(one.bytes_sent),
                &shown::bytes(one.bytes_left),
            ]));
        }
        table(&rows)
    }

    pub fn value(&self) -> Value {
        let job = &self.0;
        let mut value = progress_value(&job.total);
        value["kind"] = json!(job.kind());
        value["paused"] = json!(job.paused);
        value["rate"] = json!(job.rate);
        value["switching"] = json!(job.switching);
        value["percent"] = json!(job.percent());
        let servers = job.servers.iter().map(|(address, one)| {
            let mut server = progress_value(one);
            server["address"] = json!(address.to_string());
            server
        });
        value["servers"] = servers.collect();
        value
    }
}

fn progress_value(progress: &Progress) -> Value {
    json!({
        "percent": progress.percent(),
        "copies": progress.copies,
        "copies_done": progress.copies_done,
        "records_sent": progress.records_sent,
        "bytes_sent": progress.bytes_sent,
        "bytes_left": progress.bytes_left,
    })
}
