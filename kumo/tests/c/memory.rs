//! The programs under valgrind: no leak, no invalid access.

use super::build::{Program, Workshop};
use super::support::Cell;
use std::process::Command;

/// Runs programs under valgrind, which ends with a status of its own when it finds anything.
fn clean(test: &str, programs: &[(&str, &[&str])]) {
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("skipped: there is no valgrind here (Debian: valgrind)");
        return;
    }
    let (cell, workshop) = (Cell::up(), Workshop::new(test));
    for (program, arguments) in programs {
        let mut command = Command::new("valgrind");
        command
            .args(["--quiet", "--error-exitcode=99", "--fair-sched=yes", "--leak-check=full"])
            .args(["--show-leak-kinds=definite,indirect,possible"])
            .args(["--errors-for-leak-kinds=definite,indirect,possible"])
            .arg(workshop.c(program))
            .args(*arguments)
            .env("KUMO_CELL", &cell.members);
        Program::spawn(command).ends_well();
    }
}

#[test]
fn bad_input_touches_no_memory_it_should_not() {
    clean("valgrind-bad", &[("bad", &[])]);
}

#[test]
fn whole_programs_leak_nothing() {
    clean("valgrind-plain", &[("slides", &[]), ("queues", &["all"]), ("events", &[]), ("transport", &[])]);
}

#[test]
fn threads_and_large_writes_leak_nothing() {
    clean("valgrind-threads", &[("threads", &[]), ("large", &["1", "4194304"])]);
}
