//! Leases: while one is used, nobody else leads. Clocks run at one rate here; that a fifth of every grant is not used
//! leaves room for rates that differ by a tenth.

use sim::models::{ONE_REIGN, Reign, exhaust, find};

#[test]
fn while_a_lease_is_used_nobody_leads_a_stronger_round() {
    assert!(exhaust("lease, one restart", Reign { restarts: 1, ..REIGN }) > 10_000);
    assert!(exhaust("lease, renewed", Reign { beats: 2, ..REIGN }) > 10_000);
}

#[test]
fn a_master_that_steps_down_gives_its_lease_up() {
    assert!(exhaust("lease, one step down", Reign { steps_down: 1, ..REIGN }) > 10_000);
}

#[test]
fn a_restarted_voter_that_answers_collects_breaks_a_lease() {
    let mutant = Reign { restarts: 1, restart_answers_collect: true, ..REIGN };
    find("restart answers collect", mutant, ONE_REIGN);
}

/// Longer than a grant, so that what was granted at the first tick runs out.
const REIGN: Reign =
    Reign { raises: 2, restarts: 0, beats: 1, steps_down: 0, until: 7, restart_answers_collect: false };
