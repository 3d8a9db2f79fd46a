//! A cell in memory of which two of three forget at once: it stops, says so, and goes on only when told to.

use crate::load::Load;
use crate::process::{Cell, bounded, until};
use crate::raw;

#[tokio::test(flavor = "multi_thread")]
async fn a_cell_whose_majority_forgot_stops_until_it_is_recovered() {
    bounded(async {
        let mut cell = Cell::start(&["--session-timeout", "60"]).await;
        let load = Load::start(&cell).await;
        load.further(500).await;
        let tally = load.finish(&cell).await;
        let master = cell.master().await;
        let survivor = (master + 1) % 3;
        let others: Vec<usize> = (0..3).filter(|&index| index != survivor).collect();
        let address = cell.address(survivor).to_string();
        let recover = ["cell", "recover", "--from", &address, "--accept-data-loss"];
        put(&cell, "/kept", "before");
        // While a majority remembers: all three, then two.
        assert!(stderr(cell.kumo(&recover, 1)).contains("needs no recovery"));
        cell.kill(others[0]);
        assert!(stderr(cell.kumo(&recover, 1)).contains("needs no recovery"));
        cell.run(others[0]);
        cell.voting().await;
        put(&cell, "/kept", "after");
        everything_is_everywhere(&cell).await;

        cell.kill_at_once(&others);
        others.iter().for_each(|&index| cell.run(index));
        let survivor_named = format!("kumo cell recover --from {address} ");
        // Whoever is asked: also one that forgot knows who did not.
        for index in 0..3 {
            until("the cell says that it stopped, and what can be done", async || {
                let said = raw::status(cell.address(index))?.trouble?;
                (said.contains("1 of 3 voters remember") && said.contains(&survivor_named)).then_some(())
            })
            .await;
        }
        let status = String::from_utf8(cell.kumo(&["cell", "status"], 5).stdout).unwrap();
        assert!(status.contains("1 of 3 voters remember"), "{status}");
        until("the survivor's log tells", async || {
            cell.log(survivor).contains("a majority of the voters lost its memory").then_some(())
        })
        .await;
        // It does not guess: no write is taken, and who forgot cannot be the survivor.
        let patience = ["--patience", "2", "fs", "put", "/kept", "/dev/null"];
        cell.kumo(&patience, 5);
        let empty = cell.address(others[0]).to_string();
        cell.kumo(&["cell", "recover", "--from", &empty, "--accept-data-loss"], 1);
        cell.kumo(&["cell", "recover", "--from", &address], 2);

        cell.kumo(&recover, 0);
        // A memory of the generation that is over ends with its process.
        let mut ended = 0;
        let status = until("every replica is back", async || {
            ended += cell.run_ended();
            cell.if_voting().await
        })
        .await;
        assert!(status.generation > 1, "{status:?}");
        assert!(ended <= 2, "the survivor goes on");
        assert_eq!(cell.kumo(&["fs", "cat", "/kept"], 0).stdout, b"after");
        put(&cell, "/kept", "recovered");
        assert!(stderr(cell.kumo(&recover, 1)).contains("needs no recovery"));
        tally.verify(&cell).await;
        let again = Load::start(&cell).await;
        again.further(500).await;
        let again = again.finish(&cell).await;
        println!(
            "two of three forgot: 1 of 1 took effect, generation {}; {tally}, and {again} after it",
            status.generation
        );
    })
    .await;
}

/// Waits until every replica has executed what the others have: whoever survives knows it all.
async fn everything_is_everywhere(cell: &Cell) {
    until("all have executed the same", async || {
        let replicas = cell.status().await?.replicas;
        replicas.iter().all(|replica| replica.executed == replicas[0].executed).then_some(())
    })
    .await;
}

fn put(cell: &Cell, path: &str, content: &str) {
    let file = std::env::temp_dir().join(format!("kumo-chaos-{}-content", std::process::id()));
    std::fs::write(&file, content).unwrap();
    cell.kumo(&["fs", "put", path, file.to_str().unwrap()], 0);
    std::fs::remove_file(&file).unwrap();
}

fn stderr(output: std::process::Output) -> String {
    String::from_utf8(output.stderr).unwrap()
}
