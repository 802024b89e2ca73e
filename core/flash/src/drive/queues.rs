//! Tags and buffer slots: resources that requests hold until a known time.
//!
//! Every request needs the earliest of many times. A heap would use branches that no processor can predict. The tree
//! here computes minima all the way up, independent of the times.

/// Minimum of a fixed number of times, with its index.
#[derive(Debug, Clone)]
struct Earliest {
    /// Binary tree in an array: the root has index 1, the leaves start in the middle. Times are shifted to make room
    /// for the index.
    nodes: Box<[u64]>,
    leaves: usize,
    bits: u32,
}

impl Earliest {
    fn new(n: usize, time: u64) -> Self {
        let leaves = n.next_power_of_two().max(2);
        let mut tree = Self {
            nodes: vec![u64::MAX; 2 * leaves].into(),
            leaves,
            bits: leaves.trailing_zeros(),
        };
        for place in 0..n {
            tree.set(place, time);
        }
        tree
    }

    #[inline]
    fn get(&self) -> (u64, usize) {
        let root = self.nodes[1];
        (
            root >> self.bits,
            (root & (self.leaves as u64 - 1)) as usize,
        )
    }

    #[inline]
    fn set(&mut self, place: usize, time: u64) {
        let most = u64::MAX >> self.bits;
        let mut value = time.min(most) << self.bits | place as u64;
        let mut at = self.leaves + place;
        while at > 1 {
            self.nodes[at] = value;
            value = value.min(self.nodes[at ^ 1]);
            at >>= 1;
        }
        self.nodes[1] = value;
    }
}

/// Tags for the concurrent requests of a drive.
#[derive(Debug, Clone)]
pub(super) struct Tags {
    /// Time until which each tag is held.
    held: Earliest,
}

impl Tags {
    pub(super) fn new(tags: u32) -> Self {
        Self {
            held: Earliest::new(tags as usize, 0),
        }
    }

    /// Returns the time at which the next request gets a tag.
    #[inline]
    pub(super) fn wait(&self, now: u64) -> u64 {
        now.max(self.held.get().0)
    }

    /// Assigns the tag of the last `wait` until `done`.
    #[inline]
    pub(super) fn held_until(&mut self, done: u64) {
        self.held.set(self.held.get().1, done);
    }
}

const NONE: u32 = u32::MAX;

/// Slots of the write buffer. A page holds its slot until it is programmed.
///
/// Programs of one unit end in the order of their submission. So each unit has a list of its slots, and only the heads
/// of the lists are compared.
#[derive(Debug, Clone)]
pub(super) struct Slots {
    until: Box<[u64]>,
    next: Box<[u32]>,
    /// First and last slot of each unit.
    lists: Box<[(u32, u32)]>,
    heads: Earliest,
    /// Free slots.
    free: Vec<u32>,
}

impl Slots {
    pub(super) fn new(pages: u32, units: u32) -> Self {
        Self {
            until: vec![0; pages as usize].into(),
            next: vec![NONE; pages as usize].into(),
            lists: vec![(NONE, NONE); units as usize].into(),
            heads: Earliest::new(units as usize, u64::MAX),
            free: (0..pages).collect(),
        }
    }

    #[inline]
    pub(super) fn is_none(&self) -> bool {
        self.until.is_empty()
    }

    /// Returns the time at which a slot becomes free, unless another page takes it first.
    #[inline]
    pub(super) fn first_free_ns(&self) -> u64 {
        match self.free.is_empty() {
            true => self.heads.get().0,
            false => 0,
        }
    }

    /// Returns the time at which the next page gets a slot.
    #[inline]
    pub(super) fn wait(&mut self, now: u64) -> u64 {
        if !self.free.is_empty() || self.is_none() {
            return now;
        }
        let (at, unit) = self.heads.get();
        let slot = self.lists[unit].0;
        let next = self.next[slot as usize];
        self.lists[unit].0 = next;
        let head = self.until.get(next as usize).copied();
        self.heads.set(unit, head.unwrap_or(u64::MAX));
        self.free.push(slot);
        now.max(at)
    }

    /// Assigns the slot of the last `wait` until the unit has programmed the page.
    #[inline]
    pub(super) fn held_until(&mut self, unit: usize, done: u64) {
        let Some(slot) = self.free.pop() else {
            return;
        };
        self.until[slot as usize] = done;
        self.next[slot as usize] = NONE;
        let list = &mut self.lists[unit];
        if list.0 == NONE {
            *list = (slot, slot);
            self.heads.set(unit, done);
        } else {
            self.next[list.1 as usize] = slot;
            list.1 = slot;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earliest_is_the_minimum_with_its_place() {
        let mut random = algo::Rng::new(1, 1);
        for n in [1, 2, 3, 5, 32, 100] {
            let mut tree = Earliest::new(n, 0);
            let mut times = vec![0; n];
            for _ in 0..500 {
                let (time, place) = tree.get();
                assert_eq!(Some(time), times.iter().min().copied());
                assert_eq!(times[place], time);
                times[place] += random.below(1000);
                tree.set(place, times[place]);
            }
        }
    }

    /// Compares the slots with a sorted list of times.
    #[test]
    fn slots_are_released_in_order_of_programmed_pages() {
        let mut random = algo::Rng::new(2, 2);
        let (mut slots, mut held) = (Slots::new(9, 4), Vec::new());
        let (mut now, mut units) = (0, [0_u64; 4]);
        for _ in 0..2000 {
            now += random.below(30);
            let got = slots.wait(now);
            held.sort_unstable();
            let want = match held.len() {
                9 => now.max(held.remove(0)),
                _ => now,
            };
            assert_eq!(got, want);
            now = got;
            let unit = random.below(4) as usize;
            units[unit] = units[unit].max(now) + random.below(200);
            slots.held_until(unit, units[unit]);
            held.push(units[unit]);
        }
        assert!(Slots::new(0, 4).is_none());
    }
}
