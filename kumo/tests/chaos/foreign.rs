//! Another cell where a client's own was: it is named as what it is, and nothing is done in it.

use crate::process::{Cell, PATIENCE, bounded, places, until};
use pfs::{Error, Options, Refusal, Session};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn a_client_is_told_that_another_cell_answers() {
    bounded(async {
        let mut cell = Cell::start_at(places(1), &["--session-timeout", "2"], false).await;
        let options = Options { patience: Duration::from_secs(1), ..cell.session_options() };
        // Both know their cell from here on.
        let session = until("a session opens", async || Session::open(&options).await.ok()).await;
        let operator = pfs::Cell::connect(&options).unwrap();
        let before = until("there is a cell", async || operator.status().await.ok()).await.status.cell;

        cell.kill(0);
        cell.run(0);
        let foreign = |answer: Result<(), Error>| match answer {
            Err(Error::ForeignCell(address)) => Some(address),
            Err(Error::Lost | Error::Unreachable(_) | Error::NoMaster) => None,
            other => panic!("neither unreachable nor another's: {other:?}"),
        };
        let status = async || foreign(operator.status().await.map(drop));
        assert_eq!(until("an operator is told", status).await, cell.address(0));
        let put = async || {
            // A session that is lost looks no further by itself.
            let _ = session.cell().status().await;
            foreign(session.put("/file", "of the old cell").await.map(drop))
        };
        assert_eq!(until("a session is told", put).await, cell.address(0));

        let newcomer = Options { patience: PATIENCE, ..options };
        let newcomer = Session::open(&newcomer).await.expect("the new cell is one like any other");
        assert_ne!(newcomer.cell().status().await.unwrap().status.cell, before);
        let found = newcomer.stat("/file").await;
        assert!(matches!(found, Err(Error::Refused(Refusal::NotFound(_)))), "{found:?}");
    })
    .await;
}
