//! Runs the scripts in tests/scripts: replicas on a perfect network, told what to do line by line; what they note and
//! execute is compared with what the script records. `KUMO_RECORD=1` writes the recorded part anew.

use crate::world::World;
use std::path::Path;

/// A script: blocks of commands, `---`, what was seen; separated by empty lines.
fn play(script: &str) -> String {
    let mut world = World::default();
    let mut played = Vec::new();
    for block in script.split("\n\n").filter(|block| !block.trim().is_empty()) {
        let commands = block.split("\n---").next().unwrap_or_default();
        for line in commands.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
            world.command(line);
        }
        played.push(format!("{}\n---\n{}", commands.trim_end(), std::mem::take(&mut world.out)));
    }
    format!("{}\n", played.join("\n").trim_end())
}

#[test]
fn scripts_play_as_recorded() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let mut names: Vec<_> =
        std::fs::read_dir(&folder).expect("scripts").map(|entry| entry.expect("entry").path()).collect();
    names.sort();
    assert!(names.len() >= 5, "scripts are there");
    for name in names {
        let script = std::fs::read_to_string(&name).expect("a script");
        let played = play(&script);
        if std::env::var_os("KUMO_RECORD").is_some() {
            std::fs::write(&name, played).expect("write");
        } else {
            assert_eq!(played, script, "{}", name.display());
        }
    }
}
