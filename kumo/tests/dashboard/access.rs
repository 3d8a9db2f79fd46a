//! Who may use the page, and how: with the token, by the keyboard alone, by ear.

use crate::browser::{Browser, ENTER, ESCAPE, TAB};
use crate::processes::{Manager, Up};
use crate::support::eventually;
use crate::visible;

#[test]
fn the_page_asks_for_the_token_once() {
    let Some(browser) = Browser::start() else { return };
    let manager = Manager::start("open-sesame");
    browser.open(&manager.dashboard);
    eventually("the token is asked for", || visible(&browser, "#lock-field").then_some(()));
    assert!(!visible(&browser, "#banner") && !visible(&browser, "#files"), "nothing else is shown");
    browser.type_into("#lock-field", "open-barley");
    browser.click("#lock-open");
    eventually("it is refused", || (browser.text("#lock-error") == "this is not the token").then_some(()));
    browser.keep("7-token");
    browser.type_into("#lock-field", "open-sesame");
    browser.press(ENTER);
    eventually("the page is live", || (browser.text("#stream-text") == "live").then_some(()));
    eventually("there is a store", || visible(&browser, "#job-replace").then_some(()));
    assert!(!visible(&browser, "#lock"));
    eventually("files are read with it", || (browser.text("#files-tree") == "empty").then_some(()));
    browser.click("#job-replace");
    browser.click("#ask-yes");
    // The token is taken: now it is the managers who refuse, because there is no server.
    eventually("the order is refused", || (!browser.text("#ask-error").is_empty()).then_some(()));
    assert!(visible(&browser, "#ask-error"));

    browser.open(&manager.dashboard);
    eventually("the page is live again", || (browser.text("#stream-text") == "live").then_some(()));
    assert!(!visible(&browser, "#lock"), "it is kept while the tab is open");
}

#[test]
fn the_page_is_used_by_the_keyboard_and_by_ear() {
    let Some(browser) = Browser::start() else { return };
    let up = Up::start();
    browser.open(up.dashboard());
    eventually("the cluster is healthy", || (browser.text("#banner-summary") == "healthy").then_some(()));
    eventually("all servers are listed", || {
        (browser.look("return document.querySelectorAll('#servers-table tbody tr').length") == 3)
            .then_some(())
    });
    let focused = || browser.look("return document.activeElement.id || document.activeElement.className");
    browser.press(TAB);
    assert_eq!(focused(), "skip", "the first stop leads past the rest");
    browser.press(ENTER);
    assert_eq!(focused(), "main");
    let mut stops = Vec::new();
    while !stops.iter().any(|stop| stop == "job-replace") {
        browser.press(TAB);
        stops.push(focused().as_str().unwrap().to_owned());
        assert!(stops.len() < STOPS_MAX, "the button is reached: {stops:?}");
    }
    browser.press(ENTER);
    assert!(visible(&browser, "#ask-yes"));
    assert_eq!(focused(), "ask-no", "what changes nothing comes first");
    browser.press(ESCAPE);
    eventually("the question is gone", || (!visible(&browser, "#ask")).then_some(()));
    assert_eq!(focused(), "job-replace", "the reader is back in their place");

    let nameless = browser.nameless();
    assert_eq!(nameless, Vec::<String>::new(), "everything that is spoken has a name");
    let spoken = browser.spoken("status");
    assert!(spoken.iter().any(|text| text.contains("Health")), "{spoken:?}");
    for (role, least) in [("table", 2), ("image", 1), ("heading", 6), ("button", 5), ("rowheader", 6)] {
        let found = browser.spoken(role);
        assert!(found.len() >= least, "{role}: {found:?}");
    }
    browser.prefer("dark");
    browser.keep("10-dark");
}

/// More would be a page that nobody walks through.
const STOPS_MAX: usize = 60;
