//! What a loss of power may take: nothing that was copied before its receiver counts as an owner.

use super::house::{House, set};
use kumo_cluster::Broken;
#[cfg(feature = "mutants")]
use kumo_cluster::Mutation;

/// Copies that are not done while what a fourth server gets is not safe on its disk, and those when it is.
fn left_before_and_after(broken: Broken) -> (u64, u64) {
    let mut house = House::with_broken(4, 3, 1, broken);
    for (seq, key) in (1..).zip(house.keys_of(&[], 500)) {
        house.ask(house.primary(key.hash), seq, 1, &key, set("v"));
    }
    house.disks[3].buffer(true);
    house.attach_all();
    // Longer than the senders wait before they ask again.
    house.wait(5_000_000);
    assert!(house.disks[3].len() > 0, "some have come");
    let before = left(&house);
    house.disks[3].buffer(false);
    house.wait(1_000_000);
    (before, left(&house))
}

fn left(house: &House) -> u64 {
    let progress = house.servers.iter().map(|server| server.progress());
    progress.map(|progress| progress.copies - progress.copies_done).sum()
}

#[test]
fn a_copy_is_done_when_it_is_safe() {
    let (before, after) = left_before_and_after(Broken::default());
    assert!(before > 0);
    assert_eq!(after, 0);
}

#[cfg(feature = "mutants")]
#[test]
fn a_copy_that_is_not_safe_would_count() {
    assert_eq!(left_before_and_after(Broken(Some(Mutation::CopyUnsafe))), (0, 0));
}
