//! [`File`]: a configuration in TOML. Whatever it has that nobody knows is an error, in every section.

use super::nearest::nearest;
use super::role::Role;
use crate::failure::Failure;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

#[derive(Debug)]
pub struct File {
    pub path: PathBuf,
    sections: Table,
}

impl File {
    pub fn read(path: &Path) -> Result<File, Failure> {
        let cannot = |why: String| Failure::refused(format!("cannot read {}: {why}", path.display()));
        let file = fs::File::open(path).map_err(|error| cannot(error.to_string()))?;
        let mut text = String::new();
        let size = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text);
        match size {
            Ok(size) if size as u64 > FILE_BYTES_MAX => {
                Err(cannot(format!("it has more than {FILE_BYTES_MAX} bytes")))
            }
            Ok(_) => File::parse(path, &text),
            Err(error) => Err(cannot(error.to_string())),
        }
    }

    /// The values of a role's section, or of none.
    pub fn section(&self, role: Role) -> Option<&Table> {
        self.sections.get(role.name())?.as_table()
    }

    fn parse(path: &Path, text: &str) -> Result<File, Failure> {
        let bad = |why: String| Failure::usage(format!("{}: {why}", path.display()));
        let sections: Table = text.parse().map_err(|error: toml::de::Error| {
            let before = error.span().map_or("", |span| text.get(..span.start).unwrap_or(text));
            let line = before.matches('\n').count() + 1;
            bad(format!("line {line}: {}", error.message().replace('\n', " ")))
        })?;
        for (name, section) in &sections {
            check(name, section).map_err(bad)?;
        }
        Ok(File { path: path.to_owned(), sections })
    }
}

fn check(name: &str, section: &Value) -> Result<(), String> {
    let Some(role) = Role::ALL.into_iter().find(|role| role.name() == name) else {
        let roles = Role::ALL.map(Role::name);
        let what = if section.is_table() {
            format!("section [{name}]")
        } else {
            format!("key {name} outside a section")
        };
        let meant = match nearest(name, roles).filter(|_| section.is_table()) {
            Some(role) => format!("did you mean [{role}]?"),
            None => format!("there are [{}]", roles.join("], [")),
        };
        return Err(format!("unknown {what}; {meant}"));
    };
    let Some(section) = section.as_table() else {
        return Err(format!("{name} is a section: write [{name}]"));
    };
    let command = role.command_line();
    let keys: Vec<&str> = role.options(&command).into_iter().map(|(key, _)| key).collect();
    match section.keys().find(|key| !keys.contains(&key.as_str())) {
        None => Ok(()),
        Some(key) => {
            let meant = nearest(key, keys.iter().copied());
            let meant =
                meant.map_or(format!("see kumo config show {name}"), |key| format!("did you mean {key}?"));
            Err(format!("unknown key {key} in [{name}]; {meant}"))
        }
    }
}

/// Far more than all options of all roles.
const FILE_BYTES_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        match File::parse(Path::new("kumo.toml"), text) {
            Err(Failure::Line(line, 2)) => line,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn what_nobody_knows_is_an_error_with_a_suggestion() {
        for (text, line) in [
            ("[server]\nstroe = 'x'", "kumo.toml: unknown key stroe in [server]; did you mean store?"),
            (
                "[manager]\nstore = 'x'",
                "kumo.toml: unknown key store in [manager]; see kumo config show manager",
            ),
            ("[servr]\n", "kumo.toml: unknown section [servr]; did you mean [server]?"),
            ("server = 1", "kumo.toml: server is a section: write [server]"),
            (
                "[server]\ndetached = true",
                "kumo.toml: unknown key detached in [server]; see kumo config show server",
            ),
            (
                "[server]\nconfig = 'x'",
                "kumo.toml: unknown key config in [server]; see kumo config show server",
            ),
        ] {
            assert_eq!(refused(text), line);
        }
        assert!(
            refused("listen = 'x'")
                .starts_with("kumo.toml: unknown key listen outside a section; there are [manager]")
        );
        let line = refused("[server]\nlisten = = 3\n");
        assert!(line.starts_with("kumo.toml: line 2: ") && !line.contains('\n'), "{line}");
    }

    #[test]
    fn a_section_is_its_roles() {
        let file =
            File::parse(Path::new("kumo.toml"), "[server]\nlisten = 'x'\n[up]\nservers = 5\n").unwrap();
        assert_eq!(file.section(Role::Up).unwrap()["servers"].as_integer(), Some(5));
        assert!(file.section(Role::Manager).is_none());
    }
}
