//! The source rules of STYLE.md and ARCHITECTURE.md, checked on the sources as they lie here.
//! Every rule is tried on a bad sample too: a rule that cannot complain would keep nothing.

use std::fmt;
use std::path::{Path, PathBuf};

#[test]
fn sources_keep_the_rules() {
    let files = files(|name| name.ends_with(".rs"));
    assert!(files.iter().any(|(path, _)| path == "lab/sim/tests/tidy.rs"), "the walk misses this very file");
    let complaints = files.iter().flat_map(|(path, text)| source_complaints(path, text)).collect();
    none(complaints);
}

#[test]
fn crates_depend_only_on_what_their_folder_allows() {
    let manifests = files(|name| name == "Cargo.toml");
    assert!(manifests.len() > CORE_ALLOWED.len(), "the walk misses manifests");
    let complaints = manifests.iter().flat_map(|(path, text)| manifest_complaints(path, text)).collect();
    none(complaints);
}

#[test]
fn the_workspace_has_every_crate_and_every_member_exists() {
    let crates: Vec<String> = files(|name| name == "Cargo.toml")
        .into_iter()
        .filter_map(|(path, _)| path.strip_suffix("/Cargo.toml").map(str::to_owned))
        .collect();
    let workspace = std::fs::read_to_string(root().join("Cargo.toml")).expect("the workspace has a manifest");
    none(member_complaints(&workspace, &crates));
}

#[test]
fn documents_name_files_that_exist() {
    let documents = files(|name| name.ends_with(".md"));
    assert!(documents.iter().any(|(path, _)| path == "ARCHITECTURE.md"), "ARCHITECTURE.md is missing");
    let exists = |path: &str| root().join(path).exists();
    none(documents.iter().flat_map(|(path, text)| document_complaints(path, text, exists)).collect());
}

#[test]
fn the_protocol_documents_have_every_message() {
    let mut complaints = Vec::new();
    for (path, name, document) in TABULATED {
        let source = std::fs::read_to_string(root().join(path)).expect("a protocol's source");
        let text = std::fs::read_to_string(root().join(document)).expect("a protocol's document");
        complaints.extend(table_complaints(path, &source, name, document, &text));
    }
    none(complaints);
}

/// What one source file breaks.
fn source_complaints(path: &str, text: &str) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    let mut complain = |line: usize, rule: String| complaints.push(Complaint::new(path, line, rule));
    if !text.starts_with("//!") {
        complain(1, "does not open with `//!`: what is this file for?".into());
    }
    let length = text.lines().count();
    if length > LINES_MAX {
        complain(length, format!("has {length} lines, the wall is {LINES_MAX}"));
    }
    let stem = path.trim_end_matches(".rs");
    if let Some(name) = stem.split('/').find(|part| NAMES_BANNED.contains(part)) {
        complain(1, format!("`{name}` names nothing: name it after what it does"));
    }
    for (index, line) in code_of(text).lines().enumerate() {
        for banned in CODE_BANNED.iter().filter(|banned| line.contains(*banned)) {
            complain(index + 1, format!("has `{banned}`"));
        }
        if has_word(line, "unsafe") && !path.starts_with("client/src/c/") {
            complain(index + 1, "has `unsafe`: it lives in the C ABI's folder only".into());
        }
    }
    if path.starts_with("core/") {
        // Comments too: what decides has no reason to speak of the world.
        for (index, line) in text.lines().enumerate() {
            for banned in CORE_BANNED.iter().filter(|banned| has_word(line, banned)) {
                complain(index + 1, format!("has `{banned}`: core has no clock, IO or log line"));
            }
        }
    }
    complaints
}

