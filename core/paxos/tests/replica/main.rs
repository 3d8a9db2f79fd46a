//! Whole replicas in one thread: recorded scripts, and schedules that once broke a promise.

mod differs;
mod large;
mod losses;
mod panics;
mod reigns;
mod schedules;
mod scripts;
mod world;
