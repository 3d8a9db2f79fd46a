//! Replicas that lose their memory while clients write: one at a time, and again and again.

use crate::load::Load;
use crate::process::{Cell, bounded};
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread")]
async fn nothing_acknowledged_is_lost_when_masters_are_killed() {
    bounded(async {
        let mut cell = Cell::start(&PATIENT_SESSIONS).await;
        let load = Load::start(&cell).await;
        let probe = cell.session().await;
        probe.put("/probe", "-").await.unwrap();
        let mut gaps = Vec::new();
        for kill in 0..KILLS {
            load.further(OPERATIONS_BETWEEN).await;
            let master = cell.master().await;
            cell.kill(master);
            let killed = Instant::now();
            probe.put("/probe", kill.to_string()).await.expect("the next write succeeds");
            gaps.push(killed.elapsed());
            load.check(&cell.session().await).await;
            assert_ne!(cell.master_but(Some(master)).await, master);
            cell.run(master);
            cell.voting().await;
        }
        assert_eq!(probe.read("/probe").await.unwrap().bytes, (KILLS - 1).to_string());
        let tally = load.finish(&cell).await;
        assert_eq!(gaps.len(), KILLS, "every kill met a master");
        println!("kill -9 of the master: {KILLS} of {KILLS} took effect, {tally}; {}", gap_text(gaps));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_replica_is_restarted_empty_while_clients_write() {
    bounded(async {
        let mut cell = Cell::start(&PATIENT_SESSIONS).await;
        let load = Load::start(&cell).await;
        let before: Vec<_> = cell.voting().await.replicas.iter().map(|one| one.member.incarnation).collect();
        let mut restarts = 0;
        for round in 0..2 {
            for index in 0..3 {
                load.further(OPERATIONS_BETWEEN).await;
                match round {
                    0 => cell.terminate(index).await,
                    _ => cell.kill(index),
                }
                load.further(OPERATIONS_BETWEEN).await;
                cell.run(index);
                cell.voting().await;
                restarts += 1;
            }
        }
        let after: Vec<_> = cell.voting().await.replicas.iter().map(|one| one.member.incarnation).collect();
        assert!(before.iter().all(|incarnation| !after.contains(incarnation)), "nobody kept its memory");
        let tally = load.finish(&cell).await;
        println!("restarts without memory: {restarts} of 6 took effect, {tally}");
    })
    .await;
}

fn gap_text(mut gaps: Vec<Duration>) -> String {
    gaps.sort();
    let (median, worst) = (gaps[gaps.len() / 2], gaps[gaps.len() - 1]);
    let all: Vec<String> = gaps.iter().map(|gap| gap.as_millis().to_string()).collect();
    format!("gap median {} ms, worst {} ms ({})", median.as_millis(), worst.as_millis(), all.join(" "))
}

const KILLS: usize = 20;

/// So that every fault meets a cell at work.
const OPERATIONS_BETWEEN: u64 = 200;

/// The sessions outlive every gap, on a busy machine too.
const PATIENT_SESSIONS: [&str; 2] = ["--session-timeout", "60"];
