//! `kumo plan`: how reliable a cell or a store of unreliable machines is (seed 004, part II).

mod arithmetic;
mod crashes;
mod owners;
mod question;
mod world;

use crate::failure::Failure;
use crate::output::{Out, row, table};
use arithmetic as sums;
use clap::Args;
use crashes::{Judged, Measured};
use owners::Owners;
use question::{Question, Store};
use serde_json::{Map, Value, json};

/// Calculate how reliable a cell, or a store, of unreliable machines is
#[derive(Args)]
#[command(after_help = FORMULAS)]
pub struct Plan {
    /// The chance that one machine is lost, as a number or in percent: 0.03, 3%
    #[arg(long, value_name = "R", allow_hyphen_values = true)]
    rate: String,
    /// Replicas of the cell
    #[arg(long, value_name = "N", default_value = "3", allow_hyphen_values = true)]
    replicas: String,
    /// Servers of the store
    #[arg(long, value_name = "S", allow_hyphen_values = true)]
    servers: Option<String>,
    /// Copies of a key; kumo's store keeps 3
    #[arg(long, value_name = "C", allow_hyphen_values = true)]
    copies: Option<String>,
    /// How long a lost server's copies are missing: 90s, 10m, 4h, 2d. Without it: as long as --period
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    repair: Option<String>,
    /// The time that the rate is of
    #[arg(long, value_name = "TIME", default_value = "365d", allow_hyphen_values = true)]
    period: String,
    /// Crash machines by lot as well, under a real cell in virtual time, and print what came out beside what was
    /// calculated
    #[arg(long)]
    simulate: bool,
    /// How often, for --simulate
    #[arg(long, value_name = "COUNT", default_value = "100000", allow_hyphen_values = true)]
    trials: String,
    /// The run of --simulate: the same seed gives the same numbers
    #[arg(long, value_name = "SEED", default_value = "1", allow_hyphen_values = true)]
    seed: String,
}

pub fn run(plan: &Plan, out: &Out) -> Result<(), Failure> {
    let question = Question::new(plan)?;
    let run = question.simulation.as_ref();
    let measured = run.map(|run| crashes::cell(question.replicas, question.rate, run.trials, run.seed));
    let mut lines = cell(&question, measured.as_ref());
    if let Some(store) = &question.store {
        lines.extend(self::store(&question, store));
    }
    let judged = measured.and_then(|measured| measured.cell);
    out.result(object(&question, judged, &lines), || text(&question, judged, &lines))
}

/// One number: its key, how it comes about, and how often it came about by lot.
struct Line {
    key: &'static str,
    of: Section,
    computed: Number,
    measured: Option<u64>,
    meaning: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Section {
    Cell,
    Store,
}

#[derive(Clone, Copy)]
enum Number {
    /// The chance of something good, kept as the chance that it fails.
    Except(f64),
    /// The chance of something bad.
    Chance(f64),
    Ratio(f64),
    Count(f64),
}

impl Number {
    fn value(self) -> f64 {
        match self {
            Number::Except(failure) => 1.0 - failure,
            Number::Chance(value) | Number::Ratio(value) | Number::Count(value) => value,
        }
    }

