//! [`Map`]: an ordered map whose copy costs nothing. Copies share their nodes; a change to one of them
//! copies the few nodes on its way (B-tree, copy on write) and is not seen by the others.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

/// An ordered map. Clone is O(1); get, insert, remove, rank and the n-th entry are O(log n), and stay so
/// while copies exist. Keys and values are cloned when a shared node changes: they should be cheap to clone.
pub(crate) struct Map<K, V> {
    root: Option<Arc<Node<K, V>>>,
}

/// An ordered set.
pub(crate) type Set<K> = Map<K, ()>;

#[derive(Clone)]
enum Node<K, V> {
    Leaf(Vec<(K, V)>),
    Branch(Vec<Child<K, V>>),
}

#[derive(Clone)]
struct Child<K, V> {
    /// Above every key of the child before, and not above any key of this one. A first child has that of
    /// its parent, and the first of all is not looked at: whatever is smaller than the second's belongs to it.
    first: K,
    /// Entries below, so that the n-th one is found without counting.
    count: usize,
    node: Arc<Node<K, V>>,
}

impl<K: Ord + Clone, V: Clone> Map<K, V> {
    pub fn len(&self) -> usize {
        self.root.as_ref().map_or(0, |root| root.count())
    }

    pub fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let mut node = self.root.as_deref()?;
        loop {
            match node {
                Node::Leaf(entries) => {
                    let place = entries.binary_search_by(|(held, _)| held.borrow().cmp(key)).ok()?;
                    return Some(&entries[place].1);
                }
                Node::Branch(children) => node = &children[place_below(children, key)].node,
            }
        }
    }

    pub fn contains<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.get(key).is_some()
    }

    pub fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        let mut node = Arc::make_mut(self.root.as_mut()?);
        loop {
            match node {
                Node::Leaf(entries) => {
                    let place = entries.binary_search_by(|(held, _)| held.borrow().cmp(key)).ok()?;
                    return Some(&mut entries[place].1);
                }
                Node::Branch(children) => {
                    let place = place_below(children, key);
                    node = Arc::make_mut(&mut children[place].node);
                }
            }
        }
    }

    /// The value of that key, which is put there first if it has none.
    pub fn get_or_default(&mut self, key: &K) -> &mut V
    where
        V: Default,
    {
        if !self.contains(key) {
            self.insert(key.clone(), V::default());
        }
        self.get_mut(key).expect("inserted above if it was missing")
    }

    /// Returns the value that was there.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let Some(root) = &mut self.root else {
            self.root = Some(Arc::new(Node::Leaf(vec![(key, value)])));
            return None;
        };
        let (old, right) = Arc::make_mut(root).insert(key, value);
        if let Some(right) = right {
            let left = Child { first: root.first_key().clone(), count: root.count(), node: root.clone() };
            *root = Arc::new(Node::Branch(vec![left, right]));
        }
        old
    }

    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let root = self.root.as_mut()?;
        let old = Arc::make_mut(root).remove(key);
        let lower = match &**root {
            Node::Leaf(entries) if entries.is_empty() => None,
            Node::Branch(children) if children.len() == 1 => Some(children[0].node.clone()),
            Node::Leaf(_) | Node::Branch(_) => return old,
        };
        self.root = lower;
        old
    }

    /// How many keys are smaller.
    pub fn rank<Q: Ord + ?Sized>(&self, key: &Q) -> usize
    where
        K: Borrow<Q>,
    {
        let mut before = 0;
        let Some(mut node) = self.root.as_deref() else { return 0 };
        loop {
            match node {
                Node::Leaf(entries) => {
                    return before + entries.partition_point(|(held, _)| held.borrow() < key);
                }
                Node::Branch(children) => {
                    let place = place_below(children, key);
                    before += children[..place].iter().map(|child| child.count).sum::<usize>();
                    node = &children[place].node;
                }
            }
        }
    }

    /// The entry with that many smaller ones.
    pub fn nth(&self, index: usize) -> Option<(&K, &V)> {
        self.iter_at(index).next()
    }

    pub fn first(&self) -> Option<(&K, &V)> {
        self.nth(0)
    }

    /// Entries in order of their keys.
    pub fn iter(&self) -> Iter<'_, K, V> {
        self.iter_at(0)
    }

    /// Entries from that key on.
    pub fn iter_from<Q: Ord + ?Sized>(&self, key: &Q) -> Iter<'_, K, V>
    where
        K: Borrow<Q>,
    {
        self.iter_at(self.rank(key))
    }

    /// Entries from the `index`-th on.
    pub fn iter_at(&self, mut index: usize) -> Iter<'_, K, V> {
        let mut iter = Iter { leaf: [].iter(), above: Vec::new() };
        let Some(mut node) = self.root.as_deref() else { return iter };
        while let Node::Branch(children) = node {
            let Some(place) = place_of(children, &mut index) else { return iter };
            iter.above.push(children[place + 1..].iter());
            node = &children[place].node;
        }
        if let Node::Leaf(entries) = node {
            iter.leaf = entries[index.min(entries.len())..].iter();
        }
        iter
    }

    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }

    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    /// The leaf that holds the `index`-th entry, and its place there.
    fn leaf_of(&self, mut index: usize) -> Option<(Arc<Node<K, V>>, usize)> {
        let mut node = self.root.as_ref()?;
        while let Node::Branch(children) = &**node {
            node = &children[place_of(children, &mut index)?].node;
        }
        (index < node.width()).then(|| (node.clone(), index))
    }

    /// The entries of a copy frozen now, one by one, whatever becomes of this map meanwhile.
    pub fn walk(&self) -> Walk<K, V> {
        Walk { map: self.clone(), index: 0, leaf: None, place: 0 }
    }
}

