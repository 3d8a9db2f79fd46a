//! `pfs.h`, the library's symbols, the programs and the manual pages: what one has, the others have.

use super::build::{SONAME, client, libraries};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

#[test]
fn the_library_exports_what_the_header_declares() {
    let exported = symbols(&["-D", "--defined-only"], " T ");
    assert_eq!(exported, functions());
    assert_eq!(symbols(&["-D", "--undefined-only"], " w PFS"), upcalls());
}

#[test]
fn the_library_has_the_name_that_programs_ask_for() {
    let output = Command::new("readelf").arg("-d").arg(libraries().join("libpfs.so")).output();
    let text = String::from_utf8(output.expect("readelf comes with the compiler").stdout).unwrap();
    let line = text.lines().find(|line| line.contains("(SONAME)")).expect("there is one");
    assert!(line.ends_with(&format!("[{SONAME}]")), "{line}");
}

#[test]
fn every_function_of_the_slides_is_there() {
    let declared: BTreeSet<String> = functions().union(&upcalls()).cloned().collect();
    let missing: Vec<&str> = SLIDES.split_whitespace().filter(|name| !declared.contains(*name)).collect();
    assert_eq!(missing, [""; 0]);
}

#[test]
fn every_function_is_called_by_a_test_and_has_a_manual_page() {
    let calls = all(&client().join("c"));
    let pages = all(&client().join("man"));
    for name in functions().union(&upcalls()) {
        assert!(calls.contains(&format!("{name}(")), "no program calls {name}");
        assert!(
            pages.contains(&format!(".Fn {name}")) || pages.contains(&format!(".Fo {name}")),
            "no page for {name}"
        );
    }
}

/// The functions that the header declares, without the program's own.
fn functions() -> BTreeSet<String> {
    declared().difference(&upcalls()).cloned().collect()
}

fn upcalls() -> BTreeSet<String> {
    ["PFSEventDir", "PFSEventLock", "PFSEventQueue"].map(str::to_owned).into()
}

fn declared() -> BTreeSet<String> {
    let header = std::fs::read_to_string(client().join("include/pfs.h")).unwrap();
    let code: String =
        header.split("/*").map(|part| part.split_once("*/").map_or(part, |(_, code)| code)).collect();
    let calls = code.split('(').filter_map(|before| before.split_whitespace().next_back());
    let names = calls.map(|name| name.trim_start_matches('*'));
    names
        .filter(|name| name.starts_with("PFS") && !name.starts_with("PFS_") || name.starts_with("Paxos"))
        .map(str::to_owned)
        .collect()
}

/// The names of the library's symbols of a kind, as nm prints them.
fn symbols(options: &[&str], kind: &str) -> BTreeSet<String> {
    let output = Command::new("nm").args(options).arg(libraries().join("libpfs.so")).output();
    let output = output.expect("nm comes with the compiler");
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().filter(|line| line.contains(kind));
    lines.filter_map(|line| line.split_whitespace().next_back()).map(str::to_owned).collect()
}

/// All files of a folder in one.
fn all(folder: &Path) -> String {
    let files = std::fs::read_dir(folder).unwrap();
    files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap()).collect()
}

/// The client's functions of seed 004, parts IV and V.
const SLIDES: &str = "
    PaxosSessionGetSize PaxosSessionInit PaxosSessionDestroy PaxosSessionOpen PaxosSessionClose
    PaxosSessionReqAndRplByMsg PaxosSessionSnapshot
    PFSOpen PFSClose PFSDelete PFSLseek PFSRead PFSWrite PFSMkdir PFSRmdir PFSReadDir
    PFSLockW PFSLockR PFSUnlock
    PFSEventDirSet PFSEventDirCancel PFSEventLockSet PFSEventLockCancel PFSEventQueueSet PFSEventQueueCancel
    PFSEventGet PFSEventDir PFSEventLock PFSPost PFSWait PFSPeekMsg PFSDeleteMsg";
