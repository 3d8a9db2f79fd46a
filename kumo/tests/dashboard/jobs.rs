//! The buttons of a replace, on a page of a manager that outlives another one.

use crate::browser::Browser;
use crate::processes::{Server, Up};
use crate::support::{eventually, signal};
use crate::{attribute, exists, row, visible};
use rustix::process::Signal;

#[test]
fn a_replace_is_paused_resumed_cancelled_and_done_by_buttons() {
    let Some(browser) = Browser::start() else { return };
    let up = Up::start();
    // Not the master's: that one is killed below.
    browser.open(&up.page(1));
    eventually("the cluster is healthy", || (browser.text("#banner-summary") == "healthy").then_some(()));
    up.store();
    let added = up.add_server();
    is(&browser, &added, "waiting");

    begins_slowly(&browser, &up, &added);
    presses_pause_resume_and_cancel(&browser, &added);
    presses_replace_and_detach(&browser, &added);

    signal(up.pid("managers", 0), Signal::KILL);
    eventually("the page tells of the loss", || {
        (browser.text("#banner-summary") == "one loss from stopping").then_some(())
    });
    eventually("another one leads", || {
        let master = browser.text("#cell-facts div[data-key='Master'] dd");
        (master != "none" && master != up.manager(0)).then_some(())
    });
    assert_eq!(browser.text("#stream-text"), "live");
    browser.keep("9-without-a-manager");
    press(&browser, &format!("{} button.attach", row(&added.address)));
    is(&browser, &added, "active");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

/// An attach that takes a minute, because a limit is set as soon as there is something to limit.
fn begins_slowly(browser: &Browser, up: &Up, added: &Server) {
    let control = up.ready["managers"][0]["control"].as_str().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            eventually("there is a replace to slow down", || {
                up.try_kumo(&["ctl", control, "job", "rate", "300K"]).status.success().then_some(())
            });
        });
        press(browser, &format!("{} button.attach", row(&added.address)));
    });
    eventually("the limit is shown", || {
        (browser.text("#job-facts div[data-key='Limit a server'] dd") == "300 KiB/s").then_some(())
    });
    eventually("the rate and the time left are shown", || {
        let fact = |name: &str| browser.text(&format!("#job-facts div[data-key='{name}'] dd"));
        (fact("Rate").ends_with("/s") && fact("Time left").starts_with("about")).then_some(())
    });
}

fn presses_pause_resume_and_cancel(browser: &Browser, added: &Server) {
    assert!(
        visible(browser, "#job-pause")
            && !visible(browser, "#job-resume")
            && !visible(browser, "#job-replace")
    );
    press(browser, "#job-pause");
    says(browser, "A replace is paused.");
    eventually("nothing moves", || {
        (browser.text("#job-facts div[data-key='Time left'] dd") == "–").then_some(())
    });
    let cut = "return [...document.querySelectorAll('.axis')].filter((text) => text.getBBox().x < 0).length";
    assert_eq!(browser.look(cut), 0, "no label of a chart is cut off");
    browser.keep("8-paused");
    press(browser, "#job-resume");
    says(browser, "A replace is under way.");
    press(browser, "#job-cancel");
    eventually("it is given up", || {
        browser.text("#job-text").starts_with("No replace is under way.").then_some(())
    });
    is(browser, added, "waiting");
}

fn presses_replace_and_detach(browser: &Browser, added: &Server) {
    let row = row(&added.address);
    browser.click(&format!("{row} button.attach"));
    browser.click("#ask-checks input[name='replace']");
    browser.click("#ask-yes");
    eventually("it is for the next replace", || {
        browser
            .text("#job-wanted")
            .contains(&format!("The next replace attaches {}", added.address))
            .then_some(())
    });
    press(browser, "#job-replace");
    is(browser, added, "active");
    eventually("the replace is over", || visible(browser, "#job-replace").then_some(()));
    press(browser, &format!("{row} button.detach"));
    is(browser, added, "waiting");
    eventually("the replace is over", || visible(browser, "#job-replace").then_some(()));
}

/// Presses a button, and says yes to the question.
fn press(browser: &Browser, button: &str) {
    browser.click(button);
    assert!(visible(browser, "#ask-yes"), "{button} asks first");
    browser.click("#ask-yes");
    eventually("the managers agree", || {
        let error = browser.text("#ask-error");
        assert_eq!(error, "", "{button}");
        (!exists(browser, "#ask[open]")).then_some(())
    });
}

fn says(browser: &Browser, text: &str) {
    eventually(text, || (browser.text("#job-text") == text).then_some(()));
}

fn is(browser: &Browser, server: &Server, state: &str) {
    eventually(state, || {
        let row = row(&server.address);
        let settled = !browser.text(&format!("{row} td.state")).contains("joining");
        (settled && attribute(browser, &row, "data-state") == state).then_some(())
    });
}
