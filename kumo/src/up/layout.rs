//! [`Layout`]: who runs in a cluster of `kumo up`, and on which ports.

use crate::config;
use crate::failure::Failure;
use crate::http;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;

/// What a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A replica of a plain cell.
    Cell,
    Manager,
    Server,
    Gateway,
}

/// One process, by the ports it listens on: the first is its address, the last is for HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub role: Role,
    /// From 1 on, of its role.
    pub number: u16,
    pub ports: Vec<u16>,
}

/// Everybody, managers or replicas first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout(Vec<Place>);

/// How many of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    pub managers: u16,
    pub servers: u16,
    pub gateways: u16,
}

/// Where ports come from.
#[derive(Clone, Copy, Debug)]
pub enum Ports {
    /// The usual ones, or free ones where those are taken. Of members and servers all are free ones when the port of one
    /// of them is taken: what is left of another cluster dials those that are not, and would not let them be.
    Usual,
    Free,
    /// This one and those after it, all of which must be free.
    From(u16),
}

impl Layout {
    pub fn choose(counts: Counts, ports: Ports) -> Result<Layout, Failure> {
        let mut held = Vec::new();
        let mut places = Vec::new();
        let others = matches!(ports, Ports::Usual) && counts.are_others_there();
        for (role, count) in counts.roles() {
            for index in 0..count {
                let mut own = Vec::new();
                for &usual in role.usual_ports() {
                    let listener = match ports {
                        Ports::Usual if others && role != Role::Gateway => listen(0),
                        Ports::Usual => listen(usual.of(index)).or_else(|_| listen(0)),
                        Ports::Free => listen(0),
                        Ports::From(base) => listen(nth_port(base, held.len())?),
                    }?;
                    let address = listener.local_addr();
                    own.push(
                        address.map_err(|error| Failure::refused(format!("no free port: {error}")))?.port(),
                    );
                    // Until all are chosen, so that no two are the same.
                    held.push(listener);
                }
                places.push(Place { role, number: index + 1, ports: own });
            }
        }
        Ok(Layout(places))
    }

    /// What an earlier run left in its folder. `None`: nothing.
    pub fn remembered(file: &Path) -> Result<Option<Layout>, Failure> {
        let bad = |why: String| Failure::refused(format!("cannot use {}: {why}", file.display()));
        let text = match std::fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(bad(error.to_string())),
        };
        Layout::parse(&text).map(Some).ok_or_else(|| bad("it was not written by kumo up".to_owned()))
    }

    fn parse(text: &str) -> Option<Layout> {
        let mut layout = Layout(Vec::new());
        for line in text.lines() {
            let mut words = line.split(' ');
            let name = words.next()?;
            let role = Role::ALL.into_iter().find(|role| role.to_string() == name)?;
            let ports = words.map(str::parse).collect::<Result<Vec<u16>, _>>().ok()?;
            if ports.len() != role.usual_ports().len() {
                return None;
            }
            let number = layout.of(role).count() as u16 + 1;
            layout.0.push(Place { role, number, ports });
        }
        layout.counts().is_possible().then_some(layout)
    }

    /// Says which port is taken, if one is.
    pub fn check_free(&self) -> Result<(), Failure> {
        self.0.iter().flat_map(|place| &place.ports).try_for_each(|&port| listen(port).map(drop))
    }

    pub fn counts(&self) -> Counts {
        Counts {
            managers: self.members().count() as u16,
            servers: self.of(Role::Server).count() as u16,
            gateways: self.of(Role::Gateway).count() as u16,
        }
    }

    pub fn places(&self) -> &[Place] {
        &self.0
    }

    pub fn of(&self, role: Role) -> impl Iterator<Item = &Place> {
        self.0.iter().filter(move |place| place.role == role)
    }

    /// Who agrees: managers, or the replicas of a plain cell.
    pub fn members(&self) -> impl Iterator<Item = &Place> {
        self.0.iter().filter(|place| matches!(place.role, Role::Cell | Role::Manager))
    }
}

/// A line for each process: what it is, and its ports.
impl fmt::Display for Layout {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        for place in &self.0 {
            write!(out, "{}", place.role)?;
            place.ports.iter().try_for_each(|port| write!(out, " {port}"))?;
            writeln!(out)?;
        }
        Ok(())
    }
}

impl Counts {
    /// Without servers there is nothing to manage: the members are a plain cell then.
    fn roles(self) -> [(Role, u16); 3] {
        let members = if self.servers == 0 { Role::Cell } else { Role::Manager };
        [(members, self.managers), (Role::Server, self.servers), (Role::Gateway, self.gateways)]
    }

    /// Some process has the usual address of a member or server.
    fn are_others_there(self) -> bool {
        let [members, servers, _] = self.roles();
        [members, servers]
            .into_iter()
            .any(|(role, count)| (0..count).any(|index| listen(role.usual_ports()[0].of(index)).is_err()))
    }

