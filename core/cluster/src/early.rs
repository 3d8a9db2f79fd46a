//! [`Early`]: which writes are answered before their copies are made (`-As`, `-Ad`).

use crate::Operation;

/// What is answered early. It may be asked for by the gateway, with the request, and by the server's operator. An
/// early answer is outside the promise that an acknowledged write is never lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Early {
    pub set: bool,
    pub delete: bool,
}

impl Early {
    /// Plain sets and deletes alone: what depends on the version before keeps its promises whatever is asked for.
    pub fn includes(self, operation: &Operation) -> bool {
        match operation {
            Operation::Set { .. } => self.set,
            Operation::Delete { .. } => self.delete,
            Operation::Get
            | Operation::GetAndTouch { .. }
            | Operation::Add { .. }
            | Operation::Replace { .. }
            | Operation::Cas { .. }
            | Operation::Append { .. }
            | Operation::Prepend { .. }
            | Operation::Touch { .. }
            | Operation::Add64 { .. } => false,
        }
    }
}
