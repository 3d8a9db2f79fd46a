//! What the interface does when nothing fails: whole programs, from the slides, in C++, in threads, with bad input.

use super::build::{Workshop, client, run};
use super::support::Cell;

#[test]
fn a_program_written_from_the_slides_alone_links_and_runs() {
    let (cell, workshop) = (Cell::up(), Workshop::new("slides"));
    run(&cell, workshop.c("slides"), &[]);
    run(&cell, workshop.c_static("slides"), &[]);
}

#[test]
fn bad_input_is_an_error_and_never_a_crash() {
    let (cell, workshop) = (Cell::up(), Workshop::new("bad"));
    run(&cell, workshop.c("bad"), &[]);
}

#[test]
fn threads_have_sessions_of_their_own_and_children_too() {
    let (cell, workshop) = (Cell::up(), Workshop::new("threads"));
    run(&cell, workshop.c("threads"), &[]);
    run(&cell, workshop.c("forked"), &[]);
}

#[test]
fn queues_lose_nothing_to_a_small_buffer() {
    let (cell, workshop) = (Cell::up(), Workshop::new("queue"));
    run(&cell, workshop.c("queues"), &["all"]);
}

#[test]
fn the_library_is_in_the_program_when_linked_so() {
    let (cell, workshop) = (Cell::up(), Workshop::new("static"));
    // Its own functions for events are found there too.
    run(&cell, workshop.c_static("events"), &[]);
}

#[test]
fn the_header_is_cplusplus_too() {
    let (cell, workshop) = (Cell::up(), Workshop::new("cplusplus"));
    if std::process::Command::new("c++").arg("--version").output().is_err() {
        println!("skipped: there is no C++ compiler here (Debian: g++)");
        return;
    }
    let link = workshop.link();
    let source = client().join("c/header.cpp");
    let program = workshop.compile("c++", &["-std=c++17"], &source, &[&link[0], &link[1], "-lpfs"]);
    run(&cell, program, &[]);
}

#[test]
fn the_largest_write_is_copied_once() {
    // What is large takes its time, and on a busy machine more than a session has: what is measured here is memory.
    let cell = Cell::up_with(&["--session-timeout", "120"]);
    let workshop = Workshop::new("largest");
    run(&cell, workshop.c("large"), &["1"]);
}
