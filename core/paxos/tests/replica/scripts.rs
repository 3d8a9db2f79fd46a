//! Plays the scripts in tests/scripts: replicas on a perfect network, told what to do line by line; what they note and
//! execute is compared with what the script records.

use crate::world::World;
use script::Stage;
use std::path::Path;

impl Stage for World {
    fn command(&mut self, line: &str) {
        World::command(self, line);
    }

    fn seen(&mut self) -> String {
        std::mem::take(&mut self.out)
    }
}

#[test]
fn scripts_play_as_recorded() {
    script::check(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts"), 5, World::default);
}
