//! Replicas with a disk, all of them killed at once.

use crate::load::Load;
use crate::process::{Cell, bounded};
use crate::raw;

#[tokio::test(flavor = "multi_thread")]
async fn a_durable_cell_survives_the_death_of_all() {
    bounded(async {
        let mut cell = Cell::start_durable(&["--session-timeout", "60"]).await;
        let lives = |cell: &Cell| -> Vec<_> { cell.addresses().into_iter().map(raw::incarnation).collect() };
        let before = lives(&cell);
        let formed = cell.voting().await;
        let load = Load::start(&cell).await;
        let mut acknowledged = Vec::new();
        for _ in 0..DEATHS {
            load.further(200).await;
            cell.kill_at_once(&[0, 1, 2]);
            acknowledged.push(load.acknowledged());
            assert!(lives(&cell).iter().all(Option::is_none), "all are dead");
            cell.run_all();
            load.check(&cell.session().await).await;
            load.further(200).await;
        }
        let status = cell.voting().await;
        assert_eq!(lives(&cell), before, "everybody kept its memory");
        assert_eq!((status.cell, status.generation), (formed.cell, 1), "nobody had to recover the cell");
        let tally = load.finish(&cell).await;
        println!(
            "kill -9 of all three: {DEATHS} of {DEATHS} took effect (after {acknowledged:?} operations), {tally}"
        );
    })
    .await;
}

const DEATHS: usize = 3;
