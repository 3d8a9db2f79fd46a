//! Real processes under faults: three replicas that are killed, paused, restarted without memory, cut off and fed
//! nonsense while clients work. Every test says how many faults took effect and how many operations succeeded.

mod clients;
mod cuts;
mod durable;
mod foreign;
mod full;
mod kills;
mod large;
mod load;
mod namespaces;
mod pauses;
mod process;
mod raw;
mod recovery;
mod requests;
mod strangers;
