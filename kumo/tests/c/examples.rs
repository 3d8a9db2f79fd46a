//! The examples for C, compiled against an installed library as a reader would, and run.

use super::build::{C99, Program, SONAME, Workshop, client, libraries};
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
        let link = |name: &str| std::fs::read_link(prefix.join("lib").join(name)).unwrap();
        assert_eq!(link("libpfs.so"), Path::new(SONAME));
        assert_eq!(link(SONAME), Path::new(concat!("libpfs.so.", env!("CARGO_PKG_VERSION"))));
        let flags = flags(&prefix);
        Installed { workshop, flags }
    }

    fn example(&self, name: &str) -> PathBuf {
        self.compile(&client().join("examples/c").join(format!("{name}.c")))
    }

    fn compile(&self, source: &Path) -> PathBuf {
        let flags: Vec<&str> = self.flags.iter().map(String::as_str).collect();
        self.workshop.compile("cc", C99, source, &flags)
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

/// As a package is made: below one folder, for another.
#[test]
fn it_is_installed_below_a_folder_for_another() {
    let workshop = Workshop::new("install-destdir");
    let status = Command::new(client().join("install"))
        .env("DESTDIR", workshop.folder())
        .arg("--from")
        .arg(libraries())
        .arg("/usr")
        .status();
    assert!(status.unwrap().success());
    let there = workshop.folder().join("usr");
    let description = std::fs::read_to_string(there.join("lib/pkgconfig/pfs.pc")).unwrap();
    assert!(description.starts_with("prefix=/usr\n"), "{description}");
    for name in ["lib/libpfs.so", "lib/libpfs.a", "include/pfs.h", "share/man/man3/pfs.3"] {
        assert!(there.join(name).is_file(), "{name}");
    }
}

#[test]
fn the_first_program_of_the_book_runs() {
    let (cell, installed) = (Cell::up(), Installed::new("example-first"));
    let page = std::fs::read_to_string(client().join("../docs/c.md")).unwrap();
    let program = page.split("```c\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a program");
    let source = installed.workshop.folder().join("first.c");
    std::fs::write(&source, program).unwrap();
    let program = installed.compile(&source);
    Program::start(&cell, &program, &[]).says("blue");
    assert_eq!(cell.done(&["fs", "cat", "/config/colour"]), b"blue");
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
