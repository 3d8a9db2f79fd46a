//! `kumotop`: all servers on one screen, live.

mod screen;
mod snapshot;

use super::common::CONTROL_PORT;
use crate::address;
use crate::child::Signals;
use crate::failure::Failure;
use crate::output::is_dumb;
use clap::{Args, Command};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use screen::Screen;
use snapshot::Snapshot;
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::sync::mpsc;

/// Watch all servers
#[derive(Args, Clone, Debug)]
pub struct Kumotop {
    /// A manager; any one answers
    #[arg(short = 'm', long, value_name = "ADDR[:19799]")]
    manager: String,
    /// How often all are asked
    #[arg(short = 'i', long, value_name = "SECONDS", default_value = "1", value_parser = crate::target::seconds)]
    interval: Duration,
}

pub fn command_line() -> Command {
    Kumotop::augment_args(Command::new("kumotop"))
        .version(env!("CARGO_PKG_VERSION"))
        .about("Watch all servers of a store on one screen; q quits")
        .after_help(EXAMPLES)
}

pub fn run(kumotop: Kumotop) -> Result<(), Failure> {
    let manager = address::one(&kumotop.manager, CONTROL_PORT)?;
    if kumotop.interval < INTERVAL_MIN {
        return Err(Failure::usage("--interval is at least 0.1"));
    }
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() || is_dumb() {
        return Err(Failure::refused(
            "kumotop needs a terminal that can be drawn on; kumostat -m MANAGER stats does not",
        ));
    }
    crate::block_on(async move {
        // Said as a line, while there is no screen yet.
        let first = Snapshot::take(&[manager]).await?;
        let mut signals = Signals::new()?;
        // It is given back at the end, and when something panics.
        let mut terminal = ratatui::try_init().map_err(unusable)?;
        let result = tokio::select! {
            result = watch(&mut terminal, manager, first, kumotop.interval) => result,
            signal = signals.next() => Err(Failure::Status(128 + signal.as_raw() as u8)),
        };
        ratatui::restore();
        result
    })
}

async fn watch(
    terminal: &mut DefaultTerminal,
    manager: SocketAddr,
    first: Snapshot,
    interval: Duration,
) -> Result<(), Failure> {
    let mut screen = Screen::new(first);
    let (mut events, mut snapshots) = (events(), snapshots(manager, &screen, interval));
    loop {
        terminal.draw(|frame| screen.draw(frame)).map_err(unusable)?;
        tokio::select! {
            event = events.recv() => match event {
                Some(Ok(Event::Key(key))) if key.kind != KeyEventKind::Release => {
                    if !screen.key(key) {
                        return Ok(());
                    }
                }
                // A new size; it is drawn at the next turn.
                Some(Ok(_other)) => {}
                Some(Err(error)) => return Err(unusable(error)),
                None => return Ok(()),
            },
            Some(snapshot) = snapshots.recv() => screen.take(snapshot),
        }
    }
}

/// What happens at the keyboard, from a thread that ends with the process.
fn events() -> mpsc::Receiver<std::io::Result<Event>> {
    let (sender, receiver) = mpsc::channel(EVENTS_MAX);
    std::thread::spawn(move || {
        loop {
            let event = event::read();
            let failed = event.is_err();
            if sender.blocking_send(event).is_err() || failed {
                return;
            }
        }
    });
    receiver
}

/// How the cluster stands, again and again; slow servers delay the next look, not the keyboard.
fn snapshots(
    manager: SocketAddr,
    screen: &Screen,
    interval: Duration,
) -> mpsc::Receiver<Result<Snapshot, Failure>> {
    let (sender, receiver) = mpsc::channel(1);
    let mut managers = screen.managers(manager);
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(interval).await;
            let snapshot = Snapshot::take(&managers).await;
            if let Ok(snapshot) = &snapshot {
                managers = snapshot.managers(manager);
            }
            if sender.send(snapshot).await.is_err() {
                return;
            }
        }
    });
    receiver
}

/// What a key means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    Quit,
    Up(usize),
    Down(usize),
    Nothing,
}

fn wish(key: KeyEvent) -> Wish {
    match key.code {
        KeyCode::Char('q' | 'Q') | KeyCode::Esc => Wish::Quit,
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Wish::Quit,
        KeyCode::Up | KeyCode::Char('k') => Wish::Up(1),
        KeyCode::Down | KeyCode::Char('j') => Wish::Down(1),
        KeyCode::PageUp => Wish::Up(PAGE),
        KeyCode::PageDown => Wish::Down(PAGE),
        KeyCode::Home => Wish::Up(usize::MAX),
        KeyCode::End => Wish::Down(usize::MAX),
        _other => Wish::Nothing,
    }
}

fn unusable(error: std::io::Error) -> Failure {
    Failure::refused(format!("cannot use the terminal: {error}"))
}

/// Oftener would keep small servers busy with us.
const INTERVAL_MIN: Duration = Duration::from_millis(100);

const EVENTS_MAX: usize = 64;

/// Rows of a page up or down.
const PAGE: usize = 10;

const EXAMPLES: &str = "\
Keys:
  q quits; arrows and page keys move through the list

LEASE: how long a server may read on its own from now. PENDING: writes that wait for copies. DIRTY: records whose last
write is not known to be everywhere.

Examples:
  kumotop -m localhost
  kumotop -m 10.0.0.1 -i 5";
