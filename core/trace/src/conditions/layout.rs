//! Pages by rank, in each part of a day.

use algo::Rng;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Relation between the accessed areas of different parts of a day. The paper only states that they "move to the same
/// areas on the next day"; both variants are readings of this.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Layouts {
    /// Each layout is an independent random permutation.
    #[default]
    Permutation,
    /// Layout j is the first one, rotated by j · pages / layouts.
    Rotation,
}

impl Layouts {
    /// Returns the page of every rank for each of `count` layouts. The `pinned` hottest ranks have the same pages in
    /// all of them. The first layout is scattered as well: page numbers do not depend on popularity.
    pub(crate) fn draw(self, count: u32, pages: u32, pinned: u32, seed: u64) -> Vec<Vec<u32>> {
        let mut first: Vec<u32> = (0..pages).collect();
        shuffle(&mut first, &mut Rng::new(seed, 0x1A_0000));
        let (fixed, moving) = first.split_at(pinned.min(pages) as usize);
        let layout = |j: u32| {
            let mut rest = moving.to_vec();
            match self {
                _ if j == 0 => {}
                Self::Permutation => {
                    shuffle(&mut rest, &mut Rng::new(seed, 0x1A_0000 + u64::from(j)));
                }
                Self::Rotation => {
                    let by = rest.len() as u64 * u64::from(j) / u64::from(count);
                    rest.rotate_left(by as usize);
                }
            }
            [fixed, &rest].concat()
        };
        (0..count).map(layout).collect()
    }
}

fn shuffle(numbers: &mut [u32], rng: &mut Rng) {
    for i in (1..numbers.len()).rev() {
        numbers.swap(i, rng.below(i as u64 + 1) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_permutations_with_the_hottest_pinned() {
        for kind in [Layouts::Permutation, Layouts::Rotation] {
            let layouts = kind.draw(4, 100, 5, 7);
            for layout in &layouts {
                let mut sorted = layout.clone();
                sorted.sort_unstable();
                assert_eq!(sorted, (0..100).collect::<Vec<_>>());
                assert_eq!(layout[..5], layouts[0][..5]);
            }
            assert_ne!(layouts[0], layouts[1]);
            assert_ne!(layouts[1], layouts[2]);
        }
        let turned = Layouts::Rotation.draw(4, 100, 0, 7);
        assert_eq!(turned[1][0], turned[0][25]);
    }
}
