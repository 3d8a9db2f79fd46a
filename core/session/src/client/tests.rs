//! The client, message by message.
