//! When the others hear that a write is committed: with the next one, or on its own if none follows.

use super::house::{House, set};
use kumo_cluster::ServerInput;

#[test]
fn nothing_goes_out_on_its_own_while_writes_follow_each_other() {
    let mut house = House::new(3, 3, 1);
    let mut keys = house.keys_of(&[], 200);
    keys.retain(|key| house.primary(key.hash) == 0);
    assert!(keys.len() > 20, "{}", keys.len());
    house.wait(100_000);
    house.lone_watermarks = 0;
    for (seq, key) in (1..).zip(&keys) {
        house.ask(0, seq, 1, key, set("v"));
        // Less than it takes until a watermark goes out, and after a few of them more.
        house.now = house.now.plus_micros(1_500);
        house.step(0, ServerInput::Timeout);
        house.settle();
    }
    assert_eq!(house.lone_watermarks, 0);
    house.wait(10_000);
    assert_eq!(house.lone_watermarks, 2, "the last write's, to each of the others");
}
