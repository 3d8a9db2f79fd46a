//! [`Screen`]: what kumotop shows.

use super::snapshot::{Row, Snapshot, Speed};
use super::{Wish, wish};
use crate::failure::Failure;
use crate::store::shown;
use kumo_cluster::Progress;
use kumo_cluster::control::ServerReport;
use ratatui::Frame;
use ratatui::crossterm::event::KeyEvent;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Gauge, Paragraph, Table};
use std::net::SocketAddr;

/// The last two snapshots, and where in the list we are.
pub struct Screen {
    now: Snapshot,
    earlier: Option<Snapshot>,
    /// Why the last look failed.
    trouble: Option<String>,
    first_row: usize,
}

impl Screen {
    pub fn new(now: Snapshot) -> Screen {
        Screen { now, earlier: None, trouble: None, first_row: 0 }
    }

    pub fn managers(&self, named: SocketAddr) -> Vec<SocketAddr> {
        self.now.managers(named)
    }

    pub fn take(&mut self, snapshot: Result<Snapshot, Failure>) {
        match snapshot {
            Ok(snapshot) => {
                self.earlier = Some(std::mem::replace(&mut self.now, snapshot));
                self.trouble = None;
            }
            Err(Failure::Line(line, _)) => self.trouble = Some(line),
            Err(Failure::Client(error)) => self.trouble = Some(error.to_string()),
            Err(Failure::Status(_)) => self.trouble = Some("no answer".to_owned()),
        }
    }

    /// False: that was the end.
    pub fn key(&mut self, key: KeyEvent) -> bool {
        match wish(key) {
            Wish::Quit => return false,
            Wish::Up(rows) => self.first_row = self.first_row.saturating_sub(rows),
            Wish::Down(rows) => self.first_row = self.first_row.saturating_add(rows),
            Wish::Nothing => {}
        }
        true
    }

    pub fn draw(&mut self, frame: &mut Frame) {
        let rows = self.now.rows(self.earlier.as_ref());
        let lines = self.head(&rows, frame.area().width);
        let [head, bar, body, foot] = Layout::vertical([
            Constraint::Length(lines.len() as u16),
            Constraint::Length(1),
            Constraint::Min(1),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        frame.render_widget(Paragraph::new(lines), head);
        self.draw_job(frame, bar);
        self.draw_servers(frame, body, &rows);
        frame.render_widget(Paragraph::new(self.foot()), foot);
    }

    /// As many lines as the width makes it.
    fn head(&self, rows: &[Row], width: u16) -> Vec<Line<'static>> {
        let stat = &self.now.stat;
        let master = stat.master.map_or("none".to_owned(), |master| master.to_string());
        let auto = if stat.auto_replace { "on" } else { "off" };
        let total = total(rows);
        let items: u64 = reports(rows).map(|report| report.usage.items).sum();
        let bytes: u64 = reports(rows).map(|report| report.usage.live_bytes).sum();
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let cluster = vec![
            Span::styled("kumotop", bold),
            Span::raw(format!("hash space {}", stat.space.number)),
            Span::raw(format!("managers {} (master {master})", stat.managers.len())),
            Span::raw(format!("gateways {}", stat.gateways)),
            Span::raw(format!("auto-replace {auto}")),
        ];
        let data = vec![
            Span::raw(format!("servers {}", rows.len())),
            Span::raw(format!("copies {items}")),
            Span::raw(format!("bytes {}", shown::bytes(bytes))),
            Span::raw(format!("get/s {:.0}", total.gets)),
            Span::raw(format!("set/s {:.0}", total.sets)),
            Span::raw(format!("delete/s {:.0}", total.deletes)),
        ];
        let mut lines = flowing(cluster, usize::from(width));
        lines.extend(flowing(data, usize::from(width)));
        lines
    }

    fn draw_job(&self, frame: &mut Frame, area: Rect) {
        match self.now.job() {
            Some(job) => {
                let gauge = Gauge::default()
                    .ratio((job.job.percent() / 100.0).clamp(0.0, 1.0))
                    .label(job.line())
                    .gauge_style(Style::new().fg(Color::Blue).bg(Color::Black));
                frame.render_widget(gauge, area);
            }
            None => frame.render_widget(Paragraph::new("no replace under way"), area),
        }
    }

    fn draw_servers(&mut self, frame: &mut Frame, area: Rect, rows: &[Row]) {
        let visible = usize::from(area.height.saturating_sub(1));
        self.first_row = self.first_row.min(rows.len().saturating_sub(visible));
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let address = rows.iter().map(|row| row.address.to_string().len()).max().unwrap_or(0).max(6) as u16;
        let columns = fitting(area.width, address);
        let widths = columns.iter().map(|&at| Constraint::Length(width(at, address)));
        let shown = rows.iter().skip(self.first_row).take(visible).map(|row| cells(row, self, &columns));
        let headings = columns.iter().map(|&at| Cell::from(COLUMNS[at].heading));
        let header = ratatui::widgets::Row::new(headings).style(bold);
        let table = Table::new(shown, widths).header(header).column_spacing(1);
        frame.render_widget(table, area);
    }

    fn foot(&self) -> Line<'static> {
        match &self.trouble {
            Some(trouble) => Line::styled(trouble.clone(), Style::new().fg(Color::Red)),
            None => Line::styled("q quits, arrows scroll", Style::new().add_modifier(Modifier::DIM)),
        }
    }
}

