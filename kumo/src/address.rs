//! Addresses as people type them: `ADDR`, `ADDR:PORT`, `[V6]:PORT`, or a name, resolved once.

use crate::failure::{Failure, UNREACHABLE};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

/// One address; this port unless it has one. IPv4 is preferred: the seed's `localhost` is 127.0.0.1.
pub fn one(text: &str, port: u16) -> Result<SocketAddr, Failure> {
    let found = resolve(text, port)?;
    let preferred = found.iter().find(|address| address.is_ipv4()).or(found.first());
    preferred.copied().ok_or_else(|| unknown(text, "it has no address"))
}

/// The members a comma-separated list names; a name stands for all its addresses.
pub fn members(text: &str) -> Result<Vec<SocketAddr>, Failure> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    let members = known(parts.map(|part| resolve(part, pfs::PORT)))?;
    if members.is_empty() {
        return Err(Failure::usage("--cell names no member"));
    }
    Ok(members.concat())
}

/// The other voters of the cell that a process at `own` belongs to. The same list may be given to every member: oneself
/// is no partner.
pub fn partners(own: SocketAddr, named: &[SocketAddr]) -> Result<Vec<SocketAddr>, Failure> {
    let mut partners = Vec::new();
    for partner in named {
        if *partner != own && !partners.contains(partner) {
            partners.push(*partner);
        }
    }
    if partners.is_empty() && !named.is_empty() {
        return Err(Failure::usage(format!(
            "-p names only {own} itself: a cell of one is started without -p"
        )));
    }
    Ok(partners)
}

/// All that are known. One is enough: names that nobody knows now are a failure only when there is nothing else.
/// What is no address at all always is.
pub fn known<T>(found: impl Iterator<Item = Result<T, Failure>>) -> Result<Vec<T>, Failure> {
    let (mut all, mut first) = (Vec::new(), None);
    for one in found {
        match one {
            Ok(one) => all.push(one),
            Err(failure @ Failure::Line(_, UNREACHABLE)) => first = first.or(Some(failure)),
            Err(failure) => return Err(failure),
        }
    }
    match first {
        Some(failure) if all.is_empty() => Err(failure),
        Some(_) | None => Ok(all),
    }
}

fn resolve(text: &str, port: u16) -> Result<Vec<SocketAddr>, Failure> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(vec![address]);
    }
    if let Ok(ip) = text.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    let bad = |why: &str| Failure::usage(format!("bad address {text}: {why}"));
    let (name, port) = match text.rsplit_once(':') {
        None => (text, port),
        Some((name, port)) => (name, port.parse().map_err(|_| bad("a port is a number up to 65535"))?),
    };
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_name) {
        return Err(bad("it is neither an address nor a name of a host"));
    }
    // The system takes "99999" and "1.2" for addresses of old; whoever typed them meant something else.
    if name.rsplit('.').next().is_some_and(is_number) {
        return Err(bad(
            "a host is an address of four numbers, one of IPv6, or a name; a port is a number up to 65535",
        ));
    }
    let found = (name, port).to_socket_addrs().map_err(|error| unknown(text, &error.to_string()))?;
    Ok(found.collect())
}

/// As C reads one.
fn is_number(word: &str) -> bool {
    let digits = word.strip_prefix("0x").or(word.strip_prefix("0X"));
    match digits {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

/// Nobody knows the name, now: it may be known later, or elsewhere.
fn unknown(text: &str, why: &str) -> Failure {
    Failure::unreachable(format!("cannot find {text}: {why}"))
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
            assert_eq!(one(text, pfs::PORT).unwrap(), address.parse().unwrap(), "{text}");
        }
    }

    #[test]
    fn nonsense_is_a_usage_error() {
        for text in [
            "127.0.0.1:99999",
            "host:",
            ":5",
            "a b",
            "[::1]:x",
            "host:1:2",
            "",
            "99999",
            "1.2",
            "0x7f000001:5",
        ] {
            assert!(matches!(one(text, 1), Err(Failure::Line(_, 2))), "{text}");
        }
        assert!(members(" , ").is_err());
        assert_eq!(members("127.0.0.1,127.0.0.2:7").unwrap().len(), 2);
    }

    #[test]
    fn one_that_is_known_is_enough() {
        let unknown = || Err(unknown("nosuch", "not found"));
        assert_eq!(known([unknown(), Ok(7)].into_iter()).unwrap(), [7]);
        assert!(matches!(known::<u8>([unknown()].into_iter()), Err(Failure::Line(_, UNREACHABLE))));
        assert!(known([Ok(7), Err(Failure::usage("bad address"))].into_iter()).is_err());
    }
}