impl<K: Ord + Clone, V: Clone> Node<K, V> {
    fn count(&self) -> usize {
        match self {
            Node::Leaf(entries) => entries.len(),
            Node::Branch(children) => children.iter().map(|child| child.count).sum(),
        }
    }

    /// Entries or children in this one node.
    fn width(&self) -> usize {
        match self {
            Node::Leaf(entries) => entries.len(),
            Node::Branch(children) => children.len(),
        }
    }

    fn first_key(&self) -> &K {
        match self {
            Node::Leaf(entries) => &entries[0].0,
            Node::Branch(children) => &children[0].first,
        }
    }

    /// Returns the value that was there, and the right half if this node had to be split.
    fn insert(&mut self, key: K, value: V) -> (Option<V>, Option<Child<K, V>>) {
        match self {
            Node::Leaf(entries) => match entries.binary_search_by(|(held, _)| held.cmp(&key)) {
                Ok(place) => return (Some(std::mem::replace(&mut entries[place].1, value)), None),
                Err(place) => entries.insert(place, (key, value)),
            },
            Node::Branch(children) => {
                let place = place_below(children, &key);
                let child = &mut children[place];
                let (old, right) = Arc::make_mut(&mut child.node).insert(key, value);
                if old.is_some() {
                    return (old, None);
                }
                child.count += 1;
                if let Some(right) = right {
                    child.count -= right.count;
                    children.insert(place + 1, right);
                }
            }
        }
        (None, self.split())
    }

    /// Cuts a node that is too wide in two and returns the right one.
    fn split(&mut self) -> Option<Child<K, V>> {
        if self.width() <= WIDTH_MAX {
            return None;
        }
        let right = match self {
            Node::Leaf(entries) => Node::Leaf(entries.split_off(entries.len() / 2)),
            Node::Branch(children) => Node::Branch(children.split_off(children.len() / 2)),
        };
        Some(Child { first: right.first_key().clone(), count: right.count(), node: Arc::new(right) })
    }

    fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        match self {
            Node::Leaf(entries) => {
                let place = entries.binary_search_by(|(held, _)| held.borrow().cmp(key)).ok()?;
                Some(entries.remove(place).1)
            }
            Node::Branch(children) => {
                let place = place_below(children, key);
                let child = &mut children[place];
                let old = Arc::make_mut(&mut child.node).remove(key)?;
                child.count -= 1;
                if child.node.width() < WIDTH_MIN {
                    join(children, place.saturating_sub(1));
                }
                Some(old)
            }
        }
    }
}

/// Makes one child of the one at `place` and the next, or two equally wide ones if one would be too wide.
fn join<K: Ord + Clone, V: Clone>(children: &mut Vec<Child<K, V>>, place: usize) {
    let right = children.remove(place + 1);
    let left = &mut children[place];
    match (Arc::make_mut(&mut left.node), Arc::unwrap_or_clone(right.node)) {
        (Node::Leaf(entries), Node::Leaf(more)) => entries.extend(more),
        (Node::Branch(below), Node::Branch(more)) => below.extend(more),
        (Node::Leaf(_), Node::Branch(_)) | (Node::Branch(_), Node::Leaf(_)) => {
            unreachable!("children of one node are equally high")
        }
    }
    left.count += right.count;
    if let Some(right) = Arc::make_mut(&mut left.node).split() {
        left.count -= right.count;
        children.insert(place + 1, right);
    }
}

