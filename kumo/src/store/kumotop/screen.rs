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
        let [head, bar, body, foot] = Layout::vertical([
            Constraint::Length(2),
            Constraint::Length(1),
            Constraint::Min(1),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        frame.render_widget(Paragraph::new(self.head(&rows)), head);
        self.draw_job(frame, bar);
        self.draw_servers(frame, body, &rows);
        frame.render_widget(Paragraph::new(self.foot()), foot);
    }

    fn head(&self, rows: &[Row]) -> Vec<Line<'static>> {
        let stat = &self.now.stat;
        let master = stat.master.map_or("none".to_owned(), |master| master.to_string());
        let auto = if stat.auto_replace { "on" } else { "off" };
        let total = total(rows);
        let items: u64 = reports(rows).map(|report| report.usage.items).sum();
        let bytes: u64 = reports(rows).map(|report| report.usage.live_bytes).sum();
        vec![
            Line::from(vec![
                Span::styled("kumotop", Style::new().add_modifier(Modifier::BOLD)),
                Span::raw(format!(
                    "  hash space {}  managers {} (master {master})  gateways {}  auto-replace {auto}",
                    stat.space.number,
                    stat.managers.len(),
                    stat.gateways,
                )),
            ]),
            Line::from(format!(
                "servers {}  copies {items}  bytes {}  get/s {:.0}  set/s {:.0}  delete/s {:.0}",
                rows.len(),
                shown::bytes(bytes),
                total.gets,
                total.sets,
                total.deletes,
            )),
        ]
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
    column("GET/S", 7, 4),
    column("SET/S", 7, 5),
    column("DEL/S", 7, 9),
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
        ("joining" | "leaving", _) => Style::new().fg(Color::Yellow),
        ("active", _) => Style::new(),
        _other => Style::new().add_modifier(Modifier::DIM),
    };
    let mut texts = vec![row.address.to_string(), row.state.to_owned()];
    match &row.report {
        None => texts.push("no answer".to_owned()),
        Some(report) => {
            let speed = |of: fn(&Speed) -> f64| {
                row.speed.as_ref().map_or("-".to_owned(), |speed| format!("{:.0}", of(speed)))
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

    #[test]
    fn a_narrow_terminal_shows_what_matters_most() {
        let headings =
            |room| -> Vec<&str> { fitting(room, 15).into_iter().map(|at| COLUMNS[at].heading).collect() };
        assert_eq!(headings(200).len(), COLUMNS.len());
        assert_eq!(headings(40), ["SERVER", "STATE", "ITEMS"]);
        assert_eq!(headings(1), ["SERVER"]);
    }
}
