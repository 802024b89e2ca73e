//! Conditions B to G: a three-hour slice of each day, repeated to fill the day.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Layouts, PAGES};

/// Condition of paper 1, table 1.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Slice {
    /// Locality parameter. The curve of B is published (63, 84 and 95 % of requests on 10, 20 and 30 % of the pages);
    /// it corresponds to k = 10. The curves of C to G are only drawn, in order: 8.5, 7, 6, 5 and 4 are assumed.
    pub k: f64,
    /// Mean requests per second (published: 78, 64, 76, 73, 80 and 85 for B to G).
    pub iops: f64,
    /// Time between moves of the accessed areas (published).
    pub cycle: Cycle,
    /// Number of pages (published).
    #[serde(default = "pages")]
    pub pages: u32,
    /// Relation between layouts (assumed).
    #[serde(default)]
    pub layouts: Layouts,
    /// Share of the hottest pages that never move. The paper states that the hottest 5 % "rarely move"; it is assumed
    /// that they stay while all others are permuted. 0 moves all pages.
    #[serde(default = "pinned_hot")]
    pub pinned_hot: f64,
    /// Standard deviation of the logarithm of a page's intensity, drawn for each page and hour of a day's slice, with a
    /// constant mean (assumed: the paper's slices are real hours, which differ).
    #[serde(default = "jitter")]
    pub jitter: f64,
    /// Repetition of a slice within a day: of its counts or of its intensities.
    #[serde(default)]
    pub repeat: SliceRepeat,
    /// First hour of the slice in a day of condition A (published: 0, 22, 14, 12, 11 and 10 for B to G).
    #[serde(default)]
    pub start_hour: u32,
    /// Source of the slices, and how slices fill a day.
    #[serde(default)]
    pub construction: Construction,
}

fn pages() -> u32 {
    PAGES
}

fn pinned_hot() -> f64 {
    0.05
}

fn jitter() -> f64 {
    0.5
}

impl Slice {
    /// Creates a slice with defaults for all unpublished properties.
    pub fn new(k: f64, iops: f64, cycle: Cycle) -> Self {
        Self {
            k,
            iops,
            cycle,
            pages: pages(),
            layouts: Layouts::default(),
            pinned_hot: pinned_hot(),
            jitter: jitter(),
            repeat: SliceRepeat::default(),
            start_hour: 0,
            construction: Construction::default(),
        }
    }
}

/// Time between moves of the accessed areas. After a day they return to their initial places (published).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Cycle {
    /// Every hour: 24 layouts a day.
    #[serde(rename = "1h")]
    Hours1,
    /// Every three hours.
    #[serde(rename = "3h")]
    Hours3,
    /// Every six hours.
    #[serde(rename = "6h")]
    Hours6,
    /// Every twelve hours.
    #[serde(rename = "12h")]
    Hours12,
    /// Never.
    #[serde(rename = "none")]
    NotMove,
}

impl Cycle {
    /// All cycles, shortest first.
    pub const ALL: [Self; 5] = [
        Self::Hours1,
        Self::Hours3,
        Self::Hours6,
        Self::Hours12,
        Self::NotMove,
    ];

    /// Returns the hours between two moves; 24 for no moves.
    pub fn hours(self) -> u32 {
        match self {
            Self::Hours1 => 1,
            Self::Hours3 => 3,
            Self::Hours6 => 6,
            Self::Hours12 => 12,
            Self::NotMove => 24,
        }
    }

    /// Returns the name in a condition's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hours1 => "1h",
            Self::Hours3 => "3h",
            Self::Hours6 => "6h",
            Self::Hours12 => "12h",
            Self::NotMove => "not-move",
        }
    }
}

/// Repeated part of a slice, eight times a day.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SliceRepeat {
    /// Log: the same counts for each page ("each condition is a repetition of a three hour period of I/O log data").
    #[default]
    Log,
    /// Intensities: counts are drawn for each hour, so methods learn less from repetition.
    Intensities,
}

/// Source of slices, and how they fill a day. The paper cuts "a three hour period … from each day" out of condition A's
/// log and repeats it. Its log is not available, and the order of the repetitions can be read in two ways.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Construction {
    /// No log: each page's popularity with an independent factor for each hour of a day's slice, eight times a day.
    #[default]
    Jitter,
    /// Slices of the stand-in for condition A, with its sessions and bursts: a day's slice eight times, then the next
    /// day's.
    Repeated,
    /// As `Repeated`, but a day has the slices of eight successive days, once each.
    Joined,
}

impl Construction {
    /// All constructions.
    pub const ALL: [Self; 3] = [Self::Jitter, Self::Repeated, Self::Joined];

    /// Returns the name for output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Jitter => "independent jitter",
            Self::Repeated => "cut from A, repeated",
            Self::Joined => "cut from A, joined",
        }
    }
}
