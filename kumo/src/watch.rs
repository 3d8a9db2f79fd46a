//! `kumo watch`: prints what happens to a directory, a file, a lock or a queue, or runs a command each time.

use crate::child::{self, Ended};
use crate::failure::Failure;
use crate::output::{Out, note, visible};
use crate::target::Target;
use clap::Args;
use pfs::{EntryChange, Event, Notice, QueueChange, Refusal, Resource, Session};
use serde_json::{Value, json};
use std::ffi::OsString;

/// Tell about changes as they happen
///
/// Of a directory: its entries created, updated and deleted; of a file: the same for itself. With a command, runs it
/// for each event with KUMO_EVENT_NUMBER, _OMITTED, _RESOURCE, _PATH or _NAME, and _CHANGE in its environment.
#[derive(Args)]
#[command(after_help = "\
Examples:
  kumo watch /config                          kumo watch /config/app.toml -- ./reload.sh
  kumo watch --queue jobs                     a post, or a wait that found it empty
  kumo watch --lock deploy                    someone waits for the lock

--format json, one line an event: {number, omitted, resource: directory|lock|queue, path or name, change}.")]
pub struct Watch {
    /// A directory or a file, which need not exist yet
    #[arg(required_unless_present_any = ["lock", "queue"])]
    path: Option<String>,
    #[arg(long, value_name = "NAME", conflicts_with_all = ["path", "queue"])]
    lock: Option<String>,
    #[arg(long, value_name = "NAME", conflicts_with = "path")]
    queue: Option<String>,
    /// End after this many events
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

pub async fn run(watch: Watch, target: Target, out: Out) -> Result<(), Failure> {
    child::expected(&watch.command)?;
    target.in_session_unless_signalled(async |session| follow(&watch, session, &out).await).await
}

async fn follow(watch: &Watch, session: &Session, out: &Out) -> Result<(), Failure> {
    let mut scope = Scope::of(watch, session).await?;
    for resource in scope.resources() {
        session.watch(resource).await?;
    }
    note("kumo: watching");
    let mut events = session.events()?;
    let mut left = watch.count.unwrap_or(u64::MAX);
    // Of which nobody knows whom they concerned: told at once, and again with the next event that is told.
    let mut omitted = 0_u64;
    while left > 0 {
        let mut notice = events.next().await?;
        omitted = omitted.saturating_add(notice.omitted);
        if notice.omitted > 0 {
            scope.look(session).await;
        }
        if !scope.concerns(&notice.event, session).await {
            if notice.omitted > 0 {
                note(format!("kumo: {} events omitted", notice.omitted));
            }
            continue;
        }
        notice.omitted = std::mem::take(&mut omitted);
        left -= 1;
        tell(watch, session, &notice, out).await?;
    }
    Ok(())
}

/// What is watched.
enum Scope {
    /// A lock, a queue, or what is in a directory.
    Whole(Resource),
    /// One entry of a directory.
    Entry(Entry),
    /// What is not there yet, and may become either.
    Future {
        entry: Entry,
        /// It has become a directory: what is in it counts, not it.
        directory: bool,
    },
}

/// A path as events name it.
struct Entry {
    folder: String,
    name: String,
}

impl Scope {
    async fn of(watch: &Watch, session: &Session) -> Result<Scope, Failure> {
        if let Some(name) = &watch.lock {
            return Ok(Scope::Whole(Resource::Lock(name.clone())));
        }
        if let Some(name) = &watch.queue {
            return Ok(Scope::Whole(Resource::Queue(name.clone())));
        }
        let path = watch.path.clone().unwrap_or_else(|| "/".to_owned());
        let stat = session.stat(&path).await;
        let Some(entry) = Entry::of(&path) else { return Ok(Scope::Whole(Resource::Directory(path))) };
        match stat {
            Ok(stat) if stat.directory => Ok(Scope::Whole(Resource::Directory(path))),
            Ok(_) => Ok(Scope::Entry(entry)),
            Err(pfs::Error::Refused(Refusal::NotFound(_))) => Ok(Scope::Future { entry, directory: false }),
            Err(error) => Err(error.into()),
        }
    }

    fn resources(&self) -> Vec<Resource> {
        match self {
            Scope::Whole(resource) => vec![resource.clone()],
            Scope::Entry(entry) => vec![Resource::Directory(entry.folder.clone())],
            Scope::Future { entry, .. } => {
                vec![Resource::Directory(entry.folder.clone()), Resource::Directory(entry.path())]
            }
        }
    }

