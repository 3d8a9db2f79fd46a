//! [`HttpConfig`]: where HTTP is served, and [`bind`]: the socket.

use crate::NodeError;
use std::fmt;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use tracing::{info, warn};

/// Where HTTP is served, and who may ask there.
#[derive(Clone, Debug)]
pub struct HttpConfig {
    pub listen: SocketAddr,
    /// The operator wants this very address. Otherwise any port will do when it is taken: a second server on one host
    /// must start.
    pub named: bool,
    pub token: Option<Token>,
}

/// What whoever asks must know. It is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// Visible characters, so that it fits a header; a line end around it is not part of it.
    pub fn new(text: &str) -> Result<Token, String> {
        let text = text.trim();
        if !(TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX).contains(&text.len())
            || !text.bytes().all(|byte| byte.is_ascii_graphic())
        {
            return Err(format!(
                "a token is {TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX} visible ASCII characters without spaces"
            ));
        }
        Ok(Token(text.to_owned()))
    }

    /// Takes as long for a good guess as for a bad one.
    pub fn is(&self, given: &str) -> bool {
        let differing = |sum, (one, other): (u8, u8)| sum | (one ^ other);
        given.len() == self.0.len() && given.bytes().zip(self.0.bytes()).fold(0, differing) == 0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.write_str("Token(..)")
    }
}

/// A socket for HTTP that nobody serves yet.
pub struct Bound {
    pub(super) listener: TcpListener,
    pub(super) address: SocketAddr,
    pub(super) token: Option<Token>,
}

pub fn bind(config: &HttpConfig) -> Result<Bound, NodeError> {
    let wanted = config.listen;
    let fault = |error: std::io::Error| match error.kind() {
        ErrorKind::AddrInUse => NodeError::AddressTaken(wanted),
        _ => NodeError::Listen { address: wanted, error },
    };
    let listener = match TcpListener::bind(wanted) {
        Err(error) if error.kind() == ErrorKind::AddrInUse && !config.named => {
            TcpListener::bind((wanted.ip(), 0)).map_err(fault)?
        }
        bound => bound.map_err(fault)?,
    };
    listener.set_nonblocking(true).map_err(fault)?;
    let address = listener.local_addr().map_err(fault)?;
    if address.port() == wanted.port() {
        info!(%address, "http");
    } else {
        warn!(%address, wanted = wanted.port(), "http on a free port");
    }
    Ok(Bound { listener, address, token: config.token.clone() })
}

/// Shorter ones can be guessed.
const TOKEN_BYTES_MIN: usize = 8;
const TOKEN_BYTES_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_compared_whole() {
        let token = Token::new("correct-horse\n").expect("a good token");
        assert!(token.is("correct-horse"));
        for wrong in ["", "correct-hors", "correct-horse ", "Correct-horse", "correct-horsf"] {
            assert!(!token.is(wrong), "{wrong}");
        }
        assert_eq!(format!("{token:?}"), "Token(..)");
    }

    #[test]
    fn a_token_must_fit_a_header() {
        for bad in ["", "short", "with a space", "ünderstood", "line\nbreak", &"a".repeat(257)] {
            assert!(Token::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_taken_port_matters_only_when_it_was_named() {
        let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let listen = taken.local_addr().expect("an address");
        let config = |named| HttpConfig { listen, named, token: None };
        let other = bind(&config(false)).expect("another port will do");
        assert_ne!(other.address.port(), listen.port());
        assert_eq!(other.address.ip(), listen.ip());
        let error = bind(&config(true)).err().expect("it is taken").to_string();
        assert_eq!(error, format!("address {listen} is taken by another process"));
    }
}
