//! Options of every socket: no delay, and an end to silence.

use rustix::net::sockopt;
use std::io;
use std::time::Duration;
use tokio::net::TcpStream;

/// Sets up a connection. `patience`: how long bytes may stay unacknowledged before the connection counts as
/// broken; the kernel's own patience is a quarter of an hour.
pub fn prepare(stream: &TcpStream, patience: Duration) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let millis = patience.as_millis().min(u128::from(u32::MAX)) as u32;
    sockopt::set_tcp_user_timeout(stream, millis)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEP_ALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(stream, KEEP_ALIVE_INTERVAL)?;
    Ok(())
}

/// A connection on which nothing is heard for this long is asked whether it is alive, and again after each
/// interval: a client whose machine vanished does not hold its place for ever.
const KEEP_ALIVE_IDLE: Duration = Duration::from_secs(30);
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);