    /// What has become of it in events that were omitted.
    async fn look(&mut self, session: &Session) {
        if let Scope::Future { entry, directory } = self {
            *directory = session.stat(&entry.path()).await.is_ok_and(|stat| stat.directory);
        }
    }

    async fn concerns(&mut self, event: &Event, session: &Session) -> bool {
        match (self, event) {
            (Scope::Entry(entry), Event::Directory { path, name, .. }) => entry.is(path, name),
            (Scope::Future { entry, directory }, Event::Directory { path, name, change }) => {
                if *path == entry.path() {
                    return true;
                }
                if !entry.is(path, name) {
                    return false;
                }
                let was_directory = *directory;
                *directory = match change {
                    EntryChange::Deleted => false,
                    EntryChange::Created | EntryChange::Updated => {
                        session.stat(&entry.path()).await.is_ok_and(|stat| stat.directory)
                    }
                };
                !was_directory && !*directory
            }
            (Scope::Whole(_), _)
            | (Scope::Entry(_) | Scope::Future { .. }, Event::Lock { .. } | Event::Queue { .. }) => true,
        }
    }
}

impl Entry {
    /// None: the root, which is in no directory.
    fn of(path: &str) -> Option<Entry> {
        let (folder, name) = path.rsplit_once('/').filter(|(_, name)| !name.is_empty())?;
        let folder = if folder.is_empty() { "/" } else { folder };
        Some(Entry { folder: folder.to_owned(), name: name.to_owned() })
    }

    fn path(&self) -> String {
        format!("{}/{}", self.folder.trim_end_matches('/'), self.name)
    }

    fn is(&self, folder: &str, name: &str) -> bool {
        self.folder == folder && self.name == name
    }
}

async fn tell(watch: &Watch, session: &Session, notice: &Notice, out: &Out) -> Result<(), Failure> {
    let told = Told::of(&notice.event);
    if watch.command.is_empty() {
        return out.result(told.json(notice), || told.text(notice));
    }
    let environment = [
        ("KUMO_EVENT_NUMBER", notice.number.to_string()),
        ("KUMO_EVENT_OMITTED", notice.omitted.to_string()),
        ("KUMO_EVENT_RESOURCE", told.resource.to_owned()),
        (
            if told.resource == "directory" { "KUMO_EVENT_PATH" } else { "KUMO_EVENT_NAME" },
            told.subject.clone(),
        ),
        ("KUMO_EVENT_CHANGE", told.change.to_owned()),
    ];
    let lost = async {
        let _ = session.state().wait_for(|state| *state == pfs::SessionState::Lost).await;
    };
    match child::run(&watch.command, &environment, None, lost).await? {
        Ended::Lost => Err(pfs::Error::Lost.into()),
        // A command that fails is its own matter: the next event comes all the same.
        Ended::Status(_) => Ok(()),
    }
}

/// An event in words.
struct Told {
    resource: &'static str,
    /// The path, or the name of the lock or queue.
    subject: String,
    change: &'static str,
}

impl Told {
    fn of(event: &Event) -> Told {
        match event {
            Event::Directory { path, name, change } => Told {
                resource: "directory",
                subject: format!("{}/{name}", path.trim_end_matches('/')),
                change: match change {
                    EntryChange::Created => "created",
                    EntryChange::Updated => "updated",
                    EntryChange::Deleted => "deleted",
                },
            },
            Event::Lock { name, exclusive } => Told {
                resource: "lock",
                subject: name.clone(),
                change: if *exclusive { "waiting" } else { "waiting-shared" },
            },
            Event::Queue { name, change } => Told {
                resource: "queue",
                subject: name.clone(),
                change: match change {
                    QueueChange::Posted => "posted",
                    QueueChange::Waiting => "waiting",
                },
            },
        }
    }

    fn json(&self, notice: &Notice) -> Value {
        let mut object = json!({
            "number": notice.number,
            "omitted": notice.omitted,
            "resource": self.resource,
        });
        object[if self.resource == "directory" { "path" } else { "name" }] = json!(self.subject);
        object["change"] = json!(self.change);
        object
    }

    fn text(&self, notice: &Notice) -> String {
        let line = format!("{} {}", self.change, visible(&self.subject));
        match notice.omitted {
            0 => line,
            omitted => format!("({omitted} events omitted)\n{line}"),
        }
    }
}
