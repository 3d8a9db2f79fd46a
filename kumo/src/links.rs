//! `kumo links`: the binary's other names.

use crate::failure::Failure;
use crate::output::Out;
use serde_json::json;
use std::ffi::OsString;
use std::os::unix::fs::symlink;
use std::path::Path;

/// A name under which the binary is something else than `kumo`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Name {
    Cell,
    Manager,
    Server,
    Gateway,
    Kumoctl,
}

const NAMES: &[(&str, Name)] = &[
    ("kumo-cell", Name::Cell),
    ("kumo-manager", Name::Manager),
    ("kumo-server", Name::Server),
    ("kumo-gateway", Name::Gateway),
    ("kumoctl", Name::Kumoctl),
];

/// Which of its names the binary was called by, if not `kumo`.
pub fn called_as(arguments: &[OsString]) -> Option<Name> {
    let own = Path::new(arguments.first()?).file_name()?;
    NAMES.iter().find(|(name, _)| own == *name).map(|(_, name)| *name)
}

pub fn write(folder: &Path, out: Out) -> Result<(), Failure> {
    let binary = std::env::current_exe()
        .map_err(|error| Failure::refused(format!("cannot find this binary: {error}")))?;
    let mut links = Vec::new();
    for (name, _) in NAMES {
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