/// What one manifest breaks.
fn manifest_complaints(path: &str, text: &str) -> Vec<Complaint> {
    let Some(folder) = path.strip_suffix("/Cargo.toml") else {
        return Vec::new(); // The workspace's own: it lists versions, not who may use them.
    };
    let mut complaints = Vec::new();
    let allowed = CORE_ALLOWED.iter().find(|(name, _)| *name == folder).map(|(_, allowed)| *allowed);
    if folder.starts_with("core/") && allowed.is_none() {
        complaints.push(Complaint::new(path, 1, "no list of allowed dependencies for this crate".into()));
    }
    for dependency in dependencies(text) {
        let Dependency { line, name, shipped, .. } = &dependency;
        let mut complain = |rule: String| complaints.push(Complaint::new(path, *line, rule));
        if *shipped && allowed.is_some_and(|allowed| !allowed.contains(&name.as_str())) {
            complain(format!("{folder} may not depend on {name}"));
        }
        if name == "tokio" && !TOKIO_ALLOWED.contains(&folder) {
            complain(format!("{folder} may not know tokio"));
        }
        if name == "kumo-node" && folder == "client" {
            complain("a client knows the protocol, not the node".into());
        }
        if name == "sim" && !folder.starts_with("lab/") {
            complain(
                "uses the simulator, which turns the unsafe rules on: what it may share is in lab/lot".into(),
            );
        }
        if *shipped && dependency.value.contains("\"mutants\"") && !folder.starts_with("lab/") {
            complain("turns the unsafe rules on: they are for the model checker alone".into());
        }
    }
    if !text.contains("[lints]\nworkspace = true") {
        complaints.push(Complaint::new(path, 1, "does not take the workspace's lints".into()));
    }
    complaints
}

/// Members that have no crate, crates that are no members.
fn member_complaints(workspace: &str, crates: &[String]) -> Vec<Complaint> {
    let start = workspace.lines().position(|line| line.trim() == "members = [").unwrap_or(0);
    let members: Vec<(usize, &str)> = workspace
        .lines()
        .enumerate()
        .skip(start + 1)
        .take_while(|(_, line)| line.trim() != "]")
        .map(|(index, line)| (index + 1, line.trim().trim_end_matches(',').trim_matches('"')))
        .collect();
    let gone = members
        .iter()
        .filter(|(_, member)| !crates.iter().any(|name| name == member))
        .map(|(line, member)| Complaint::new("Cargo.toml", *line, format!("member {member} is not there")));
    let orphans = crates
        .iter()
        .filter(|name| !members.iter().any(|(_, member)| member == name))
        .map(|name| Complaint::new("Cargo.toml", start + 1, format!("{name} is not a member")));
    gone.chain(orphans).collect()
}

/// Files that a document names in code spans, or links to, and that are not there.
fn document_complaints(path: &str, text: &str, exists: impl Fn(&str) -> bool) -> Vec<Complaint> {
    let folder = path.rsplit_once('/').map_or(String::new(), |(folder, _)| format!("{folder}/"));
    let mut complaints = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let spans = line.split('`').skip(1).step_by(2);
        let sources = spans.filter(|span| span.contains('/') && span.ends_with(".rs")).map(str::to_owned);
        let links = line.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
        let targets = links
            .filter(|link| !link.is_empty() && !link.contains("://"))
            .map(|link| format!("{folder}{link}"));
        for named in sources.chain(targets).filter(|named| !exists(named)) {
            complaints.push(Complaint::new(path, index + 1, format!("names {named}, which is not there")));
        }
    }
    complaints
}

/// Messages of `wire_enum!(name { .. })` in `source` for which the document has no row with number, name and fields.
fn table_complaints(path: &str, source: &str, name: &str, document: &str, text: &str) -> Vec<Complaint> {
    let opening = format!("wire_enum!({name} {{");
    let Some(start) = source.lines().position(|line| line.starts_with(&opening)) else {
        return vec![Complaint::new(path, 1, format!("has no wire_enum of {name}"))];
    };
    let section = text.split("\n## ").find(|part| part.contains(&format!("`{name}`"))).unwrap_or("");
    let mut complaints = Vec::new();
    for (index, line) in source.lines().enumerate().skip(start + 1).take_while(|(_, line)| *line != "});") {
        // Variants stand at the first indentation; a long one's fields stand deeper.
        let Some((number, rest)) = line.strip_prefix("    ").and_then(|line| line.split_once(" = ")) else {
            continue;
        };
        let variant: String = rest.chars().take_while(char::is_ascii_alphanumeric).collect();
        let row = match rest.strip_suffix(" },").and_then(|rest| rest.split_once(" { ")) {
            Some((_, fields)) => format!("| {number} | {variant} | {fields} |"),
            None => format!("| {number} | {variant} |"),
        };
        if !section.contains(&row) {
            let rule = format!("{document} has no row `{row}` below `{name}`");
            complaints.push(Complaint::new(path, index + 1, rule));
        }
    }
    if complaints.is_empty() && !section.contains("| 1 |") {
        complaints.push(Complaint::new(path, start + 1, format!("no table of {name} was found to compare")));
    }
    complaints
}

