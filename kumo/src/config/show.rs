//! `kumo config show`: every option of a process, its value, and where that came from.

use super::layers::{Layers, Source};
use super::nearest::nearest;
use super::role::Role;
use crate::failure::Failure;
use crate::output::{Format, Out, row, table};
use crate::store::misused;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::{Map, Value, json};
use std::ffi::OsString;

pub fn run(arguments: &[OsString], mut out: Out) -> Result<(), Failure> {
    let (roles, flags) = asked(arguments)?;
    let mut shown = Vec::new();
    for role in roles {
        let command = role.command_line();
        // What follows the role belongs to it, but for this one.
        let command = match role {
            Role::Up => command,
            Role::Manager | Role::Server | Role::Gateway | Role::Cell => command.arg(format_option()),
        };
        let own = crate::store::spelled(&command, flags);
        let own: Vec<OsString> = std::iter::once(command.get_name().into()).chain(own).collect();
        let layers = Layers::of(role, &command, &own)?;
        let (settings, format) = settings(role, &command, &layers, &own)?;
        if let Some(format) = format {
            out = Out::new(format);
        }
        shown.push((role, settings));
    }
    let value: Map<String, Value> = shown
        .iter()
        .map(|(role, settings)| {
            let fields: Map<String, Value> =
                settings.iter().map(|one| (one.key.clone(), one.json())).collect();
            (role.name().to_owned(), Value::Object(fields))
        })
        .collect();
    out.result(Value::Object(value), || {
        let sections = shown.iter().map(|(role, settings)| {
            let rows: Vec<_> = settings.iter().map(Setting::row).collect();
            format!("[{}]\n{}", role.name(), table(&rows))
        });
        sections.collect::<Vec<_>>().join("\n")
    })
}

/// Which roles, and the options behind them.
fn asked(arguments: &[OsString]) -> Result<(Vec<Role>, &[OsString]), Failure> {
    let first = arguments.first().and_then(|first| first.to_str()).unwrap_or("-");
    if first.starts_with('-') {
        return Ok((Role::ALL.to_vec(), arguments));
    }
    let Some(role) = Role::named(first) else {
        let roles = Role::ALL.map(Role::name);
        let meant = nearest(first, roles)
            .map_or(format!("there are {}", roles.join(", ")), |role| format!("did you mean {role}?"));
        return Err(Failure::usage(format!("unknown role {first}; {meant}")));
    };
    Ok((vec![role], &arguments[1..]))
}

fn format_option() -> Arg {
    Arg::new("format").long("format").value_parser(clap::value_parser!(Format)).global(true)
}

/// One option as the process would see it.
struct Setting {
    key: String,
    /// Nothing: it is not set.
    values: Option<Vec<String>>,
    list: bool,
    source: Option<Source>,
    required: bool,
}

fn settings(
    role: Role,
    command: &Command,
    layers: &Layers,
    own: &[OsString],
) -> Result<(Vec<Setting>, Option<Format>), Failure> {
    let completed = layers.complete(own);
    let judged = command.clone().try_get_matches_from(&completed);
    let missing = match &judged {
        Ok(_) => false,
        // It can be looked at all the same.
        Err(error) if error.kind() == ErrorKind::MissingRequiredArgument => true,
        Err(error) => return Err(misused(command.get_name(), error)),
    };
    let lenient = command.clone().ignore_errors(true).try_get_matches_from(&completed);
    let matches = lenient.map_err(|error| misused(command.get_name(), &error))?;
    let all = role.options(command).into_iter().map(|(key, arg)| Setting {
        key: key.to_owned(),
        values: values(arg, &matches),
        list: matches!(arg.get_action(), ArgAction::Append),
        source: layers.source(key).cloned(),
        required: missing && arg.is_required_set(),
    });
    let typed = matches.value_source("format") == Some(ValueSource::CommandLine);
    Ok((all.collect(), matches.get_one::<Format>("format").copied().filter(|_| typed)))
}

fn values(arg: &Arg, matches: &ArgMatches) -> Option<Vec<String>> {
    let id = arg.get_id().as_str();
    match arg.get_action() {
        ArgAction::Count => Some(vec![matches.get_count(id).to_string()]),
        ArgAction::SetTrue => Some(vec![matches.get_flag(id).to_string()]),
        _text => {
            let values = matches.get_raw(id)?;
            Some(values.map(|value| value.to_string_lossy().into_owned()).collect())
        }
    }
}

impl Setting {
    /// Whose value it is, and by which name.
    fn from(&self) -> (&'static str, Option<String>) {
        match (&self.source, &self.values) {
            (Some(Source::Flag), _) => ("flag", None),
            (Some(Source::Environment(name)), _) => ("environment", Some(name.clone())),
            (Some(Source::File(path)), _) => ("file", Some(path.display().to_string())),
            (None, Some(_)) => ("default", None),
            (None, None) => ("unset", None),
        }
    }

    fn json(&self) -> Value {
        let value = match &self.values {
            None => Value::Null,
            Some(values) if self.list => json!(values),
            Some(values) => json!(values.join(",")),
        };
        let (from, name) = self.from();
        json!({ "value": value, "from": from, "name": name })
    }

    fn row(&self) -> Vec<String> {
        let value = self.values.as_ref().map_or("-".to_owned(), |values| values.join(","));
        let (from, name) = self.from();
        let name = name.map_or(String::new(), |name| format!(" {name}"));
        let missing = if self.required && self.values.is_none() { ", but needed" } else { "" };
        row([&self.key, &value, &format!("{from}{name}{missing}")])
    }
}
