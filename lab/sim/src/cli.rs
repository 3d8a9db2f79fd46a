//! The command line: one seed with its trace, or many with their count.

use crate::fault::Fault;
use crate::run::{Options, Report, Summary, run, run_many};
use std::process::ExitCode;

const USAGE: &str = "usage: sim --seed N [--trace] [--plain] [--without FAULT]...
       sim --seeds COUNT [--from N] [--jobs N] [--plain] [--without FAULT]...
       sim store ...: the same of a store cluster
  --seed N          run one seed and print its trace (--quiet: only its result)
  --seeds COUNT     run many, print their count and the seeds that failed
  --from N          the first of them (0)
  --jobs N          so many at a time (2)
  --plain           only clients of the first kinds: no trees, floods of events, watches of locks and queues
  --without FAULT   leave one kind of fault out; the others strike as before";

/// What was asked on the command line.
struct Wish {
    seed: Option<u64>,
    seeds: u64,
    from: u64,
    jobs: usize,
    options: Options,
}

/// Does what the arguments say.
pub fn main(arguments: impl Iterator<Item = String>) -> ExitCode {
    let mut arguments = arguments.peekable();
    if arguments.next_if(|argument| argument == "store").is_some() {
        return crate::store::cli::main(arguments);
    }
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
    let mut wish = Wish {
        seed: None,
        seeds: 0,
        from: 0,
        jobs: 2,
        options: Options { trace: true, ..Options::default() },
    };
    while let Some(argument) = arguments.next() {
        let mut number = || {
            let text = arguments.next().ok_or(format!("{argument} needs a number"))?;
            text.parse::<u64>().map_err(|_| format!("{argument} {text}: not a number"))
        };
        match argument.as_str() {
            "--seed" => wish.seed = Some(number()?),
            "--seeds" => wish.seeds = number()?,
            "--from" => wish.from = number()?,
            "--jobs" => wish.jobs = number()? as usize,
            "--trace" => wish.options.trace = true,
            "--plain" => wish.options.plain = true,
            "--quiet" => wish.options.trace = false,
            "--without" => {
                let name = arguments.next().ok_or("--without needs the name of a fault")?;
                let names = Fault::ALL.map(Fault::name).join(", ");
                let fault = Fault::named(&name).ok_or(format!("no fault {name}; there are: {names}"))?;
                wish.options.without.insert(fault);
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
        "seed {}: {:.1} virtual seconds, {} calls, {} succeeded, {} comparisons, faults: {}; hash {:016x}",
        report.seed,
        report.micros as f64 / 1e6,
        report.calls,
        report.succeeded,
        report.compared,
        faults.join(", "),
        report.hash
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
            println!("seed {seed} failed: {}", failure.lines().next().unwrap_or_default());
        }
        if done.is_multiple_of(500) {
            println!("{done} of {}", wish.seeds);
        }
    });
    print(&summary);
    summary.failures.is_empty() && summary.too_little().is_none()
}

fn print(summary: &Summary) {
    println!(
        "{} runs, {:.0} virtual seconds, {} calls, {} succeeded, {} comparisons",
        summary.runs,
        summary.micros as f64 / 1e6,
        summary.calls,
        summary.succeeded,
        summary.compared
    );
    println!("  events omitted {}", summary.overflows);
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
