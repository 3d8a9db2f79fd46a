//! `kumo links`: the binary's other names.

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

/// Which of its names the binary was called by, if not `kumo` with a command of its own; and the arguments from that
/// name on.
pub fn called_as(arguments: &[OsString]) -> Option<(Name, &[OsString])> {
    let own = Path::new(arguments.first()?).file_name()?;
    if let Some((_, _, name)) = NAMES.iter().find(|(name, ..)| own == *name) {
        return Some((*name, arguments));
    }
    let command = arguments.get(1)?.to_str()?;
    let found = NAMES.iter().find(|(name, short, _)| command == *name || Some(command) == *short)?;
    Some((found.2, &arguments[1..]))
}

pub fn write(folder: &Path, out: Out) -> Result<(), Failure> {
    let binary = std::env::current_exe()
        .map_err(|error| Failure::refused(format!("cannot find this binary: {error}")))?;
    let mut links = Vec::new();
    for (name, ..) in NAMES {
        let link = folder.join(name);
        place(&binary, &link)
            .map_err(|error| Failure::refused(format!("cannot write {}: {error}", link.display())))?;
        links.push(link.display().to_string());
    }
    out.result(json!({ "links": links }), || links.join("\n"))
}

/// An older link is replaced; anything else of that name is left alone.
fn place(binary: &Path, link: &Path) -> std::io::Result<()> {
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
    }
}
