//! [`Layers`]: for one process, which options were given where.

use super::file::File;
use super::nearest::nearest;
use super::role::Role;
use super::{FILE, FILE_VARIABLE};
use crate::failure::Failure;
use crate::store::misused;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, Command};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use toml::Value;

/// Where a value came from, the strongest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    Flag,
    /// The variable.
    Environment(String),
    File(PathBuf),
}

pub struct Layers {
    /// By long name.
    given: BTreeMap<String, Given>,
}

struct Given {
    source: Source,
    /// As one would type it; nothing for what was typed.
    arguments: Vec<OsString>,
}

impl Layers {
    /// `arguments` are the typed ones, the first being the process's name.
    pub fn of(role: Role, command: &Command, arguments: &[OsString]) -> Result<Layers, Failure> {
        let environment =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
        // One that is empty is how scripts unset a variable.
        let environment = environment.filter(|(_, value)| !value.is_empty()).collect();
        Layers::within(role, command, arguments, &environment)
    }

    fn within(
        role: Role,
        command: &Command,
        arguments: &[OsString],
        environment: &BTreeMap<String, OsString>,
    ) -> Result<Layers, Failure> {
        let none = Layers { given: BTreeMap::new() };
        // What is wrong with them is said when they are read for good; nothing can be added to a call for help.
        let Ok(typed) = command.clone().ignore_errors(true).try_get_matches_from(arguments) else {
            return Ok(none);
        };
        let path = typed.get_one::<PathBuf>(FILE).cloned();
        let path = path.or_else(|| environment.get(FILE_VARIABLE).map(PathBuf::from));
        let file = path.map(|path| File::read(&path)).transpose()?;
        let section = file.as_ref().and_then(|file| Some((file, file.section(role)?)));
        let options = role.options(command);
        check_variables(role, &options, environment)?;
        let mut layers = none;
        for (key, arg) in options {
            if typed.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine) {
                layers.add(key, Source::Flag, Vec::new());
            } else if let Some((variable, value)) = variable_of(role, key, arg, environment) {
                let source = Source::Environment(variable);
                let arguments = from_text(key, arg, value).map_err(|why| said(&source, key, &why))?;
                layers.add_checked(key, source, arguments, command)?;
            } else if let Some((file, value)) =
                section.and_then(|(file, section)| Some((file, section.get(key)?)))
            {
                let source = Source::File(file.path.clone());
                let arguments = from_value(key, arg, value).map_err(|why| said(&source, key, &why))?;
                layers.add_checked(key, source, arguments, command)?;
            }
        }
        layers.yield_to_conflicts(role, command);
        Ok(layers)
    }

    /// The options of a role's section alone, as one would type them, but for some.
    pub fn of_section(
        role: Role,
        command: &Command,
        path: &Path,
        but: &[&str],
    ) -> Result<Vec<OsString>, Failure> {
        let file = File::read(path)?;
        let mut layers = Layers { given: BTreeMap::new() };
        for (key, arg) in role.options(command).into_iter().filter(|(key, _)| !but.contains(key)) {
            let Some(value) = file.section(role).and_then(|section| section.get(key)) else { continue };
            let source = Source::File(file.path.clone());
            let arguments = from_value(key, arg, value).map_err(|why| said(&source, key, &why))?;
            layers.add_checked(key, source, arguments, command)?;
        }
        Ok(layers.complete(&[]))
    }

    /// Puts what was not typed before what was.
    pub fn complete(&self, arguments: &[OsString]) -> Vec<OsString> {
        let (name, typed) = arguments.split_at(arguments.len().min(1));
        let added = self.given.values().flat_map(|given| &given.arguments);
        name.iter().chain(added).chain(typed).cloned().collect()
    }

    pub fn source(&self, key: &str) -> Option<&Source> {
        self.given.get(key).map(|given| &given.source)
    }

    fn add(&mut self, key: &str, source: Source, arguments: Vec<OsString>) {
        self.given.insert(key.to_owned(), Given { source, arguments });
    }

    /// An error must say where the value is written.
    fn add_checked(
        &mut self,
        key: &str,
        source: Source,
        arguments: Vec<OsString>,
        command: &Command,
    ) -> Result<(), Failure> {
        let alone = std::iter::once(OsString::from(command.get_name())).chain(arguments.iter().cloned());
        match command.clone().try_get_matches_from(alone) {
            Err(error) if error.kind() != ErrorKind::MissingRequiredArgument => {
                match misused(command.get_name(), &error) {
                    Failure::Line(line, _) => Err(said(&source, key, &line)),
                    other => Err(other),
                }
            }
            Ok(_) | Err(_) => {
                self.add(key, source, arguments);
                Ok(())
            }
        }
    }

    /// Of two that exclude each other the stronger stands: `--memory` is typed against a file's `data`. Of two that are
    /// equally strong clap complains.
    fn yield_to_conflicts(&mut self, role: Role, command: &Command) {
        let mut yielding = Vec::new();
        for (key, arg) in role.options(command) {
            for other in command.get_arg_conflicts_with(arg).into_iter().filter_map(Arg::get_long) {
                let (Some(one), Some(two)) = (self.given.get(key), self.given.get(other)) else { continue };
                match one.rank().cmp(&two.rank()) {
                    std::cmp::Ordering::Less => yielding.push(other.to_owned()),
                    std::cmp::Ordering::Greater => yielding.push(key.to_owned()),
                    std::cmp::Ordering::Equal => {}
                }
            }
        }
        yielding.iter().for_each(|key| drop(self.given.remove(key)));
    }
}

