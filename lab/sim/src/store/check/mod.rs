//! What a run's callers saw, judged.

pub mod counts;
pub mod linear;
#[cfg(test)]
mod losses;
#[cfg(test)]
mod samples;
mod steps;

pub use steps::clock_of;

/// What is wrong, if anything.
pub type Verdict = Result<(), String>;
