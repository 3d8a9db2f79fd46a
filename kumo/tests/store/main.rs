//! The store on real processes: managers, servers and a gateway that are killed, stopped, restarted, attached, detached
//! and fed nonsense while clients work. Every test says how many faults took effect, how many operations succeeded
//! and how long a client waited at worst.

mod bad_input;
mod bench;
mod caller;
mod client;
mod cluster;
mod commands;
mod conformance;
mod daemons;
mod damage;
mod events;
mod full;
mod garbage;
#[allow(dead_code)] // The tests of HTTP use more of it.
#[path = "../http_client/mod.rs"]
mod http_client;
mod judge;
mod load;
mod logins;
mod logs;
mod losses;
mod managers;
#[path = "../chaos/namespaces.rs"]
mod namespaces;
mod native;
mod options;
mod outage;
mod pair;
mod pair_cuts;
mod patience;
mod readers;
mod recordings;
mod refusals;
mod replaces;
mod restore;
mod seed;
mod servers;
mod tools;
mod waiting;
mod workers;
