//! The kumo binary.

fn main() {}