impl Given {
    fn rank(&self) -> u8 {
        match self.source {
            Source::Flag => 0,
            Source::Environment(_) => 1,
            Source::File(_) => 2,
        }
    }
}

fn said(source: &Source, key: &str, why: &str) -> Failure {
    Failure::usage(match source {
        Source::Flag => format!("--{key}: {why}"),
        Source::Environment(variable) => format!("{variable}: {why}"),
        Source::File(path) => format!("{}: {key}: {why}", path.display()),
    })
}

/// The role's own variable, or one that the option has for all roles.
fn variable_of<'a>(
    role: Role,
    key: &str,
    arg: &Arg,
    environment: &'a BTreeMap<String, OsString>,
) -> Option<(String, &'a OsString)> {
    let shared = arg.get_env().and_then(OsStr::to_str).map(str::to_owned);
    let names = std::iter::once(role.variable(key)).chain(shared);
    names.into_iter().find_map(|name| environment.get(&name).map(|value| (name, value)))
}

/// A variable that is nearly an option's is a slip. Others of such names are not ours: Kubernetes makes
/// `KUMO_SERVER_SERVICE_HOST` up for a service that is called kumo-server.
fn check_variables(
    role: Role,
    options: &[(&str, &Arg)],
    environment: &BTreeMap<String, OsString>,
) -> Result<(), Failure> {
    let known: Vec<String> = options.iter().map(|(key, _)| role.variable(key)).collect();
    let start = role.variables();
    for name in environment.keys().filter(|name| name.starts_with(&start) && !known.contains(name)) {
        let names = known.iter().map(|name| &name[start.len()..]);
        if let Some(meant) = nearest(&name[start.len()..], names) {
            return Err(Failure::usage(format!("unknown variable {name}; did you mean {start}{meant}?")));
        }
    }
    Ok(())
}

