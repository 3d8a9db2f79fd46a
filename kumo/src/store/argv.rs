//! The seed's spelling of options: two letters behind one dash (`-Ci 0.5`), long names behind one (`-auto-replace`).

use clap::{Arg, Command};
use std::ffi::OsString;

/// The seed's two-letter options and their long names. An exact table: nothing else begins with them.
const LETTERS: &[(&str, &str)] = &[
    ("-Ci", "--clock-interval"),
    ("-Ys", "--connect-timeout"),
    ("-Yn", "--connect-retry-limit"),
    ("-TR", "--read-threads"),
    ("-TW", "--write-threads"),
    ("-Rs", "--replace-delay"),
    ("-gN", "--garbage-min-time"),
    ("-gX", "--garbage-max-time"),
    ("-gS", "--garbage-mem-limit"),
    ("-As", "--async-replicate-set"),
    ("-Ad", "--async-replicate-delete"),
    ("-rn", "--renew-threshold"),
];

/// The arguments as clap reads them.
pub fn rewrite(command: &Command, arguments: &[OsString]) -> Vec<OsString> {
    let mut literal = false;
    let rewritten = arguments.iter().map(|argument| {
        let Some(text) = argument.to_str().filter(|_| !literal) else { return argument.clone() };
        literal |= text == "--";
        let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
        match (long(command, name), value) {
            (Some(long), Some(value)) => format!("{long}={value}").into(),
            (Some(long), None) => long.into(),
            (None, _) => argument.clone(),
        }
    });
    rewritten.collect()
}

/// The name behind two dashes of what has one here, if there is such an option.
fn long(command: &Command, text: &str) -> Option<String> {
    if let Some((_, long)) = LETTERS.iter().find(|(letters, _)| *letters == text) {
        return Some((*long).to_owned());
    }
    let name = text.strip_prefix('-').filter(|name| name.len() > 2 && !name.starts_with('-'))?;
    (name == "help" || name == "version" || takes(command, name)).then(|| format!("--{name}"))
}

