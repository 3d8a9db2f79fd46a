//! The dashboard in a real browser, on a real cluster: what it shows, and what its buttons do.

mod browser;
#[allow(dead_code)] // The store's tests use the rest.
#[path = "../store/client.rs"]
mod client;
#[allow(dead_code)] // The tests of HTTP itself use the rest.
#[path = "../http_client/mod.rs"]
mod http_client;
#[path = "../support/mod.rs"]
mod support;

use browser::Browser;
use client::Client;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use support::{KUMO, assert_status, eventually, free_addresses, signal};

#[test]
fn an_operator_sees_a_loss_and_mends_it() {
    let Some(browser) = Browser::start() else { return };
    let up = Up::start();
    browser.open(up.dashboard());
    eventually("the page is live", || (browser.text("#stream-text") == "live").then_some(()));
    eventually("the cluster is healthy", || (browser.text("#banner-summary") == "healthy").then_some(()));
    eventually("the ring has three colours", || (colours(&browser).len() == 3).then_some(()));
    assert_eq!(browser.look("return document.querySelectorAll('.hatched').length"), 0);
    browser.keep("1-healthy");

    sees_a_file(&browser, &up);
    up.store();
    sees_a_loss(&browser, &up);
    let added = up.add_server();
    attaches(&browser, &added.address);

    assert_eq!(browser.complaints(), Vec::<String>::new());
    drop(added);
    drop(up);
    eventually("the page says that nobody answers", || {
        (browser.text("#stream-text") == "disconnected, trying again").then_some(())
    });
    assert_eq!(browser.text("#banner-summary"), "not known: disconnected, trying again");
    browser.keep("6-disconnected");
}

#[test]
fn a_button_asks_for_the_token() {
    let Some(browser) = Browser::start() else { return };
    let manager = Manager::start("open-sesame");
    browser.open(&manager.dashboard);
    eventually("the page is live", || (browser.text("#stream-text") == "live").then_some(()));
    eventually("there is a store", || visible(&browser, "#job-replace").then_some(()));
    browser.click("#job-replace");
    browser.type_into("#ask-token-field", "open-barley");
    browser.click("#ask-yes");
    eventually("it is refused", || (browser.text("#ask-error") == "this is not the token").then_some(()));
    browser.keep("7-token");
    browser.type_into("#ask-token-field", "open-sesame");
    browser.click("#ask-yes");
    // Now it is the managers who refuse: there is no server.
    eventually("the token is taken", || {
        let error = browser.text("#ask-error");
        (!error.is_empty() && error != "this is not the token").then_some(())
    });
    browser.click("#ask-no");
    browser.click("#job-replace");
    assert!(visible(&browser, "#ask-yes") && !visible(&browser, "#ask-token"), "the page knows the token");
}

fn sees_a_file(browser: &Browser, up: &Up) {
    up.kumo(&["fs", "mkdir", "/config"]);
    // What looks like markup is text.
    let source = up.folder.join("colour");
    std::fs::write(&source, "blue <b>moon</b>\n").unwrap();
    up.kumo(&["fs", "put", "/config/colour", source.to_str().unwrap()]);
    browser.click("#files-reload");
    eventually("the directory is shown", || exists(browser, "[data-path='/config'] > button").then_some(()));
    browser.click("[data-path='/config'] > button");
    eventually("the file is shown", || {
        exists(browser, "[data-path='/config/colour'] > button").then_some(())
    });
    browser.click("[data-path='/config/colour'] > button");
    eventually("its content is shown", || {
        (browser.text("#preview-text") == "blue <b>moon</b>\n").then_some(())
    });
    assert_eq!(browser.text("#preview-title"), "/config/colour");
    browser.prefer("dark");
    browser.keep("2-files-dark");
    browser.prefer("light");
}

fn sees_a_loss(browser: &Browser, up: &Up) {
    let lost = &up.ready["servers"][2];
    let address = lost["address"].as_str().unwrap();
    let killed = Instant::now();
    signal(lost["pid"].as_u64().unwrap() as u32, Signal::KILL);
    eventually("the server is shown as fault", || {
        (attribute(browser, &row(address), "data-state") == "fault").then_some(())
    });
    let noticed = killed.elapsed();
    assert!(noticed < Duration::from_secs(10), "shown after {noticed:?}");
    eventually("its stretches are hatched", || {
        exists(browser, &format!(".stretch.hatched[data-server='{address}']")).then_some(())
    });
    assert_eq!(colours(browser).len(), 3, "a hatched server keeps its colour");
    assert!(browser.text("#banner-reasons").contains(&format!("{address} is fault")));
    assert_ne!(attribute(browser, "#banner", "data-level"), "healthy");
    browser.keep("3-fault");
}

