//! The simulator of a cell.
//!
//! The real cores of a whole cell and of its clients run in one thread, in virtual time, from one number: the
//! seed. Everything that could differ between two runs (who is delayed, what breaks, what clients ask) is drawn
//! from it, so a failure is a number that anybody can repeat. [`fault::Plan`] draws what will happen,
//! [`world::World`] makes it happen, [`history::History`] writes down what clients saw, [`check`] judges it, and
//! [`run`] does that for one seed or for many.
//!
//! A run has two halves. In the first, faults strike, within what the cell promises to bear (some runs exceed it
//! on purpose: there only safety is demanded). In the second everything is healed, and the cell must recover:
//! every call is answered, dead sessions expire, and all replicas become equal.

pub mod check;
pub mod cli;
pub mod disk;
pub mod fault;
pub mod history;
pub mod models;
pub mod run;
pub mod store;
pub mod trace;
pub mod watched;
pub mod workload;
pub mod world;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
