//! [`Options`]: how a session is opened.

use crate::error::Error;
use kumo_session::{ClientSettings, Label};
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

/// How a session is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// Some members of the cell; the others are learned from them.
    pub members: Vec<SocketAddr>,
    /// Reads are linearizable, at the master. Otherwise they are served by the least-loaded replica and are
    /// never older than this session's own updates.
    pub sync: bool,
    /// A number of the caller's own, shown in listings of sessions.
    pub number: i64,
    /// Without an answer this long a request is sent again.
    pub resend: Duration,
    /// Opening, and calls that need no session, give up after this long without a master.
    pub patience: Duration,
}

impl Options {
    pub fn new(members: impl Into<Vec<SocketAddr>>) -> Options {
        Options { members: members.into(), ..Options::default() }
    }

    pub(crate) fn settings(&self, session: bool) -> Result<ClientSettings, Error> {
        let mut token = [0; 16];
        getrandom::fill(&mut token).map_err(|_| Error::Entropy)?;
        Ok(ClientSettings {
            members: self.members.clone(),
            token: u128::from_le_bytes(token),
            sync: self.sync,
            label: Label { address: self.address(), pid: std::process::id(), number: self.number },
            resend_micros: micros(self.resend),
            patience_micros: micros(self.patience),
            session,
        })
    }

    /// The address this host would speak from to the first member. Asking the routing table sends nothing.
    fn address(&self) -> String {
        let Some(member) = self.members.first() else { return String::new() };
        let any: SocketAddr = if member.is_ipv4() { ([0; 4], 0).into() } else { ([0; 16], 0).into() };
        let local = UdpSocket::bind(any).and_then(|socket| {
            socket.connect(member)?;
            socket.local_addr()
        });
        local.map(|address| address.ip().to_string()).unwrap_or_default()
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            members: vec![([127, 0, 0, 1], PORT).into()],
            sync: false,
            number: 0,
            resend: Duration::from_millis(500),
            patience: Duration::from_secs(10),
        }
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Where a cell listens unless told otherwise.
pub const PORT: u16 = 19700;
