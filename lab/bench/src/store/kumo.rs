//! [`Store`]: a manager, servers and a gateway of kumo.

use super::{Server, Work, arguments, memcached_load};
use crate::failure::{Failure, Result};
use crate::kumo::Kumo;
use crate::load::Load;
use crate::process::{Folder, Process, free_addresses, try_until, until};
use rustix::process::Signal;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

pub struct Store {
    kumo: Kumo,
    manager: Process,
    manager_address: SocketAddr,
    /// Where kumoctl asks the manager.
    control: SocketAddr,
    servers: Vec<Process>,
    addresses: Vec<SocketAddr>,
    gateway: Process,
    gateway_address: SocketAddr,
    on_disk: bool,
    /// Last: it is removed when the processes are gone.
    folder: Folder,
}

impl Store {
    /// One manager, three servers, attached, and a gateway.
    pub fn start(kumo: &Kumo, base: &Path, on_disk: bool) -> Result<Store> {
        let folder = Folder::new(base, if on_disk { "store-disk" } else { "store-memory" })?;
        let [manager_address, gateway_address] = two_addresses()?;
        let control = SocketAddr::new(manager_address.ip(), free_addresses(1)?[0].port());
        let mut command = kumo.command();
        command.args([
            "manager",
            "-l",
            &manager_address.to_string(),
            "-c",
            &control.port().to_string(),
            "--data",
        ]);
        command.arg(folder.path().join("manager"));
        let manager = Process::start("manager", &mut command, folder.path())?;
        let mut command = kumo.command();
        command.args(["gateway", "-m", &manager_address.to_string(), "-t", &gateway_address.to_string()]);
        let gateway = Process::start("gateway", &mut command, folder.path())?;
        let mut store = Store {
            kumo: kumo.clone(),
            manager,
            manager_address,
            control,
            servers: Vec::new(),
            addresses: Vec::new(),
            gateway,
            gateway_address,
            on_disk,
            folder,
        };
        for _ in 0..3 {
            store.add_server()?;
        }
        store.attach()?;
        store.until_active(3)?;
        until("the gateway serves", || store.stores("kumo-bench-ready").then_some(()))?;
        Ok(store)
    }

    /// Starts one more server, and waits until the manager knows it.
    pub fn add_server(&mut self) -> Result<()> {
        let index = self.servers.len();
        self.addresses.push(free_addresses(1)?[0]);
        let server = self.run_server(index)?;
        self.servers.push(server);
        self.until_known(index)
    }

    fn run_server(&self, index: usize) -> Result<Process> {
        let stream = free_addresses(1)?[0].port().to_string();
        let mut command = self.kumo.command();
        command.args(["server", "-l", &self.addresses[index].to_string(), "-L", &stream]);
        command.args(["-m", &self.manager_address.to_string()]);
        if self.on_disk {
            command.arg("-s").arg(self.folder.path().join(format!("store-{index}")));
        }
        Process::start(&format!("server-{index}"), &mut command, self.folder.path())
    }

    /// Starts a server where none runs.
    pub fn start_again(&mut self, index: usize) -> Result<()> {
        self.servers[index] = self.run_server(index)?;
        Ok(())
    }

    pub fn kill(&mut self, index: usize) -> Result<()> {
        self.servers[index].kill()
    }

    pub fn terminate(&mut self, index: usize) -> Result<()> {
        self.servers[index].terminate()
    }

    pub fn signal(&self, index: usize, signal: Signal) -> Result<()> {
        self.servers[index].signal(signal)
    }

    fn control(&self, arguments: &[&str]) -> Result<Value> {
        self.kumo.json(&[&["ctl", &self.control.to_string()], arguments].concat())
    }

    fn stat(&self) -> Option<Value> {
        self.control(&["stat"]).ok()
    }

    /// It is connected, and not attached.
    pub fn until_known(&mut self, index: usize) -> Result<()> {
        let address = self.addresses[index].to_string();
        try_until(&format!("{address} is known to the manager"), || {
            self.servers[index].check()?;
            self.manager.check()?;
            let stat = self.stat();
            let free = stat.as_ref().and_then(|stat| stat["not_attached"].as_array());
            Ok(free.filter(|free| free.iter().any(|one| one == address.as_str())).map(drop))
        })
    }

