//! Conditions B to G: a three-hour slice of each day, repeated to fill it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Layouts, PAGES};

/// A condition of paper 1, table 1.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Slice {
    /// Locality parameter. Published is the curve of B (63, 84 and 95 % of requests on 10, 20 and 30 % of the pages), which
    /// k = 10 gives; C to G are only drawn, in order: 8.5, 7, 6, 5 and 4 are assumed.
    pub k: f64,
    /// Mean requests per second (published: 78, 64, 76, 73, 80 and 85 for B to G).
    pub iops: f64,
    /// When the accessed areas move (published).
    pub cycle: Cycle,
    /// Number of pages (published).
    #[serde(default = "pages")]
    pub pages: u32,
    /// How layouts lie to each other (assumed).
    #[serde(default)]
    pub layouts: Layouts,
    /// Share of the pages, the hottest, that never move. The paper says of the hottest 5 % that they "rarely move"; that they
    /// stay put while all others are permuted is assumed. 0 moves everything.
    #[serde(default = "pinned_hot")]
    pub pinned_hot: f64,
    /// Standard deviation of the logarithm of a page's intensity, drawn anew for each page and hour of a day's slice, mean
    /// kept (assumed: the paper's slices are real hours, which differ).
    #[serde(default = "jitter")]
    pub jitter: f64,
    /// Whether the eight repetitions of a slice have the same counts.
    #[serde(default)]
    pub repeat: SliceRepeat,
    /// First hour of the slice in a day of condition A (published: 0, 22, 14, 12, 11 and 10 for B to G).
    #[serde(default)]
    pub start_hour: u32,
    /// What the slice is cut from, and how slices fill a day.
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
    /// With everything that is not published at its default.
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

/// How often the accessed areas move. After a day they are where they were at its beginning (published).
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
    /// All, shortest first.
    pub const ALL: [Self; 5] = [
        Self::Hours1,
        Self::Hours3,
        Self::Hours6,
        Self::Hours12,
        Self::NotMove,
    ];

    /// Hours between two moves; 24 for none.
    pub fn hours(self) -> u32 {
        match self {
            Self::Hours1 => 1,
            Self::Hours3 => 3,
            Self::Hours6 => 6,
            Self::Hours12 => 12,
            Self::NotMove => 24,
        }
    }

    /// Its name in a condition's name.
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

/// What is repeated eight times a day.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SliceRepeat {
    /// The log: the same counts, page by page ("each condition is a repetition of a three hour period of I/O log data").
    #[default]
    Log,
    /// The intensities: counts are drawn anew for each hour, so that repetition teaches less.
    Intensities,
}

/// What slices are cut from and how they fill a day. The paper cuts "a three hour period … from each day" out of condition A's log and
/// repeats it; its log is not to be had, and how the repetitions follow each other can be read in two ways.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Construction {
    /// Not cut from a log: each page's popularity with an independent factor for each hour of a day's slice, eight times a day.
    #[default]
    Jitter,
    /// Cut from the stand-in for condition A, with its sessions and bursts; a day's slice eight times, then the next day's.
    Repeated,
    /// The same, but a day is filled with the slices of eight successive days, each once.
    Joined,
}

impl Construction {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Jitter, Self::Repeated, Self::Joined];

    /// As printed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Jitter => "independent jitter",
            Self::Repeated => "cut from A, repeated",
            Self::Joined => "cut from A, joined",
        }
    }
}
