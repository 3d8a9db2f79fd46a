//! The tree checker finds what it is for.

use super::*;
use crate::history::{Call, Ending};
use kumo_pfs::{Condition, DirectoryEntry, Place, Refusal, Stat};
use kumo_session::{SessionId, UnixMillis};

/// Calls one after another.
#[derive(Default)]
struct Script {
    history: History,
    now: u64,
    version: u64,
}

impl Script {
    fn call(&mut self, client: u32, call: Call, ending: Ending) -> &mut Script {
        let number = self.history.invoke(ClientNumber(client), call, self.now);
        self.history.finish(number, ending, self.now + 1);
        self.now += 2;
        self
    }

    fn command(&mut self, command: Command, reply: Reply) -> &mut Script {
        self.version += 1;
        self.call(1, Call::Command(command), Ending::Reply(reply))
    }

    fn write(
        &mut self,
        path: &str,
        text: &'static str,
        ephemeral: bool,
        ending: Option<Ending>,
    ) -> &mut Script {
        self.version += 1;
        let (count, version) = (text.len() as u64, self.version);
        let written = Ending::Reply(Reply::Written { count, version, length: count });
        let command = Command::Write {
            path: path.to_owned(),
            place: Place::Replace,
            data: text.into(),
            ephemeral,
            condition: Condition::Always,
        };
        self.call(1, Call::Command(command), ending.unwrap_or(written))
    }

    fn rename(&mut self, from: &str, to: &str) -> &mut Script {
        self.command(Command::Rename { from: from.to_owned(), to: to.to_owned() }, Reply::Done)
    }

    fn truncate(&mut self, path: &str, length: u64) -> &mut Script {
        self.command(Command::Truncate { path: path.to_owned(), length }, Reply::Done)
    }

    fn ask(&mut self, query: Query, reply: Reply) -> &mut Script {
        self.call(2, Call::Read { query, linear: true }, Ending::Reply(reply))
    }

    fn read(&mut self, path: &str, text: &'static str, version: u64) -> &mut Script {
        let query = Query::Read { path: path.to_owned(), offset: 0, length: 100 };
        self.ask(query, Reply::Data { bytes: text.into(), version })
    }

    fn absent(&mut self, path: &str) -> &mut Script {
        let query = Query::Read { path: path.to_owned(), offset: 0, length: 100 };
        self.ask(query, Reply::Refused(Refusal::NotFound(path.to_owned())))
    }

    /// The names in the root and their versions; all are files of two bytes.
    fn listed(&mut self, names: &[(&str, u64)]) -> &mut Script {
        let entry = |(name, version): &(&str, u64)| DirectoryEntry {
            name: (*name).to_owned(),
            stat: stat(2, *version),
        };
        let entries: Vec<_> = names.iter().map(entry).collect();
        let total = entries.len() as u64;
        let query = Query::ReadDir { path: "/t".to_owned(), index: 0, count: 100 };
        self.ask(query, Reply::Entries { entries, total })
    }

    fn verdict(&self) -> Verdict {
        check(&self.history, "/t", true, &[], &Truth::default())
    }
}

fn stat(length: u64, version: u64) -> Stat {
    let (created, modified) = (UnixMillis(0), UnixMillis(0));
    Stat { directory: false, length, version, created, modified, ephemeral: None }
}

fn script() -> Script {
    Script::default()
}

#[test]
fn what_was_renamed_is_there_and_no_longer_here() {
    script().write("/t/a", "aa", false, None).rename("/t/a", "/t/b").read("/t/b", "aa", 2).verdict().unwrap();
    let mut fine = script();
    fine.write("/t/a", "aa", false, None).rename("/t/a", "/t/b").absent("/t/a").listed(&[("b", 2)]);
    fine.verdict().unwrap();
    // The old name is left; the new one is not there; both are; the version is the one before.
    let renamed = || {
        let mut script = script();
        script.write("/t/a", "aa", false, None).rename("/t/a", "/t/b");
        script
    };
    renamed().read("/t/a", "aa", 1).verdict().unwrap_err();
    renamed().absent("/t/b").verdict().unwrap_err();
    renamed().listed(&[("a", 1), ("b", 2)]).verdict().unwrap_err();
    renamed().read("/t/b", "aa", 1).verdict().unwrap_err();
}

