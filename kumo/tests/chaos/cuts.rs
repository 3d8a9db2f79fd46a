//! Links between replicas that are cut, both ways and one way, while clients reach everybody.

use crate::load::Load;
use crate::namespaces::{self, Links};
use crate::process::{Cell, Place, bounded, until};
use crate::raw::{self, Raw};
use pfs::{Options, ReplicaState, Session};

#[tokio::test(flavor = "multi_thread")]
async fn a_cell_works_on_while_a_link_is_cut() {
    if namespaces::inside() {
        return bounded(cut_links()).await;
    }
    match namespaces::run_inside("cuts::a_cell_works_on_while_a_link_is_cut") {
        Err(reason) => {
            println!("skipped: links are cut in network namespaces, and there are none here ({reason})")
        }
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout);
            print!("{text}");
            assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
            assert!(text.contains(REPORT), "the test inside ran: {text}");
        }
    }
}

async fn cut_links() {
    let links = Links::new(3);
    let places = links
        .hosts()
        .into_iter()
        .map(|(host, prefix)| Place { address: (host, pfs::PORT).into(), prefix })
        .collect();
    let cell = Cell::start_at(places, &["--session-timeout", "60"], false).await;
    let load = Load::start(&cell).await;
    let mut cuts = 0;
    // One replica and the master do not hear each other, or only one of them hears the other. The third hears both.
    for [to_replica, to_master] in [[true, true], [true, false], [false, true]] {
        load.further(200).await;
        let session = cell.session().await;
        let master = cell.master().await;
        let replica = (master + 1) % 3;
        let ways = [(to_replica, master, replica), (to_master, replica, master)];
        let ways: Vec<_> = ways.into_iter().filter(|way| way.0).map(|(_, from, to)| (from, to)).collect();
        ways.iter().for_each(|&(from, to)| links.cut(from, to));
        until("the cut is noticed", async || {
            (misses(&cell, master, replica) || misses(&cell, replica, master)).then_some(())
        })
        .await;
        load.further(500).await;
        load.check(&session).await;
        // The master is found from any member, also from one that cannot tell who it is.
        for member in [master, replica] {
            let options = Options { members: vec![cell.address(member)], ..cell.session_options() };
            let newcomer = Session::open(&options).await.expect("a new session opens");
            load.check(&newcomer).await;
        }
        ways.iter().for_each(|&(from, to)| links.mend(from, to));
        cell.voting().await;
        cuts += 1;
    }
    // The master alone is cut off from both others, and clients still reach it: it must not answer for the cell.
    for _ in 0..2 {
        load.further(200).await;
        cut_off_master(&links, &cell, &load).await;
        cuts += 1;
    }
    let tally = load.finish(&cell).await;
    println!("{REPORT} {cuts} of 5 took effect, {tally}");
}

async fn cut_off_master(links: &Links, cell: &Cell, load: &Load) {
    let master = cell.master().await;
    let others: Vec<usize> = (0..3).filter(|&index| index != master).collect();
    let session = cell.session().await;
    session.put("/seen", "old").await.unwrap();
    let mut at_master = Raw::client(cell.address(master));
    let raw_session = at_master.open(1);
    for &other in &others {
        links.cut(master, other);
        links.cut(other, master);
    }
    let next = until("the others have a master", async || {
        raw::status(cell.address(others[0]))?.master.filter(|&next| next != cell.address(master))
    })
    .await;
    session.put("/seen", "new").await.expect("the others go on");
    at_master.ask_linear(raw_session, 1, "/seen");
    if let Some(value) = at_master.linear_answer(1) {
        assert_eq!(value, "new", "a master that is cut off answers no linear read");
    }
    load.further(500).await;
    load.check(&session).await;
    for &other in &others {
        links.mend(master, other);
        links.mend(other, master);
    }
    until("the old master follows", async || {
        let status = raw::status(cell.address(master))?;
        status.master.filter(|&now| now == next || now != cell.address(master))
    })
    .await;
    cell.voting().await;
}

/// Whether one replica itself takes another for dead.
fn misses(cell: &Cell, one: usize, other: usize) -> bool {
    let Some(status) = raw::status(cell.address(one)) else { return false };
    let gone = |replica: &pfs::ReplicaStatus| replica.state == ReplicaState::Down;
    status.replicas.iter().any(|replica| replica.member.address == cell.address(other) && gone(replica))
}

const REPORT: &str = "cut links:";
