//! [`Table`]: clients by the number of their connection.

use crate::store::client::Client;
use kumo_session::ConnectionId;

/// Every request looks for its client several times, so each has a place that its number names: the lower half of it is a
/// small number, which the hub uses again when a connection has gone.
#[derive(Default)]
pub struct Table {
    places: Vec<Option<(ConnectionId, Box<Client>)>>,
    count: usize,
}

impl Table {
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn get(&self, id: ConnectionId) -> Option<&Client> {
        match self.places.get(place(id))? {
            Some((own, client)) if *own == id => Some(client),
            Some(_) | None => None,
        }
    }

    pub fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Client> {
        match self.places.get_mut(place(id))? {
            Some((own, client)) if *own == id => Some(client),
            Some(_) | None => None,
        }
    }

    /// Who has the place of that number: another one, whose end is still to be told, or itself.
    pub fn at_place_of(&self, id: ConnectionId) -> Option<ConnectionId> {
        self.places.get(place(id))?.as_ref().map(|(own, _)| *own)
    }

    /// The place must be free.
    pub fn insert(&mut self, id: ConnectionId, client: Client) {
        let place = place(id);
        if place >= self.places.len() {
            self.places.resize_with(place + 1, || None);
        }
        let before = self.places[place].replace((id, Box::new(client)));
        assert!(before.is_none(), "whoever had the place was taken out of it");
        self.count += 1;
    }

    pub fn remove(&mut self, id: ConnectionId) -> Option<Client> {
        let place = self.places.get_mut(place(id))?;
        let (_, client) = place.take_if(|(own, _)| *own == id)?;
        self.count -= 1;
        Some(*client)
    }

    pub fn iter(&self) -> impl Iterator<Item = (ConnectionId, &Client)> {
        self.places.iter().flatten().map(|(id, client)| (*id, &**client))
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (ConnectionId, &mut Client)> {
        self.places.iter_mut().flatten().map(|(id, client)| (*id, &mut **client))
    }
}

fn place(id: ConnectionId) -> usize {
    id.0 as u32 as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use kumo_wire::memcache::Decoder;

    #[test]
    fn a_place_that_is_used_again_is_another_clients() {
        let (first, second) = (ConnectionId(1 << 32 | 3), ConnectionId(2 << 32 | 3));
        let client = || Client::new(Decoder::new(1024));
        let mut table = Table::default();
        assert!(table.is_empty() && table.get(first).is_none());
        table.insert(first, client());
        assert!(table.get_mut(first).is_some() && table.get(second).is_none());
        assert_eq!(table.at_place_of(second), Some(first));
        assert!(table.remove(second).is_none() && table.remove(first).is_some() && table.is_empty());
        table.insert(second, client());
        assert!(table.get(first).is_none() && table.get(second).is_some());
        assert_eq!(table.iter().map(|(id, _)| id).collect::<Vec<_>>(), [second]);
        assert!(!table.is_empty());
    }
}
