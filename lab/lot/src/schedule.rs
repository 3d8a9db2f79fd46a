//! [`Schedule`]: what is to happen, by virtual time; what falls on one moment happens in the order it was put in.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Things to come.
#[derive(Debug)]
pub struct Schedule<T> {
    /// Time, order of putting, and where the thing is.
    heap: BinaryHeap<Reverse<(u64, u64, usize)>>,
    items: Vec<Option<T>>,
    free: Vec<usize>,
    next: u64,
}

impl<T> Default for Schedule<T> {
    fn default() -> Schedule<T> {
        Schedule { heap: BinaryHeap::new(), items: Vec::new(), free: Vec::new(), next: 0 }
    }
}

impl<T> Schedule<T> {
    pub fn put(&mut self, time: u64, item: T) {
        let place = self.free.pop().unwrap_or_else(|| {
            self.items.push(None);
            self.items.len() - 1
        });
        self.items[place] = Some(item);
        self.heap.push(Reverse((time, self.next, place)));
        self.next += 1;
    }

    /// The next thing and its time, if it is due by `until`.
    pub fn take(&mut self, until: u64) -> Option<(u64, T)> {
        let &Reverse((time, _, place)) = self.heap.peek()?;
        if time > until {
            return None;
        }
        self.heap.pop();
        self.free.push(place);
        let item = self.items[place].take().expect("every place in the heap has its item");
        Some((time, item))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_first_then_the_order_of_putting() {
        let mut schedule = Schedule::default();
        for (time, name) in [(5, "c"), (1, "a"), (5, "d"), (1, "b"), (9, "e")] {
            schedule.put(time, name);
        }
        let order: Vec<_> = std::iter::from_fn(|| schedule.take(5)).collect();
        assert_eq!(order, [(1, "a"), (1, "b"), (5, "c"), (5, "d")]);
        schedule.put(9, "f");
        assert_eq!(schedule.take(9), Some((9, "e")));
        assert_eq!(schedule.take(9), Some((9, "f")));
        assert_eq!(schedule.take(9), None);
    }
}