fn attaches(browser: &Browser, address: &str) {
    let row = row(address);
    eventually("the new server waits", || {
        (attribute(browser, &row, "data-state") == "waiting").then_some(())
    });
    browser.click(&format!("{row} button.attach"));
    eventually("the dialog shows what it would move", || exists(browser, "#ask-plan table").then_some(()));
    browser.keep("4-question");
    browser.click("#ask-yes");
    let most = "return Math.max(-1, ...[...document.querySelectorAll('#job-bars progress')].map((bar) => bar.value))";
    let mut seen = Vec::new();
    eventually("the bar reaches 100 %", || {
        let percent = browser.look("return document.querySelector('#job-bars .whole progress')?.value ?? -1");
        let percent = percent.as_f64().unwrap();
        if seen.last() != Some(&percent) {
            seen.push(percent);
        }
        (percent == 100.0).then_some(())
    });
    println!("the bar was seen at {seen:?}");
    assert!(seen.is_sorted(), "a bar never goes back: {seen:?}");
    assert_eq!(browser.look(most), 100);
    let place = || browser.text(&format!("{row} td.state"));
    eventually("the server is attached", || (place() == "● active").then_some(()));
    eventually("it has its part of the ring", || {
        exists(browser, &format!(".stretch:not(.hatched)[data-server='{address}']")).then_some(())
    });
    browser.keep("5-attached");
}

/// The colours of the ring's stretches; of hatched ones, that of their lines.
fn colours(browser: &Browser) -> Vec<String> {
    let script = "
        const colour = (path) => path.classList.contains('hatched')
            ? getComputedStyle(document.querySelector(path.getAttribute('fill').slice(4, -1) + ' .hatch-line')).fill
            : getComputedStyle(path).fill;
        return [...new Set([...document.querySelectorAll('#ring-drawing .stretch')].map(colour))]";
    let found = browser.look(script);
    found.as_array().unwrap().iter().map(|colour| colour.as_str().unwrap().to_owned()).collect()
}

fn row(address: &str) -> String {
    format!("#servers-table tr[data-key='{address}']")
}

fn exists(browser: &Browser, selector: &str) -> bool {
    browser.look(&format!("return document.querySelector({}) !== null", json!(selector))) == true
}

fn visible(browser: &Browser, selector: &str) -> bool {
    browser.look(&format!("return document.querySelector({}).checkVisibility()", json!(selector))) == true
}

fn attribute(browser: &Browser, selector: &str, name: &str) -> String {
    let script =
        format!("return document.querySelector({})?.getAttribute({}) ?? ''", json!(selector), json!(name));
    browser.look(&script).as_str().unwrap().to_owned()
}

/// A cluster of `kumo up`, ended when dropped.
struct Up {
    process: Child,
    ready: Value,
    folder: PathBuf,
}

impl Up {
    fn start() -> Up {
        let folder = folder("up");
        let mut process = Command::new(KUMO)
            .args(["up", "--format", "json"])
            .env("TMPDIR", &folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready = serde_json::from_str(&line).expect("kumo up says when the cluster is ready");
        Up { process, ready, folder }
    }

    fn dashboard(&self) -> &str {
        self.ready["dashboard"].as_str().expect("there is a dashboard")
    }

    fn manager(&self, index: usize) -> &str {
        self.ready["managers"][index]["address"].as_str().unwrap()
    }

    fn kumo(&self, arguments: &[&str]) {
        let cell = ["--cell", self.manager(0)];
        let output = Command::new(KUMO).args(cell).args(arguments).stdin(Stdio::null()).output().unwrap();
        assert_status(arguments, &output, 0);
    }

    /// Something to move.
    fn store(&self) {
        let gateway = self.ready["gateways"][0]["address"].as_str().unwrap().parse().unwrap();
        Client::open(gateway).expect("the gateway listens").fill(3_000, 20_000);
    }

    fn add_server(&self) -> Server {
        let [address, stream] = free_addresses(2)[..] else { panic!("two addresses") };
        let (listen, stream) = (address.to_string(), stream.port().to_string());
        let store = self.folder.join("store");
        let process = Command::new(KUMO)
            .args(["server", "-l", &listen, "-L", &stream, "-m", self.manager(0), "-p", self.manager(1)])
            .args(["--http", "off", "--exit-on-stdin-eof", "-s"])
            .arg(store)
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Server { process, address: listen }
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        signal(self.process.id(), Signal::TERM);
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// One more server, ended when dropped.
struct Server {
    process: Child,
    address: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A manager without servers, whose writes need a token. Ended when dropped.
struct Manager {
    process: Child,
    dashboard: String,
    folder: PathBuf,
}

impl Manager {
    fn start(token: &str) -> Manager {
        let folder = folder("manager");
        std::fs::write(folder.join("token"), token).unwrap();
        let [listen, control, http] = free_addresses(3)[..] else { panic!("three addresses") };
        let process = Command::new(KUMO)
            .args(["manager", "-l", &listen.to_string(), "-c", &control.port().to_string(), "--data", "data"])
            .args(["--http", &http.to_string(), "--http-token", "token", "--exit-on-stdin-eof"])
            .current_dir(&folder)
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        eventually("it serves the page", || TcpStream::connect(http).ok());
        Manager { process, dashboard: format!("http://{http}/"), folder }
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A folder of a test's own; the one who asked for it removes it.
fn folder(name: &str) -> PathBuf {
    let name = format!("dashboard-{name}-{}", std::process::id());
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}