/// The child that holds the key if any does.
fn place_below<K: Borrow<Q>, V, Q: Ord + ?Sized>(children: &[Child<K, V>], key: &Q) -> usize {
    children.partition_point(|child| child.first.borrow() <= key).saturating_sub(1)
}

/// The child that holds the `index`-th entry; `index` becomes its index there.
fn place_of<K, V>(children: &[Child<K, V>], index: &mut usize) -> Option<usize> {
    for (place, child) in children.iter().enumerate() {
        if *index < child.count {
            return Some(place);
        }
        *index -= child.count;
    }
    None
}

/// Entries of a map in order.
pub(crate) struct Iter<'a, K, V> {
    leaf: std::slice::Iter<'a, (K, V)>,
    /// What is still to visit on each level above, the lowest last.
    above: Vec<std::slice::Iter<'a, Child<K, V>>>,
}

impl<'a, K, V> Iterator for Iter<'a, K, V> {
    type Item = (&'a K, &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some((key, value)) = self.leaf.next() {
                return Some((key, value));
            }
            let Some(child) = self.above.last_mut()?.next() else {
                self.above.pop();
                continue;
            };
            match &*child.node {
                Node::Leaf(entries) => self.leaf = entries.iter(),
                Node::Branch(children) => self.above.push(children.iter()),
            }
        }
    }
}

/// Entries of a frozen map in order, cloned out of it.
pub(crate) struct Walk<K, V> {
    map: Map<K, V>,
    index: usize,
    /// Where the last entry was found, and the place after it: the next one is most often there too.
    leaf: Option<Arc<Node<K, V>>>,
    place: usize,
}

impl<K: Ord + Clone, V: Clone> Iterator for Walk<K, V> {
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        let entry = loop {
            match self.leaf.as_deref() {
                Some(Node::Leaf(entries)) if self.place < entries.len() => break entries[self.place].clone(),
                Some(_) | None => {
                    let (leaf, place) = self.map.leaf_of(self.index)?;
                    (self.leaf, self.place) = (Some(leaf), place);
                }
            }
        };
        self.index += 1;
        self.place += 1;
        Some(entry)
    }
}

impl<K, V> Clone for Map<K, V> {
    fn clone(&self) -> Self {
        Map { root: self.root.clone() }
    }
}

impl<K, V> Default for Map<K, V> {
    fn default() -> Self {
        Map { root: None }
    }
}

impl<K: Ord + Clone, V: Clone + PartialEq> PartialEq for Map<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl<K: Ord + Clone + Eq, V: Clone + Eq> Eq for Map<K, V> {}

impl<K: Ord + Clone + fmt::Debug, V: Clone + fmt::Debug> fmt::Debug for Map<K, V> {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.debug_map().entries(self.iter()).finish()
    }
}

