//! How [`Clients`] wait for room, and who is cut off when there is none.

use super::Clients;
use crate::hub::Hub;
use kumo_cluster::GatewayInput;
use kumo_paxos::Time;
use kumo_session::ConnectionId;
use tracing::warn;

impl Clients {
    /// Those in line for room go on, one after another, as long as there is some.
    pub(super) fn let_in(&mut self, now: Time, hub: &mut Hub, inputs: &mut Vec<GatewayInput>) {
        self.cut_late(now, hub, inputs);
        while let Some(id) = self.room.next() {
            let Some(client) = self.clients.get_mut(id) else { continue };
            client.share.go_on();
            client.paused = false;
            hub.pause(id, false);
            self.read(now, id, hub, inputs);
        }
        hub.short(self.room.is_short());
    }

    /// Cuts off clients that hold room and do not do what would free it, those that hold the most first, until there is
    /// some: they do not send the rest of a request, or do not read their answers.
    fn cut_late(&mut self, now: Time, hub: &mut Hub, inputs: &mut Vec<GatewayInput>) {
        if !self.room.looks(now) {
            return;
        }
        let mut late: Vec<(usize, ConnectionId)> = Vec::new();
        for (id, client) in self.clients.iter_mut() {
            let here = hub.inbox(id).map_or(0, |inbox| inbox.len());
            // Whoever is not read cannot go on.
            let is_late = (hub.is_read(id) && client.share.is_late(here)) || hub.is_stuck(id);
            if is_late && client.share.counted() > 0 {
                late.push((client.share.counted(), id));
            }
        }
        late.sort_unstable_by(|one, other| other.cmp(one));
        let (mut clients, mut bytes) = (0, 0);
        for (counted, id) in late {
            if !self.room.is_short() {
                break;
            }
            hub.forget(id);
            self.down(id, inputs);
            clients += 1;
            bytes += counted;
        }
        if clients > 0 {
            warn!(
                clients,
                bytes, "cut off: they neither send the rest of a request nor read, and others wait for room"
            );
        }
    }
}
