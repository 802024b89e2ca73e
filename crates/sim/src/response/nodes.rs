//! Caching appliances: memory before an SSD, coherent with the backend and with one another.
//!
//! ```text
//!  read:  memory ─▶ SSD ─▶ backend ─▶ kept in both, unless it was written while it was on its way
//!  write: to the backend; every node of the volume forgets the object (around) or takes the new one (through)
//! ```
//!
//! A write is done only when all nodes of its volume have taken note: so a read that is issued after it finds what was
//! written, whichever node it asks. What was read from the backend before and arrives after is not kept (the fill is *void*).

use serde::Serialize;

use super::memory::{Lru, SecondChance};

/// What a node does with writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Writes {
    /// They invalidate (the paper's appliance).
    Around,
    /// They are kept as well.
    Through,
}

/// Where a read was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    Memory,
    Ssd,
    Nowhere,
}

/// One appliance of one volume.
#[derive(Debug, Clone)]
pub(super) struct Node {
    writes: Writes,
    memory: Lru,
    ssd: SecondChance,
    /// By object: how often it was dropped or changed by a write. A fill that began at another count is void.
    changes: Vec<u32>,
    gone: Vec<bool>,
}

/// A fill that is on its way: how often its objects had been changed when it began. Counts only grow, so an equal sum means that
/// none of them was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fill(u64);

impl Node {
    /// For a volume of `objects` of `bytes` each.
    pub(super) fn new(objects: u32, bytes: u32, memory: u64, ssd: u64, writes: Writes) -> Self {
        Self {
            writes,
            memory: Lru::new(objects, (memory / u64::from(bytes)) as usize),
            ssd: SecondChance::new(ssd, &[(objects, bytes)]),
            changes: vec![0; objects as usize],
            gone: vec![false; objects as usize],
        }
    }

    pub(super) fn read(&mut self, object: u32) -> Found {
        if self.gone[object as usize] {
            return Found::Nowhere;
        }
        if self.memory.hit(object) {
            return Found::Memory;
        }
        if self.ssd.hit(object) {
            self.memory.insert(object);
            return Found::Ssd;
        }
        Found::Nowhere
    }

    /// A read of some objects goes to the backend.
    pub(super) fn begin_fill(&self, first: u32, objects: u32) -> Fill {
        let changes = &self.changes[first as usize..(first + objects) as usize];
        Fill(changes.iter().map(|c| u64::from(*c)).sum())
    }

    /// Whether nothing was written since it was sent for.
    pub(super) fn is_valid(&self, first: u32, objects: u32, fill: Fill) -> bool {
        self.begin_fill(first, objects) == fill
    }

    /// It is back; whether it is kept.
    pub(super) fn end_fill(&mut self, first: u32, objects: u32, fill: Fill) -> bool {
        let valid = self.is_valid(first, objects, fill);
        if valid {
            (first..first + objects).for_each(|o| self.keep(o));
        }
        valid
    }

    /// A write to the object, through this or any other node, or past all of them; whether the new one is kept.
    pub(super) fn written(&mut self, object: u32) -> bool {
        let at = object as usize;
        self.changes[at] += 1;
        match self.writes {
            Writes::Through => self.keep(object),
            Writes::Around => {
                self.memory.remove(object);
                // The SSD's queue forgets it when it comes by.
                self.gone[at] = true;
            }
        }
        self.writes == Writes::Through
    }

    fn keep(&mut self, object: u32) {
        self.gone[object as usize] = false;
        self.memory.insert(object);
        self.ssd.insert(object);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Nodes before one volume, with what each copy is worth: the version that was current when it was read.
    struct World {
        nodes: Vec<Node>,
        versions: Vec<u32>,
        copies: Vec<Vec<u32>>,
        fills: Vec<(usize, u32, Fill, u32)>,
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

        /// Reads, fills that take their time, and writes through any node: a hit is never older than the last write.
        #[test]
        fn several_nodes_before_one_volume_stay_coherent(
            writes in prop::collection::vec(any::<bool>(), 3),
            steps in prop::collection::vec((0usize..3, 0u32..6, 0u8..4), 1..200),
        ) {
            let kind = |through: bool| if through { Writes::Through } else { Writes::Around };
            let mut world = World {
                nodes: writes.iter().map(|w| Node::new(6, 10, 30, 50, kind(*w))).collect(),
                versions: vec![0; 6],
                copies: vec![vec![0; 6]; 3],
                fills: vec![],
            };
            for (n, object, what) in steps {
                let at = object as usize;
                match what {
                    0 | 1 => match world.nodes[n].read(object) {
                        Found::Nowhere => {
                            let fill = world.nodes[n].begin_fill(object, 1);
                            world.fills.push((n, object, fill, world.versions[at]));
                        }
                        _ => prop_assert_eq!(world.copies[n][at], world.versions[at], "stale"),
                    },
                    2 => {
                        world.versions[at] += 1;
                        for (i, node) in world.nodes.iter_mut().enumerate() {
                            node.written(object);
                            if node.writes == Writes::Through {
                                world.copies[i][at] = world.versions[at];
                            }
                        }
                    }
                    _ => {
                        if world.fills.is_empty() {
                            continue;
                        }
                        let (n, object, fill, version) = world.fills.remove(at % world.fills.len());
                        let before = world.nodes[n].clone();
                        world.nodes[n].end_fill(object, 1, fill);
                        // A fill that is kept brings what it read.
                        if before.begin_fill(object, 1) == fill {
                            world.copies[n][object as usize] = version;
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_fill_of_several_is_void_if_one_of_them_was_written() {
        let mut node = Node::new(4, 10, 40, 40, Writes::Around);
        let fill = node.begin_fill(0, 3);
        node.written(2);
        node.end_fill(0, 3, fill);
        assert!((0..3).all(|o| node.read(o) == Found::Nowhere));
    }

    #[test]
    fn a_void_fill_is_not_kept_and_a_valid_one_is() {
        let mut node = Node::new(4, 10, 20, 40, Writes::Around);
        assert_eq!(node.read(1), Found::Nowhere);
        let fill = node.begin_fill(1, 1);
        node.written(1);
        node.end_fill(1, 1, fill);
        assert_eq!(node.read(1), Found::Nowhere);
        let fill = node.begin_fill(1, 1);
        node.end_fill(1, 1, fill);
        assert_eq!(node.read(1), Found::Memory);
        for other in [0, 2, 3] {
            node.end_fill(other, 1, Fill(0));
        }
        assert_eq!(node.read(1), Found::Ssd, "pushed out of the memory");
        node.written(1);
        assert_eq!(node.read(1), Found::Nowhere);
        let mut through = Node::new(4, 10, 20, 40, Writes::Through);
        through.written(2);
        assert_eq!(through.read(2), Found::Memory);
    }
}
