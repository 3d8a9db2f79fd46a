//! A server seen from outside: what it remembers, what it has under way, and what it does in one step.

mod bounds;
mod disk;
mod house;
mod pace;
mod settlement;
mod strangers;
