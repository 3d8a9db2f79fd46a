//! A server seen from outside: what it remembers, what it has under way, and what it does in one step.

mod acknowledgements;
mod bounds;
mod carried;
mod comers;
mod damaged;
mod disk;
mod early;
mod expiry;
mod few;
mod flush;
mod garbage;
mod given_up;
mod holdings;
mod house;
mod late;
mod named;
mod pace;
#[cfg(feature = "mutants")]
mod portrait;
mod power;
mod report;
mod resent;
mod room;
mod settlement;
mod signs;
mod strangers;
mod unleased;
mod unlisted;
mod unread;
mod unstored;
mod watermarks;
