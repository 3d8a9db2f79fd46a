//! [`Transport`]: how bytes get to a member and back. TCP is built in; a C program may bring its own.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// Makes connections to members.
pub(crate) trait Transport: Send + Sync {
    fn connect(&self, address: SocketAddr) -> Connecting;

    /// The member that was reached at `address` calls itself `itself`, and so do the others.
    fn met(&self, address: SocketAddr, itself: SocketAddr);
}

pub(crate) type Connecting = Pin<Box<dyn Future<Output = io::Result<Line>> + Send>>;

/// A connection without meaning yet.
pub(crate) struct Line {
    pub(crate) stream: Box<dyn Stream>,
    /// This side's address.
    pub(crate) local: SocketAddr,
}

pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

pub(crate) struct Tcp;

impl Transport for Tcp {
    fn connect(&self, address: SocketAddr) -> Connecting {
        Box::pin(async move {
            let stream = TcpStream::connect(address).await?;
            kumo_link::prepare(&stream, UNACKNOWLEDGED_MAX)?;
            let local = stream.local_addr()?;
            Ok(Line { stream: Box::new(stream), local })
        })
    }

    fn met(&self, _: SocketAddr, _: SocketAddr) {}
}

/// How long a member may leave bytes unacknowledged. A session does not depend on it: its renewals go over another
/// connection by then. It is for the calls that wait on one that is dead, and not shorter, because a member that does
/// not read for a while, on a slow disk or line, is not.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(10);
