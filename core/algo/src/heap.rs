//! Event queue of a simulation: a 4-ary min-heap of (time, id), optimized for rescheduling the first event.

/// Events by time. Ids break ties, so the order is total and the same in every run.
#[derive(Debug, Clone, Default)]
pub struct EventHeap {
    items: Vec<(u64, u32)>,
}

const ARITY: usize = 4;

impl EventHeap {
    /// Creates an empty queue.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an event.
    pub fn push(&mut self, time: u64, id: u32) {
        self.items.push((time, id));
        let mut at = self.items.len() - 1;
        while at > 0 {
            let parent = (at - 1) / ARITY;
            if self.items[parent] <= self.items[at] {
                break;
            }
            self.items.swap(parent, at);
            at = parent;
        }
    }

    /// Returns the first event.
    #[inline]
    pub fn first(&self) -> Option<(u64, u32)> {
        self.items.first().copied()
    }

    /// Gives the first event another time. The queue must not be empty.
    #[inline]
    pub fn reschedule_first(&mut self, time: u64) {
        let id = self.items[0].1;
        self.sift_down((time, id));
    }

    /// Removes the first event.
    pub fn pop(&mut self) -> Option<(u64, u32)> {
        let first = *self.items.first()?;
        let last = self.items.pop().expect("not empty");
        if !self.items.is_empty() {
            self.sift_down(last);
        }
        Some(first)
    }

    /// Returns the number of events.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Returns true if there are no events.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    #[inline]
    fn sift_down(&mut self, item: (u64, u32)) {
        let items = &mut self.items[..];
        let len = items.len();
        let mut at = 0;
        loop {
            let child = at * ARITY + 1;
            if child >= len {
                break;
            }
            let (mut least, mut least_item) = (child, items[child]);
            let others = items[child + 1..(child + ARITY).min(len)].iter();
            for (n, candidate) in others.enumerate() {
                if *candidate < least_item {
                    (least, least_item) = (child + 1 + n, *candidate);
                }
            }
            if item <= least_item {
                break;
            }
            items[at] = least_item;
            at = least;
        }
        items[at] = item;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn heap_matches_a_sorted_list(ops in prop::collection::vec((0u8..3, 0u64..50), 1..300)) {
            let mut heap = EventHeap::new();
            let mut oracle: Vec<(u64, u32)> = Vec::new();
            let mut id = 0;
            for (what, time) in ops {
                oracle.sort_unstable();
                match what {
                    0 => {
                        heap.push(time, id);
                        oracle.push((time, id));
                        id += 1;
                    }
                    1 if !oracle.is_empty() => {
                        heap.reschedule_first(time);
                        oracle[0].0 = time;
                    }
                    _ => {
                        let want = if oracle.is_empty() { None } else { Some(oracle.remove(0)) };
                        prop_assert_eq!(heap.pop(), want);
                    }
                }
                oracle.sort_unstable();
                prop_assert_eq!(heap.first(), oracle.first().copied());
                prop_assert_eq!(heap.len(), oracle.len());
            }
        }
    }
}
