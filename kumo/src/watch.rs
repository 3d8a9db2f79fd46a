//! `kumo watch`: prints what happens to a directory, a file, a lock or a queue, or runs a command each time.

use crate::child::{self, Ended};
use crate::failure::Failure;
use crate::output::Out;
use crate::target::Target;
use clap::Args;
use pfs::{EntryChange, Event, Notice, QueueChange, Resource, Session};
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
    /// A directory, which need not exist yet, or a file
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
    target.in_session_unless_signalled(async |session| follow(&watch, session, &out).await).await
}

async fn follow(watch: &Watch, session: &Session, out: &Out) -> Result<(), Failure> {
    let (resource, only) = resource(watch, session).await?;
    session.watch(resource).await?;
    eprintln!("kumo: watching");
    let mut events = session.events()?;
    let mut left = watch.count.unwrap_or(u64::MAX);
    while left > 0 {
        let notice = events.next().await?;
        if !concerns(&notice.event, only.as_deref()) {
            continue;
        }
        left -= 1;
        tell(watch, session, &notice, out).await?;
    }
    Ok(())
}

/// What to subscribe to, and the one entry of it that is meant.
async fn resource(watch: &Watch, session: &Session) -> Result<(Resource, Option<String>), Failure> {
    if let Some(name) = &watch.lock {
        return Ok((Resource::Lock(name.clone()), None));
    }
    if let Some(name) = &watch.queue {
        return Ok((Resource::Queue(name.clone()), None));
    }
    let path = watch.path.clone().unwrap_or_else(|| "/".to_owned());
    let is_file = session.stat(&path).await.is_ok_and(|stat| !stat.directory);
    match path.rsplit_once('/') {
        Some((folder, name)) if is_file => {
            let folder = if folder.is_empty() { "/" } else { folder };
            Ok((Resource::Directory(folder.to_owned()), Some(name.to_owned())))
        }
        Some(_) | None => Ok((Resource::Directory(path), None)),
    }
}

fn concerns(event: &Event, only: Option<&str>) -> bool {
    match (event, only) {
        (Event::Directory { name, .. }, Some(only)) => name == only,
        (Event::Directory { .. } | Event::Lock { .. } | Event::Queue { .. }, _) => true,
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
        let line = format!("{} {}", self.change, self.subject);
        match notice.omitted {
            0 => line,
            omitted => format!("({omitted} events omitted)\n{line}"),
        }
    }
}
