//! [`Failure`]: why something could not be measured, in one line.

use std::fmt::Display;

#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Failure(String);

pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    pub fn new(text: impl Into<String>) -> Failure {
        Failure(text.into())
    }
}

/// Names what was being done when an error came.
pub trait Context<T> {
    fn context(self, what: impl Display) -> Result<T>;
}

impl<T, E: Display> Context<T> for std::result::Result<T, E> {
    fn context(self, what: impl Display) -> Result<T> {
        self.map_err(|error| Failure(format!("{what}: {error}")))
    }
}
