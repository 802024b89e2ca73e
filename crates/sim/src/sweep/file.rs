//! Sweep files, and seeds as they are written.

use std::collections::BTreeMap;

use config::{Axis, axes};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::CELLS_MAX;
use crate::ScenarioError;

/// A sweep file.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SweepWords {
    /// The scenario, from the file's directory.
    pub scenario: String,
    /// By key of the scenario, the values that it is to take.
    #[serde(default)]
    pub grid: BTreeMap<String, Value>,
    /// Strategies; the scenario's own if left out.
    #[serde(default)]
    pub strategies: Vec<String>,
    /// Seeds; the scenario's own if left out.
    #[serde(default)]
    pub seeds: SeedWords,
    /// What is shown of each cell.
    #[serde(default)]
    pub metrics: Vec<String>,
}

/// Seeds: a list of them, or ranges such as `"1..5"`, which has five.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum SeedWords {
    /// One by one.
    List(Vec<u64>),
    /// As on a command line.
    Text(String),
}

impl Default for SeedWords {
    fn default() -> Self {
        Self::List(vec![])
    }
}

impl SeedWords {
    /// The seeds.
    ///
    /// # Errors
    /// As [`parse_seeds`].
    pub fn seeds(&self) -> Result<Vec<u64>, String> {
        match self {
            Self::List(seeds) => Ok(seeds.clone()),
            Self::Text(text) => parse_seeds(text),
        }
    }
}

/// A sweep file and the axes of its grid, in the file's order.
///
/// # Errors
/// Text that is no TOML, keys that there are not, lists without a value.
pub fn parse_sweep(
    file: &str,
    text: &str,
) -> Result<(SweepWords, Vec<Axis>, config::Text), ScenarioError> {
    let (words, source) = config::read::<SweepWords>(file, text)?;
    let axes = axes(&source, "grid")?;
    Ok((words, axes, source))
}

/// Seeds as on a command line: `1..3,9` are 1, 2, 3 and 9.
///
/// # Errors
/// What is no number, a range that has none, more than [`CELLS_MAX`]; in words.
pub fn parse_seeds(text: &str) -> Result<Vec<u64>, String> {
    let mut seeds = Vec::new();
    for part in text.split(',') {
        let number = |t: &str| {
            let why = || format!("\"{part}\" must be a seed or a range such as 1..5");
            t.trim().parse::<u64>().map_err(|_| why())
        };
        let (first, last) = match part.split_once("..") {
            Some((first, last)) => (number(first)?, number(last)?),
            None => (number(part)?, number(part)?),
        };
        if last < first {
            return Err(format!(
                "range {part} is empty: its first seed is above its last"
            ));
        }
        if last - first >= (CELLS_MAX - seeds.len()) as u64 {
            return Err(format!("{text} exceeds the limit of {CELLS_MAX} seeds"));
        }
        seeds.extend(first..=last);
    }
    Ok(seeds)
}