#[test]
fn a_directory_takes_along_what_is_in_it() {
    let renamed = || {
        let mut script = script();
        script.write("/t/d/a", "aa", false, None).rename("/t/d", "/t/b");
        script
    };
    renamed().read("/t/b/a", "aa", 1).absent("/t/d/a").verdict().unwrap();
    renamed().read("/t/d/a", "aa", 1).verdict().unwrap_err();
}

#[test]
fn a_truncate_is_made_once_and_by_its_length() {
    let cut = || {
        let mut script = script();
        script.write("/t/a", "abcd", false, None).truncate("/t/a", 2);
        script
    };
    cut().read("/t/a", "ab", 2).verdict().unwrap();
    cut().read("/t/a", "abc", 2).verdict().unwrap_err();
    cut().write("/t/a", "efgh", false, None).read("/t/a", "ef", 4).verdict().unwrap_err();
}

#[test]
fn refusals_must_be_those_that_there_are() {
    let mkdir = |reply| {
        let mut script = script();
        script.command(Command::Mkdir { path: "/t/d".to_owned() }, Reply::Done);
        script.command(Command::Mkdir { path: "/t/d".to_owned() }, reply).verdict()
    };
    mkdir(Reply::Refused(Refusal::Exists("/t/d".to_owned()))).unwrap();
    mkdir(Reply::Done).unwrap_err();
    let rmdir = |reply| {
        let mut script = script();
        script.write("/t/d/a", "aa", false, None);
        script.command(Command::Rmdir { path: "/t/d".to_owned() }, reply).verdict()
    };
    rmdir(Reply::Refused(Refusal::NotEmpty("/t/d".to_owned()))).unwrap();
    rmdir(Reply::Done).unwrap_err();
}

#[test]
fn an_unknown_rename_may_come_late_or_never_but_not_twice() {
    let perhaps = || {
        let mut script = script();
        let rename = Command::Rename { from: "/t/a".to_owned(), to: "/t/b".to_owned() };
        script.write("/t/a", "aa", false, None).call(3, Call::Command(rename), Ending::Unknown);
        script
    };
    perhaps().read("/t/a", "aa", 1).verdict().unwrap();
    perhaps().read("/t/a", "aa", 1).read("/t/b", "aa", 2).verdict().unwrap();
    perhaps().read("/t/b", "aa", 2).read("/t/a", "aa", 1).verdict().unwrap_err();
    perhaps().read("/t/b", "aa", 2).write("/t/a", "xx", false, None).absent("/t/a").verdict().unwrap_err();
}

#[test]
fn an_ephemeral_file_goes_with_its_session_wherever_it_is() {
    let ephemeral = || {
        let mut script = script();
        script.write("/t/a", "aa", true, None).rename("/t/a", "/t/b");
        script
    };
    ephemeral().absent("/t/b").verdict().unwrap();
    ephemeral().absent("/t/b").read("/t/b", "aa", 2).verdict().unwrap_err();
    let seen = Stat { ephemeral: Some(SessionId(1)), ..stat(2, 2) };
    let look = |stat| ephemeral().ask(Query::Stat { path: "/t/b".to_owned() }, Reply::Stat(stat)).verdict();
    look(seen).unwrap();
    look(stat(2, 2)).unwrap_err();
    // A file that lasts does not go.
    script().write("/t/a", "aa", false, None).absent("/t/a").verdict().unwrap_err();
}

#[test]
fn what_is_found_at_last_is_what_was_done() {
    let mut script = script();
    script.write("/t/a", "aa", false, None).write("/t/b", "bb", false, Some(Ending::Unknown));
    let nothing = Truth::default();
    let query = |path: &str| Query::Read { path: path.to_owned(), offset: 0, length: 100 };
    let there = (query("/t/a"), Reply::Data { bytes: "aa".into(), version: 1 });
    let gone = (query("/t/a"), Reply::Refused(Refusal::NotFound("/t/a".to_owned())));
    let late = (query("/t/b"), Reply::Data { bytes: "bb".into(), version: 9 });
    check(&script.history, "/t", false, &[there.clone(), late], &nothing).unwrap();
    check(&script.history, "/t", false, &[there, gone], &nothing).unwrap_err();
}
