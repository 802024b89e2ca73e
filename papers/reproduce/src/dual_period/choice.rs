//! Readings: choices that the paper leaves open.

use serde::{Deserialize, Serialize};
use trace::conditions::Construction;

use super::job::MOVEMENT_KIB_DEFAULT;
use crate::claim::Reading;

/// Assumed sizes of a movement I/O in KiB: the size with which the stand-in for condition A was selected, half of it
/// and twice of it.
pub(crate) const MOVEMENT_KIB_READ: [u64; 3] = [MOVEMENT_KIB_DEFAULT, 64, 256];

/// Constructions, the most literal one first.
pub(crate) const CONSTRUCTIONS: [Construction; 3] = [
    Construction::Repeated,
    Construction::Joined,
    Construction::Jitter,
];

/// Choices of one setup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// Construction of conditions B to G.
    pub construction: Construction,
    /// Size of a movement I/O in KiB.
    pub movement_kib: u64,
}

impl Choice {
    /// Returns all choices, in the order of the readings.
    pub(crate) fn all() -> Vec<Self> {
        let sizes = MOVEMENT_KIB_READ.into_iter();
        sizes
            .flat_map(|kib| CONSTRUCTIONS.map(|c| Self::new(c, kib)))
            .collect()
    }

    fn new(construction: Construction, movement_kib: u64) -> Self {
        Self {
            construction,
            movement_kib,
        }
    }

    /// Returns the choice with a construction and the size of a movement I/O that the figures use.
    pub(crate) fn of(construction: Construction) -> Self {
        Self::new(construction, MOVEMENT_KIB_DEFAULT)
    }

    /// Returns the choice as a reading of the paper.
    pub(crate) fn reading(self) -> Reading {
        let (id, says) = match self.construction {
            Construction::Repeated => (
                "repeated",
                "\"A repetition of a three hour period … from each day\": a day's slice eight times, then the next day's",
            ),
            Construction::Joined => (
                "joined",
                "The same words: the slices of successive days are joined, eight per day, which repeats the hours of the slice with new requests",
            ),
            Construction::Jitter => (
                "jitter",
                "Only the published properties of a slice, locality and intensity, with independent noise per page: no sessions, no bursts",
            ),
        };
        let size = match self.movement_kib {
            MOVEMENT_KIB_DEFAULT => "",
            _ => "; an alternative size of a movement I/O, which is not published",
        };
        Reading {
            id: format!("{id}-{}k", self.movement_kib),
            says: format!("{says}{size}"),
            choices: vec![
                ("construction", self.construction.name().into()),
                ("movement I/O", format!("{} KiB", self.movement_kib)),
            ],
        }
    }
}
