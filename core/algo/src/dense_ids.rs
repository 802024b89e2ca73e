//! Dense numbers for sparse names, in order of first occurrence: 0, 1, …

/// Number of references whose memory is touched in advance.
const BATCH: usize = 32;
const SLOTS_MIN: usize = 1 << 10;
const FREE: u32 = u32::MAX;

/// Table of 64-bit names and their numbers: open addressing, keyed by multiplication.
///
/// It keeps every name: memory is 24 to 48 bytes for each. Numbers depend only on the order of the names. Not for names
/// that an adversary chooses, because collisions of the fixed function can be constructed.
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
    /// Creates an empty table.
    pub fn new() -> Self {
        Self {
            slots: vec![EMPTY; SLOTS_MIN],
            shift: 64 - SLOTS_MIN.trailing_zeros(),
            len: 0,
        }
    }

    /// Returns the number of names.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Returns true if the table is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of `name`, if it has one.
    #[inline]
    pub fn get(&self, name: u64) -> Option<u32> {
        let slot = self.slots[self.find(name)];
        (slot.id != FREE).then_some(slot.id)
    }

    /// Returns the number of `name`, a new one if it has none.
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
        // At most two thirds full, which keeps searches short.
        if self.len as usize * 3 > self.slots.len() * 2 {
            self.grow();
        }
        id
    }

    /// Appends the numbers of several names to `into`, in order.
    pub fn ids(&mut self, names: &[u64], into: &mut Vec<u32>) {
        into.reserve(names.len());
        for batch in names.chunks(BATCH) {
            // The cache misses of these loads overlap, so the lookups below find their data.
            let touched = batch
                .iter()
                .fold(0, |all, name| all ^ self.slots[self.home(*name)].id);
            std::hint::black_box(touched);
            into.extend(batch.iter().map(|name| self.id(*name)));
        }
    }

    /// Returns the bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>()
    }

    #[inline]
    fn home(&self, name: u64) -> usize {
        ((name ^ (name >> 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> self.shift) as usize
    }

    /// Returns the slot of `name`, or the free slot where it belongs.
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
    fn ids_are_assigned_in_order_of_appearance() {
        let mut rng = crate::Rng::new(3, 0);
        // Includes zero, the largest name, neighbours, and multiples of large powers of two.
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
