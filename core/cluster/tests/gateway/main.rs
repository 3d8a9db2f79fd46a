//! A gateway among made-up managers and servers: recorded scripts, and runs by seed.

mod chaos;
mod limits;
mod names;
mod scripts;
mod servers;
