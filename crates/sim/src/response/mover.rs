//! The copy of a volume to another backend, piece by piece, while its guest goes on writing.
//!
//! ```text
//!  guest's write of an object that …      goes to            and
//!  … was copied                           both backends      is done when both have it
//!  … is in the piece under way            the source         that object is copied again
//!  … was not reached yet                  the source         is copied in its turn
//! ```
//!
//! So when everything was copied and nothing is to be copied again, both have the same, and the volume may be switched over. Beside
//! what a real one would keep (bits), versions are kept here, so that a run can say whether that held.

use std::collections::VecDeque;

/// Objects that are read at once.
pub(super) const PIECE: u32 = 64;

/// What a copy came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Copied {
    /// Objects written to the other backend by the copy.
    pub(super) objects: u64,
    /// Guest's writes that went to both.
    pub(super) mirrored: u64,
    /// Objects that were copied again, as they were written while they were on their way.
    pub(super) again: u64,
}

struct OnItsWay {
    object: u32,
    version: u32,
    written: bool,
}

pub(super) struct Mover {
    next: u32,
    objects: u32,
    again: VecDeque<u32>,
    piece: Vec<OnItsWay>,
    copied: Vec<bool>,
    /// By object: the version that the other backend has.
    pub(super) target: Vec<u32>,
    pub(super) counts: Copied,
}

/// Where a guest's write has to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WriteTo {
    Source,
    Both,
}

impl Mover {
    pub(super) fn new(objects: u32) -> Self {
        Self {
            next: 0,
            objects,
            again: VecDeque::new(),
            piece: Vec::new(),
            copied: vec![false; objects as usize],
            // No version: nothing is there yet.
            target: vec![u32::MAX; objects as usize],
            counts: Copied::default(),
        }
    }

    /// Begins the next piece: its objects, to be read from the source now; none when all is copied. `versions` are the source's.
    pub(super) fn begin(&mut self, versions: &[u32]) -> Vec<u32> {
        debug_assert!(self.piece.is_empty(), "one piece at a time");
        let end = (self.next + PIECE).min(self.objects);
        let mut objects: Vec<u32> = (self.next..end).collect();
        self.next = end;
        if objects.is_empty() {
            let n = self.again.len().min(PIECE as usize);
            objects = self.again.drain(..n).collect();
        }
        let on_its_way = |object: &u32| OnItsWay {
            object: *object,
            version: versions[*object as usize],
            written: false,
        };
        self.piece = objects.iter().map(on_its_way).collect();
        objects
    }

    /// It is written on the other side.
    pub(super) fn end(&mut self) {
        for on_its_way in std::mem::take(&mut self.piece) {
            let at = on_its_way.object as usize;
            self.counts.objects += 1;
            if on_its_way.written {
                self.counts.again += 1;
                self.again.push_back(on_its_way.object);
            } else {
                self.copied[at] = true;
                self.target[at] = on_its_way.version;
            }
        }
    }

    /// The guest writes an object, which is `version` from now on.
    pub(super) fn written(&mut self, object: u32, version: u32) -> WriteTo {
        let mut piece = self.piece.iter_mut();
        if let Some(on_its_way) = piece.find(|o| o.object == object) {
            on_its_way.written = true;
            return WriteTo::Source;
        }
        if !self.copied[object as usize] {
            return WriteTo::Source;
        }
        self.counts.mirrored += 1;
        self.target[object as usize] = version;
        WriteTo::Both
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

        /// Writes at any time: in the end the other side has what was written last, and all of it was copied.
        #[test]
        fn when_all_is_copied_both_sides_have_the_same(
            steps in prop::collection::vec((0u32..200, 0u8..4), 0..400),
        ) {
            let mut versions = vec![1u32; 200];
            let mut mover = Mover::new(200);
            let mut under_way = !mover.begin(&versions).is_empty();
            for (object, what) in steps {
                if what == 0 {
                    mover.end();
                    under_way = !mover.begin(&versions).is_empty();
                } else {
                    let at = object as usize;
                    versions[at] += 1;
                    let copied = mover.copied[at];
                    let to = mover.written(object, versions[at]);
                    prop_assert!(copied || to == WriteTo::Source, "it is not there yet");
                }
            }
            while under_way {
                mover.end();
                under_way = !mover.begin(&versions).is_empty();
            }
            prop_assert_eq!(&mover.target, &versions);
            prop_assert_eq!(mover.counts.objects, 200 + mover.counts.again);
        }
    }

    #[test]
    fn what_is_written_on_its_way_is_copied_again() {
        let versions = vec![1u32; 70];
        let mut mover = Mover::new(70);
        assert_eq!(mover.begin(&versions).len(), 64);
        assert_eq!(mover.written(3, 2), WriteTo::Source);
        assert_eq!(mover.written(69, 2), WriteTo::Source, "its turn comes");
        mover.end();
        assert_eq!(mover.written(4, 2), WriteTo::Both);
        assert_eq!(mover.begin(&versions).len(), 6);
        mover.end();
        assert_eq!(mover.begin(&versions), [3]);
        mover.end();
        assert!(mover.begin(&versions).is_empty());
        let want = Copied {
            objects: 71,
            mirrored: 1,
            again: 1,
        };
        assert_eq!(mover.counts, want);
    }
}
