//! `--wait`: progress until a replace has ended.

use super::job::JobView;
use crate::failure::Failure;
use crate::output::{Out, is_dumb, note};
use crate::store::{shown, tool};
use indicatif::{ProgressBar, ProgressStyle};
use kumo_cluster::control::Stat;
use kumo_cluster::{Progress, SpaceNumber};
use serde_json::json;
use std::collections::VecDeque;
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::Instant;

/// Ends when the space is settled and no job is left.
pub async fn run(manager: SocketAddr, out: Out) -> Result<(), Failure> {
    let mut managers = vec![manager];
    let mut watch = Watch::new();
    let mut display = Display::new();
    let mut silent_since = None;
    loop {
        match tool::stat(&managers).await {
            Ok(stat) => {
                silent_since = None;
                // Should this one be lost on the way, the others know as much.
                managers.truncate(1);
                managers.extend(&stat.managers);
                match watch.look(&stat) {
                    Seen::Moving { kind, facts, percent, news } => {
                        news.iter().for_each(|news| display.say(news));
                        display.show(kind, facts, percent);
                    }
                    Seen::Done => {
                        display.end();
                        return watch.report(&out);
                    }
                    Seen::Cancelled => {
                        display.end();
                        return Err(Failure::refused("the replace was cancelled"));
                    }
                }
            }
            // The job goes on while managers change.
            Err(failure) => {
                if silent_since.get_or_insert_with(Instant::now).elapsed() > SILENCE_MAX {
                    display.end();
                    return Err(failure);
                }
            }
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

enum Seen {
    Moving {
        kind: &'static str,
        /// Say how far.
        facts: String,
        percent: f64,
        /// Why it does not go on; said once.
        news: Option<String>,
    },
    Done,
    Cancelled,
}

/// What was seen of the job so far.
struct Watch {
    began: Instant,
    /// The number at which the ring that it goes to was set.
    job: Option<SpaceNumber>,
    /// When how many bytes had been sent, over the last few seconds.
    sent: VecDeque<(Instant, u64)>,
    /// What had been sent when it was looked at last.
    moved: Progress,
    /// Why it does not go on was said.
    hindered: bool,
}

impl Watch {
    fn new() -> Watch {
        Watch {
            began: Instant::now(),
            job: None,
            sent: VecDeque::new(),
            moved: Progress::default(),
            hindered: false,
        }
    }

    fn look(&mut self, stat: &Stat) -> Seen {
        let space = &stat.space;
        if space.job.is_some() {
            self.job = Some(space.whs_since);
        }
        match JobView::of(stat) {
            Some(view) => self.moving(&view),
            // A ring that was given up is another one from then on; a switch takes the one there is.
            None if self.job.is_some_and(|job| job != space.whs_since) => Seen::Cancelled,
            None => Seen::Done,
        }
    }

    fn report(&self, out: &Out) -> Result<(), Failure> {
        let (took, moved) = (self.began.elapsed(), &self.moved);
        let value = json!({
            "done": true,
            "seconds": took.as_secs_f64(),
            "records_sent": moved.records_sent,
            "bytes_sent": moved.bytes_sent,
        });
        out.result(value, || {
            let sent = match moved.bytes_sent {
                0 => String::new(),
                // What was sent since it was looked at last is not in it.
                bytes => format!(", about {} records, {}, sent", moved.records_sent, shown::bytes(bytes)),
            };
            format!("done in {}{sent}", shown::duration(took))
        })
    }

    fn moving(&mut self, view: &JobView) -> Seen {
        self.moved = view.job.total;
        // Once: somebody may be starting them right now.
        let hindrance = view.hindrance();
        let was_hindered = std::mem::replace(&mut self.hindered, hindrance.is_some());
        let pace = self.pace(view.job.total.bytes_sent);
        Seen::Moving {
            kind: view.job.kind(),
            facts: view.facts(pace),
            percent: view.job.percent(),
            news: hindrance.filter(|_| !was_hindered),
        }
    }

    /// Bytes a second over the last seconds; none where nothing moved.
    fn pace(&mut self, sent: u64) -> Option<u64> {
        let now = Instant::now();
        self.sent.push_back((now, sent));
        while self.sent.len() > 2 && now - self.sent[1].0 > PACE_OVER {
            self.sent.pop_front();
        }
        let (since, before) = *self.sent.front()?;
        let seconds = (now - since).as_secs_f64();
        let pace = (sent.saturating_sub(before) as f64 / seconds.max(0.001)) as u64;
        (now - since >= PACE_FROM && pace > 0).then_some(pace)
    }
}

/// A bar on a terminal; otherwise a line a second, for logs.
enum Display {
    Bar(ProgressBar),
    Lines { last: Option<Instant> },
}

impl Display {
    fn new() -> Display {
        if !std::io::stderr().is_terminal() || is_dumb() {
            return Display::Lines { last: None };
        }
        let bar = ProgressBar::new(BAR_STEPS);
        let template = format!("[{{bar:{BAR_WIDTH}}}] {{wide_msg}}");
        let style = ProgressStyle::with_template(&template).expect("the template is well formed");
        bar.set_style(style.progress_chars("=> "));
        Display::Bar(bar)
    }

    fn say(&self, line: &str) {
        match self {
            Display::Bar(bar) => bar.suspend(|| note(line)),
            Display::Lines { .. } => note(line),
        }
    }

    fn show(&mut self, kind: &str, facts: String, percent: f64) {
        match self {
            Display::Bar(bar) => {
                bar.set_position((percent / 100.0 * BAR_STEPS as f64) as u64);
                // Who waits knows what for, and needs the room.
                bar.set_message(facts);
            }
            Display::Lines { last } => {
                if last.is_none_or(|last| last.elapsed() >= LINE_INTERVAL) {
                    *last = Some(Instant::now());
                    note(format!("{kind} {facts}"));
                }
            }
        }
    }

    fn end(&self) {
        match self {
            Display::Bar(bar) => bar.finish_and_clear(),
            Display::Lines { .. } => {}
        }
    }
}

const LOOK_INTERVAL: Duration = Duration::from_millis(250);
const LINE_INTERVAL: Duration = Duration::from_secs(1);

/// Short enough to follow a change of pace, long enough to be calm.
const PACE_OVER: Duration = Duration::from_secs(5);

/// Servers tell of what they sent in steps: over less, a pace is chance.
const PACE_FROM: Duration = Duration::from_secs(2);

/// How long no manager may answer before we give up.
const SILENCE_MAX: Duration = Duration::from_secs(30);

const BAR_STEPS: u64 = 1000;

/// So short that all but the limit finds room beside it on 80 columns.
pub const BAR_WIDTH: usize = 8;
