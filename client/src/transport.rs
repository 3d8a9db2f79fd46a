//! [`Transport`]: how bytes get to a member and back. TCP is built in; a C program may bring its own.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
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
            stream.set_nodelay(true)?;
            let local = stream.local_addr()?;
            Ok(Line { stream: Box::new(stream), local })
        })
    }

    fn met(&self, _: SocketAddr, _: SocketAddr) {}
}
