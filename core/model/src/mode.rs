//! Operator settings: autonomy of the controller, states of tiers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Treatment of moves for a goal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// No moves are planned.
    Off,
    /// Moves are recommended; an operator approves them.
    #[default]
    Recommend,
    /// Moves that are predicted to make their volume faster start by themselves; others are recommended.
    Partial,
    /// Moves start by themselves.
    Auto,
}

impl Mode {
    /// Returns true if moves start without the approval of an operator.
    pub fn starts_moves(self) -> bool {
        matches!(self, Mode::Partial | Mode::Auto)
    }
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

/// State of a tier.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TierState {
    /// Accepts new data.
    #[default]
    Open,
    /// Accepts no new data, and keeps its present data.
    Cordoned,
    /// Accepts no new data, and its present data moves away.
    Draining,
}
