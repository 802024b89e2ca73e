//! What operators set: how far decisions are carried out without asking, what tiers take.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How far the controller may go for a goal by itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Nothing is planned for it.
    Off,
    /// Moves are proposed; somebody approves them.
    #[default]
    Recommend,
    /// Moves that are predicted to make their volume faster are carried out; others are proposed.
    Partial,
    /// Moves are carried out.
    Auto,
}

impl std::fmt::Display for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Mode::Off => "off",
            Mode::Recommend => "recommend",
            Mode::Partial => "partial",
            Mode::Auto => "auto",
        })
    }
}

/// What a tier takes and keeps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TierState {
    /// New data is welcome.
    #[default]
    Open,
    /// No new data.
    Cordoned,
    /// No new data, and what is there leaves.
    Draining,
}
