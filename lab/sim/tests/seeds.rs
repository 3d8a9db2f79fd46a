//! Seeds that once failed. Each is kept with what it found.

use sim::run::{Options, run};

/// The seed, and what was wrong.
const FAILED_ONCE: [(u64, &str); 5] = [
    (3, "a client's deadline had passed and stayed: it kept its processor busy"),
    (20, "as seed 3, while a call waited for a queue"),
    (32, "an ended session's last request was answered as a breach of the protocol"),
    (145, "a follower that was removed asked to follow again as it went"),
    (174, "a client connected to a removed node never looked for another member"),
];

#[test]
fn what_failed_once_does_not_fail_again() {
    for (seed, found) in FAILED_ONCE {
        let report = run(seed, &Options::default());
        assert_eq!(report.failure, None, "seed {seed}, which once found: {found}");
    }
}
