//! Origins on their way between servers. What a get that touches shows is the data of the record that travels with its
//! origin: it is sent once, and the receiver puts it where it belongs.

use crate::{Origin, Record, Reply};
use bytes::Bytes;

/// Without what the record beside it says.
pub(super) fn lean(origin: Option<&Origin>) -> Option<Origin> {
    origin.map(|origin| with_data(origin.clone(), Bytes::new()))
}

/// As it was before.
pub(super) fn whole(origin: Option<Origin>, record: &Record) -> Option<Origin> {
    origin.map(|origin| with_data(origin, record.data.clone()))
}

fn with_data(origin: Origin, data: Bytes) -> Origin {
    let reply = match origin.reply {
        Reply::Value { clock, flags, ttl, .. } => Reply::Value { clock, flags, ttl, data },
        other @ (Reply::Done { .. } | Reply::Number { .. } | Reply::Touched { .. }) => other,
    };
    Origin { reply, ..origin }
}