    fn is_possible(self) -> bool {
        self.managers > 0 && (self.servers > 0 || self.gateways == 0)
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        write!(out, "--managers {} --servers {} --gateways {}", self.managers, self.servers, self.gateways)
    }
}

impl Place {
    pub fn address(&self) -> SocketAddr {
        local(self.ports[0])
    }

    /// A manager's, for kumoctl.
    pub fn control(&self) -> Option<SocketAddr> {
        (self.role == Role::Manager).then(|| local(self.ports[1]))
    }

    pub fn http(&self) -> SocketAddr {
        local(self.ports[self.ports.len() - 1])
    }

    /// Of its folder and its log.
    pub fn name(&self) -> String {
        format!("{}-{}", self.role, self.number)
    }
}

impl Role {
    pub const ALL: [Role; 4] = [Role::Cell, Role::Manager, Role::Server, Role::Gateway];

    /// The name of the binary under which it is this.
    pub fn program(self) -> &'static str {
        match self {
            Role::Cell => "kumo-cell",
            Role::Manager => "kumo-manager",
            Role::Server => "kumo-server",
            Role::Gateway => "kumo-gateway",
        }
    }

    /// Whose section of a configuration is its.
    pub fn configured_as(self) -> config::Role {
        match self {
            Role::Cell => config::Role::Cell,
            Role::Manager => config::Role::Manager,
            Role::Server => config::Role::Server,
            Role::Gateway => config::Role::Gateway,
        }
    }

    /// What the documents call the first one's ports. The last is for HTTP.
    fn usual_ports(self) -> &'static [Usual] {
        match self {
            Role::Cell => &[Usual::Up(19700), Usual::Up(http::BOARD_PORT)],
            // Control ports go down: above the first one are the servers.
            Role::Manager => &[Usual::Up(19700), Usual::Down(19799), Usual::Up(http::BOARD_PORT)],
            Role::Server => &[Usual::Up(19800), Usual::Up(19900), Usual::Up(http::SERVER_PORT)],
            Role::Gateway => &[Usual::Up(11211), Usual::Up(http::GATEWAY_PORT)],
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.write_str(match self {
            Role::Cell => "replica",
            Role::Manager => "manager",
            Role::Server => "server",
            Role::Gateway => "gateway",
        })
    }
}

/// The port of the first of a role, and where those of the next ones are.
#[derive(Clone, Copy)]
enum Usual {
    Up(u16),
    Down(u16),
}

impl Usual {
    fn of(self, index: u16) -> u16 {
        match self {
            Usual::Up(first) => first + index,
            Usual::Down(first) => first - index,
        }
    }
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

fn nth_port(base: u16, index: usize) -> Result<u16, Failure> {
    let port = u16::try_from(index).ok().and_then(|index| base.checked_add(index));
    port.ok_or_else(|| Failure::usage("--base-port is too high: not enough ports follow it"))
}

fn listen(port: u16) -> Result<TcpListener, Failure> {
    TcpListener::bind(local(port)).map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => Failure::refused(format!("port {port} is taken by another process")),
        _ => Failure::refused(format!("cannot listen on port {port}: {error}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Counts = Counts { managers: 3, servers: 2, gateways: 1 };

    #[test]
    fn what_is_written_is_read_again() {
        let layout = Layout::choose(SMALL, Ports::Free).unwrap();
        assert_eq!(layout.counts(), SMALL);
        assert_eq!(Layout::parse(&layout.to_string()), Some(layout.clone()));
        let mut ports: Vec<u16> = layout.places().iter().flat_map(|place| place.ports.clone()).collect();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), layout.places().iter().map(|place| place.ports.len()).sum::<usize>());
    }

    #[test]
    fn beside_another_cluster_nobody_has_an_address_that_it_dials() {
        let usual = |role: Role| (0..3).map(move |index| role.usual_ports()[0].of(index));
        // Somebody else may have it: that is as good.
        let _held = listen(19702);
        let layout = Layout::choose(SMALL, Ports::Usual).unwrap();
        for place in layout.places().iter().filter(|place| place.role != Role::Gateway) {
            assert!(!usual(place.role).any(|port| port == place.ports[0]), "{place:?}");
        }
    }

    #[test]
    fn nonsense_is_not_a_layout() {
        for text in [
            "",
            "manager",
            "manager 1 2 3 4 5",
            "king 1",
            "server 1 2",
            "replica 99999",
            "replica 1 2\ngateway 3 4",
        ] {
            assert_eq!(Layout::parse(text), None, "{text}");
        }
    }

    #[test]
    fn usual_ports_do_not_meet() {
        let mut seen = Vec::new();
        for (role, count) in (Counts { managers: 7, servers: 16, gateways: 16 }).roles() {
            for index in 0..count {
                seen.extend(role.usual_ports().iter().map(|usual| usual.of(index)));
            }
        }
        let count = seen.len();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), count);
    }
}
