//! The array's memory: two parts by the size of requests, which all share, and parts that were given to one workload.
//!
//! ```text
//!  small reads  [ shared by all                 | workload 3's own ]
//!  large reads  [ shared by all      ]
//! ```
//!
//! What is given is taken from what is shared. Nothing is copied: what a workload has in the shared part when it gets one of its own
//! comes over when it is asked for, and what is in its own part when that is taken back is the shared part's newest.

use units::Bytes;

use super::backend::pool;
use super::memory::SecondChance;

pub(super) struct ArrayMemory {
    sizes: [Bytes; 2],
    shared: [SecondChance; 2],
    own: Vec<Option<Own>>,
    classes: Vec<(u32, u32)>,
    /// First number of each workload's objects in the shared parts.
    first: Vec<u32>,
}

struct Own {
    size: Bytes,
    memory: SecondChance,
}

impl ArrayMemory {
    /// For workloads with so many objects of so many bytes each.
    pub(super) fn new(sizes: [Bytes; 2], classes: &[(u32, u32)]) -> Self {
        let mut first = vec![0];
        classes
            .iter()
            .for_each(|c| first.push(first[first.len() - 1] + c.0));
        Self {
            sizes,
            shared: sizes.map(|size| SecondChance::new(size.0, classes)),
            own: classes.iter().map(|_| None).collect(),
            classes: classes.to_vec(),
            first,
        }
    }

    /// Looks an object of a workload up, and remembers that it was asked for.
    #[inline]
    pub(super) fn hit(&mut self, w: usize, object: u32) -> bool {
        let shared = &mut self.shared[pool(self.classes[w].1)];
        let number = self.first[w] + object;
        let Some(own) = &mut self.own[w] else {
            return shared.hit(number);
        };
        if own.memory.hit(object) {
            return true;
        }
        let there = shared.remove(number);
        if there {
            own.memory.insert(object);
        }
        there
    }

    /// Keeps an object.
    pub(super) fn keep(&mut self, w: usize, object: u32) {
        match &mut self.own[w] {
            Some(own) => own.memory.insert(object),
            None => self.shared[pool(self.classes[w].1)].insert(self.first[w] + object),
        }
    }

    /// Gives a workload a part of its own, or makes it another size.
    pub(super) fn give(&mut self, w: usize, size: Bytes) {
        let class = self.classes[w];
        let own = self.own[w].get_or_insert_with(|| Own {
            size,
            memory: SecondChance::new(size.0, &[class]),
        });
        own.size = size;
        own.memory.set_capacity(size.0);
        self.share_out(pool(class.1));
    }

    /// Takes it back.
    pub(super) fn take_back(&mut self, w: usize) {
        let Some(mut own) = self.own[w].take() else {
            return;
        };
        let pool = pool(self.classes[w].1);
        self.share_out(pool);
        for object in own.memory.drain() {
            self.shared[pool].insert(self.first[w] + object);
        }
    }

    /// What nobody has for himself is everybody's.
    fn share_out(&mut self, of: usize) {
        let mut left = self.sizes[of];
        for (own, class) in self.own.iter().zip(&self.classes) {
            if let Some(own) = own
                && pool(class.1) == of
            {
                left = left.saturating_sub(own.size);
            }
        }
        self.shared[of].set_capacity(left.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use algo::Rng;

    /// Two workloads of 1,000 pages each over a memory of 1,000.
    fn memory() -> ArrayMemory {
        let sizes = [Bytes(4096 * 1000), Bytes(0)];
        ArrayMemory::new(sizes, &[(1000, 4096), (1000, 4096)])
    }

    /// Hits of `n` uniform reads of each, where the second reads four times as much.
    fn hits(memory: &mut ArrayMemory, rng: &mut Rng, n: u64) -> [f64; 2] {
        let mut hits = [0u64; 2];
        for i in 0..5 * n {
            let w = usize::from(i % 5 > 0);
            let object = rng.below(1000) as u32;
            if memory.hit(w, object) {
                hits[w] += 1;
            } else {
                memory.keep(w, object);
            }
        }
        [hits[0] as f64 / n as f64, hits[1] as f64 / (4 * n) as f64]
    }

    #[test]
    fn a_part_of_its_own_holds_its_share_and_leaves_the_rest() {
        let (mut memory, mut rng) = (memory(), Rng::new(1, 1));
        hits(&mut memory, &mut rng, 3000);
        let [slow, quick] = hits(&mut memory, &mut rng, 5000);
        assert!(slow < 0.35 && quick > 0.65, "{slow} {quick}");
        memory.give(0, Bytes(4096 * 700));
        hits(&mut memory, &mut rng, 3000);
        let [slow, quick] = hits(&mut memory, &mut rng, 5000);
        assert!((slow - 0.7).abs() < 0.03, "{slow}");
        assert!((quick - 0.3).abs() < 0.03, "{quick}");
        memory.take_back(0);
        hits(&mut memory, &mut rng, 3000);
        let [slow, quick] = hits(&mut memory, &mut rng, 5000);
        assert!(slow < 0.35 && quick > 0.65, "{slow} {quick}");
    }

    #[test]
    fn nothing_that_fits_is_lost_by_giving_or_taking_back() {
        let mut memory = memory();
        (0..400).for_each(|o| memory.keep(0, o));
        memory.give(0, Bytes(4096 * 500));
        assert!((0..400).all(|o| memory.hit(0, o)));
        (0..500).for_each(|o| memory.keep(1, o));
        memory.take_back(0);
        assert!((0..400).all(|o| memory.hit(0, o)));
        assert!((0..500).all(|o| memory.hit(1, o)));
        memory.give(0, Bytes(4096 * 100));
        memory.give(0, Bytes(4096 * 200));
        (400..700).for_each(|o| memory.keep(0, o));
        // As much as its part is large, whatever else is asked for.
        let held = (400..700).filter(|o| memory.hit(0, *o)).count();
        assert_eq!(held, 200);
    }
}
