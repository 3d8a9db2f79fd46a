//! Seeds of the store's simulator that once failed. Each is kept with what it found. A change of what a seed means (the
//! draws of a plan) makes an entry worthless: then it is taken out.

use sim::store::run::{Options, run};

/// The seed, and what was wrong.
const FAILED_ONCE: [(u64, &str); 0] = [];

#[test]
fn what_failed_once_in_a_store_does_not_fail_again() {
    for (seed, found) in FAILED_ONCE {
        let report = run(seed, &Options::default());
        assert_eq!(report.failure, None, "seed {seed}, which once found: {found}");
    }
}
