//! The dashboard in a real browser, on a real cluster: what it shows, and what its buttons do.

mod access;
mod browser;
#[allow(dead_code)] // The store's tests use the rest.
#[path = "../store/client.rs"]
mod client;
#[allow(dead_code)]
#[path = "../store/cluster.rs"]
mod cluster;
#[allow(dead_code)] // The tests of HTTP itself use the rest.
#[path = "../http_client/mod.rs"]
mod http_client;
mod jobs;
mod processes;
mod restart;
#[path = "../support/mod.rs"]
mod support;

use browser::Browser;
use processes::Up;
use rustix::process::Signal;
use serde_json::json;
use std::time::Instant;
use support::{eventually, signal};

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
    println!("kill -9 of a server is shown after {:?}", killed.elapsed());
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