/// The text with comments, strings and characters blanked, line by line what it was.
fn code_of(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut code = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let end = blank_end(&chars, at);
        if end == at {
            code.push(chars[at]);
            at += 1;
        } else {
            code.extend(chars[at..end].iter().map(|&c| if c == '\n' { '\n' } else { ' ' }));
            at = end;
        }
    }
    code
}

/// Where the comment, string or character that starts at `at` ends; `at` itself when none starts there.
fn blank_end(chars: &[char], at: usize) -> usize {
    let next = |offset: usize| chars.get(at + offset).copied().unwrap_or(' ');
    let find = |from: usize, closing: &[char]| {
        let tail = &chars[from.min(chars.len())..];
        let found = tail.windows(closing.len()).position(|window| window == closing);
        found.map_or(chars.len(), |offset| from + offset + closing.len())
    };
    match chars[at] {
        '/' if next(1) == '/' => find(at, &['\n']) - 1,
        '/' if next(1) == '*' => find(at + 2, &['*', '/']),
        '"' => quoted_end(chars, at, '"'),
        '\'' if next(1) == '\\' => quoted_end(chars, at, '\''),
        '\'' if next(2) == '\'' => at + 3, // Otherwise it is a lifetime.
        'r' if (next(1) == '"' || next(1) == '#') && !continues_a_word(chars, at) => {
            let hashes = chars[at + 1..].iter().take_while(|&&c| c == '#').count();
            if next(1 + hashes) != '"' {
                return at; // r#name
            }
            let closing: Vec<char> = std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
            find(at + 2 + hashes, &closing)
        }
        _ => at,
    }
}

/// Where a literal with escapes ends.
fn quoted_end(chars: &[char], start: usize, quote: char) -> usize {
    let mut at = start + 1;
    while at < chars.len() && chars[at] != quote {
        at += if chars[at] == '\\' { 2 } else { 1 };
    }
    (at + 1).min(chars.len())
}

/// Whether the `r` here ends a name, and so opens no raw string. `br"` and `cr"` do.
fn continues_a_word(chars: &[char], at: usize) -> bool {
    let is_word = |index: Option<usize>| index.is_some_and(|index| is_word_char(chars[index]));
    match at.checked_sub(1) {
        Some(before) if matches!(chars[before], 'b' | 'c') => is_word(before.checked_sub(1)),
        before => is_word(before),
    }
}

fn is_word_char(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn has_word(line: &str, word: &str) -> bool {
    line.split(|c| !is_word_char(c)).any(|part| part == word)
}

/// One line of a manifest's dependencies.
struct Dependency {
    line: usize,
    name: String,
    value: String,
    /// Not only for tests.
    shipped: bool,
}

/// The dependencies of a manifest, in `[dependencies]`, its target-specific and its test sections. Names are
/// packages: the workspace's one alias is resolved.
fn dependencies(text: &str) -> Vec<Dependency> {
    let mut found = Vec::new();
    let mut section = "";
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        let mut add = |section: &str, name: &str, value: &str| {
            let shipped = !section.contains("dev-");
            let name = if name == "pfs" { "kumo-client" } else { name };
            found.push(Dependency { line: index + 1, name: name.into(), value: value.into(), shipped });
        };
        if let Some(header) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            section = header;
            // [dependencies.name] is a dependency by itself.
            if let Some((table, name)) = header.split_once("dependencies.") {
                add(table, name.trim_matches('"'), "");
            }
        } else if let Some((key, value)) = line.split_once('=').filter(|_| !line.starts_with('#')) {
            if section.ends_with("dependencies") {
                let key = key.trim().trim_matches('"');
                let name = key.split('.').next().unwrap_or(key);
                let renamed = value.split("package = \"").nth(1).and_then(|rest| rest.split('"').next());
                add(section, renamed.unwrap_or(name), value);
            } else if section.contains("dependencies.") {
                let name = section.rsplit('.').next().unwrap_or(section);
                add(section, name.trim_matches('"'), value);
            }
        }
    }
    found
}

