//! When a cluster of `kumo up` is ready: everybody votes, every server is attached, every gateway answers, and two managers
//! have found their further voters.

use super::layout::{Layout, Place, Role};
use crate::cell::is_ready;
use crate::failure::Failure;
use crate::output::note;
use crate::store::tool;
use kumo_cluster::control::{ControlRequest, ServerStat, Stat};
use kumo_cluster::{MemberState, recruits_wanted};
use kumo_paxos::ReplicaState;
use pfs::{Cell, Options};
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::Instant;

/// Makes it ready. What an earlier run attached is attached already.
pub async fn ready(layout: &Layout) -> Result<(), Failure> {
    let cell = within("the members did not form a cell in time", everybody_votes(layout));
    told("the members form a cell", cell).await?;
    if layout.of(Role::Server).next().is_some() {
        told("the servers are attached", everybody_attached(layout)).await?;
    }
    for gateway in layout.of(Role::Gateway) {
        let answered = within("the gateway did not answer in time", answers(gateway.address()));
        told("the gateway answers", answered).await?;
    }
    let recruited = within("the managers did not recruit voters in time", everybody_recruited(layout));
    told("the managers have recruited voters", recruited).await
}

/// Says what is waited for, if that takes long.
pub async fn told<T>(what: &str, work: impl Future<Output = T>) -> T {
    told_after(SILENCE_MAX, || note(format!("kumo: waiting until {what}")), work).await
}

async fn told_after<T>(silence: Duration, tell: impl FnOnce(), work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    if let Ok(done) = tokio::time::timeout(silence, &mut work).await {
        return done;
    }
    tell();
    work.await
}

async fn within(late: &str, work: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    match tokio::time::timeout(READY_TIMEOUT, work).await {
        Ok(result) => result,
        Err(_) => Err(Failure::not_obtained(late)),
    }
}

async fn everybody_votes(layout: &Layout) -> Result<(), Failure> {
    let members: Vec<SocketAddr> = layout.members().map(Place::address).collect();
    let mut options = Options::new(&members[..]);
    options.patience = READY_TIMEOUT;
    let cell = Cell::connect(&options)?;
    loop {
        let seen = cell.status().await?;
        if is_ready(&seen.status, true) && seen.status.replicas.len() >= members.len() {
            return Ok(());
        }
        tokio::time::sleep(ASK_INTERVAL).await;
    }
}

async fn everybody_attached(layout: &Layout) -> Result<(), Failure> {
    let servers: Vec<SocketAddr> = layout.of(Role::Server).map(Place::address).collect();
    let controls: Vec<SocketAddr> = layout.members().filter_map(Place::control).collect();
    let until = Instant::now() + READY_TIMEOUT;
    let mut refusal = None;
    while Instant::now() < until {
        let stat = tool::stat(&controls).await?;
        let lives: Vec<&ServerStat> = servers.iter().filter_map(|&server| connected(&stat, server)).collect();
        let still = stat.space.job.is_none() && stat.space.settled();
        if lives.len() == servers.len() && still {
            if lives.iter().all(|life| is_active(&stat, life)) {
                return Ok(());
            }
            let new = lives.iter().filter(|life| stat.space.index_of(life.server).is_none());
            let new = new.map(|life| life.server.address).collect();
            refusal = attach(&controls, new).await.err();
        }
        tokio::time::sleep(ASK_INTERVAL).await;
    }
    Err(refusal.unwrap_or_else(|| Failure::not_obtained("the servers were not attached in time")))
}

/// Two managers alone could not lose one: they are waited for until they have further voters.
async fn everybody_recruited(layout: &Layout) -> Result<(), Failure> {
    let managers = layout.of(Role::Manager).count();
    let wanted = recruits_wanted(managers, layout.of(Role::Server).count());
    if wanted == 0 {
        return Ok(());
    }
    let controls: Vec<SocketAddr> = layout.members().filter_map(Place::control).collect();
    loop {
        let voters = tool::stat(&controls).await?.voters;
        let all = voters.len() == managers + wanted;
        if all && voters.iter().all(|voter| voter.state == Some(ReplicaState::Voting)) {
            return Ok(());
        }
        tokio::time::sleep(ASK_INTERVAL).await;
    }
}

fn connected(stat: &Stat, address: SocketAddr) -> Option<&ServerStat> {
    stat.servers.iter().find(|server| server.connected && server.server.address == address)
}

/// This very life of a server, not one before a restart.
fn is_active(stat: &Stat, life: &ServerStat) -> bool {
    let Some(index) = stat.space.index_of(life.server) else { return false };
    stat.space.rhs.contains(&index) && stat.space.member(index).state == MemberState::Active
}

/// Attaches them; none are named when all are members that came back. Others may be connected too, that an earlier
/// cluster left behind. A refusal may pass: a life before the last restart is not given up yet.
async fn attach(controls: &[SocketAddr], servers: Vec<SocketAddr>) -> Result<(), Failure> {
    let request = ControlRequest::Attach { servers, replace: true, accept_data_loss: false };
    let mut last = Ok(());
    for &control in controls {
        last = tool::control(control, &request).await.map(drop);
        if last.is_ok() {
            break;
        }
    }
    last
}

/// A get of what is not there is answered as such.
async fn answers(gateway: SocketAddr) -> Result<(), Failure> {
    loop {
        if let Ok(true) = asked(gateway).await {
            return Ok(());
        }
        tokio::time::sleep(ASK_INTERVAL).await;
    }
}

async fn asked(gateway: SocketAddr) -> std::io::Result<bool> {
    let mut stream = BufReader::new(TcpStream::connect(gateway).await?);
    stream.write_all(b"get kumo-up\r\n").await?;
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    // After a restart somebody may have stored just that.
    Ok(line == "END\r\n" || line.starts_with("VALUE "))
}

/// A cluster is ready in a few seconds; a loaded machine may take longer for a step.
const READY_TIMEOUT: Duration = Duration::from_secs(30);

const ASK_INTERVAL: Duration = Duration::from_millis(20);

/// Longer than a step takes where nothing is in its way, shorter than people wait without asking themselves what for.
const SILENCE_MAX: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_long_is_told_and_what_does_not_is_not() {
        let (mut quick, mut slow) = (false, false);
        let work = async {
            let pause = tokio::time::sleep(Duration::from_millis(50));
            told_after(Duration::ZERO, || slow = true, pause).await;
            told_after(Duration::ZERO, || quick = true, std::future::ready(())).await;
            Ok(())
        };
        crate::block_on(work).unwrap();
        assert_eq!((slow, quick), (true, false));
    }
}
