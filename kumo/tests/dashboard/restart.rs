//! All servers were lost and are back: the page's ring, numbers and banner agree about who serves.

use crate::attribute;
use crate::browser::Browser;
use crate::cluster::{Cluster, Node, until};
use serde_json::json;

#[test]
fn servers_that_all_start_again_are_seen_to_serve_with_one_copy() {
    let Some(browser) = Browser::start() else { return };
    let mut cluster = Cluster::start(1, 4, &[]);
    cluster.servers.iter_mut().for_each(Node::kill);
    cluster.servers.iter_mut().for_each(Node::run);
    let returned = until("the last owners are back", || {
        let stat = cluster.try_stat()?;
        let attached = stat["attached"].as_array()?;
        let lost = attached.iter().all(|one| one["state"] == "fault") && stat["awaited"] == json!([]);
        let there = stat["not_attached"].as_array()?.len() == 4;
        (lost && there).then(|| attached.iter().filter(|one| one["returned"] == true).count())
    });
    browser.open(&page(&cluster.managers[0]));
    until("the ring is drawn", || (middle(&browser).starts_with("1 copy everywhere")).then_some(()));
    assert_eq!(middle(&browser), "1 copy everywhere 4 servers");
    let said = browser.text("#ring-alt").replace('\u{a0}', " ");
    assert!(said.contains("The inner band: 1 acting copy of 100 % of the ring."), "{said}");
    assert!(browser.text("#tiles").contains(&format!("Servers active0 of 4, {returned} back")));
    let reasons = browser.text("#banner-reasons");
    assert!(reasons.contains("all of the ring has one copy"), "{reasons}");
    assert_eq!(
        reasons.matches("is back for what only it has: attach it again").count(),
        returned,
        "{reasons}"
    );
    assert_eq!(attribute(&browser, "#banner", "data-level"), "one_loss");
    browser.keep("7-all-back");

    browser.click("#attach-all");
    browser.click("#ask-yes");
    until("all copies are there", || (middle(&browser) == "3 copies everywhere 4 servers").then_some(()));
    cluster.until_active(4);
    until("none is back any more", || browser.text("#tiles").contains("Servers active4 of 4").then_some(()));
    assert!(!browser.text("#banner-reasons").contains("of the ring"));
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

/// The words in the ring.
fn middle(browser: &Browser) -> String {
    let script = "return [...document.querySelectorAll('#ring-drawing text')].map((text) => text.textContent).join(' ')";
    browser.look(script).as_str().expect("text").to_owned()
}

/// Where a manager serves its page, as its log says.
fn page(manager: &Node) -> String {
    let address = until("the log names the address of http", || {
        let log = manager.log();
        let line = log.lines().find(|line| line.contains(" http "))?;
        line.split("address=").nth(1)?.split_whitespace().next().map(str::to_owned)
    });
    format!("http://{address}/")
}
