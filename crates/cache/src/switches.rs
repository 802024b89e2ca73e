//! What queues with places can be told.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether pages that nobody hits are brought down at the end of a slice: up to a quarter of each segment, to the lowest one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Ageing {
    /// No, as in the paper.
    #[default]
    Never,
    /// Those that were neither put in nor hit during two slices.
    TwoSlices,
}

/// Where a page goes that is hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OnHit {
    /// To the most recently used end, as in the papers.
    #[default]
    Top,
    /// To the place where it would begin: pages of cold extents do not get to the top by one hit.
    Again,
}