/// As it stands in a variable.
fn from_text(key: &str, arg: &Arg, value: &OsStr) -> Result<Vec<OsString>, String> {
    let text = || value.to_str().ok_or_else(|| "not UTF-8".to_owned());
    match arg.get_action() {
        ArgAction::SetTrue => match text()? {
            "true" | "1" => from_value(key, arg, &Value::Boolean(true)),
            "false" | "0" => from_value(key, arg, &Value::Boolean(false)),
            _ => Err("true or false is wanted".to_owned()),
        },
        ArgAction::Count => match text()?.parse() {
            Ok(count) => from_value(key, arg, &Value::Integer(count)),
            Err(_) => Err("a number is wanted".to_owned()),
        },
        ArgAction::Append => {
            Ok(text()?.split(',').map(|part| option(key, OsStr::new(part.trim()))).collect())
        }
        _one => Ok(vec![option(key, value)]),
    }
}

/// As it stands in a file.
fn from_value(key: &str, arg: &Arg, value: &Value) -> Result<Vec<OsString>, String> {
    match (arg.get_action(), value) {
        (ArgAction::SetTrue, Value::Boolean(true)) => Ok(vec![format!("--{key}").into()]),
        (ArgAction::SetTrue, Value::Boolean(false)) => Ok(Vec::new()),
        (ArgAction::SetTrue, _) => Err("true or false is wanted".to_owned()),
        (ArgAction::Count, Value::Integer(count)) => match u8::try_from(*count) {
            Ok(count) => Ok(vec![format!("--{key}").into(); usize::from(count)]),
            Err(_) => Err("a number up to 255 is wanted".to_owned()),
        },
        (ArgAction::Count, _) => Err("a number is wanted".to_owned()),
        (ArgAction::Append, Value::Array(values)) => {
            values.iter().map(|value| Ok(option(key, OsStr::new(&scalar(value)?)))).collect()
        }
        (_one, value) => Ok(vec![option(key, OsStr::new(&scalar(value)?))]),
    }
}

fn scalar(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Integer(number) => Ok(number.to_string()),
        Value::Float(number) => Ok(number.to_string()),
        Value::Boolean(yes) => Ok(yes.to_string()),
        Value::Datetime(_) | Value::Array(_) | Value::Table(_) => Err("one value is wanted".to_owned()),
    }
}

