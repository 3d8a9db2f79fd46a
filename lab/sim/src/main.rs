//! The simulator: `sim --seed N` prints one run, `sim --seeds COUNT` counts many.

use std::process::ExitCode;

fn main() -> ExitCode {
    sim::cli::main(std::env::args().skip(1))
}
