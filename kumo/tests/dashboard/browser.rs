//! [`Browser`]: headless Chromium, driven over the WebDriver protocol.

use crate::http_client::Asked;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

/// A window of its own, without memory of others. It ends when dropped.
pub struct Browser {
    driver: Child,
    /// Held, because the driver ends when nobody reads what it says.
    _said: BufReader<ChildStdout>,
    address: SocketAddr,
    session: String,
}

impl Browser {
    /// None where there is no chromedriver, which is said in one line.
    pub fn start() -> Option<Browser> {
        let started = Command::new("chromedriver")
            .arg("--port=0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut driver = match started {
            Ok(driver) => driver,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                println!("skipped: no chromedriver here (Debian: chromium-driver)");
                return None;
            }
            Err(error) => panic!("chromedriver: {error}"),
        };
        let mut said = BufReader::new(driver.stdout.take().unwrap());
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port(&mut said)));
        let mut browser = Browser { driver, _said: said, address, session: String::new() };
        let capabilities = json!({ "alwaysMatch": {
            "browserName": "chrome",
            "goog:loggingPrefs": { "browser": "ALL" },
            "goog:chromeOptions": { "args": ARGUMENTS },
        }});
        let answer = browser.ask("/session", &json!({ "capabilities": capabilities }));
        browser.session = answer["sessionId"].as_str().expect("a session has a name").to_owned();
        Some(browser)
    }

    pub fn open(&self, address: &str) {
        self.order("/url", json!({ "url": address }));
    }

    /// What a script of the page returns.
    pub fn look(&self, script: &str) -> Value {
        self.order("/execute/sync", json!({ "script": script, "args": [] }))
    }

    /// As a person does: it must be there to see.
    pub fn click(&self, selector: &str) {
        let element = self.find(selector);
        self.order(&format!("/element/{element}/click"), json!({}));
    }

    pub fn type_into(&self, selector: &str, text: &str) {
        let element = self.find(selector);
        self.order(&format!("/element/{element}/value"), json!({ "text": text }));
    }

    /// A key, on whatever has the focus.
    pub fn press(&self, key: &str) {
        let strokes = json!([{ "type": "keyDown", "value": key }, { "type": "keyUp", "value": key }]);
        let actions = json!([{ "type": "key", "id": "keyboard", "actions": strokes }]);
        self.order("/actions", json!({ "actions": actions }));
    }

    /// The names of what has this role for those who listen to the page.
    pub fn spoken(&self, role: &str) -> Vec<String> {
        let nodes = self.accessible().into_iter().filter(|(found, _)| found == role);
        nodes.map(|(_, name)| name).collect()
    }

    /// What can be used or stands for something, and has no name to be spoken.
    pub fn nameless(&self) -> Vec<String> {
        let nodes = self.accessible().into_iter();
        let bad = nodes.filter(|(role, name)| NAMED_ROLES.contains(&role.as_str()) && name.is_empty());
        bad.map(|(role, _)| role).collect()
    }

    /// Role and name of all that is spoken.
    fn accessible(&self) -> Vec<(String, String)> {
        let tree =
            self.order("/goog/cdp/execute", json!({ "cmd": "Accessibility.getFullAXTree", "params": {} }));
        let nodes = tree["nodes"].as_array().expect("a list").iter().filter(|node| node["ignored"] != true);
        let text = |value: &Value| value["value"].as_str().unwrap_or_default().to_owned();
        nodes.map(|node| (text(&node["role"]), text(&node["name"]))).collect()
    }

    pub fn text(&self, selector: &str) -> String {
        let script = format!("return document.querySelector({})?.textContent ?? ''", json!(selector));
        self.look(&script).as_str().expect("text").to_owned()
    }

    /// Dark or light, as the reader's system wants it.
    pub fn prefer(&self, scheme: &str) {
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        let parameters = json!({ "cmd": "Emulation.setEmulatedMedia", "params": { "features": features } });
        self.order("/goog/cdp/execute", parameters);
    }

    /// What the page's scripts and the browser complained about since the last time.
    pub fn complaints(&self) -> Vec<String> {
        let entries = self.order("/se/log", json!({ "type": "browser" }));
        let entries = entries.as_array().expect("a list").iter();
        let severe = entries.filter(|entry| entry["level"] == "SEVERE");
        severe.map(|entry| entry["message"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// The whole page as a picture among the outputs of the tests.
    pub fn keep(&self, name: &str) {
        let parameters = json!({ "format": "png", "captureBeyondViewport": true });
        let order = json!({ "cmd": "Page.captureScreenshot", "params": parameters });
        let picture = self.order("/goog/cdp/execute", order);
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("dashboard");
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join(format!("{name}.png"));
        std::fs::write(&path, bytes(picture["data"].as_str().expect("a picture"))).unwrap();
        assert!(is_picture(&path), "{} is no picture", path.display());
    }

    fn find(&self, selector: &str) -> String {
        let found = self.order("/element", json!({ "using": "css selector", "value": selector }));
        found[ELEMENT].as_str().unwrap_or_else(|| panic!("{selector}: {found}")).to_owned()
    }

    fn order(&self, path: &str, body: Value) -> Value {
        self.ask(&format!("/session/{}{path}", self.session), &body)
    }

    fn ask(&self, path: &str, body: &Value) -> Value {
        let asked =
            Asked::new("POST", path, &self.address.to_string()).with("Content-Type: application/json");
        let answer = asked.send(self.address, body.to_string().as_bytes());
        assert_eq!(answer.status, 200, "{path} {body}: {}", answer.text());
        answer.json()["value"].clone()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Asked to end, the driver ends Chromium with it; killed, it would leave it behind.
        if Asked::try_get(self.address, "/shutdown").is_none() {
            let _ = self.driver.kill();
        }
        let _ = self.driver.wait();
    }
}

/// "ChromeDriver was started successfully on port 4711."
fn port(said: &mut impl BufRead) -> u16 {
    let mut lines = said.lines().map_while(Result::ok);
    let line = lines.find(|line| line.contains("started successfully")).expect("chromedriver starts");
    let digits: String = line.chars().filter(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|_| panic!("no port in {line:?}"))
}

fn bytes(base64: &str) -> Vec<u8> {
    let digit = |letter: u8| match letter {
        b'A'..=b'Z' => letter - b'A',
        b'a'..=b'z' => letter - b'a' + 26,
        b'0'..=b'9' => letter - b'0' + 52,
        b'+' => 62,
        _slash => 63,
    };
    let digits: Vec<u8> = base64.bytes().filter(|&letter| letter != b'=').map(digit).collect();
    let four = |four: &[u8]| {
        let number =
            four.iter().fold(0, |number, &digit| number << 6 | u32::from(digit)) << (6 * (4 - four.len()));
        number.to_be_bytes()[1..four.len()].to_vec()
    };
    digits.chunks(4).flat_map(four).collect()
}

fn is_picture(path: &Path) -> bool {
    let bytes = std::fs::read(path).unwrap();
    bytes.starts_with(b"\x89PNG\r\n\x1a\n") && bytes.len() > 10_000
}

/// Keys, as the protocol writes them.
pub const TAB: &str = "\u{e004}";
pub const ENTER: &str = "\u{e007}";
pub const ESCAPE: &str = "\u{e00c}";

/// What nobody can use without hearing its name.
const NAMED_ROLES: [&str; 11] = [
    "button",
    "link",
    "textbox",
    "checkbox",
    "progressbar",
    "image",
    "table",
    "heading",
    "region",
    "navigation",
    "dialog",
];

/// The protocol's name for a reference to an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// Without a screen, without asking anybody on the network, and where the tests are run by root: without its sandbox.
const ARGUMENTS: [&str; 11] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--window-size=1400,1000",
];