/// Facts side by side; the next line begins where one would be cut.
fn flowing(facts: Vec<Span<'static>>, width: usize) -> Vec<Line<'static>> {
    let mut lines: Vec<Line> = Vec::new();
    for fact in facts {
        match lines.last_mut() {
            Some(line) if line.width() + GAP.len() + fact.width() <= width => {
                line.push_span(Span::raw(GAP));
                line.push_span(fact);
            }
            Some(_) | None => lines.push(Line::from(fact)),
        }
    }
    lines
}

/// Between two facts.
const GAP: &str = "  ";

struct Column {
    heading: &'static str,
    width: u16,
    /// On a narrow terminal those with the greatest are left out first.
    rank: u8,
}

const fn column(heading: &'static str, width: u16, rank: u8) -> Column {
    Column { heading, width, rank }
}

/// The first is as wide as its addresses.
const COLUMNS: [Column; 12] = [
    column("SERVER", 0, 0),
    column("STATE", 12, 1),
    column("ITEMS", 10, 2),
    column("BYTES", 10, 3),
    column("GET/S", 6, 4),
    column("SET/S", 6, 5),
    column("DEL/S", 6, 9),
    column("PENDING", 7, 6),
    column("DIRTY", 7, 10),
    column("LEASE", 6, 8),
    column("REPLACE", 7, 7),
    column("SPACE", 8, 11),
];

fn width(at: usize, address: u16) -> u16 {
    if at == 0 { address } else { COLUMNS[at].width }
}

/// The columns that find room, in their order.
fn fitting(room: u16, address: u16) -> Vec<usize> {
    let mut by_rank: Vec<usize> = (0..COLUMNS.len()).collect();
    by_rank.sort_by_key(|&at| COLUMNS[at].rank);
    let mut used = 0;
    let fits = |at: &usize| {
        used += width(*at, address) + 1;
        *at == 0 || used <= room + 1
    };
    let mut columns: Vec<usize> = by_rank.into_iter().take_while(fits).collect();
    columns.sort_unstable();
    columns
}

fn cells(row: &Row, screen: &Screen, columns: &[usize]) -> ratatui::widgets::Row<'static> {
    let style = match (row.state, &row.report) {
        ("fault", _) | (_, None) => Style::new().fg(Color::Red),
        ("joining" | "leaving" | "fault, back", _) => Style::new().fg(Color::Yellow),
        ("active", _) => Style::new(),
        _other => Style::new().add_modifier(Modifier::DIM),
    };
    let mut texts = vec![row.address.to_string(), row.state.to_owned()];
    match &row.report {
        None => texts.push("no answer".to_owned()),
        Some(report) => {
            let speed = |of: fn(&Speed) -> f64| {
                row.speed.as_ref().map_or("-".to_owned(), |speed| per_second(of(speed)))
            };
            let number = report.space.as_ref().map_or("-".to_owned(), |space| space.number.to_string());
            texts.extend([
                report.usage.items.to_string(),
                shown::bytes(report.usage.live_bytes),
                speed(|speed| speed.gets),
                speed(|speed| speed.sets),
                speed(|speed| speed.deletes),
                report.pending.to_string(),
                report.dirty.to_string(),
                lease(report.lease_ms),
                replaced(&report.progress, screen),
                number,
            ]);
        }
    }
    let shown = columns.iter().filter_map(|&at| texts.get(at).cloned());
    ratatui::widgets::Row::new(shown.map(Cell::from)).style(style)
}

/// Never more than its column takes.
fn per_second(speed: f64) -> String {
    if speed < 999_999.5 { format!("{speed:.0}") } else { format!("{:.0}k", speed / 1000.0) }
}

fn lease(milliseconds: u64) -> String {
    match milliseconds {
        0 => "none".to_owned(),
        milliseconds => format!("{:.1} s", milliseconds as f64 / 1000.0),
    }
}

/// Its own part of the replace under way.
fn replaced(progress: &Progress, screen: &Screen) -> String {
    let space = &screen.now.stat.space;
    if space.job.is_none() || progress.job != space.whs_since || progress.copies == 0 {
        return "-".to_owned();
    }
    format!("{:.0} %", 100.0 * progress.copies_done as f64 / progress.copies as f64)
}

