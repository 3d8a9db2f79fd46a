//! The simulator of whole store clusters: managers, servers, gateways and those who call them.
//!
//! As for a cell, everything runs in one thread, in virtual time, from one seed, and only the shell is replaced.
//! [`fault::Plan`] draws what will happen, [`world::World`] makes it happen with the real cores, [`engine::Engine`]
//! stands for the disks and [`trouble::Trouble`] for what fails there, [`history::History`] keeps what callers saw,
//! [`check`] judges it, [`run`] does that for one seed or for many. First trouble, and operators who attach, detach and
//! replace in the middle of it; then everything is healed and attached, every call must end, and all owners of a key
//! must hold the same.

pub mod check;
pub mod cli;
pub mod engine;
pub mod fault;
pub mod focus;
pub mod history;
pub mod run;
pub mod trouble;
pub mod workload;
pub mod world;
