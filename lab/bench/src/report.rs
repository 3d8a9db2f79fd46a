//! [`Report`]: what was found, line by line as it is found, or as one JSON object in the end.

use crate::failure::Failure;
use crate::figures::{Ratio, median, spread};
use crate::machine::Machine;
use crate::sample::Sample;
use clap::ValueEnum;
use serde_json::{Value, json};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Text,
    Json,
}

pub struct Report {
    format: Format,
    machine: Value,
    notes: Vec<String>,
    contests: Vec<Value>,
    facts: Vec<Value>,
    failures: Vec<String>,
}

/// What one system did in all rounds of an operation.
pub struct Row {
    pub system: &'static str,
    pub is_ours: bool,
    pub samples: Vec<Sample>,
}

/// One number of a fact.
pub struct Figure {
    pub name: &'static str,
    pub value: f64,
    pub unit: &'static str,
}

pub fn figure(name: &'static str, value: f64, unit: &'static str) -> Figure {
    Figure { name, value, unit }
}

impl Report {
    pub fn new(format: Format, machine: &Machine) -> Report {
        let mut report = Report {
            format,
            machine: machine.value(),
            notes: Vec::new(),
            contests: Vec::new(),
            facts: Vec::new(),
            failures: Vec::new(),
        };
        machine.lines().into_iter().for_each(|line| report.note(line));
        report
    }

    pub fn note(&mut self, line: String) {
        self.show(&line);
        self.notes.push(line);
    }

    /// Something could not be measured; the rest goes on.
    pub fn failed(&mut self, what: &str, failure: &Failure) {
        let line = format!("FAILED {what}: {failure}");
        self.show(&line);
        self.failures.push(line);
    }

    /// An operation that several systems did in turn; ours are compared with the others.
    pub fn contest(&mut self, title: &str, rows: &[Row]) {
        self.show(&format!("\n{title}"));
        self.show(&format!(
            "  {:<20} {:>9} {:>7} {:>8} {:>8} {:>10} {:>10}  ratio of ours to it",
            "", "ops/s", "spread", "p50 us", "p99 us", "server us", "client us"
        ));
        let mut values = Vec::new();
        for row in rows {
            let ratios = ratios(rows, row);
            self.show(&line(row, &ratios));
            values.push(row_value(row, &ratios));
        }
        self.contests.push(json!({ "operation": title, "systems": values }));
    }

    /// Figures that are not those of an operation.
    pub fn fact(&mut self, title: &str, system: &str, figures: &[Figure]) {
        let shown: Vec<String> = figures
            .iter()
            .map(|one| format!("{} {} {}", one.name, number(one.value), one.unit).trim_end().to_owned())
            .collect();
        self.show(&format!("\n{title}: {system}\n  {}", shown.join(", ")));
        let mut value = json!({ "what": title, "system": system });
        for one in figures {
            value[one.name] = json!({ "value": one.value, "unit": one.unit });
        }
        self.facts.push(value);
    }

    /// Tells all of it. Whether everything could be measured.
    pub fn finish(self) -> bool {
        let is_complete = self.failures.is_empty();
        match self.format {
            Format::Text => {
                let failures = self.failures.len();
                let outcome =
                    if is_complete { "nothing failed".to_owned() } else { format!("{failures} failed") };
                println!("\n{} operations, {} facts, {outcome}", self.contests.len(), self.facts.len());
            }
            Format::Json => println!(
                "{}",
                json!({
                    "machine": self.machine,
                    "notes": self.notes,
                    "operations": self.contests,
                    "facts": self.facts,
                    "failures": self.failures,
                })
            ),
        }
        is_complete
    }

    fn show(&self, line: &str) {
        match self.format {
            Format::Text => println!("{line}"),
            // Someone may be watching, and standard output is for the object.
            Format::Json => eprintln!("{line}"),
        }
    }
}

/// Of each of ours to `row`, when that is another's.
fn ratios<'a>(rows: &'a [Row], row: &Row) -> Vec<(&'a str, Ratio)> {
    let ops_s = |row: &Row| column(row, |sample| Some(sample.ops_s));
    let ours = rows.iter().filter(|ours| ours.is_ours && !row.is_ours);
    ours.filter_map(|ours| Some((ours.system, Ratio::of(&ops_s(ours), &ops_s(row))?))).collect()
}

fn ratio_value((ours, ratio): &(&str, Ratio)) -> Value {
    json!({ "of": ours, "median": ratio.median, "least": ratio.least, "most": ratio.most })
}

fn column(row: &Row, what: impl Fn(&Sample) -> Option<f64>) -> Vec<f64> {
    row.samples.iter().filter_map(what).collect()
}

fn line(row: &Row, ratios: &[(&str, Ratio)]) -> String {
    let middle = |what: &dyn Fn(&Sample) -> Option<f64>| {
        median(&column(row, what)).map_or_else(|| "-".to_owned(), number)
    };
    let spread = spread(&column(row, |sample| Some(sample.ops_s)));
    let errors: u64 = row.samples.iter().map(|sample| sample.errors).sum();
    let mut line = format!(
        "  {:<20} {:>9} {:>7} {:>8} {:>8} {:>10} {:>10}",
        row.system,
        middle(&|sample| Some(sample.ops_s)),
        spread.map_or_else(|| "-".to_owned(), |spread| format!("{:.0} %", spread * 100.0)),
        middle(&|sample| Some(sample.p50_us)),
        middle(&|sample| Some(sample.p99_us)),
        middle(&|sample| sample.server_cpu_us),
        middle(&|sample| Some(sample.client_cpu_us)),
    );
    for (ours, Ratio { median, least, most }) in ratios {
        line += &format!("  {ours} {median:.2} ({least:.2}-{most:.2})");
    }
    if errors > 0 {
        line += &format!("  {errors} ERRORS");
    }
    line
}

fn row_value(row: &Row, ratios: &[(&str, Ratio)]) -> Value {
    let middle = |what: &dyn Fn(&Sample) -> Option<f64>| median(&column(row, what));
    json!({
        "system": row.system,
        "ops_s": middle(&|sample| Some(sample.ops_s)),
        "spread": spread(&column(row, |sample| Some(sample.ops_s))),
        "p50_us": middle(&|sample| Some(sample.p50_us)),
        "p99_us": middle(&|sample| Some(sample.p99_us)),
        "server_cpu_us": middle(&|sample| sample.server_cpu_us),
        "client_cpu_us": middle(&|sample| Some(sample.client_cpu_us)),
        "ratios": ratios.iter().map(ratio_value).collect::<Vec<_>>(),
        "runs": row.samples.iter().map(Sample::value).collect::<Vec<_>>(),
    })
}

/// With as many digits as mean something.
fn number(value: f64) -> String {
    match value.abs() {
        _ if value.fract() == 0.0 => format!("{value:.0}"),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}
