//! The options of every process that concern HTTP.

use crate::address;
use crate::failure::Failure;
use clap::Args;
use kumo_node::http::{HttpConfig, Token};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// Where HTTP is served.
#[derive(Args, Clone, Debug)]
pub struct Http {
    /// Where browsers and Prometheus ask; off: nowhere. Unless given: 127.0.0.1 and the default port, or a free one
    #[arg(long, value_name = "ADDR:PORT|off", env = "KUMO_HTTP")]
    http: Option<String>,
}

/// Who may use the dashboard.
#[derive(Args, Clone, Debug)]
pub struct HttpToken {
    /// A file with the token that the dashboard asks for; KUMO_HTTP_TOKEN has the token itself. Off loopback there is no
    /// dashboard without one
    #[arg(long, value_name = "FILE")]
    http_token: Option<PathBuf>,
}

impl Http {
    /// Of a process without a dashboard.
    pub fn config(&self, port: u16) -> Result<Option<HttpConfig>, Failure> {
        let (listen, named) = match self.http.as_deref() {
            Some("off") => return Ok(None),
            Some(text) => (address::one(text, port)?, true),
            None => (SocketAddr::from((Ipv4Addr::LOCALHOST, port)), false),
        };
        Ok(Some(HttpConfig { listen, named, token: None }))
    }

    /// Of one that has it.
    pub fn config_with(&self, port: u16, token: &HttpToken) -> Result<Option<HttpConfig>, Failure> {
        let token = token.read()?;
        Ok(self.config(port)?.map(|config| HttpConfig { token, ..config }))
    }
}

impl HttpToken {
    fn read(&self) -> Result<Option<Token>, Failure> {
        let (text, place) = match &self.http_token {
            Some(path) => {
                let place = format!("--http-token {}", path.display());
                let text = std::fs::read_to_string(path);
                (text.map_err(|error| Failure::refused(format!("{place}: {error}")))?, place)
            }
            None => match std::env::var(TOKEN_VARIABLE) {
                Ok(text) => (text, TOKEN_VARIABLE.to_owned()),
                Err(_) => return Ok(None),
            },
        };
        Token::new(&text).map(Some).map_err(|why| Failure::usage(format!("{place}: {why}")))
    }
}

/// Has the token itself.
pub const TOKEN_VARIABLE: &str = "KUMO_HTTP_TOKEN";

/// The ports unless given.
pub const BOARD_PORT: u16 = 19780;
pub const SERVER_PORT: u16 = 19880;
pub const GATEWAY_PORT: u16 = 19680;
