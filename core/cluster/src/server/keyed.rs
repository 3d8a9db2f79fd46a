//! [`Keyed`]: large values by key, in order of the keys.

use crate::StoreKey;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeFrom;

/// An ordered map whose values stay where they are. A tree moves its neighbours with every insertion and removal: here
/// those are numbers of places, not the values, which are several times as large as their keys.
#[derive(Clone)]
pub(crate) struct Keyed<V> {
    places: BTreeMap<StoreKey, u32>,
    /// None: free.
    values: Vec<Option<V>>,
    free: Vec<u32>,
}

impl<V> Keyed<V> {
    pub fn len(&self) -> usize {
        self.places.len()
    }

    pub fn contains_key(&self, key: &StoreKey) -> bool {
        self.places.contains_key(key)
    }

    pub fn get(&self, key: &StoreKey) -> Option<&V> {
        self.value(*self.places.get(key)?)
    }

    pub fn get_mut(&mut self, key: &StoreKey) -> Option<&mut V> {
        let place = *self.places.get(key)?;
        self.values[place as usize].as_mut()
    }

    /// Returns what was there before.
    pub fn insert(&mut self, key: StoreKey, value: V) -> Option<V> {
        let (values, free) = (&mut self.values, &mut self.free);
        let mut value = Some(value);
        let place = *self.places.entry(key).or_insert_with(|| {
            free.pop().unwrap_or_else(|| {
                values.push(None);
                // As many as keys of requests under way, which have limits far below.
                values.len() as u32 - 1
            })
        });
        std::mem::swap(&mut self.values[place as usize], &mut value);
        value
    }

    pub fn remove(&mut self, key: &StoreKey) -> Option<V> {
        let place = self.places.remove(key)?;
        let value = self.values[place as usize].take();
        self.vacate(place);
        value
    }

    pub fn remove_if(&mut self, key: &StoreKey, goes: impl Fn(&V) -> bool) {
        let Some(&place) = self.places.get(key) else { return };
        if self.values[place as usize].take_if(|value| goes(value)).is_some() {
            self.places.remove(key);
            self.vacate(place);
        }
    }

    fn vacate(&mut self, place: u32) {
        self.free.push(place);
        if self.places.is_empty() && self.values.len() > KEEP_MAX {
            *self = Keyed::default();
        }
    }

    /// In order, from that key on.
    pub fn from<'a>(&'a self, first: &StoreKey) -> impl Iterator<Item = (&'a StoreKey, &'a V)> + use<'a, V> {
        let places = self.places.range::<StoreKey, RangeFrom<&StoreKey>>(first..);
        places.filter_map(|(key, &place)| Some((key, self.value(place)?)))
    }

    pub fn iter(&self) -> impl Iterator<Item = (&StoreKey, &V)> {
        self.places.iter().filter_map(|(key, &place)| Some((key, self.value(place)?)))
    }

    pub fn retain(&mut self, stays: impl Fn(&StoreKey) -> bool) {
        let (values, free) = (&mut self.values, &mut self.free);
        self.places.retain(|key, &mut place| {
            let stays = stays(key);
            if !stays {
                values[place as usize] = None;
                free.push(place);
            }
            stays
        });
    }

    pub fn into_values(self) -> impl Iterator<Item = (StoreKey, V)> {
        let mut values = self.values;
        self.places.into_iter().filter_map(move |(key, place)| Some((key, values[place as usize].take()?)))
    }

    fn value(&self, place: u32) -> Option<&V> {
        self.values[place as usize].as_ref()
    }
}

impl<V> Default for Keyed<V> {
    fn default() -> Keyed<V> {
        Keyed { places: BTreeMap::new(), values: Vec::new(), free: Vec::new() }
    }
}

/// What is there, and not where: two that hold the same are the same to a model.
impl<V: fmt::Debug> fmt::Debug for Keyed<V> {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.debug_map().entries(self.iter()).finish()
    }
}

/// Places that are kept when none is in use: those of a store that is busy.
const KEEP_MAX: usize = 4096;
