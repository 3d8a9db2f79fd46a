//! How far a replace is, and how fast, from what its servers reported last.

use kumo_cluster::Progress;
use kumo_cluster::control::JobStat;
use serde_json::{Value, json};

/// `before`: the job at the look before, so many seconds ago.
pub fn value(job: &JobStat, before: Option<&JobStat>, seconds: f64) -> Value {
    // What servers told late is no rate of one that is paused.
    let is_same = |before: &&JobStat| before.total.job == job.total.job && seconds > 0.0;
    let before = before.filter(is_same).filter(|_| !job.paused);
    let speed = |now: &Progress, then: Option<&Progress>| {
        then.map(|then| now.bytes_sent.saturating_sub(then.bytes_sent) as f64 / seconds)
    };
    let of_all = speed(&job.total, before.map(|before| &before.total));
    let left_ms = of_all.filter(|&speed| speed > 0.0);
    let left_ms = left_ms.map(|speed| (job.total.bytes_left as f64 / speed * 1000.0) as u64);
    let servers = job.servers.iter().map(|(address, now)| {
        let then = before.and_then(|before| before.servers.iter().find(|(other, _)| other == address));
        let mut server = progress(now, speed(now, then.map(|(_, then)| then)));
        server["address"] = json!(address.to_string());
        server
    });
    let servers: Vec<Value> = servers.collect();
    let mut value = progress(&job.total, of_all);
    value["kind"] = json!(job.kind());
    value["paused"] = json!(job.paused);
    value["switching"] = json!(job.switching);
    value["rate_limit"] = json!(job.rate);
    value["percent"] = json!(job.percent());
    value["left_ms"] = json!(left_ms);
    value["servers"] = json!(servers);
    value
}

fn progress(progress: &Progress, bytes_per_second: Option<f64>) -> Value {
    json!({
        "percent": progress.percent(),
        "copies": progress.copies,
        "copies_done": progress.copies_done,
        "records_sent": progress.records_sent,
        "bytes_sent": progress.bytes_sent,
        "bytes_left": progress.bytes_left,
        "unreadable": progress.unreadable,
        "bytes_per_second": bytes_per_second,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use kumo_cluster::SpaceNumber;
    use std::net::SocketAddr;

    fn job(number: u64, sent: u64, left: u64) -> JobStat {
        let total = Progress {
            job: SpaceNumber(number),
            copies: 4,
            copies_done: 1,
            records_sent: 0,
            bytes_sent: sent,
            bytes_left: left,
            unreadable: 0,
        };
        let server = SocketAddr::from(([127, 0, 0, 1], 19801));
        JobStat {
            full: false,
            paused: false,
            rate: 0,
            switching: false,
            total,
            servers: vec![(server, total)],
        }
    }

    #[test]
    fn speed_and_time_left_come_from_two_looks_at_one_job() {
        let now = job(7, 3000, 4000);
        let first = value(&now, None, 0.0);
        assert_eq!((&first["bytes_per_second"], &first["left_ms"]), (&json!(null), &json!(null)));
        assert_eq!((&first["percent"], &first["servers"][0]["percent"]), (&json!(25.0), &json!(25.0)));
        let second = value(&now, Some(&job(7, 1000, 6000)), 2.0);
        assert_eq!((&second["bytes_per_second"], &second["left_ms"]), (&json!(1000.0), &json!(4000)));
        assert_eq!(second["servers"][0]["bytes_per_second"], json!(1000.0));
        let paused = value(&JobStat { paused: true, ..now.clone() }, Some(&job(7, 1000, 6000)), 2.0);
        assert_eq!((&paused["bytes_per_second"], &paused["left_ms"]), (&json!(null), &json!(null)));
        assert_eq!(paused["servers"][0]["bytes_per_second"], json!(null));
        let other = value(&now, Some(&job(6, 1000, 6000)), 2.0);
        assert_eq!(other["bytes_per_second"], json!(null), "another job says nothing about this one");
        let still = value(&now, Some(&now), 1.0);
        assert_eq!((&still["bytes_per_second"], &still["left_ms"]), (&json!(0.0), &json!(null)));
    }
}
