//! Seeds that once failed. Each is kept with what it found. A change of what a seed means (the draws of a plan)
//! makes an entry worthless: then it is taken out.

use sim::run::{Options, run};

/// The seed, and what was wrong.
const FAILED_ONCE: [(u64, &str); 8] = [
    (901, "a client connected to a removed node never looked for another member"),
    (1459, "a client connected to a removed node never looked for another member"),
    (
        202_264,
        "a follower that was removed and added again while it stood still left, though it was waited for",
    ),
    (204_907, "a node that once was the whole cell was started as alone again, and was another cell"),
    (206_026, "a node that once was the whole cell was started as alone again, and was another cell"),
    (210_269, "a thousand messages take longer to drain than patience lasts for one"),
    (
        211_770,
        "a link led to a process that another had replaced, for ever, and the two left had no majority",
    ),
    (412_210, "a link came up while a slow disk held back that it was given up, and was never dialled again"),
];

#[test]
fn what_failed_once_does_not_fail_again() {
    for (seed, found) in FAILED_ONCE {
        let report = run(seed, &Options::default());
        assert_eq!(report.failure, None, "seed {seed}, which once found: {found}");
    }
}