fn option(key: &str, value: &OsStr) -> OsString {
    let mut argument = OsString::from(format!("--{key}="));
    argument.push(value);
    argument
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Case {
        file: &'static str,
        environment: &'static [(&'static str, &'static str)],
        typed: &'static [&'static str],
    }

    impl Case {
        fn layers(&self, role: Role) -> Result<(Layers, Vec<String>), Failure> {
            let (process, thread) = (std::process::id(), std::thread::current().id());
            let path = std::env::temp_dir().join(format!("kumo-layers-{process}-{thread:?}.toml"));
            std::fs::write(&path, self.file).unwrap();
            let mut environment: BTreeMap<String, OsString> = self
                .environment
                .iter()
                .map(|(name, value)| ((*name).to_owned(), OsString::from(value)))
                .collect();
            environment.insert(FILE_VARIABLE.to_owned(), path.clone().into_os_string());
            let typed: Vec<OsString> =
                std::iter::once(&"kumo").chain(self.typed).map(OsString::from).collect();
            let layers = Layers::within(role, &role.command_line(), &typed, &environment);
            std::fs::remove_file(&path).unwrap();
            let layers = layers?;
            let added: Vec<String> = layers
                .given
                .values()
                .flat_map(|given| {
                    given.arguments.iter().map(|argument| argument.to_str().unwrap().to_owned())
                })
                .collect();
            Ok((layers, added))
        }

        fn added(&self, role: Role) -> Vec<String> {
            self.layers(role).unwrap().1
        }

        fn refused(&self, role: Role) -> String {
            match self.layers(role) {
                Err(Failure::Line(line, 2)) => line,
                other => panic!("{:?}", other.map(|(_, added)| added)),
            }
        }
    }

    #[test]
    fn flags_come_before_variables_before_the_file() {
        let case = Case {
            file: "[server]\nlisten = 'file'\nmanager = 'file'\nmin-copies = 3\nsync = 'always'\n[gateway]\nget-retry = 9\n",
            environment: &[
                ("KUMO_SERVER_MANAGER", "variable"),
                ("KUMO_SERVER_LISTEN", "variable"),
                ("KUMO_SERVER_SERVICE_HOST", "10.0.0.1"),
            ],
            typed: &["-l", "typed"],
        };
        assert_eq!(case.added(Role::Server), ["--manager=variable", "--min-copies=3", "--sync=always"]);
        let (layers, _) = case.layers(Role::Server).unwrap();
        assert_eq!(layers.source("listen"), Some(&Source::Flag));
        assert_eq!(layers.source("manager"), Some(&Source::Environment("KUMO_SERVER_MANAGER".to_owned())));
        assert!(matches!(layers.source("sync"), Some(Source::File(_))));
        assert_eq!(layers.source("store"), None);
        let completed = layers.complete(&["kumo-server", "-l", "typed"].map(OsString::from));
        assert_eq!(completed[0], "kumo-server");
        assert_eq!(completed[completed.len() - 2..], ["-l", "typed"]);
    }

    #[test]
    fn every_kind_of_option_can_be_written() {
        let file = "[manager]\npartner = ['a', 'b']\nauto-replace = true\nverbose = 2\nlease = 1.5\nmemory = false\n";
        let case = Case { file, environment: &[], typed: &[] };
        let written =
            ["--auto-replace", "--lease=1.5", "--partner=a", "--partner=b", "--verbose", "--verbose"];
        assert_eq!(case.added(Role::Manager), written);
        let environment = &[
            ("KUMO_MANAGER_PARTNER", "a, b"),
            ("KUMO_MANAGER_AUTO_REPLACE", "1"),
            ("KUMO_MANAGER_VERBOSE", "2"),
            ("KUMO_MANAGER_LEASE", "1.5"),
            ("KUMO_MANAGER_MEMORY", "false"),
        ];
        let case = Case { file: "", environment, typed: &[] };
        assert_eq!(case.added(Role::Manager), written);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        for (file, environment, line) in [
            ("[manager]\nunit = 1", &[][..], ".toml: unit: invalid value '1' for '--unit <MILLISECONDS>'"),
            ("[manager]\nunit = [1]", &[], ".toml: unit: one value is wanted"),
            ("[manager]\nmemory = 'yes'", &[], ".toml: memory: true or false is wanted"),
            ("", &[("KUMO_MANAGER_UNIT", "soon")], "KUMO_MANAGER_UNIT: invalid value 'soon'"),
            ("", &[("KUMO_MANAGER_MEMORY", "soon")], "KUMO_MANAGER_MEMORY: true or false is wanted"),
            (
                "",
                &[("KUMO_MANAGER_LISTN", "x")],
                "unknown variable KUMO_MANAGER_LISTN; did you mean KUMO_MANAGER_LISTEN?",
            ),
        ] {
            let said = Case { file, environment, typed: &[] }.refused(Role::Manager);
            assert!(said.contains(line) && !said.contains('\n'), "{said}");
        }
    }

    #[test]
    fn of_two_that_exclude_each_other_the_stronger_stands() {
        let case = Case { file: "[manager]\nmemory = true", environment: &[], typed: &["--data", "x"] };
        assert!(case.added(Role::Manager).is_empty());
        let case = Case { file: "[manager]\ndata = 'x'", environment: &[], typed: &["--memory"] };
        assert!(case.added(Role::Manager).is_empty());
        let case = Case {
            file: "[manager]\ndata = 'x'",
            environment: &[("KUMO_MANAGER_MEMORY", "true")],
            typed: &[],
        };
        assert_eq!(case.added(Role::Manager), ["--memory"]);
    }

    #[test]
    fn a_call_for_help_is_answered_whatever_is_configured() {
        let case = Case { file: "[manager]\nbogus = 1", environment: &[], typed: &["--help"] };
        assert!(case.added(Role::Manager).is_empty());
    }
}
