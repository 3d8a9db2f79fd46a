//! The book in docs/: complete, and its reference what the binary says.

mod support;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use support::{KUMO, assert_status};

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")
}

/// Pages below a folder, by their paths from there.
fn pages(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        if entry.file_type().unwrap().is_dir() {
            found.extend(pages(&entry.path()).into_iter().map(|page| format!("{name}/{page}")));
        } else if name.ends_with(".md") {
            found.insert(name);
        }
    }
    found
}

#[test]
fn the_summary_has_every_page_once() {
    let summary = std::fs::read_to_string(docs().join("SUMMARY.md")).unwrap();
    let linked: Vec<String> =
        summary.split("](").skip(1).map(|rest| rest.split(')').next().unwrap().to_owned()).collect();
    let named: BTreeSet<String> = linked.iter().cloned().collect();
    assert_eq!(linked.len(), named.len(), "a page is listed twice");
    let mut there = pages(&docs());
    there.remove("SUMMARY.md");
    // Designs that were dropped are kept, but are no part of the book.
    there.retain(|page| !page.starts_with("obsolete/"));
    assert_eq!(named, there);
}

/// Between pages, and to files of the sources: whatever is not on the network.
#[test]
fn every_link_leads_somewhere() {
    let root = docs().join("..");
    let book = pages(&docs()).into_iter().map(|page| format!("docs/{page}"));
    let fronts =
        ["README.md", "README.ja.md", "ARCHITECTURE.md", "CHANGELOG.md", "STYLE.md"].map(str::to_owned);
    let mut followed = 0;
    for page in book.chain(fronts) {
        let text = std::fs::read_to_string(root.join(&page)).unwrap();
        for link in links(&text).filter(|link| !link.contains("://")) {
            let (path, place) = link.split_once('#').unwrap_or((link, ""));
            let folder = Path::new(&page).parent().unwrap();
            let target = if path.is_empty() { PathBuf::from(&page) } else { folder.join(path) };
            assert!(root.join(&target).exists(), "{page} links to {link}");
            if !place.is_empty() {
                let there = std::fs::read_to_string(root.join(&target)).unwrap();
                assert!(
                    headings(&there).any(|name| name == place),
                    "{page} links to {link}: no such heading"
                );
            }
            followed += 1;
        }
    }
    assert!(followed > 50, "{followed} links");
}

/// The targets of a page's links; what is code has none.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let prose = prose(text).flat_map(|line| line.split('`').step_by(2).collect::<Vec<_>>());
    // A link around code begins in one part and ends in another.
    prose
        .flat_map(|part| part.split("](").skip(1))
        .filter_map(|rest| rest.split_once(')'))
        .map(|(link, _)| link)
}

/// The names by which headings are linked to.
fn headings(text: &str) -> impl Iterator<Item = String> {
    let headings = prose(text).filter(|line| line.starts_with('#'));
    headings.map(|line| {
        let words = line.trim_start_matches('#').trim().to_lowercase();
        let kept = words.chars().filter(|&c| c.is_alphanumeric() || c == ' ' || c == '-' || c == '_');
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    })
}

/// The lines outside fences.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    text.split("\n```").step_by(2).flat_map(str::lines)
}

#[test]
fn the_reference_is_what_the_binary_says() {
    let folder = std::env::temp_dir().join(format!("kumo-reference-{}", std::process::id()));
    let name = folder.to_str().unwrap();
    // What is in the environment of whoever writes the pages must not get into them.
    let output =
        Command::new(KUMO).args(["reference", name]).env("KUMO_CELL", "10.9.8.7:6543").output().unwrap();
    assert_status(&["reference"], &output, 0);
    let committed = docs().join("reference");
    assert_eq!(pages(&folder), pages(&committed), "write them anew: kumo reference docs/reference");
    for page in pages(&folder) {
        let (new, old) =
            (std::fs::read_to_string(folder.join(&page)), std::fs::read_to_string(committed.join(&page)));
        assert!(new.unwrap() == old.unwrap(), "{page} is not up to date: kumo reference docs/reference");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Every name and constant of the slides' interfaces has a row.
#[test]
fn the_slides_names_are_all_mapped() {
    let page = std::fs::read_to_string(docs().join("seed-names.md")).unwrap();
    for name in SLIDES.split_whitespace() {
        let found = page.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == name);
        assert!(found, "{name} is not in docs/seed-names.md");
    }
}

const SLIDES: &str = "\
    PAXOS_SERVER_MAX PAXOS_SERVER_MAXIMUM PAXOS_MAX PAXOS_FIRE_MAX PAXOS_COMMAND_SIZE \
    PaxosGetSize PaxosInit PaxosSetTag PaxosGetTag PaxosStart PaxosRequest PaxosRecvFromPaxos PaxosIsMaster \
    PaxosGetMaster PaxosMasterElectionTimeout PaxosDecidedTimeout PaxosCacheTimeout \
    PaxosSessionGetSize PaxosSessionInit PaxosSessionDestroy PaxosSessionOpen PaxosSessionClose PaxosSessionSnapshot \
    PaxosSessionReqAndRplByMsg PAXOS_SESSION_EVENT PaxosClientId_t \
    PaxosAcceptorSize PaxosAcceptorInit PaxosAcceptorIF_t PaxosAcceptorStart PaxosAcceptSetTag PaxosAcceptGetTag \
    PaxosAcceptIsAccepted PaxosAcceptReply PaxosAcceptSend JOINT UNJOINT PaxosAcceptEventRaise \
    PFSOpen PFSClose PFSDelete PFSLseek PFSRead PFSWrite FILE_EPHEMERAL PFSMkdir PFSRmdir PFSReadDir PFSLockW PFSLockR \
    PFSUnlock PFSEventDirSet PFSEventDirCancel PFSEventLockSet PFSEventLockCancel PFSEventQueueSet PFSEventQueueCancel \
    PFSEventGet PFSEventDir PFSEventLock PFSPost PFSWait PFSPeekMsg PFSDeleteMsg \
    File_t FileDirent_t FileEventDir_t FileEventLock_t";
