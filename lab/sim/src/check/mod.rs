//! The history checkers. Each takes what clients saw and says what is wrong with it; each is shown, in its own
//! tests, to find the wrong it is for.

pub mod agreement;
pub mod appends;
pub mod events;
pub mod linear;
pub mod locks;
pub mod order;
pub mod own;
pub mod queues;
pub mod registers;
pub mod trees;
pub mod truth;

/// What a checker found: a sentence for whoever reads the trace.
pub type Verdict = Result<(), String>;
