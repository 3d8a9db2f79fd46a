//! Recorded scripts: what a protocol looks like from outside, played line by line.
//!
//! A script is blocks of commands, `---`, what was seen; separated by empty lines. A line that begins with `#` is for
//! the reader. With `KUMO_RECORD=1` what is seen is written into the scripts instead of being compared with them.

use std::path::Path;

/// What a script happens to.
pub trait Stage {
    fn command(&mut self, line: &str);

    /// What was seen since the last call, whole lines.
    fn seen(&mut self) -> String;
}

/// Plays all scripts of a folder, each on a stage of its own. A folder with fewer than `least` is not the one that is
/// meant.
pub fn check<S: Stage>(folder: &Path, least: usize, begin: impl Fn() -> S) {
    let mut paths: Vec<_> =
        std::fs::read_dir(folder).expect("scripts").map(|entry| entry.expect("entry").path()).collect();
    paths.sort();
    assert!(paths.len() >= least, "scripts are there");
    for path in paths {
        let script = std::fs::read_to_string(&path).expect("a script");
        let played = play(&script, &mut begin());
        if std::env::var_os("KUMO_RECORD").is_some() {
            std::fs::write(&path, played).expect("write");
        } else {
            assert_eq!(played, script, "{}", path.display());
        }
    }
}

/// The script with what is seen now.
fn play(script: &str, stage: &mut impl Stage) -> String {
    let mut played = Vec::new();
    for block in script.split("\n\n").filter(|block| !block.trim().is_empty()) {
        let commands = block.split("\n---").next().unwrap_or_default();
        for line in commands.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
            stage.command(line);
        }
        played.push(format!("{}\n---\n{}", commands.trim_end(), stage.seen()));
    }
    format!("{}\n", played.join("\n").trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Says what it hears.
    #[derive(Default)]
    struct Echo(String);

    impl Stage for Echo {
        fn command(&mut self, line: &str) {
            self.0 += &format!("{line}!\n");
        }

        fn seen(&mut self) -> String {
            std::mem::take(&mut self.0)
        }
    }

    #[test]
    fn what_is_recorded_is_replaced_by_what_is_seen() {
        let script = "# Twice.\none\ntwo\n---\none!\n\nthree\n---\n";
        let played = "# Twice.\none\ntwo\n---\none!\ntwo!\n\nthree\n---\nthree!\n";
        assert_eq!(play(script, &mut Echo::default()), played);
        assert_eq!(play(played, &mut Echo::default()), played, "and is stable");
    }
}
