//! Addresses as people type them: `ADDR`, `ADDR:PORT`, `[V6]:PORT`, or a name, resolved once.

use crate::failure::Failure;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

/// One address. Without a port it is 19700.
pub fn one(text: &str) -> Result<SocketAddr, Failure> {
    let all = resolve(text)?;
    all.first().copied().ok_or_else(|| unknown(text, "no address"))
}

/// The members a comma-separated list names; a name stands for all its addresses.
pub fn members(text: &str) -> Result<Vec<SocketAddr>, Failure> {
    let mut members = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        members.extend(resolve(part)?);
    }
    if members.is_empty() {
        return Err(Failure::usage("--cell names no member"));
    }
    Ok(members)
}

fn resolve(text: &str) -> Result<Vec<SocketAddr>, Failure> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(vec![address]);
    }
    if let Ok(ip) = text.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, pfs::PORT)]);
    }
    let found = match text.contains(':') {
        true => text.to_socket_addrs(),
        false => (text, pfs::PORT).to_socket_addrs(),
    };
    Ok(found.map_err(|error| unknown(text, &error.to_string()))?.collect())
}

fn unknown(text: &str, why: &str) -> Failure {
    Failure::usage(format!("bad address {text}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_left_out_is_the_cells() {
        for (text, address) in [
            ("127.0.0.1", "127.0.0.1:19700"),
            ("127.0.0.1:5", "127.0.0.1:5"),
            ("::1", "[::1]:19700"),
            ("[::1]", "[::1]:19700"),
            ("[::1]:5", "[::1]:5"),
        ] {
            assert_eq!(one(text).unwrap(), address.parse().unwrap(), "{text}");
        }
    }

    #[test]
    fn nonsense_is_a_usage_error() {
        assert!(one("127.0.0.1:99999").is_err());
        assert!(members(" , ").is_err());
        assert_eq!(members("127.0.0.1,127.0.0.2:7").unwrap().len(), 2);
    }
}
