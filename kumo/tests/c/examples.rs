//! The examples for C, compiled against an installed library as a reader would, and run.

use super::build::{C99, Program, Workshop, client, libraries};
use super::support::{Cell, eventually, signal};
use rustix::process::Signal;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The library installed below a folder of the test, and what pkg-config says of it.
struct Installed {
    workshop: Workshop,
    flags: Vec<String>,
}

impl Installed {
    fn new(test: &str) -> Installed {
        let workshop = Workshop::new(test);
        let prefix = workshop.folder().join("usr");
        let status = Command::new(client().join("install"))
            .arg("--from")
            .arg(libraries())
            .arg(&prefix)
            .status()
            .unwrap();
        assert!(status.success());
        let flags = flags(&prefix);
        Installed { workshop, flags }
    }

    fn example(&self, name: &str) -> PathBuf {
        let source = client().join("examples/c").join(format!("{name}.c"));
        let flags: Vec<&str> = self.flags.iter().map(String::as_str).collect();
        self.workshop.compile("cc", C99, &source, &flags)
    }
}

/// What a program needs; the run path only because nothing is installed where the loader looks.
fn flags(prefix: &Path) -> Vec<String> {
    let library = prefix.join("lib");
    let run_path = format!("-Wl,-rpath,{}", library.display());
    let asked = Command::new("pkg-config")
        .args(["--cflags", "--libs", "pfs"])
        .env("PKG_CONFIG_PATH", library.join("pkgconfig"))
        .output();
    let Ok(output) = asked else {
        println!("there is no pkg-config here (Debian: pkg-config): the flags it would give are written out");
        return vec![format!("-L{}", library.display()), "-lpfs".into(), run_path];
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains(&format!("-I{}", prefix.join("include").display())), "{text}");
    text.split_whitespace().map(str::to_owned).chain([run_path]).collect()
}

#[test]
fn a_leader_is_followed_by_another_when_it_is_killed() {
    let (cell, installed) = (Cell::up(), Installed::new("example-leader"));
    let program = installed.example("leader");
    let mut first = Program::start(&cell, &program, &["one"]);
    first.says("one leads");
    let mut second = Program::start(&cell, &program, &["two"]);
    second.says("one leads, two follows");
    signal(first.pid(), Signal::KILL);
    second.says("two leads");
    assert_eq!(cell.done(&["fs", "cat", "/leader"]), b"two");
}

#[test]
fn work_is_done_by_workers() {
    let (cell, installed) = (Cell::up(), Installed::new("example-work"));
    let program = installed.example("work");
    for job in ["paint", "sweep"] {
        Program::start(&cell, &program, &["post", job]).says(&format!("{job} posted"));
    }
    let mut worker = Program::start(&cell, &program, &["run"]);
    worker.says("paint done");
    worker.says("sweep done");
}

#[test]
fn a_configuration_is_followed_as_it_changes() {
    let (cell, installed) = (Cell::up(), Installed::new("example-configuration"));
    let mut watcher = Program::start(&cell, installed.example("configuration"), &["/settings"]);
    watcher.says("watching /settings");
    assert!(cell.kumo_with(&["fs", "put", "/settings/colour"], b"blue").status.success());
    watcher.says("colour = blue");
    assert!(cell.kumo_with(&["fs", "put", "/settings/colour"], b"red").status.success());
    watcher.says("colour = red");
    cell.done(&["fs", "rm", "/settings/colour"]);
    watcher.says("colour is gone");
}

#[test]
fn a_board_shows_who_lives() {
    let (cell, installed) = (Cell::up(), Installed::new("example-liveness"));
    let program = installed.example("liveness");
    let mut board = Program::start(&cell, &program, &["board"]);
    board.says("watching");
    let mut device = Program::start(&cell, &program, &["device", "pump"]);
    device.says("pump is here");
    board.says("pump came");
    signal(device.pid(), Signal::KILL);
    board.says("pump went");
    eventually("it is gone", || (!cell.kumo(&["fs", "stat", "/alive/pump"]).status.success()).then_some(()));
}