/// A broken rule and where.
#[derive(Debug, PartialEq, Eq)]
struct Complaint {
    path: String,
    line: usize,
    rule: String,
}

impl Complaint {
    fn new(path: &str, line: usize, rule: String) -> Complaint {
        Complaint { path: path.to_owned(), line, rule }
    }
}

impl fmt::Display for Complaint {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        write!(out, "{}:{}: {}", self.path, self.line, self.rule)
    }
}

fn none(complaints: Vec<Complaint>) {
    let lines: Vec<String> = complaints.iter().map(Complaint::to_string).collect();
    assert!(lines.is_empty(), "\n{}\n", lines.join("\n"));
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every file of that kind with its text, by its path from the workspace's root; nothing that was built, and
/// nothing hidden.
fn files(wanted: impl Fn(&str) -> bool) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![(root(), String::new())];
    while let Some((folder, prefix)) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder of the workspace") {
            let entry = entry.expect("an entry of a folder");
            let name = entry.file_name().into_string().expect("file names are UTF-8");
            let kind = entry.file_type().expect("a kind of file");
            let path = format!("{prefix}{name}");
            if kind.is_dir() && name != "target" && !name.starts_with('.') {
                folders.push((entry.path(), format!("{path}/")));
            } else if kind.is_file() && wanted(&name) {
                let text = std::fs::read_to_string(entry.path());
                found.push((path, text.expect("sources are UTF-8")));
            }
        }
    }
    found.sort();
    found
}

const LINES_MAX: usize = 600;

const NAMES_BANNED: [&str; 4] = ["utils", "util", "helpers", "helper"];

/// Unfinished, forgotten or switched off.
const CODE_BANNED: [&str; 4] = ["todo!(", "unimplemented!(", "dbg!(", "#[ignore"];

/// What no file below core/ may name.
const CORE_BANNED: [&str; 8] =
    ["tokio", "Instant", "SystemTime", "println", "eprintln", "tracing", "RandomState", "getrandom"];

/// What each core crate may depend on.
const CORE_ALLOWED: [(&str, &[&str]); 5] = [
    ("core/wire", &["bytes", "thiserror", "memchr"]),
    ("core/paxos", &["kumo-wire", "bytes", "thiserror", "blake3"]),
    ("core/session", &["kumo-wire", "kumo-paxos", "bytes", "thiserror"]),
    ("core/pfs", &["kumo-wire", "kumo-paxos", "kumo-session", "bytes", "thiserror"]),
    ("core/cluster", &["kumo-wire", "kumo-paxos", "kumo-session", "bytes", "thiserror", "sha1"]),
];

/// Who touches the world.
const TOKIO_ALLOWED: [&str; 5] = ["kumo", "client", "edge/link", "edge/node", "examples/counter"];

/// The enums whose numbers a document tabulates, and which.
const TABULATED: [(&str, &str, &str); 8] = [
    ("core/paxos/src/message.rs", "Message", "docs/protocol.md"),
    ("core/session/src/protocol.rs", "ClientMessage", "docs/protocol.md"),
    ("core/session/src/protocol.rs", "CellMessage", "docs/protocol.md"),
    ("core/cluster/src/message.rs", "Message", "docs/store-protocol.md"),
    ("core/cluster/src/message.rs", "Operation", "docs/store-protocol.md"),
    ("core/cluster/src/message.rs", "Answer", "docs/store-protocol.md"),
    ("core/cluster/src/control.rs", "ControlRequest", "docs/store-protocol.md"),
    ("core/cluster/src/control.rs", "ControlAnswer", "docs/store-protocol.md"),
];

mod bad_samples {
    use super::*;

    fn shown(complaints: Vec<Complaint>) -> Vec<String> {
        complaints.iter().map(Complaint::to_string).collect()
    }

    /// The complaints of a source with a header, less the path and the header's line.
    fn about(path: &str, line: &str) -> Vec<String> {
        let complaints = source_complaints(path, &format!("//! A sample.\n{line}\n"));
        assert!(complaints.iter().all(|complaint| complaint.path == path && complaint.line == 2));
        complaints.into_iter().map(|complaint| complaint.rule).collect()
    }