/// Whether the command, or one below it, has a long option of that name.
fn takes(command: &Command, name: &str) -> bool {
    let named = |argument: &Arg| {
        argument.get_long() == Some(name)
            || argument.get_all_aliases().is_some_and(|aliases| aliases.contains(&name))
    };
    command.get_arguments().any(named) || command.get_subcommands().any(|below| takes(below, name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::parser::ValueSource;

    fn rewritten(arguments: &[&str]) -> Vec<OsString> {
        let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        rewrite(&crate::store::manager::command_line(), &arguments)
    }

    #[test]
    fn the_seeds_spelling_is_read() {
        assert_eq!(
            rewritten(&["kumo-manager", "-l", "localhost", "-Ci", "0.5", "-auto-replace", "-v"]),
            ["kumo-manager", "-l", "localhost", "--clock-interval", "0.5", "--auto-replace", "-v"]
        );
        assert_eq!(rewritten(&["kumo-manager", "-replace-delay=3"]), ["kumo-manager", "--replace-delay=3"]);
        assert_eq!(
            rewritten(&["kumo-manager", "-lhost", "--", "-Ci"]),
            ["kumo-manager", "-lhost", "--", "-Ci"]
        );
    }

    /// What the seed's manual and ours list: a letter or two, the long name, and a value if it takes one.
    type Spelling = (&'static str, &'static str, &'static str);

    const COMMON: &[Spelling] = &[
        ("-o", "log", "kumo.log"),
        ("-g", "binary-log", "kumo.mpac"),
        ("-d", "daemon", "kumo.pid"),
        ("-v", "verbose", ""),
        ("-Ci", "clock-interval", "0.25"),
        ("-Ys", "connect-timeout", "1.5"),
        ("-Yn", "connect-retry-limit", "3"),
        ("-k", "keep-alive-interval", "1"),
        ("", "connect-timeout-steps", "2"),
        ("-TR", "read-threads", "2"),
        ("-TW", "write-threads", "2"),
        ("", "linger", "0"),
        ("", "http", "off"),
        ("", "config", "kumo.toml"),
    ];

    const MANAGER: &[Spelling] = &[
        ("-l", "listen", "localhost"),
        ("-p", "partner", "localhost:19701"),
        ("-c", "control", "19798"),
        ("", "auto-replace", ""),
        ("-Rs", "replace-delay", "2"),
        ("", "data", "folder"),
        ("", "memory", ""),
        ("-u", "unit", "50"),
        ("", "lease", "2"),
    ];

    const SERVER: &[Spelling] = &[
        ("-l", "listen", "localhost"),
        ("-L", "stream-listen", "19901"),
        ("-m", "manager", "localhost"),
        ("-p", "partner", "localhost:19701"),
        ("-s", "store", "database1.tch"),
        ("", "sync", "always"),
        ("", "min-copies", "2"),
        ("-f", "offer-tmp", "folder"),
        ("-gN", "garbage-min-time", "30"),
        ("-gX", "garbage-max-time", "300"),
        ("-gS", "garbage-mem-limit", "2048"),
        ("-As", "async-replicate-set", ""),
        ("-Ad", "async-replicate-delete", ""),
    ];

    const GATEWAY: &[Spelling] = &[
        ("-m", "manager", "localhost"),
        ("-p", "partner", "localhost:19701"),
        ("-t", "memproto-text", "11211"),
        ("-b", "memproto-binary", "11212"),
        ("-F", "memproto-save-flag", ""),
        ("-E", "memproto-save-exptime", ""),
        ("-G", "get-retry", "3"),
        ("-S", "set-retry", "3"),
        ("-D", "delete-retry", "3"),
        ("-rn", "renew-threshold", "3"),
        ("", "renew-threashold", "3"),
        ("-As", "async-replicate-set", ""),
        ("-Ad", "async-replicate-delete", ""),
        ("", "key-prefix", "prefix"),
        ("", "max-value", "1000"),
        ("", "max-connections", "10"),
        ("", "allow-flush", ""),
        ("", "request-timeout", "10"),
    ];

    /// The ways to write it.
    fn ways((letters, long, value): Spelling) -> Vec<Vec<String>> {
        let names = [letters.to_owned(), format!("-{long}"), format!("--{long}")];
        let names = names.into_iter().filter(|name| !name.is_empty());
        let ways = |name: String| match value {
            "" => vec![vec![name]],
            value => vec![vec![format!("{name}={value}")], vec![name, value.to_owned()]],
        };
        names.flat_map(ways).collect()
    }

    #[test]
    fn every_option_is_read_in_each_of_its_spellings() {
        let programs = [
            (crate::store::manager::command_line(), MANAGER, &["--listen=localhost"][..]),
            (crate::store::server::command_line(), SERVER, &["--listen=localhost", "--manager=localhost"]),
            (crate::store::gateway::command_line(), GATEWAY, &["--manager=localhost", "--memproto-text=1"]),
        ];
        for (command, own, needed) in programs {
            for &spelling in own.iter().chain(COMMON) {
                let (_, long, value) = spelling;
                let needed = needed.iter().filter(|other| !other.starts_with(&format!("--{long}=")));
                let needed: Vec<String> = needed.map(ToString::to_string).collect();
                for way in ways(spelling) {
                    let given = [vec![command.get_name().to_owned()], way, needed.clone()].concat();
                    let arguments: Vec<OsString> = given.iter().map(OsString::from).collect();
                    let read = command.clone().try_get_matches_from(rewrite(&command, &arguments));
                    let read = read.unwrap_or_else(|error| panic!("{given:?}: {error}"));
                    let id = long.replace("threashold", "threshold").replace('-', "_");
                    let id = if id == "partner" { "partners" } else { &id };
                    assert_eq!(read.value_source(id), Some(ValueSource::CommandLine), "{given:?}");
                    let mut raw = read.get_raw(id).into_iter().flatten();
                    assert!(value.is_empty() || raw.next() == Some(value.as_ref()), "{given:?}");
                }
            }
        }
    }

    #[test]
    fn tools_read_long_options_behind_one_dash_too() {
        let arguments: Vec<OsString> =
            ["kumoctl", "localhost", "full-replace", "-wait", "-format=json"].map(OsString::from).to_vec();
        let rewritten = rewrite(&crate::store::kumoctl::command_line(), &arguments);
        assert_eq!(rewritten, ["kumoctl", "localhost", "full-replace", "--wait", "--format=json"]);
    }
}
