//! [`Roster`]: the numbers by which a program's own transport knows the members of a cell.

use super::failure::Failure;
use crate::options::PORT;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Members by their place in the list that the session was given; those learned later follow.
pub(super) struct Roster {
    places: Mutex<Places>,
}

#[derive(Default)]
struct Places {
    members: Vec<SocketAddr>,
    /// What a member calls itself, where that differs from how it was given to us.
    names: Vec<(SocketAddr, usize)>,
}

impl Roster {
    pub(super) fn new(members: Vec<SocketAddr>) -> Roster {
        Roster { places: Mutex::new(Places { members, names: Vec::new() }) }
    }

    /// The number of the member at this address.
    pub(super) fn place(&self, address: SocketAddr) -> io::Result<usize> {
        let mut places = self.places();
        if let Some(place) = places.find(address) {
            return Ok(place);
        }
        if places.members.len() >= MEMBERS_MAX {
            return Err(io::Error::other("more members than a cell has"));
        }
        places.members.push(address);
        Ok(places.members.len() - 1)
    }

    pub(super) fn address(&self, place: usize) -> Option<SocketAddr> {
        self.places().members.get(place).copied()
    }

    /// The member that was reached as `address` calls itself so.
    pub(super) fn met(&self, address: SocketAddr, itself: SocketAddr) {
        let mut places = self.places();
        if itself.ip().is_unspecified() || places.find(itself).is_some() || places.names.len() >= MEMBERS_MAX
        {
            return;
        }
        if let Some(place) = places.find(address) {
            places.names.push((itself, place));
        }
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Places {
    fn find(&self, address: SocketAddr) -> Option<usize> {
        let given = self.members.iter().position(|&member| member == address);
        given.or_else(|| self.names.iter().find(|(name, _)| *name == address).map(|&(_, place)| place))
    }
}

/// The members that a list `ADDR[:PORT],...` names.
pub(super) fn members(list: &str) -> Result<Vec<SocketAddr>, Failure> {
    let mut members = Vec::new();
    for part in list.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let bad = |why: &str| Failure::invalid(format!("bad address {part}: {why}"));
        let found = resolve(part).map_err(|error| bad(&error.to_string()))?;
        members.push(found.ok_or_else(|| bad("no address"))?);
    }
    match members.len() {
        0 => Err(Failure::invalid("the list names no member of a cell")),
        1..=MEMBERS_MAX => Ok(members),
        _ => Err(Failure::invalid("the list has more members than a cell")),
    }
}

/// One address for each part of a list: its place is the member's number.
fn resolve(text: &str) -> io::Result<Option<SocketAddr>> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(Some(address));
    }
    if let Ok(ip) = text.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Ok(Some(SocketAddr::new(ip, PORT)));
    }
    let mut found = match text.contains(':') {
        true => text.to_socket_addrs()?,
        false => (text, PORT).to_socket_addrs()?,
    };
    Ok(found.next())
}

/// Members known by a number: voters and extensions, those that were replaced included.
const MEMBERS_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: u16) -> SocketAddr {
        ([127, 0, 0, 1], port).into()
    }

    #[test]
    fn members_keep_their_numbers_and_new_ones_follow() {
        let roster = Roster::new(members("127.0.0.1:1, 127.0.0.1:2,127.0.0.1").unwrap());
        assert_eq!(roster.place(address(2)).unwrap(), 1);
        assert_eq!(roster.place(address(PORT)).unwrap(), 2);
        assert_eq!(roster.place(address(9)).unwrap(), 3);
        assert_eq!(roster.place(address(9)).unwrap(), 3);
        assert_eq!((roster.address(3), roster.address(4)), (Some(address(9)), None));
    }

    #[test]
    fn a_member_is_known_by_its_own_name_too() {
        let roster = Roster::new(vec![address(1), address(2)]);
        roster.met(address(2), address(20));
        roster.met(address(1), address(2));
        roster.met(address(1), ([0; 4], 5).into());
        assert_eq!(roster.place(address(20)).unwrap(), 1);
        assert_eq!(roster.place(address(2)).unwrap(), 1);
    }

    #[test]
    fn a_bad_list_is_refused() {
        for list in ["", " , ", "127.0.0.1:99999", "127.0.0.1:x"] {
            assert!(members(list).is_err(), "{list}");
        }
    }
}
