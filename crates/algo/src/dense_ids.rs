//! Dense numbers for sparse names: the first one that is seen gets 0, the next 1.

/// References whose memory is touched ahead of their turn.
const BATCH: usize = 32;
const SLOTS_MIN: usize = 1 << 10;
const FREE: u32 = u32::MAX;

/// A table of 64-bit names and their numbers, open addressing keyed by multiplication.
///
/// It keeps every name that it was given: memory is 24 to 48 bytes for each. Numbers depend on the order of the names and on
/// nothing else. Not for names that an adversary chooses: the function is fixed, collisions can be made.
#[derive(Debug, Clone)]
pub struct DenseIds {
    slots: Vec<Slot>,
    shift: u32,
    len: u32,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    name: u64,
    id: u32,
}

const EMPTY: Slot = Slot { name: 0, id: FREE };

impl Default for DenseIds {
    fn default() -> Self {
        Self::new()
    }
}

impl DenseIds {
    /// An empty table.
    pub fn new() -> Self {
        Self {
            slots: vec![EMPTY; SLOTS_MIN],
            shift: 64 - SLOTS_MIN.trailing_zeros(),
            len: 0,
        }
    }

    /// Names so far.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The number of `name`, if it has one.
    #[inline]
    pub fn get(&self, name: u64) -> Option<u32> {
        let slot = self.slots[self.find(name)];
        (slot.id != FREE).then_some(slot.id)
    }

    /// The number of `name`, a new one if it has none.
    #[inline]
    pub fn id(&mut self, name: u64) -> u32 {
        let at = self.find(name);
        let slot = &mut self.slots[at];
        if slot.id != FREE {
            return slot.id;
        }
        let id = self.len;
        *slot = Slot { name, id };
        self.len += 1;
        assert!(self.len < FREE, "2^32 names in one table");
        // At most two thirds full: searches stay short.
        if self.len as usize * 3 > self.slots.len() * 2 {
            self.grow();
        }
        id
    }

    /// The numbers of many, in order, appended to `into`.
    pub fn ids(&mut self, names: &[u64], into: &mut Vec<u32>) {
        into.reserve(names.len());
        for batch in names.chunks(BATCH) {
            // The misses of these loads overlap; what is looked up below has then arrived.
            let touched = batch
                .iter()
                .fold(0, |all, name| all ^ self.slots[self.home(*name)].id);
            std::hint::black_box(touched);
            into.extend(batch.iter().map(|name| self.id(*name)));
        }
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>()
    }

    #[inline]
    fn home(&self, name: u64) -> usize {
        ((name ^ (name >> 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> self.shift) as usize
    }

    /// The slot of `name`, or the free one where it belongs.
    #[inline]
    fn find(&self, name: u64) -> usize {
        let mut at = self.home(name);
        loop {
            let slot = self.slots[at];
            if slot.id == FREE || slot.name == name {
                return at;
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }

    #[cold]
    fn grow(&mut self) {
        let doubled = vec![EMPTY; self.slots.len() * 2];
        let old = std::mem::replace(&mut self.slots, doubled);
        self.shift -= 1;
        for slot in old.into_iter().filter(|slot| slot.id != FREE) {
            let at = self.find(slot.name);
            self.slots[at] = slot;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn numbers_are_given_in_order_of_appearance() {
        let mut rng = crate::Rng::new(3, 0);
        // Zero, the largest, neighbours and multiples of large powers of two, among others.
        let names: Vec<u64> = (0..50_000u64)
            .map(|i| match i % 4 {
                0 => rng.below(5000),
                1 => rng.below(5000) << 40,
                2 => u64::MAX - rng.below(100),
                _ => rng.next_u64(),
            })
            .collect();
        let (mut table, mut oracle) = (DenseIds::new(), BTreeMap::new());
        let mut ids = Vec::new();
        table.ids(&names, &mut ids);
        for (name, id) in names.iter().zip(&ids) {
            let next = oracle.len() as u32;
            assert_eq!(id, oracle.entry(*name).or_insert(next));
        }
        assert_eq!(table.len() as usize, oracle.len());
        assert!(
            oracle
                .iter()
                .all(|(name, id)| table.get(*name) == Some(*id))
        );
        assert_eq!(table.get(1 << 50 | 77), None);
    }
}
