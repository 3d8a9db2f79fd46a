//! `--wait`: progress until a replace has ended.

use super::job::{JobView, NO_JOB};
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

/// Follows what was ordered a moment ago. It may be done already.
pub async fn run(manager: SocketAddr, out: Out) -> Result<(), Failure> {
    watch(manager, Watch::new(true), out).await
}

/// Follows whatever is under way. It may be nothing.
pub async fn follow(manager: SocketAddr, out: Out) -> Result<(), Failure> {
    watch(manager, Watch::new(false), out).await
}

/// Ends when the space is settled and no job is left.
async fn watch(manager: SocketAddr, mut watch: Watch, out: Out) -> Result<(), Failure> {
    let mut managers = vec![manager];
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
    /// There was one: it was ordered, or seen.
    was_there: bool,
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
    fn new(ordered: bool) -> Watch {
        Watch {
            began: Instant::now(),
            was_there: ordered,
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
            None => {
                self.take_last(stat);
                Seen::Done
            }
        }
    }

    /// What servers told after it was looked at last, or all of it, when it came and went between two looks: what they
    /// told last stays with the managers.
    fn take_last(&mut self, stat: &Stat) {
        let told = stat.servers.iter().map(|server| server.progress);
        let last = Progress::sum(stat.space.whs_since, told);
        if self.was_there && last.bytes_sent > self.moved.bytes_sent {
            self.moved = last;
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
            if !self.was_there {
                return NO_JOB.to_owned();
            }
            let sent = match moved.bytes_sent {
                0 => String::new(),
                // What was sent since servers told of it last is not in it.
                bytes => format!(", about {} records, {}, sent", moved.records_sent, shown::bytes(bytes)),
            };
            format!("done in {}{sent}", shown::duration(took))
        })
    }

    fn moving(&mut self, view: &JobView) -> Seen {
        self.was_there = true;
        self.moved = view.job.total;
        // Once: somebody may be starting them right now.
        let hindrance = view.hindrance();
        let was_hindered = std::mem::replace(&mut self.hindered, hindrance.is_some());
        let pace = self.pace(view.job.total.bytes_sent, view.job.paused);
        Seen::Moving {
            kind: view.job.kind(),
            facts: view.facts(pace),
            percent: view.job.percent(),
            news: hindrance.filter(|_| !was_hindered),
        }
    }

    /// Bytes a second over the last seconds; none where nothing moved, or is to move.
    fn pace(&mut self, sent: u64, paused: bool) -> Option<u64> {
        let now = Instant::now();
        if paused {
            self.sent.clear();
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use kumo_cluster::control::ServerStat;
    use kumo_cluster::{Incarnation, Job, ServerId, Space, Usage};

    /// A replace under way, or none any more, of which a server told that it sent so much.
    fn stat(under_way: bool, bytes_sent: u64) -> Stat {
        let mut space = Space::empty(Default::default(), SpaceNumber(9));
        space.job = under_way.then_some(Job { full: false, paused: false, rate: 0 });
        let address = SocketAddr::from(([127, 0, 0, 1], 8000));
        let server = ServerStat {
            server: ServerId { address, incarnation: Incarnation(1) },
            connected: true,
            heard_ms: 0,
            space: space.number,
            usage: Usage::default(),
            progress: Progress { job: space.whs_since, copies: 1, bytes_sent, ..Progress::default() },
            gets: 0,
            sets: 0,
            deletes: 0,
            foreign: false,
            full: false,
        };
        Stat {
            space,
            servers: vec![server],
            auto_replace: false,
            attach_wanted: Vec::new(),
            detach_wanted: Vec::new(),
            gateways: 0,
            managers: Vec::new(),
            master: None,
            voters: Vec::new(),
            loss_accepted: false,
        }
    }

    #[test]
    fn what_was_sent_between_the_last_looks_is_told() {
        let mut fast = Watch::new(true);
        assert!(matches!(fast.look(&stat(false, 500)), Seen::Done));
        assert_eq!(fast.moved.bytes_sent, 500, "it came and went before it was looked at");
        let mut seen = Watch::new(false);
        assert!(matches!(seen.look(&stat(true, 100)), Seen::Moving { .. }));
        assert!(matches!(seen.look(&stat(false, 500)), Seen::Done));
        assert_eq!((seen.moved.bytes_sent, seen.was_there), (500, true));
        // Servers that tell nothing any more take nothing back.
        seen.look(&stat(false, 0));
        assert_eq!(seen.moved.bytes_sent, 500);
    }

    #[test]
    fn who_began_nothing_is_not_told_of_the_last_one() {
        let mut watch = Watch::new(false);
        assert!(matches!(watch.look(&stat(false, 500)), Seen::Done));
        assert_eq!((watch.moved.bytes_sent, watch.was_there), (0, false));
    }
}
