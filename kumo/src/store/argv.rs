//! The seed's spelling of options: two letters behind one dash (`-Ci 0.5`), long names behind one (`-auto-replace`).

use clap::Command;
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
    ("--renew-threashold", "--renew-threshold"),
];

/// The arguments as clap reads them.
pub fn rewrite(command: &Command, arguments: &[OsString]) -> Vec<OsString> {
    let mut literal = false;
    let rewritten = arguments.iter().map(|argument| {
        let Some(text) = argument.to_str().filter(|_| !literal) else { return argument.clone() };
        literal |= text == "--";
        match LETTERS.iter().find(|(letters, _)| *letters == text) {
            Some((_, long)) => (*long).into(),
            None => one_dash(command, text).unwrap_or_else(|| argument.clone()),
        }
    });
    rewritten.collect()
}

/// `-auto-replace` for `--auto-replace`, if there is an option of that name.
fn one_dash(command: &Command, text: &str) -> Option<OsString> {
    let name = text.strip_prefix('-').filter(|name| name.len() > 2 && !name.starts_with('-'))?;
    let (name, value) = name.split_once('=').map_or((name, None), |(name, value)| (name, Some(value)));
    let known = command.get_arguments().any(|argument| argument.get_long() == Some(name));
    if !known && name != "help" && name != "version" {
        return None;
    }
    Some(match value {
        Some(value) => format!("--{name}={value}").into(),
        None => format!("--{name}").into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
