//! [`Slots`]: the open calls, each in a slot, and the lists that run through the slots.

use super::call::Call;
use kumo_paxos::Time;

/// No slot.
pub(super) const NONE: u32 = u32::MAX;

/// What a call waits for. Each has one duration, so a list in the order of its beginning is in the order of
/// its end as well: no timer per call, and no search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// For an id of this gateway, or the first space. Its age ends that, or a space without servers.
    Place,
    /// For the answer to a try, or for a link to try on.
    Try,
    /// A rest before the next try, the longer the more there were: an index into [`PAUSES_MICROS`].
    Pause(u8),
}

/// How long to rest after Wait and the like. A settlement takes about one round trip, a loss some seconds.
pub(super) const PAUSES_MICROS: [u64; 6] = [2_000, 4_000, 8_000, 16_000, 32_000, 50_000];

const LISTS: usize = 2 + PAUSES_MICROS.len();

/// A slab: a slot is used again once its call is closed. Every call is in the list of all, oldest first,
/// and in the list of what it waits for.
pub(super) struct Slots {
    slots: Vec<Slot>,
    /// First of the free slots, which are linked by their `age.next`.
    free: u32,
    age: List,
    waits: [List; LISTS],
}

struct Slot {
    age: Link,
    wait: Link,
    call: Option<Call>,
}

#[derive(Clone, Copy)]
struct Link {
    previous: u32,
    next: u32,
}

struct List {
    first: u32,
    last: u32,
    len: usize,
}

impl Wait {
    fn list(self) -> usize {
        match self {
            Wait::Place => 0,
            Wait::Try => 1,
            Wait::Pause(step) => 2 + usize::from(step),
        }
    }
}

impl Slots {
    pub fn new() -> Slots {
        Slots { slots: Vec::new(), free: NONE, age: List::EMPTY, waits: [List::EMPTY; LISTS] }
    }

    pub fn len(&self) -> usize {
        self.age.len
    }

    /// How many wait for this.
    pub fn waiting(&self, wait: Wait) -> usize {
        self.waits[wait.list()].len
    }

    /// Takes a call in, at the end of the list that its `wait` names.
    pub fn insert(&mut self, call: Call) -> u32 {
        let wait = call.wait.list();
        let slot = if self.free == NONE {
            self.slots.push(Slot { age: Link::NOWHERE, wait: Link::NOWHERE, call: None });
            (self.slots.len() - 1) as u32
        } else {
            let slot = self.free;
            self.free = self.slots[slot as usize].age.next;
            slot
        };
        self.slots[slot as usize].call = Some(call);
        self.age.push::<Age>(&mut self.slots, slot);
        self.waits[wait].push::<Waiting>(&mut self.slots, slot);
        slot
    }

    pub fn remove(&mut self, slot: u32) -> Call {
        let call = self.slots[slot as usize].call.take().expect("only open slots are closed");
        self.age.remove::<Age>(&mut self.slots, slot);
        self.waits[call.wait.list()].remove::<Waiting>(&mut self.slots, slot);
        self.slots[slot as usize].age.next = self.free;
        self.free = slot;
        call
    }

    pub fn get(&self, slot: u32) -> &Call {
        self.slots[slot as usize].call.as_ref().expect("only open slots are named")
    }

    pub fn get_mut(&mut self, slot: u32) -> &mut Call {
        self.slots[slot as usize].call.as_mut().expect("only open slots are named")
    }

    /// From now on it waits for this, at most until then.
    pub fn wait(&mut self, slot: u32, wait: Wait, until: Time) {
        let call = self.get_mut(slot);
        let before = std::mem::replace(&mut call.wait, wait);
        call.until = until;
        self.waits[before.list()].remove::<Waiting>(&mut self.slots, slot);
        self.waits[wait.list()].push::<Waiting>(&mut self.slots, slot);
    }

    /// The one that has been open longest.
    pub fn oldest(&self) -> Option<u32> {
        self.age.first()
    }

    /// The one that has waited for this longest.
    pub fn first(&self, wait: Wait) -> Option<u32> {
        self.waits[wait.list()].first()
    }

    /// The first of each list that has an end in time.
    pub fn firsts(&self) -> impl Iterator<Item = u32> + '_ {
        self.waits[Wait::Try.list()..].iter().filter_map(List::first)
    }
}

/// Which of a slot's two links a list runs through.
trait Through {
    fn link(slot: &mut Slot) -> &mut Link;
}

struct Age;
struct Waiting;

impl Through for Age {
    fn link(slot: &mut Slot) -> &mut Link {
        &mut slot.age
    }
}

impl Through for Waiting {
    fn link(slot: &mut Slot) -> &mut Link {
        &mut slot.wait
    }
}

impl Link {
    const NOWHERE: Link = Link { previous: NONE, next: NONE };
}

impl List {
    const EMPTY: List = List { first: NONE, last: NONE, len: 0 };

    fn first(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }

    fn push<T: Through>(&mut self, slots: &mut [Slot], slot: u32) {
        *T::link(&mut slots[slot as usize]) = Link { previous: self.last, next: NONE };
        if self.last == NONE {
            self.first = slot;
        } else {
            T::link(&mut slots[self.last as usize]).next = slot;
        }
        self.last = slot;
        self.len += 1;
    }

    fn remove<T: Through>(&mut self, slots: &mut [Slot], slot: u32) {
        let link = *T::link(&mut slots[slot as usize]);
        if link.previous == NONE {
            self.first = link.next;
        } else {
            T::link(&mut slots[link.previous as usize]).next = link.next;
        }
        if link.next == NONE {
            self.last = link.previous;
        } else {
            T::link(&mut slots[link.next as usize]).previous = link.previous;
        }
        self.len -= 1;
    }
}
