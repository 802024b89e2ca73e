//! `terrace trial`: measurements and recommended moves for a host of virtual machines, as text and as a page.
//!
//! ```text
//!  Trial ──▶ gain       predicted gain of moves, with its bounds
//!        └─▶ document   text for a terminal; the page has charts as well
//! ```

mod document;
mod gain;
mod seen;

pub use gain::{Gain, MoveGain, gain};
pub use seen::{DiskSeen, EPOCH_WINDOWS, WindowSeen, seen};

use std::collections::BTreeMap;

use manager::view::{PlanView, TierView, VolumeView};
use serde::Serialize;

use crate::Document;
use document::Form;

/// Name of a disk, and the reason why it is not moved or was not inspected.
pub type Stays = (String, String);

/// Results of a trial.
#[derive(Debug, Clone, Serialize)]
pub struct Trial {
    /// Length of the observation, seconds.
    pub seconds: u64,
    /// Objective: maximum mean latency of disks, microseconds.
    pub latency_us: f64,
    /// The host, as an argument of `terrace trial`.
    pub host: String,
    /// Assumed tiers.
    pub tiers: Vec<TrialTier>,
    /// Tiers at the end.
    #[serde(skip)]
    pub tiers_now: Vec<TierView>,
    /// Disks at the end.
    pub volumes: Vec<VolumeView>,
    /// Measurements of disks during the observation, the busiest first.
    pub disks: Vec<DiskSeen>,
    /// Recommended moves; none if no plan was made.
    pub plan: Option<PlanView>,
    /// Predicted gain of the plan.
    pub gain: Option<Gain>,
    /// Disks that cannot be moved in their present state, with the reason.
    pub fixed: Vec<Stays>,
    /// Disks that were not inspected, with the reason.
    pub left_out: Vec<Stays>,
    /// Commands that move a disk without Terrace, by volume.
    pub commands: BTreeMap<String, String>,
    /// Reasons why a planned move has no command, by volume.
    pub no_commands: BTreeMap<String, String>,
}

/// Assumed tier.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TrialTier {
    pub name: String,
    /// Assumed device preset.
    pub preset: String,
    /// Measured latencies divided by those of the preset; none if the preset is used unchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_times: Option<f64>,
    /// Names and paths of pools and directories.
    pub places: Vec<(String, String)>,
    /// Measurements of each of them.
    pub found: Vec<PlaceSeen>,
}

/// Measurements of a pool or a directory.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PlaceSeen {
    /// Description of its device by the kernel; none if it was not inspected.
    pub device: Option<String>,
    /// Median latency of reads of 4 KiB, microseconds; none without such reads.
    pub read_us: Option<f64>,
    /// Number of these reads.
    pub reads: u32,
    /// Reason why the requested reads were not made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_read: Option<String>,
}

impl Trial {
    /// Renders the trial for a terminal.
    pub fn text(&self) -> String {
        self.document(Form::Terminal).text()
    }

    /// Renders the trial as one page that needs no network and no script.
    pub fn page(&self) -> String {
        self.document(Form::Page).page()
    }

    fn document(&self, form: Form) -> Document {
        document::document(self, form)
    }
}

#[cfg(test)]
mod tests;