    #[test]
    fn a_file_without_a_header() {
        let complaints = shown(source_complaints("kumo/src/up.rs", "// Starts a cell.\nfn up() {}\n"));
        assert_eq!(complaints, ["kumo/src/up.rs:1: does not open with `//!`: what is this file for?"]);
    }

    #[test]
    fn a_file_beyond_the_wall() {
        let text = |lines: usize| format!("//! A sample.\n{}", "\n".repeat(lines - 1));
        assert_eq!(source_complaints("client/src/file.rs", &text(600)), []);
        let complaints = shown(source_complaints("client/src/file.rs", &text(601)));
        assert_eq!(complaints, ["client/src/file.rs:601: has 601 lines, the wall is 600"]);
    }

    #[test]
    fn a_name_that_says_nothing() {
        for path in ["kumo/src/utils.rs", "core/pfs/src/util.rs", "edge/node/src/helpers/mod.rs"] {
            assert_eq!(source_complaints(path, "//! A sample.\n").len(), 1, "{path}");
        }
        assert_eq!(source_complaints("kumo/src/utilisation.rs", "//! A sample.\n"), []);
    }

    #[test]
    fn unfinished_code() {
        for banned in CODE_BANNED {
            let rule = format!("has `{banned}`");
            assert_eq!(about("kumo/src/up.rs", &format!("    {banned}")), [rule.as_str()]);
            assert_eq!(about("kumo/src/up.rs", &format!("let a = 'a'; /* b */ {banned}")), [rule.as_str()]);
            assert_eq!(about("kumo/src/up.rs", &format!("// no {banned} here")), [""; 0]);
            assert_eq!(about("kumo/src/up.rs", &format!("let a = \"\\\"{banned}\";")), [""; 0]);
        }
    }

    #[test]
    fn unsafe_outside_the_c_abi() {
        let rule = "has `unsafe`: it lives in the C ABI's folder only";
        assert_eq!(about("edge/node/src/link.rs", "unsafe { go() }"), [rule]);
        assert_eq!(about("edge/node/src/link.rs", "fn a<'a>(b: &'a u8) { unsafe { go() } }"), [rule]);
        assert_eq!(about("edge/node/src/link.rs", "let a = r#\"\"#; unsafe { go() }"), [rule]);
        assert_eq!(about("client/src/c/file.rs", "unsafe { go() }"), [""; 0]);
        for harmless in ["// unsafe", "let a = \"unsafe\";", "deny(unsafe_code)", "let a = br#\"unsafe\"\"#;"]
        {
            assert_eq!(about("lab/sim/src/main.rs", harmless), [""; 0], "{harmless}");
        }
    }

    #[test]
    fn a_core_that_looks_at_the_world() {
        for line in [
            "use std::time::{Duration, Instant};",
            "fn at(now: std::time::SystemTime) {}",
            "println!(\"decided\");",
            "/// Called by tokio.",
        ] {
            assert_eq!(about("core/paxos/src/replica.rs", line).len(), 1, "{line}");
            assert_eq!(about("edge/node/src/drive.rs", line), [""; 0], "{line}");
        }
        assert_eq!(about("core/paxos/src/replica.rs", "use crate::identity::Instance;"), [""; 0]);
    }

    /// The complaints of a manifest with the workspace's lints and these lines.
    fn manifest(folder: &str, lines: &str) -> Vec<String> {
        let text = format!("[lints]\nworkspace = true\n{lines}\n");
        shown(manifest_complaints(&format!("{folder}/Cargo.toml"), &text))
    }

    #[test]
    fn a_guest_in_core_that_is_not_on_the_list() {
        let not_serde = ["core/wire/Cargo.toml:4: core/wire may not depend on serde"];
        assert_eq!(manifest("core/wire", "[dependencies]\nserde = \"1\""), not_serde);
        assert_eq!(manifest("core/wire", "[dependencies]\nserde.workspace = true"), not_serde);
        assert_eq!(manifest("core/wire", "[dependencies]\ns = { package = \"serde\" }"), not_serde);
        assert_eq!(manifest("core/wire", "[target.'cfg(unix)'.dependencies]\nserde = \"1\""), not_serde);
        assert_eq!(manifest("core/wire", "\n[dependencies.serde]\nversion = \"1\"").len(), 2);
        assert_eq!(manifest("core/wire", "[dev-dependencies]\nserde = \"1\""), [""; 0]);
        assert_eq!(manifest("core/wire", "[dependencies]\n# serde = \"1\"\nbytes = \"1\""), [""; 0]);
        assert_eq!(
            manifest("core/raft", "")[0],
            "core/raft/Cargo.toml:1: no list of allowed dependencies for this crate"
        );
    }

