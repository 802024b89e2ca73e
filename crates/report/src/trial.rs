//! `terrace trial`: what was found on a host of virtual machines, as text and as a page that are made of one document.
//!
//! ```text
//!  Trial ──▶ gain       what moves are predicted to gain, between what bounds
//!        └─▶ document   text for a terminal; the page has charts and the configuration as well
//! ```

mod document;
mod gain;
mod seen;

pub use gain::{Doubt, Gain, MoveGain, gain, withhold};
pub use seen::{DiskSeen, EPOCH_WINDOWS, WindowSeen, seen};

use std::collections::BTreeMap;

use manager::view::{PlanView, TierView, VolumeView};
use serde::Serialize;

use crate::Document;
use document::Form;

/// A disk, and why it is not moved or was not looked at.
pub type Stays = (String, String);

/// What a trial found.
#[derive(Debug, Clone, Serialize)]
pub struct Trial {
    /// How long it looked.
    pub seconds: u64,
    /// The mean latency that disks are to have at most, microseconds.
    pub latency_us: f64,
    /// The hypervisor, if one was named.
    pub uri: Option<String>,
    /// Tiers as they were taken to be.
    pub tiers: Vec<TrialTier>,
    /// Tiers at the end.
    #[serde(skip)]
    pub tiers_now: Vec<TierView>,
    /// Disks at the end.
    pub volumes: Vec<VolumeView>,
    /// Disks over the time looked at, the busiest first.
    pub disks: Vec<DiskSeen>,
    /// What would be moved; none where no plan was made.
    pub plan: Option<PlanView>,
    /// What that is predicted to gain.
    pub gain: Option<Gain>,
    /// Disks that could not be moved as they are, with the reason.
    pub fixed: Vec<Stays>,
    /// Disks that were not looked at, with the reason.
    pub left_out: Vec<Stays>,
    /// What moves a disk by hand, by volume; none where it cannot be moved as it is.
    pub commands: BTreeMap<String, String>,
    /// Why there is no command for a planned move, by volume.
    pub no_commands: BTreeMap<String, String>,
    /// A file for `terrace serve` that goes on with what the trial looked at.
    pub config: String,
    /// Where that was written, if it was.
    pub config_file: Option<String>,
}

/// A tier as it was taken to be.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TrialTier {
    pub name: String,
    /// The device preset that it is taken for.
    pub preset: String,
    /// Latencies over the preset's, by what was read; none where the preset is taken as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_times: Option<f64>,
    /// Names of its pools and directories, and where they are.
    pub places: Vec<(String, String)>,
    /// What is known of each of them.
    pub found: Vec<PlaceSeen>,
}

/// What is known of a pool or a directory.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PlaceSeen {
    /// What the kernel says of its device, in words; none where it was not asked.
    pub device: Option<String>,
    /// Median of reads of 4 KiB from it, microseconds; none where none were made.
    pub read_us: Option<f64>,
    /// How many those were.
    pub reads: u32,
    /// Why none were made, where they were to be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_read: Option<String>,
}

impl Trial {
    /// For a terminal.
    pub fn text(&self) -> String {
        self.document(Form::Terminal).text()
    }

    /// As one page that needs no network and no script.
    pub fn page(&self) -> String {
        self.document(Form::Page).page()
    }

    fn document(&self, form: Form) -> Document {
        document::document(self, form)
    }
}

#[cfg(test)]
mod tests;
