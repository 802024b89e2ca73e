//! Errors in stored plans and figures, and in the hash of a commit.

use thiserror::Error;

/// Error of an evaluation.
#[derive(Debug, Error)]
pub enum DecisionsError {
    /// The file of known plans is not JSON of this layout.
    #[error("not a file of plans in hindsight")]
    Layout(#[from] serde_json::Error),
    /// The file of known plans has another layout.
    #[error("its schema is {found}, not {known}")]
    Schema {
        /// Layout of the file.
        found: String,
        /// Layout of this version.
        known: &'static str,
    },
    /// The file has plans of another scenario under this name.
    #[error(
        "{scenario}, seed {seed}: the scenario has changed since its plans were stored; remove the entry and search again"
    )]
    Stale {
        /// The scenario.
        scenario: String,
        /// Seed of the scenario.
        seed: u64,
    },
    /// A plan of a frozen version is already stored.
    #[error(
        "{scenario}, seed {seed}: a frozen plan is already stored, and frozen plans do not change"
    )]
    Frozen {
        /// The scenario.
        scenario: String,
        /// Seed of the scenario.
        seed: u64,
    },
    /// The tiers of a volume in a plan cannot be parsed.
    #[error("{text:?} is not a list of tiers with their epochs, such as \"0x12 1x18\"")]
    Tiers {
        /// The text.
        text: String,
    },
    /// The text is no full hash of a commit.
    #[error("commit {0:?} is no full hash: 40 or 64 hexadecimal digits are needed")]
    NoHash(String),
    /// Runs of a comparison failed, so numbers by seed would be of other seeds.
    #[error("{scenario}: {strategy} has runs for {runs} of {seeds} seeds")]
    MissingRuns {
        /// Scenario of the failed runs.
        scenario: String,
        /// Strategy of the failed runs.
        strategy: String,
        /// Number of runs that exist.
        runs: usize,
        /// Number of seeds.
        seeds: usize,
    },
    /// The text of figures is not JSON of this layout.
    #[error(transparent)]
    FiguresLayout(serde_json::Error),
    /// The figures have another layout.
    #[error("unsupported schema {found}: expected {known}")]
    FiguresSchema {
        /// Layout of the text.
        found: String,
        /// Layout of this version.
        known: &'static str,
    },
}