    fn shown(self) -> String {
        match self {
            Number::Except(failure) => format!("1 - {}", plain(failure)),
            Number::Chance(value) => plain(value),
            Number::Ratio(value) => plain(value),
            Number::Count(value) => format!("{value}"),
        }
    }
}

fn cell(question: &Question, measured: Option<&Measured>) -> Vec<Line> {
    let (n, r) = (question.replicas, question.rate);
    let judged = measured.and_then(|measured| measured.cell);
    let line = |key, computed, measured, meaning: String| Line {
        key,
        of: Section::Cell,
        computed,
        measured,
        meaning,
    };
    let majority = n / 2 + 1;
    vec![
        line(
            "cell_reliability",
            Number::Except(sums::cell_failure(n, r)),
            judged.map(|judged| judged.works),
            format!("at least {majority} of {n} work: the exact sum"),
        ),
        line(
            "cell_failure_leading_term",
            Number::Chance(sums::cell_failure_leading(n, r)),
            None,
            "an approximation of the cell's failure".to_owned(),
        ),
        line(
            "data_survival",
            Number::Except(sums::all_lost(n, r)),
            judged.map(|judged| judged.survives),
            format!("at least 1 of {n} is left"),
        ),
        line(
            "series",
            Number::Except(sums::any_lost(n, r)),
            measured.map(|measured| measured.all_up),
            format!("all {n} work, when all are needed"),
        ),
        line(
            "parallel",
            Number::Except(sums::all_lost(n, r)),
            measured.map(|measured| measured.any_up),
            format!("one of {n} works, when one is enough"),
        ),
        line(
            "cost_ratio",
            Number::Ratio(sums::cost_ratio(n, r)),
            None,
            "one machine as good as R^[N/2] costs so many cells".to_owned(),
        ),
        line(
            "cost_ratio_exact",
            Number::Ratio(sums::cost_ratio_exact(n, r)),
            None,
            "one machine as good as this cell costs so many cells".to_owned(),
        ),
    ]
}

fn store(question: &Question, store: &Store) -> Vec<Line> {
    let owners = Owners::new(store.servers, store.copies);
    let spread = sums::Spread { servers: store.servers, copies: store.copies, owner_share: owners.share() };
    let q = sums::over(store.repair_share, question.rate);
    let run = question.simulation.as_ref();
    let windows = run.map(|run| crashes::windows(&owners, store.servers, q, run.trials, run.seed));
    let ever = run.filter(|_| store.repair_share < 1.0).map(|run| {
        crashes::times(&owners, store.servers, question.rate, store.repair_share, run.trials, run.seed)
    });
    let line = |key, computed, measured, meaning: &str| Line {
        key,
        of: Section::Store,
        computed,
        measured,
        meaning: meaning.to_owned(),
    };
    let mut lines = vec![
        line("window_rate", Number::Chance(q), None, "q: one server is lost in a repair window"),
        line(
            "one_key_lost",
            Number::Chance(sums::all_lost(store.copies, q)),
            None,
            "a given key loses all copies in a window",
        ),
        line("owner_sets", Number::Count(owners.count() as f64), None, "sets of servers that own some key"),
        line("owner_sets_max", Number::Count(owners.count_max()), None, "sets of so many servers"),
        line(
            "some_key_lost",
            Number::Chance(spread.some_key_lost(q)),
            windows,
            "some key loses all copies in a window",
        ),
        line(
            "some_key_lost_max",
            Number::Chance(spread.some_key_lost_max(q)),
            None,
            "the same if every set of servers owned some key",
        ),
    ];
    if store.repair_share < 1.0 {
        let chance = spread.some_key_lost_ever(question.rate, store.repair_share);
        lines.push(line(
            "some_key_lost_in_period",
            Number::Chance(chance),
            ever,
            "some key loses all copies in the whole period",
        ));
    }
    lines
}

fn object(question: &Question, judged: Option<Judged>, lines: &[Line]) -> Value {
    let section = |of: Section| lines.iter().filter(move |line| line.of == of);
    let mut object = json!({ "rate": question.rate, "replicas": question.replicas });
    for line in section(Section::Cell) {
        object[line.key] = json!(line.computed.value());
    }
    // What is left of 1 loses its digits: the chances of the bad are there too.
    object["cell_failure"] = json!(sums::cell_failure(question.replicas, question.rate));
    object["data_loss"] = json!(sums::all_lost(question.replicas, question.rate));
    if let Some(store) = &question.store {
        let mut fields = json!({
            "servers": store.servers,
            "copies": store.copies,
            "repair_seconds": store.repair_seconds,
            "period_seconds": store.period_seconds,
        });
        for line in section(Section::Store) {
            fields[line.key] = json!(line.computed.value());
        }
        object["store"] = fields;
    }
    if let Some(run) = &question.simulation {
        let mut measured = Map::new();
        for (line, count) in lines.iter().filter_map(|line| Some((line, line.measured?))) {
            measured.insert(line.key.to_owned(), json!(count as f64 / run.trials as f64));
        }
        object["simulated"] = json!({ "trials": run.trials, "seed": run.seed, "measured": measured });
        if let Some(judged) = judged {
            object["simulated"]["cells_run"] = json!(judged.runs);
        }
    }
    object
}

fn text(question: &Question, judged: Option<Judged>, lines: &[Line]) -> String {
    let mut rows = vec![row([&"WHAT", &"COMPUTED"])];
    if question.simulation.is_some() {
        rows[0].push("MEASURED".to_owned());
    }
    rows[0].push("MEANING".to_owned());
    for line in lines {
        let mut cells = row([&line.key, &line.computed.shown()]);
        if let Some(run) = &question.simulation {
            cells.push(
                line.measured.map_or_else(|| "-".to_owned(), |count| measured(line, count, run.trials)),
            );
        }
        cells.push(line.meaning.clone());
        rows.push(cells);
    }
    let mut text = table(&rows);
    if let Some(run) = &question.simulation {
        text.push_str(&format!("measured in {} trials, seed {}", run.trials, run.seed));
        if let Some(judged) = judged {
            text.push_str(&format!(
                "; cells run: {}, one for every set of machines that was lost",
                judged.runs
            ));
        }
        text.push('\n');
    }
    for note in question.notes() {
        text.push_str(&note);
        text.push('\n');
    }
    text
}

/// As the computed number is shown, so that the two can be compared.
fn measured(line: &Line, count: u64, trials: u64) -> String {
    let share = |count: u64| plain(count as f64 / trials as f64);
    match line.computed {
        Number::Except(_) => format!("1 - {}", share(trials - count)),
        Number::Chance(_) | Number::Ratio(_) | Number::Count(_) => share(count),
    }
}

/// Five digits; the very small and the very large with an exponent.
fn plain(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        value if !(1e-4..1e7).contains(&value) => format!("{value:.4e}"),
        value => {
            let digits = (4 - value.log10().floor() as i32).max(0) as usize;
            let text = format!("{value:.digits$}");
            match text.contains('.') {
                true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
                false => text,
            }
        }
    }
}

