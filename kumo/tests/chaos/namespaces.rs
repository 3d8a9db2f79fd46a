//! [`Links`]: every replica in a network namespace of its own, joined by this process, which can cut any way between
//! two of them. Needs no privilege but that of making namespaces.

use std::net::Ipv4Addr;
use std::process::{Command, Output};

/// The ways between replicas. Packets from one to the other pass through this process's namespace, and a rule there
/// lets them vanish without a word, as on a broken wire.
pub struct Links {
    count: usize,
}

/// Whether this process is inside.
pub fn inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Runs one test of this program again, in namespaces that vanish with it. `Err`: this system does not allow it.
pub fn run_inside(test: &str) -> Result<Output, String> {
    // The names of namespaces are files in /run, and ours must not be seen by others.
    let prepare =
        r#"mount -t tmpfs none /run && echo 1 > /proc/sys/net/ipv4/ip_forward && ip link set lo up"#;
    let unshare = |script: &str| {
        let mut command = Command::new("unshare");
        if !rustix::process::geteuid().is_root() {
            command.args(["--user", "--map-root-user"]);
        }
        command.args(["--net", "--mount", "sh", "-c", script]);
        command
    };
    let output =
        unshare(&format!("{prepare} && ip netns add test && ip rule add from 10.9.9.9 blackhole")).output();
    match output {
        Err(error) => return Err(format!("unshare: {error}")),
        Ok(output) if !output.status.success() => {
            return Err(String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; "));
        }
        Ok(_) => {}
    }
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = unshare(&format!(r#"{prepare} && exec "$0" "$@""#))
        .arg(program)
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(INSIDE, "1")
        .output();
    output.map_err(|error| error.to_string())
}

impl Links {
    pub fn new(count: usize) -> Links {
        for number in 0..count {
            let (name, way, near, far) = (name(number), format!("way{number}"), near(number), far(number));
            ip(&format!("netns add {name}"));
            ip(&format!("link add {way} type veth peer name out netns {name}"));
            ip(&format!("addr add {near}/30 dev {way}"));
            ip(&format!("link set {way} up"));
            ip(&format!("-n {name} addr add {far}/30 dev out"));
            ip(&format!("-n {name} link set out up"));
            ip(&format!("-n {name} link set lo up"));
            ip(&format!("-n {name} route add default via {near}"));
        }
        Links { count }
    }

    /// The hosts, and what runs a program there. Every port is free in a namespace of its own.
    pub fn hosts(&self) -> Vec<(Ipv4Addr, Vec<String>)> {
        let prefix = |number| ["ip", "netns", "exec", &name(number)].map(str::to_owned).to_vec();
        (0..self.count).map(|number| (far(number), prefix(number))).collect()
    }

    /// What `from` sends to `to` is lost from now on.
    pub fn cut(&self, from: usize, to: usize) {
        ip(&format!("rule add from {} to {} blackhole", far(from), far(to)));
    }

    pub fn mend(&self, from: usize, to: usize) {
        ip(&format!("rule del from {} to {} blackhole", far(from), far(to)));
    }
}

fn ip(arguments: &str) {
    let output = Command::new("ip").args(arguments.split(' ')).output().unwrap();
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

fn name(number: usize) -> String {
    format!("replica{number}")
}

/// This end of the way to a replica, and the replica's.
fn near(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, number as u8, 1)
}

fn far(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, number as u8, 2)
}

/// Set for the process inside.
const INSIDE: &str = "KUMO_CHAOS_INSIDE";
