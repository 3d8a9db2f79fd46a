//! The command line of the store's simulator: `sim store --seed N`, `sim store --seeds COUNT`.

use super::fault::Fault;
use super::focus::Focus;
use super::run::{Options, RULES, Report, Summary, run, run_many};
use std::process::ExitCode;

const USAGE: &str =
    "usage: sim store --seed N [--quiet] [--focus NAME] [--without FAULT]... [--broken RULE] [--narrow]
       sim store --seeds COUNT [--from N] [--jobs N] [--focus NAME] [--without FAULT]... [--broken RULE]
                 [--narrow]
  --seed N          run one seed and print its trace (--quiet: only its result)
  --seeds COUNT     run many, print their count and the seeds that failed
  --from N          the first of them (0)
  --jobs N          so many at a time (2)
  --focus NAME      faults that fit together, instead of any
  --without FAULT   leave one kind of fault out; the others strike as before
  --broken RULE     all nodes leave that rule out
  --narrow          servers do little at once: limits that only large clusters meet are met";

/// The rule of [`Options::heedless`].
const HEEDLESS: &str = "UnstoredTold";

/// What was asked on the command line.
struct Wish {
    seed: Option<u64>,
    seeds: u64,
    from: u64,
    jobs: usize,
    options: Options,
}

/// Does what the arguments after `store` say.
pub fn main(arguments: impl Iterator<Item = String>) -> ExitCode {
    let wish = match parse(arguments) {
        Ok(wish) => wish,
        Err(wrong) => {
            eprintln!("{wrong}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let fine = match wish.seed {
        Some(seed) => one(run(seed, &wish.options)),
        None => many(&wish),
    };
    if fine { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Wish, String> {
    let options = Options { trace: true, ..Options::default() };
    let mut wish = Wish { seed: None, seeds: 0, from: 0, jobs: 2, options };
    while let Some(argument) = arguments.next() {
        let mut text = || arguments.next().ok_or(format!("{argument} needs a value"));
        let number = |text: String| text.parse::<u64>().map_err(|_| format!("{text}: not a number"));
        match argument.as_str() {
            "--seed" => wish.seed = Some(number(text()?)?),
            "--seeds" => wish.seeds = number(text()?)?,
            "--from" => wish.from = number(text()?)?,
            "--jobs" => wish.jobs = number(text()?)? as usize,
            "--narrow" => wish.options.narrow = true,
            "--quiet" => wish.options.trace = false,
            "--without" => {
                let name = text()?;
                let names = Fault::ALL.map(Fault::name).join(", ");
                let fault = Fault::named(&name).ok_or(format!("no fault {name}; there are: {names}"))?;
                wish.options.without.insert(fault);
            }
            "--focus" => {
                let name = text()?;
                let names: Vec<&str> = Focus::ALL.into_iter().map(Focus::name).collect();
                let names = names.join(", ");
                let focus = Focus::named(&name).ok_or(format!("no focus {name}; there are: {names}"))?;
                wish.options.focus = Some(focus);
            }
            "--broken" => {
                let name = text()?;
                if name == HEEDLESS {
                    wish.options.heedless = true;
                    continue;
                }
                let rule = RULES.into_iter().find(|rule| format!("{rule:?}") == name);
                let names: Vec<String> = RULES.iter().map(|rule| format!("{rule:?}")).collect();
                let rule =
                    rule.ok_or(format!("no rule {name}; there are: {}, {HEEDLESS}", names.join(", ")))?;
                wish.options.broken = Some(rule);
            }
            _ => return Err(format!("unknown argument: {argument}")),
        }
    }
    match wish.seed.is_none() && wish.seeds == 0 {
        true => Err("neither --seed nor --seeds is given".to_owned()),
        false => Ok(wish),
    }
}

fn one(report: Report) -> bool {
    for line in &report.lines {
        println!("{line}");
    }
    let faults: Vec<String> =
        report.faults.iter().map(|(fault, count)| format!("{} {count}", fault.name())).collect();
    println!(
        "seed {}: {:.1} virtual seconds, {} calls, {} answered, {} spaces, faults: {}; hash {:016x}{}",
        report.seed,
        report.micros as f64 / 1e6,
        report.calls,
        report.succeeded,
        report.spaces,
        faults.join(", "),
        report.hash,
        match (report.accepted, report.excused) {
            (0, false) => String::new(),
            (0, true) => "; not judged".to_owned(),
            (losses, false) => format!("; {losses} losses accepted, of {} keys", report.keys_lost),
            (losses, true) => format!("; {losses} losses accepted; not judged"),
        }
    );
    match &report.failure {
        Some(failure) => println!("FAILED: {failure}"),
        None => println!("fine"),
    }
    report.failure.is_none()
}

fn many(wish: &Wish) -> bool {
    let options = Options { trace: false, ..wish.options.clone() };
    let summary = run_many(wish.from, wish.seeds, wish.jobs, &options, |done, failure| {
        if let Some((seed, failure)) = failure {
            let line: String = failure.lines().next().unwrap_or_default().chars().take(300).collect();
            println!("seed {seed} failed: {line}");
        }
        if done.is_multiple_of(500) {
            println!("{done} of {}", wish.seeds);
        }
        true
    });
    print(&summary);
    summary.failures.is_empty() && summary.too_little().is_none()
}

fn print(summary: &Summary) {
    println!(
        "{} runs, {:.0} virtual seconds, {} calls, {} answered, {} refused for lack of copies, {} failures of disks, \
         {} servers ended by them, {} spaces, {} losses of {} keys accepted in {} runs, \
         {} rebuilds without missing servers, {} of them with a loss, {} runs not judged",
        summary.runs,
        summary.micros as f64 / 1e6,
        summary.calls,
        summary.succeeded,
        summary.refused,
        summary.denied,
        summary.ended,
        summary.spaces,
        summary.accepted,
        summary.keys_lost,
        summary.bereft,
        summary.forsaken,
        summary.forsaken_with_loss,
        summary.excused
    );
    for (fault, count) in &summary.faults {
        println!("  {:<14} {count}", fault.name());
    }
    if let Some(wrong) = summary.too_little() {
        println!("too little happened: {wrong}");
    }
    match summary.failures.is_empty() {
        true => println!("no failures"),
        false => {
            println!("{} failed: {:?}", summary.failures.len(), summary.failures.keys().collect::<Vec<_>>())
        }
    }
}