fn reports(rows: &[Row]) -> impl Iterator<Item = &ServerReport> {
    rows.iter().filter_map(|row| row.report.as_ref())
}

fn total(rows: &[Row]) -> Speed {
    let speeds = rows.iter().filter_map(|row| row.speed);
    speeds.fold(Speed::default(), |sum, speed| Speed {
        gets: sum.gets + speed.gets,
        sets: sum.sets + speed.sets,
        deletes: sum.deletes + speed.deletes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use kumo_cluster::control::{ServerStat, Stat};
    use kumo_cluster::{Garbage, Incarnation, Member, MemberState, ServerId, Space, SpaceNumber, Usage};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    #[test]
    fn a_narrow_terminal_shows_what_matters_most() {
        let headings =
            |room| -> Vec<&str> { fitting(room, 15).into_iter().map(|at| COLUMNS[at].heading).collect() };
        assert_eq!(headings(200).len(), COLUMNS.len());
        assert_eq!(headings(40), ["SERVER", "STATE", "ITEMS"]);
        assert_eq!(headings(1), ["SERVER"]);
    }

    fn address(port: u16) -> SocketAddr {
        SocketAddr::from(([192, 168, 1, 1], port))
    }

    /// Three servers that have been at work for long, seen on a screen of that size.
    fn shown_on(width: u16, height: u16) -> Vec<String> {
        let mut space = Space::empty(Default::default(), SpaceNumber(1 << 48 | 4711));
        let id = |index| ServerId { address: address(index), incarnation: Incarnation(1) };
        let member = |index| Member {
            address: address(index),
            incarnation: Incarnation(1),
            state: MemberState::Active,
        };
        space.members = (1..4).map(member).collect();
        (space.rhs, space.whs) = (vec![0, 1, 2], vec![0, 1, 2]);
        let report = |index| ServerReport {
            server: id(index),
            pid: 1,
            uptime_ms: 1,
            unix_millis: 1,
            version: String::new(),
            gets: 0,
            sets: 0,
            deletes: 0,
            usage: Usage { items: 9_876_543_210, live_bytes: (1 << 50) - 1, ..Usage::default() },
            garbage: Garbage::default(),
            space: Some(space.clone()),
            lease_ms: 1500,
            pending: 1_000_000,
            dirty: 1_000_000,
            progress: Progress::default(),
            latency: Vec::new(),
        };
        let heard = |index| ServerStat {
            server: id(index),
            connected: true,
            heard_ms: 0,
            space: space.number,
            usage: Usage::default(),
            progress: Progress::default(),
            gets: 0,
            sets: 0,
            deletes: 0,
            foreign: false,
            full: false,
        };
        let stat = Stat {
            space: space.clone(),
            servers: (1..4).map(heard).collect(),
            auto_replace: false,
            attach_wanted: Vec::new(),
            detach_wanted: Vec::new(),
            gateways: 12,
            managers: vec![address(19700); 3],
            master: Some(address(19700)),
            voters: Vec::new(),
            loss_accepted: false,
        };
        let reports = (1..4).map(|index| (address(index), Some(report(index)))).collect();
        let mut screen = Screen::new(Snapshot::of(stat, reports));
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |row| (0..width).map(|column| buffer[(column, row)].symbol()).collect::<String>();
        (0..height).map(|row| line(row).trim_end().to_owned()).collect()
    }

    #[test]
    fn eighty_columns_show_every_fact_whole() {
        let lines = shown_on(80, 24);
        assert_eq!(
            lines[..9],
            [
                "kumotop  hash space 1.4711  managers 3 (master 192.168.1.1:19700)  gateways 12",
                "auto-replace off",
                "servers 3  copies 29629629630  bytes 3.0 PiB  get/s 0  set/s 0  delete/s 0",
                "no replace under way",
                "SERVER        STATE        ITEMS      BYTES      GET/S  SET/S  PENDING REPLACE",
                "192.168.1.1:1 active       9876543210 1024.0 TiB -      -      1000000 -",
                "192.168.1.1:2 active       9876543210 1024.0 TiB -      -      1000000 -",
                "192.168.1.1:3 active       9876543210 1024.0 TiB -      -      1000000 -",
                "",
            ]
        );
        assert_eq!(lines[23], "q quits, arrows scroll");
    }

    #[test]
    fn wide_and_tiny_screens_are_drawn_too() {
        assert!(shown_on(200, 50)[0].ends_with("auto-replace off"));
        for (width, height) in [(1, 1), (10, 3), (40, 5)] {
            assert_eq!(shown_on(width, height).len(), usize::from(height));
        }
    }

    #[test]
    fn a_speed_fits_its_column() {
        for (speed, text) in
            [(0.0, "0"), (999_999.0, "999999"), (999_999.6, "1000k"), (12_345_678.0, "12346k")]
        {
            assert_eq!(per_second(speed), text);
        }
    }
}
