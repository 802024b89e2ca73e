//! The 31 load conditions of paper 1 (Hayashi and Komoda: Data Location Optimization Method to Improve Tiered Storage
//! Performance), by hour and page.
//!
//! ```text
//!   Condition ──▶ Hours: page → requests per second, for an hour ──▶ counts (here)   : evaluation by counting
//!                                                               └──▶ requests (sim)  : queueing simulation
//! ```
//!
//! The paper's conditions come from a month of the cello99 trace, which is not available. Its published properties are
//! kept ([`Slice`] and [`StandIn`] state for each field whether it is published or assumed); all others are assumed. A
//! generator replaces condition A. Its parameters were *selected* from 520 random draws, for results near the paper's.
//! Its results are therefore a calibration, not a confirmation.
//!
//! All results are functions of condition and seed.

mod hours;
mod layout;
mod names;
mod slice;
mod stand_in;

use serde::Serialize;

pub use hours::{Hour, Hours};
pub use layout::Layouts;
pub use names::{condition, condition_names};
pub use slice::{Construction, Cycle, Slice, SliceRepeat};
pub use stand_in::StandIn;

/// Pages of the paper's trace: 8,679 of 10 MB (published).
pub const PAGES: u32 = 8679;

/// Returns the share of requests on the hottest share `x` of pages for locality `k`: (1 − e^(−kx)) / (1 − e^(−k)). With
/// k = 10 that is 63.2, 86.5 and 95.0 % at 10, 20 and 30 %. The paper has 63, 84 and 95 % for condition B.
pub fn cumulative_share(k: f64, x: f64) -> f64 {
    (1.0 - libm::exp(-k * x)) / (1.0 - libm::exp(-k))
}

/// Returns the share of all requests for the page of each rank, hottest first. The shares sum to one.
fn popularity(k: f64, pages: u32) -> Vec<f64> {
    let n = f64::from(pages);
    let share =
        |i: u32| cumulative_share(k, f64::from(i + 1) / n) - cumulative_share(k, f64::from(i) / n);
    (0..pages).map(share).collect()
}

/// Load condition.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Condition {
    /// Condition A: the full trace, replaced by a generator.
    StandIn(StandIn),
    /// Conditions B to G: three hours of each day, repeated eight times, on pages that move in a cycle or stay.
    Slice(Slice),
}

impl Condition {
    /// Returns the number of pages.
    pub fn pages(&self) -> u32 {
        match self {
            Self::StandIn(s) => s.pages,
            Self::Slice(s) => s.pages,
        }
    }

    /// Returns the condition with slices of another construction. A stand-in for condition A has no slices and stays
    /// unchanged.
    #[must_use]
    pub fn constructed(self, construction: Construction) -> Self {
        match self {
            Self::StandIn(_) => self,
            Self::Slice(slice) => Self::Slice(Slice {
                construction,
                ..slice
            }),
        }
    }

    /// Returns the hours from the first on.
    pub fn hours(&self, seed: u64) -> Hours {
        Hours::new(self, seed)
    }
}
