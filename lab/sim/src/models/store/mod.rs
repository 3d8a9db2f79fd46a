//! The store's rules for one key: the real [`Server`](kumo_cluster::Server)s of its owners in every order of events.
//!
//! A [`Tale`] says which spaces are published, under which conditions, and what is asked meanwhile. Letters between
//! servers arrive in any order, late or never; a server adopts a space when it likes; leases run out at any time. In
//! every state what the callers were told must fit one order of their calls ([`LINEAR`]), and where nothing is under
//! way all owners must hold the same ([`EQUAL`]). Requests and their answers take no time, which makes the first of
//! these as hard as it can be; an answer that gets lost is a try that nobody listens to, and that may arrive late.

mod chapter;
mod disk;
mod node;
mod play;
mod state;
mod tale;

pub use chapter::{Chapter, Life, When};
pub use node::Node;
pub use play::Play;
pub use state::{Ask, From, Letter, State};
pub use tale::{Action, EQUAL, LINEAR, Plot, Tale};
