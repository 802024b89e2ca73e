//! Sweep files, and the text form of seeds.

use std::collections::BTreeMap;

use config::{Axis, axes};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{CELLS_MAX, SweepError};
use crate::ScenarioError;

/// Sweep file.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SweepWords {
    /// Path of the scenario, relative to the directory of the sweep file.
    pub scenario: String,
    /// Values of each varied key of the scenario.
    #[serde(default)]
    pub grid: BTreeMap<String, Value>,
    /// Strategies. Default: those of the scenario.
    #[serde(default)]
    pub strategies: Vec<String>,
    /// Seeds. Default: that of the scenario.
    #[serde(default)]
    pub seeds: SeedWords,
    /// Metrics to show of each cell.
    #[serde(default)]
    pub metrics: Vec<String>,
}

/// Seeds: a list, or ranges such as `"1..5"` for five seeds.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum SeedWords {
    /// List of seeds.
    List(Vec<u64>),
    /// Text, as on a command line.
    Text(String),
}

impl Default for SeedWords {
    fn default() -> Self {
        Self::List(vec![])
    }
}

impl SeedWords {
    /// Returns the seeds.
    ///
    /// # Errors
    /// As [`parse_seeds`].
    pub fn seeds(&self) -> Result<Vec<u64>, SweepError> {
        match self {
            Self::List(seeds) => Ok(seeds.clone()),
            Self::Text(text) => parse_seeds(text),
        }
    }
}

/// Parses a sweep file. Returns it with the axes of its grid, in the file's order.
///
/// # Errors
/// Invalid TOML, unknown keys, and lists without a value.
pub fn parse_sweep(
    file: &str,
    text: &str,
) -> Result<(SweepWords, Vec<Axis>, config::Text), ScenarioError> {
    let (words, source) = config::read::<SweepWords>(file, text)?;
    let axes = axes(&source, "grid")?;
    Ok((words, axes, source))
}

/// Parses seeds as on a command line: `1..3,9` is 1, 2, 3 and 9.
///
/// # Errors
/// [`SweepError`] for invalid numbers, empty ranges, and more than [`CELLS_MAX`] seeds.
pub fn parse_seeds(text: &str) -> Result<Vec<u64>, SweepError> {
    let mut seeds = Vec::new();
    for part in text.split(',') {
        let number = |t: &str| {
            let number = t.trim().parse::<u64>();
            number.map_err(|_| SweepError::SeedForm(part.into()))
        };
        let (first, last) = match part.split_once("..") {
            Some((first, last)) => (number(first)?, number(last)?),
            None => (number(part)?, number(part)?),
        };
        if last < first {
            return Err(SweepError::EmptyRange(part.into()));
        }
        if last - first >= (CELLS_MAX - seeds.len()) as u64 {
            return Err(SweepError::TooManySeeds(text.into()));
        }
        seeds.extend(first..=last);
    }
    Ok(seeds)
}
