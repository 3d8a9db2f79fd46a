//! What a loss of power may take: nothing that was copied before its receiver counts as an owner.

use super::house::{House, set};
#[cfg(feature = "mutants")]
use kumo_cluster::Mutation;
use kumo_cluster::{Broken, Job};

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

/// A write that was left out because it was under way comes when the arc's end was said to be safe.
#[test]
fn a_copy_is_done_when_what_came_late_is_safe_too() {
    let mut house = House::new(4, 3, 1);
    let key = house.keys_of(&[0, 1, 2], 1).remove(0);
    house.ask(0, 1, 1, &key, set("before"));
    house.wait(1_000_000);
    house.drop_frames = true;
    assert_eq!(house.ask(0, 2, 2, &key, set("late")), None);
    house.publish(|space| {
        (space.whs, space.whs_since) = (vec![1, 2, 3], space.number);
        space.job = Some(Job { full: false, paused: false, rate: 0 });
    });
    house.wait(5_000_000);
    assert_eq!(left(&house), 1, "it waits for the write");
    house.disks[3].buffer(true);
    house.drop_frames = false;
    house.wait(5_000_000);
    assert!(house.servers.iter().all(|server| server.under_way() == (0, 0)), "it is committed");
    assert_eq!(left(&house), 1, "the loss of its power would leave nothing of the key");
    house.disks[3].buffer(false);
    house.wait(1_000_000);
    assert_eq!(left(&house), 0);
}

#[cfg(feature = "mutants")]
#[test]
fn a_copy_that_is_not_safe_would_count() {
    assert_eq!(left_before_and_after(Broken(Some(Mutation::CopyUnsafe))), (0, 0));
}