    /// Attaches all that are there, and waits until the data is where it belongs.
    pub fn attach(&self) -> Result<()> {
        let mut last = Failure::new("kumoctl attach was not tried");
        let attached = until("attach", || match self.control(&["attach", "--wait"]) {
            Ok(_) => Some(()),
            Err(failure) => {
                last = failure;
                None
            }
        });
        attached.map_err(|_| last)
    }

    /// Exactly so many servers are attached, all of them active, and nothing moves.
    pub fn until_active(&self, count: usize) -> Result<()> {
        until(&format!("{count} servers are active"), || self.is_active(count).then_some(()))
    }

    pub fn is_active(&self, count: usize) -> bool {
        let Some(stat) = self.stat() else { return false };
        let attached = stat["attached"].as_array().map(Vec::as_slice).unwrap_or_default();
        let active =
            attached.iter().filter(|one| one["state"] == "active" && one["moving"].is_null()).count();
        active == count && attached.len() == count && stat["job"].is_null()
    }

    /// An order that may be refused: what is there is attached by it, or was before.
    pub fn try_attach(&self) {
        let _ = self.control(&["attach"]);
    }

    pub fn until_fault(&self, index: usize) -> Result<()> {
        let address = self.addresses[index].to_string();
        until(&format!("{address} is declared fault"), || {
            let stat = self.stat()?;
            let found = stat["attached"].as_array()?.iter().find(|one| one["address"] == address.as_str())?;
            (found["state"] == "fault").then_some(())
        })
    }

    /// Values that a server keeps.
    pub fn items(&self, index: usize) -> Result<f64> {
        let value = self.kumo.json(&["stat", &self.addresses[index].to_string(), "items"])?;
        value["items"].as_f64().ok_or_else(|| Failure::new(format!("kumostat tells no items: {value}")))
    }

    /// Whether the gateway has a key now.
    pub fn has(&self, key: &str) -> bool {
        self.ask(&format!("get {key}\r\n"), "END\r\n").is_some_and(|answer| answer.starts_with("VALUE "))
    }

    fn stores(&self, key: &str) -> bool {
        self.ask(&format!("set {key} 0 0 2\r\nok\r\n"), "\r\n").is_some_and(|answer| answer == "STORED\r\n")
    }

    fn ask(&self, request: &str, ending: &str) -> Option<String> {
        let mut stream = TcpStream::connect_timeout(&self.gateway_address, ASK_MAX).ok()?;
        stream.set_read_timeout(Some(ASK_MAX)).ok()?;
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = Vec::new();
        let mut scratch = [0; 1024];
        while !answer.ends_with(ending.as_bytes()) {
            match stream.read(&mut scratch).ok()? {
                0 => return None,
                count => answer.extend_from_slice(&scratch[..count]),
            }
        }
        // A value need not be text.
        Some(String::from_utf8_lossy(&answer).into_owned())
    }

    /// As [`Server::load`], in a run in which servers are killed: their processor time is not counted.
    pub fn load_uncounted(&self, work: &Work) -> Load {
        memcached_load(&self.kumo, work, self.gateway_address, &[])
    }

    fn pids(&self) -> Vec<u32> {
        self.processes().iter().map(|process| process.pid()).collect()
    }

    pub fn servers(&self) -> &[Process] {
        &self.servers
    }
}

impl Server for Store {
    fn name(&self) -> &'static str {
        "kumo"
    }

    fn load(&self, work: &Work) -> Load {
        memcached_load(&self.kumo, work, self.gateway_address, &self.pids())
    }

    fn processes(&self) -> Vec<&Process> {
        self.servers.iter().chain([&self.manager, &self.gateway]).collect()
    }

    fn copies(&self) -> u32 {
        3
    }
}

/// The same store, asked by the native client, without a gateway between.
pub struct Native<'a>(pub &'a Store);

impl Server for Native<'_> {
    fn name(&self) -> &'static str {
        "kumo, native client"
    }

    fn load(&self, work: &Work) -> Load {
        let managers = self.0.manager_address.to_string();
        self.0.kumo.load(arguments(work, ["--managers", &managers], &self.0.pids()))
    }

    fn processes(&self) -> Vec<&Process> {
        self.0.processes()
    }

    fn copies(&self) -> u32 {
        self.0.copies()
    }
}

fn two_addresses() -> Result<[SocketAddr; 2]> {
    let found = free_addresses(2)?;
    Ok([found[0], found[1]])
}

/// A gateway that does not answer by then has nobody to ask.
const ASK_MAX: Duration = Duration::from_secs(1);
