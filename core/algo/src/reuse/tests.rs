use proptest::prelude::*;

use super::*;

/// List of places from the top, with holes: the plain form of the line of positions.
#[derive(Default)]
struct NaiveStack(Vec<Option<u32>>);

impl NaiveStack {
    fn access(&mut self, id: u32) -> Option<u32> {
        let depth = self.0.iter().position(|o| *o == Some(id));
        let hole = self.0.iter().position(Option::is_none);
        match (depth, hole) {
            (Some(depth), Some(hole)) if hole < depth => {
                self.0[depth] = None;
                self.0.remove(hole);
            }
            (Some(depth), _) => drop(self.0.remove(depth)),
            (None, Some(hole)) => drop(self.0.remove(hole)),
            (None, None) => {}
        }
        self.0.insert(0, Some(id));
        depth.map(|d| d as u32 + 1)
    }
}

/// LRU cache of `size` with write-around that drops written pages.
struct Cache {
    size: usize,
    pages: Vec<u32>,
}

impl Cache {
    fn read(&mut self, id: u32) -> bool {
        let at = self.pages.iter().position(|p| *p == id);
        match at {
            Some(at) => drop(self.pages.remove(at)),
            None if self.pages.len() == self.size => drop(self.pages.pop()),
            None => {}
        }
        self.pages.insert(0, id);
        at.is_some()
    }
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Access(u32),
    Invalidate(u32),
    Remove(u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0..60u32).prop_map(Step::Access),
        2 => (0..60u32).prop_map(Step::Invalidate),
        1 => (0..60u32).prop_map(Step::Remove),
    ];
    prop::collection::vec(step, 0..4000)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn reuse_stack_matches_a_list(steps in steps()) {
        let (mut stack, mut naive) = (ReuseStack::new(), NaiveStack::default());
        for step in steps {
            match step {
                Step::Access(id) => prop_assert_eq!(stack.access(id), naive.access(id)),
                Step::Invalidate(id) => {
                    stack.invalidate(id);
                    naive.0.iter_mut().filter(|o| **o == Some(id)).for_each(|o| *o = None);
                }
                Step::Remove(id) => {
                    stack.remove(id);
                    naive.0.retain(|o| *o != Some(id));
                }
            }
            prop_assert_eq!(stack.objects() as usize, naive.0.iter().flatten().count());
        }
    }

    /// Random reads and writes: a cache has the page if and only if its size is at least the distance.
    #[test]
    fn distance_is_the_smallest_cache_size_that_hits(
        steps in prop::collection::vec((0..20u32, 0..4u32), 0..600),
    ) {
        let mut stack = ReuseStack::new();
        let mut caches: Vec<Cache> = (1..=20).map(|size| Cache { size, pages: vec![] }).collect();
        for (id, op) in steps {
            if op == 0 {
                stack.invalidate(id);
                caches.iter_mut().for_each(|c| c.pages.retain(|p| *p != id));
                continue;
            }
            let distance = stack.access(id);
            for cache in &mut caches {
                let hit = distance.is_some_and(|d| d as usize <= cache.size);
                prop_assert_eq!(cache.read(id), hit, "size {}", cache.size);
            }
        }
    }
}

/// Enough objects for every level of counts, compared with a tree of sums.
#[test]
fn reuse_stack_with_many_objects_matches_a_tree() {
    let (objects, references) = (700_000u32, 3_000_000usize);
    let mut rng = crate::Rng::new(5, 0);
    let ids: Vec<u32> = (0..references)
        .map(|_| {
            (rng.below(u64::from(objects))
                .min(rng.below(u64::from(objects)))) as u32
        })
        .collect();
    let mut tree = vec![0u32; references + 1];
    let add = |tree: &mut Vec<u32>, at: usize, by: u32| {
        let mut i = at + 1;
        while i <= references {
            tree[i] = tree[i].wrapping_add(by);
            i += i & i.wrapping_neg();
        }
    };
    let upto = |tree: &[u32], at: usize| {
        let (mut i, mut sum) = (at + 1, 0u32);
        while i > 0 {
            sum = sum.wrapping_add(tree[i]);
            i &= i - 1;
        }
        sum
    };
    let mut last = vec![usize::MAX; objects as usize];
    let mut want = Vec::with_capacity(references);
    for (now, id) in ids.iter().enumerate() {
        let then = std::mem::replace(&mut last[*id as usize], now);
        if then == usize::MAX {
            want.push(None);
        } else {
            let (all, below) = (upto(&tree, now), upto(&tree, then));
            want.push(Some(all - below + 1));
            add(&mut tree, then, u32::MAX);
        }
        add(&mut tree, now, 1);
    }
    let (mut stack, mut got) = (ReuseStack::new(), Vec::with_capacity(references));
    stack.access_all(&ids, |d| got.push(d));
    assert!(got == want);
    assert!(stack.memory_bytes() < 6 * objects as usize);
}

#[test]
fn removed_holes_do_not_change_distances() {
    let mut stack = ReuseStack::new();
    for id in 0..10 {
        stack.access(id);
    }
    stack.invalidate(9);
    stack.invalidate(4);
    assert_eq!((stack.objects(), stack.holes()), (8, 2));
    assert!(stack.remove_hole() && stack.remove_hole() && !stack.remove_hole());
    assert_eq!(stack.access(0), Some(8));
}
