//! Options of policies that keep pages in segments.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Demotion of pages without hits at the end of each slice: at most a quarter of each segment moves to the lowest
/// one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Ageing {
    /// No demotion, as in the paper.
    #[default]
    Never,
    /// Demotion of pages that were neither added nor hit during two slices.
    TwoSlices,
}

/// New position of a page after a hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OnHit {
    /// The most recently used end, as in the papers.
    #[default]
    Top,
    /// The position of a new page, so a single hit does not move pages of cold extents to the top.
    Again,
}