const FORMULAS: &str = "\
Examples:
  kumo plan --rate 3% --replicas 5
  kumo plan --rate 5% --replicas 3 --servers 12 --repair 4h --format json
  kumo plan --rate 10% --replicas 5 --simulate --trials 1000000

A cell of N replicas, each lost with R, each by itself (Paxos Cloud slides, part II); [N/2] rounds up:
  cell_reliability   1 - sum of C(N,i) R^i (1-R)^(N-i) over i from [N/2] to N
  its leading term   C(N,[N/2]) R^[N/2]
  data_survival      1 - R^N, also `parallel`
  series             (1-R)^N
  cost_ratio         1 / (N R^([N/2]-1)), when the price of a machine is inverse to its rate
  cost_ratio_exact   R / (N F) with F = 1 - cell_reliability. The slides leave C(N,[N/2]) out of the goal.

A store of S servers and C copies; w is the share of --repair in --period:
  window_rate        q = 1 - (1-R)^w
  one_key_lost       q^C
  some_key_lost_max  sum of C(S,k) q^k (1-q)^(S-k) over k from C to S: C or more servers lost in one window.
                     128 points a server make practically every set of C servers the owners of some key, as long
                     as S is small; for many servers there are more sets than arcs.
  some_key_lost      each term times 1 - (1-f)^C(k,C): f = owner_sets / owner_sets_max, counted on a ring of S servers
  .. in_period       1 - exp(-S L (1-u) g), L = -ln(1-R), u = L w / (1 + L w): g is the chance that a server is lost while
                     the other owners of a key of its are away, each u of the time, and no key was lost before; an
                     approximation, a little too high, for a w that is small

--simulate loses machines by the simulator's lot and has kumo itself say what is left:
  cell_reliability   for every set of lost machines that comes up, a cell of N replicas, the real code, is run in virtual
                     time: it forms, executes a write, loses those machines with their memory, and works when it decides
                     another write within an election's time
  data_survival      and the first write survives when a replica is left that has it
  the store          the owners of keys on kumo's own ring of S servers; C of one key lost is a key lost
--format json: rate, replicas, the keys above, cell_failure, data_loss, store{}, simulated{trials, seed, measured{},
cells_run}.";
