//! The simulator.

fn main() {}
