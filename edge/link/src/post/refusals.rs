//! [`Refusals`]: which managers do not want this process.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use tracing::warn;

/// Of the managers that a process was started with. One that refuses may be full for a moment, or of another version; when
/// all do, nobody will ever tell this process what to do.
pub struct Refusals {
    managers: Vec<SocketAddr>,
    reasons: BTreeMap<SocketAddr, String>,
}

impl Refusals {
    pub fn new(managers: &[SocketAddr]) -> Refusals {
        Refusals { managers: managers.to_vec(), reasons: BTreeMap::new() }
    }

    /// That manager speaks with this process after all.
    pub fn withdrawn(&mut self, manager: SocketAddr) {
        self.reasons.remove(&manager);
    }

    /// That manager refused. What all of them say, if none is left.
    pub fn refused(&mut self, manager: SocketAddr, reason: &str) -> Option<String> {
        let known = self.reasons.insert(manager, reason.to_owned());
        // It is dialled again and again: said once.
        if known.as_deref() != Some(reason) {
            warn!(%manager, reason, "refused");
        }
        let said = self.managers.iter().map(|manager| {
            let reason = self.reasons.get(manager)?;
            Some(format!("manager {manager}: {reason}"))
        });
        said.collect::<Option<Vec<String>>>().map(|said| said.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_when_all_refuse_it_is_over() {
        let [one, other, third] = [1, 2, 3].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let mut refusals = Refusals::new(&[one, other]);
        assert_eq!(refusals.refused(one, "full"), None);
        assert_eq!(refusals.refused(one, "full"), None, "again");
        assert_eq!(refusals.refused(third, "full"), None, "not one of those it was started with");
        refusals.withdrawn(one);
        assert_eq!(refusals.refused(other, "too old"), None, "the first took it meanwhile");
        let all = "manager 127.0.0.1:1: full; manager 127.0.0.1:2: too old";
        assert_eq!(refusals.refused(one, "full").as_deref(), Some(all));
        let mut alone = Refusals::new(&[one]);
        assert_eq!(alone.refused(one, "full").as_deref(), Some("manager 127.0.0.1:1: full"));
    }
}
