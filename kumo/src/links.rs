//! The binary's other names, and `kumo links`, which writes them beside its own.

use crate::failure::Failure;
use crate::output::Out;
use serde_json::json;
use std::ffi::OsString;
use std::os::unix::fs::symlink;
use std::path::Path;

/// A name under which the binary is something else than `kumo`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    Cell,
    Manager,
    Server,
    Gateway,
    Kumoctl,
    Kumostat,
    Kumotop,
    Kumohash,
    Kumolog,
    Kumomergedb,
}

/// Every other name, and the command of `kumo` that is the same thing. `kumo cell` is an operator's tool of its own.
const NAMES: &[(&str, Option<&str>, Name)] = &[
    ("kumo-cell", None, Name::Cell),
    ("kumo-manager", Some("manager"), Name::Manager),
    ("kumo-server", Some("server"), Name::Server),
    ("kumo-gateway", Some("gateway"), Name::Gateway),
    ("kumoctl", Some("ctl"), Name::Kumoctl),
    ("kumostat", Some("stat"), Name::Kumostat),
    ("kumotop", Some("top"), Name::Kumotop),
    ("kumohash", Some("hash"), Name::Kumohash),
    ("kumolog", Some("log"), Name::Kumolog),
    ("kumomergedb", Some("mergedb"), Name::Kumomergedb),
];

/// Which of its names the binary was called by, if not `kumo` with a command of its own; and the arguments of that
/// name, itself first. Options of kumo that stand before it go to it: it takes them, or says that it does not.
pub fn called_as(arguments: &[OsString]) -> Option<(Name, Vec<OsString>)> {
    let own = Path::new(arguments.first()?).file_name()?;
    if let Some((_, _, name)) = NAMES.iter().find(|(name, ..)| own == *name) {
        return Some((*name, arguments.to_vec()));
    }
    let before = options(&arguments[1..]);
    let (before, rest) = arguments[1..].split_at(before);
    if rest.first().is_some_and(|first| first == "help") {
        let (name, called) = program(rest.get(1)?)?;
        // As its own --help: kumo's options are not its options. Commands of kumoctl stand behind an address.
        let address = (name == Name::Kumoctl && rest.len() > 2).then(|| OsString::from("ADDR"));
        let below = address.into_iter().chain(rest[2..].iter().cloned());
        return Some((name, [called].into_iter().chain(below).chain(["--help".into()]).collect()));
    }
    let (name, called) = program(rest.first()?)?;
    Some((name, [&[called], before, &rest[1..]].concat()))
}

fn program(argument: &OsString) -> Option<(Name, OsString)> {
    let found = NAMES
        .iter()
        .find(|(name, short, _)| argument == *name || short.is_some_and(|short| argument == short))?;
    Some((found.2, argument.clone()))
}

/// How many of these are options of kumo, which may stand before a command, and their values.
fn options(arguments: &[OsString]) -> usize {
    let mut count = 0;
    while let Some(text) = arguments.get(count).and_then(|argument| argument.to_str()) {
        let (option, with_value) = text.split_once('=').map_or((text, false), |(option, _)| (option, true));
        count += match option {
            "--any" => 1,
            "--cell" | "--format" | "--patience" if with_value => 1,
            "--cell" | "--format" | "--patience" => 2,
            _other => break,
        };
    }
    count.min(arguments.len())
}

pub fn write(folder: &Path, out: Out) -> Result<(), Failure> {
    let binary = std::env::current_exe()
        .map_err(|error| Failure::refused(format!("cannot find this binary: {error}")))?;
    std::fs::create_dir_all(folder)
        .map_err(|error| Failure::refused(format!("cannot write to {}: {error}", folder.display())))?;
    let mut links = Vec::new();
    for name in std::iter::once("kumo").chain(NAMES.iter().map(|(name, ..)| *name)) {
        let link = folder.join(name);
        place(&binary, &link)
            .map_err(|error| Failure::refused(format!("cannot write {}: {error}", link.display())))?;
        links.push(link.display().to_string());
    }
    out.result(json!({ "links": links }), || links.join("\n"))
}

/// An older link is replaced; anything else of that name is left alone. So is the binary itself, where it was put into
/// that folder under its own name, and what leads to it already.
fn place(binary: &Path, link: &Path) -> std::io::Result<()> {
    if std::fs::canonicalize(link).is_ok_and(|found| found == binary) {
        return Ok(());
    }
    if std::fs::symlink_metadata(link).is_ok_and(|found| found.is_symlink()) {
        std::fs::remove_file(link)?;
    }
    symlink(binary, link)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn called(arguments: &[&str]) -> Option<(Name, usize)> {
        let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        called_as(&arguments).map(|(name, rest)| (name, rest.len()))
    }

    #[test]
    fn a_name_and_a_command_are_the_same_thing() {
        assert_eq!(called(&["/usr/bin/kumo-server", "-v"]), Some((Name::Server, 2)));
        assert_eq!(called(&["kumo", "server", "-v"]), Some((Name::Server, 2)));
        assert_eq!(called(&["kumo", "kumoctl", "localhost", "stat"]), Some((Name::Kumoctl, 3)));
        assert_eq!(called(&["kumo", "stat"]), Some((Name::Kumostat, 1)));
        assert_eq!(called(&["kumo", "cell", "-l", "localhost"]), None);
        assert_eq!(called(&["kumo"]), None);
        assert_eq!(called(&["kumo", "--format"]), None);
        assert_eq!(called(&["kumo", "--format", "json", "fs", "ls"]), None);
        assert_eq!(called(&["kumo", "help", "fs"]), None);
        let arguments = ["kumo", "--format", "json", "ctl", "localhost", "stat"].map(OsString::from);
        let (name, given) = called_as(&arguments).unwrap();
        assert_eq!(
            (name, given),
            (Name::Kumoctl, ["ctl", "--format", "json", "localhost", "stat"].map(OsString::from).to_vec())
        );
        let (name, given) = called_as(&["kumo", "help", "manager"].map(OsString::from)).unwrap();
        assert_eq!((name, given), (Name::Manager, ["manager", "--help"].map(OsString::from).to_vec()));
    }
}
