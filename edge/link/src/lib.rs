//! The sockets of the store's protocol, without a task per connection: for its processes and for the native client,
//! which is a gateway without a memcached port.
//!
//! A [`hub::Hub`] reads and writes bytes; a [`post::Post`] keeps connections with servers and managers and hands
//! over what they say; a [`GatewayLink`] joins one with a gateway's core. All are turned by the loop that owns them: sockets that woke stand on a [`ReadyList`].

pub mod clock;
mod gateway;
pub mod hub;
mod linger;
pub mod post;
mod quiet;
mod ready;
mod socket;
mod strangers;

pub use gateway::{GatewayLink, Told};
pub use linger::{LINGER, Linger};
pub use quiet::Quiet;
pub use ready::{ReadyList, Signal, Token};
pub use socket::prepare;
pub use strangers::Strangers;