/// Entries or children of one node: wide enough for a flat tree, narrow enough to be copied quickly.
const WIDTH_MAX: usize = 32;
/// A narrower node is joined with its neighbour. Well below half of the widest, so that a node does not
/// swing between being split and being joined.
const WIDTH_MIN: usize = 12;
const _: () = assert!(WIDTH_MIN * 2 < WIDTH_MAX);

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    struct Lcg(u64);

    impl Lcg {
        fn below(&mut self, bound: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (self.0 >> 33) % bound
        }
    }

    /// Counts, widths and key bounds hold in the whole tree.
    fn check(map: &Map<u64, u64>) {
        fn below(node: &Node<u64, u64>, root: bool, from: Option<u64>, to: Option<u64>) -> (usize, usize) {
            assert!(root || node.width() >= WIDTH_MIN);
            assert!(node.width() <= WIDTH_MAX);
            match node {
                Node::Leaf(entries) => {
                    assert!(entries.is_sorted_by(|a, b| a.0 < b.0));
                    assert!(entries.iter().all(|&(key, _)| from.is_none_or(|from| from <= key)));
                    assert!(entries.iter().all(|&(key, _)| to.is_none_or(|to| key < to)));
                    (entries.len(), 1)
                }
                Node::Branch(children) => {
                    let mut total = 0;
                    let mut height = None;
                    for (place, child) in children.iter().enumerate() {
                        let from = if place == 0 { from } else { Some(child.first) };
                        let to = children.get(place + 1).map_or(to, |next| Some(next.first));
                        let (count, below) = below(&child.node, false, from, to);
                        assert_eq!(count, child.count);
                        assert!(place > 0 || from.is_none_or(|from| from == child.first));
                        assert!(height.is_none_or(|height| height == below));
                        height = Some(below);
                        total += count;
                    }
                    (total, height.unwrap() + 1)
                }
            }
        }
        if let Some(root) = &map.root {
            assert!(root.width() >= if matches!(**root, Node::Leaf(_)) { 1 } else { 2 });
            below(root, true, None, None);
        }
    }

    fn compare(map: &Map<u64, u64>, model: &BTreeMap<u64, u64>, random: &mut Lcg) {
        check(map);
        assert_eq!(map.len(), model.len());
        assert!(map.iter().eq(model.iter()));
        let key = random.below(4000);
        assert_eq!(map.rank(&key), model.range(..key).count());
        assert!(map.iter_from(&key).eq(model.range(key..)));
        let index = random.below(4000) as usize;
        assert_eq!(map.nth(index), model.iter().nth(index));
        assert!(map.iter_at(index).eq(model.iter().skip(index)));
        assert!(map.walk().eq(model.iter().map(|(&key, &value)| (key, value))));
    }

    #[test]
    fn it_behaves_as_the_standard_map() {
        for seed in 0..40 {
            let mut random = Lcg(seed);
            let mut map = Map::default();
            let mut model = BTreeMap::new();
            let keys = [30, 300, 3000][seed as usize % 3];
            for turn in 0..6000 {
                let key = random.below(keys);
                // Grows for a while, then shrinks, so that nodes are split and joined on every level.
                if random.below(10) < if turn / 1500 % 2 == 0 { 7 } else { 3 } {
                    assert_eq!(map.insert(key, turn), model.insert(key, turn));
                } else {
                    assert_eq!(map.remove(&key), model.remove(&key));
                }
                if let Some(value) = map.get_mut(&key) {
                    *value += 1;
                    *model.get_mut(&key).unwrap() += 1;
                }
                assert_eq!(map.get(&key), model.get(&key));
                if turn % 97 == 0 {
                    compare(&map, &model, &mut random);
                }
            }
        }
    }

    #[test]
    fn a_copy_does_not_see_later_changes() {
        let mut random = Lcg(7);
        let mut map = Map::default();
        let mut model = BTreeMap::new();
        let mut frozen = Vec::new();
        for turn in 0..20_000 {
            let key = random.below(2000);
            if random.below(2) == 0 {
                map.insert(key, turn);
                model.insert(key, turn);
            } else {
                map.remove(&key);
                model.remove(&key);
            }
            if turn % 1000 == 0 {
                frozen.push((map.clone(), model.clone()));
            }
        }
        for (map, model) in &frozen {
            compare(map, model, &mut random);
        }
    }

    #[test]
    fn a_change_beside_a_copy_copies_one_way_down_only() {
        let mut map: Map<u64, u64> = (0..100_000).fold(Map::default(), |mut map, key| {
            map.insert(key, key);
            map
        });
        let copy = map.clone();
        map.insert(50_000, 0);
        fn shared(a: &Arc<Node<u64, u64>>, b: &Arc<Node<u64, u64>>) -> usize {
            match (&**a, &**b) {
                _ if Arc::ptr_eq(a, b) => 0,
                (Node::Branch(a), Node::Branch(b)) => {
                    1 + a.iter().zip(b).map(|(a, b)| shared(&a.node, &b.node)).sum::<usize>()
                }
                _ => 1,
            }
        }
        assert!(shared(map.root.as_ref().unwrap(), copy.root.as_ref().unwrap()) <= 5);
    }

    #[test]
    fn an_empty_map_has_no_nodes() {
        let mut map: Map<u64, u64> = Map::default();
        for key in 0..1000 {
            map.insert(key, key);
        }
        for key in (0..1000).rev() {
            assert_eq!(map.remove(&key), Some(key));
        }
        assert!(map.is_empty() && map.iter().next().is_none() && map.remove(&1).is_none());
    }
}