    #[test]
    fn an_arrow_that_points_the_wrong_way() {
        assert_eq!(
            manifest("core/paxos", "[dependencies]\nkumo-session.workspace = true"),
            ["core/paxos/Cargo.toml:4: core/paxos may not depend on kumo-session"]
        );
        assert_eq!(
            manifest("client", "[dependencies]\nkumo-node.workspace = true"),
            ["client/Cargo.toml:4: a client knows the protocol, not the node"]
        );
        assert_eq!(
            manifest("lab/sim", "[dev-dependencies]\ntokio = { workspace = true }"),
            ["lab/sim/Cargo.toml:4: lab/sim may not know tokio"]
        );
        assert_eq!(manifest("edge/node", "[dependencies]\ntokio.workspace = true"), [""; 0]);
    }

    #[test]
    fn a_product_with_the_unsafe_rules_in_it() {
        let line = "[dependencies]\nkumo-paxos = { workspace = true, features = [\"mutants\"] }";
        assert_eq!(manifest("edge/node", line).len(), 1);
        assert_eq!(manifest("lab/sim", line), [""; 0]);
        assert_eq!(manifest("kumo", "[dependencies]\nsim = { path = \"../lab/sim\" }").len(), 1);
        assert_eq!(manifest("kumo", "[dependencies]\nlot.workspace = true"), [""; 0]);
    }

    #[test]
    fn a_crate_without_the_lints() {
        let complaints = shown(manifest_complaints("kumo/Cargo.toml", "[package]\nname = \"kumo\"\n"));
        assert_eq!(complaints, ["kumo/Cargo.toml:1: does not take the workspace's lints"]);
    }

    #[test]
    fn members_and_crates_that_differ() {
        let workspace = "[workspace]\nmembers = [\n    \"core/wire\",\n    \"core/gone\",\n]\n";
        let complaints = member_complaints(workspace, &["core/wire".into(), "edge/new".into()]);
        assert_eq!(
            shown(complaints),
            ["Cargo.toml:4: member core/gone is not there", "Cargo.toml:2: edge/new is not a member"]
        );
    }

    #[test]
    fn a_document_that_names_what_is_gone() {
        let text =
            "See `core/a.rs` and\n[the map](map.md#top), [the web](https://kumo.example/x.md), `b/c.rs`.\n";
        let complaints = document_complaints("docs/a.md", text, |path| path == "core/a.rs");
        assert_eq!(
            shown(complaints),
            [
                "docs/a.md:2: names b/c.rs, which is not there",
                "docs/a.md:2: names docs/map.md, which is not there"
            ]
        );
    }

    #[test]
    fn a_message_that_the_document_misses() {
        let source = "\nwire_enum!(Message {\n    1 = Collect { round },\n    2 = Last(last),\n});\n";
        let missing =
            |document: &str| shown(table_complaints("m.rs", source, "Message", "docs/protocol.md", document));
        assert_eq!(
            missing("# P\n\n## A `Message`\n\n| 1 | Collect | round | x |\n| 2 | Last | x |\n"),
            [""; 0]
        );
        assert_eq!(
            missing("# P\n\n## A `Message`\n\n| 1 | Collect | from | x |\n\n## B\n\n| 2 | Last | x |\n"),
            [
                "m.rs:3: docs/protocol.md has no row `| 1 | Collect | round |` below `Message`",
                "m.rs:4: docs/protocol.md has no row `| 2 | Last |` below `Message`",
            ]
        );
        assert_eq!(table_complaints("m.rs", "", "Message", "d.md", "").len(), 1);
        assert_eq!(table_complaints("m.rs", "wire_enum!(Other {\n});\n", "Other", "d.md", "").len(), 1);
    }
}
