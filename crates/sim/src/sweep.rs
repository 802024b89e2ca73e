//! Sweeps: one scenario at all points of a grid of values, under strategies, with seeds.
//!
//! ```text
//!  grid ──▶ points ─┬─▶ cells = points × strategies × seeds ──(the caller runs them)──▶ CellResult
//!  scenario ────────┘                                                                      │ metrics
//!                                                SweepResult: a row per cell, means over seeds
//! ```
//!
//! A point is the scenario's text with other values at some keys, read like any other: what a file may not say, a point
//! may not either. Cells say what they depend on ([`Sweep::identity`]), so that a result that is there need not be
//! computed again. Running, files and threads are the caller's.

mod file;
mod metric;
mod outcome;
#[cfg(test)]
mod tests;

use config::{Axis, Setting, find};
use serde_json::{Value, json};
use thiserror::Error;

use crate::{ScenarioError, ScenarioFile, TraceHash};

pub use file::{SeedWords, SweepWords, parse_seeds, parse_sweep};
pub use metric::{DEFAULT_METRICS, Metric, metric_names};
pub use outcome::{CellResult, CellRow, MeanRow, SWEEP_SCHEMA, SweepResult, means};

/// Cells of a sweep. Protects against a grid that was meant to be smaller.
pub const CELLS_MAX: usize = 100_000;

/// Keys that a grid cannot vary, with the reason or the alternative.
const NOT_FOR_GRIDS: [(&str, &str); 7] = [
    (
        "seed",
        "give seeds with --seeds, or with seeds = in a sweep file",
    ),
    (
        "strategy",
        "give strategies with --strategies, or with strategies = in a sweep file",
    ),
    (
        "compare",
        "give strategies with --strategies, or with strategies = in a sweep file",
    ),
    ("name", "has no effect on a run"),
    ("about", "has no effect on a run"),
    ("requires", "has no effect on a run"),
    ("recorded", "has no effect on a run"),
];

/// Error of an invalid sweep.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SweepError {
    /// A key that is nowhere, or a value that it does not take.
    #[error("{setting}: {why}")]
    Setting {
        /// The key, with the value where it is the value's fault.
        setting: String,
        /// What is wrong.
        why: String,
    },
    /// A scenario that makes no sense with the values of a point.
    #[error("{settings}: {fault}")]
    Point {
        /// The keys and their values.
        settings: String,
        /// What is wrong; with the line of the scenario's file that gives the key, if it does.
        fault: ScenarioError,
    },
    /// A scenario that makes no sense whatever the grid.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// Too many cells, or something given twice.
    #[error("{0}")]
    Shape(String),
}

/// A scenario and what is to become of it.
#[derive(Debug, Clone)]
pub struct Sweep {
    base: ScenarioFile,
    axes: Vec<Axis>,
    strategies: Vec<String>,
    seeds: Vec<u64>,
}

/// One simulation of a sweep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    /// Number of its point.
    pub point: usize,
    /// Its strategy.
    pub strategy: String,
    /// Its seed.
    pub seed: u64,
}

impl Sweep {
    /// The scenario at all points of the axes. Without strategies or seeds, the scenario's own.
    ///
    /// # Errors
    /// Keys that lead nowhere, or that two axes give; strategies and seeds that are listed twice; too many cells.
    pub fn new(
        base: ScenarioFile,
        axes: Vec<Axis>,
        mut strategies: Vec<String>,
        mut seeds: Vec<u64>,
    ) -> Result<Self, SweepError> {
        if strategies.is_empty() {
            strategies.push(base.scenario.strategy.clone());
        }
        if seeds.is_empty() {
            seeds.push(base.scenario.seed);
        }
        once("strategy", &strategies)?;
        once("seed", &seeds)?;
        let lengths = axes.iter().map(|a| a.values.len());
        let cells = lengths.chain([strategies.len(), seeds.len()]);
        let cells = cells.fold(1usize, usize::saturating_mul);
        if cells > CELLS_MAX {
            let why = format!("{cells} cells exceed the limit of {CELLS_MAX}: use a smaller grid");
            return Err(SweepError::Shape(why));
        }
        let sweep = Self {
            base,
            axes,
            strategies,
            seeds,
        };
        sweep.check_keys()?;
        Ok(sweep)
    }

    fn check_keys(&self) -> Result<(), SweepError> {
        for axis in &self.axes {
            let root = axis.key.split(['.', '[']).next().unwrap_or_default();
            if let Some((_, why)) = NOT_FOR_GRIDS.iter().find(|(key, _)| *key == root) {
                return Err(SweepError::Setting {
                    setting: axis.key.clone(),
                    why: (*why).into(),
                });
            }
        }
        let places = self.edited(&self.settings(0))?.places;
        for (i, own) in places.iter().enumerate() {
            for (j, others) in places[..i].iter().enumerate() {
                let meet = |a: &String| others.iter().any(|b| within(a, b) || within(b, a));
                if own.iter().any(meet) {
                    let (a, b) = (&self.axes[j].key, &self.axes[i].key);
                    return Err(SweepError::Shape(format!("{a} and {b} set the same key")));
                }
            }
        }
        Ok(())
    }

    /// The keys that vary.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.axes.iter().map(|a| a.key.as_str())
    }

    /// The strategies.
    pub fn strategies(&self) -> &[String] {
        &self.strategies
    }

    /// The seeds.
    pub fn seeds(&self) -> &[u64] {
        &self.seeds
    }

    /// The scenario that all points are made from.
    pub fn base(&self) -> &ScenarioFile {
        &self.base
    }

    /// How many points there are.
    pub fn points(&self) -> usize {
        self.axes.iter().map(|a| a.values.len()).product()
    }

    /// All cells: seeds of one strategy together, strategies of one point together, the last axis changing first.
    pub fn cells(&self) -> Vec<Cell> {
        let seeds = |point, strategy: &String| {
            let strategy = strategy.clone();
            self.seeds.iter().map(move |seed| Cell {
                point,
                strategy: strategy.clone(),
                seed: *seed,
            })
        };
        (0..self.points())
            .flat_map(|point| self.strategies.iter().flat_map(move |s| seeds(point, s)))
            .collect()
    }

    /// Keys and values of a point.
    pub fn settings(&self, point: usize) -> Vec<(&str, &Setting)> {
        let mut left = point;
        let mut settings: Vec<_> = self
            .axes
            .iter()
            .rev()
            .map(|axis| {
                let n = axis.values.len();
                let value = &axis.values[left % n];
                left /= n;
                (axis.key.as_str(), value)
            })
            .collect();
        settings.reverse();
        settings
    }

    /// The same, without keys that have one value only.
    pub fn varying(&self, point: usize) -> Vec<(&str, &Setting)> {
        let settings = self.settings(point).into_iter().zip(&self.axes);
        settings
            .filter(|(_, axis)| axis.values.len() > 1)
            .map(|(setting, _)| setting)
            .collect()
    }

    fn edited(&self, settings: &[(&str, &Setting)]) -> Result<config::Edited, SweepError> {
        let edited = self.base.source.with(settings);
        edited.map_err(|fault| SweepError::Setting {
            setting: fault.key,
            why: fault.why,
        })
    }

    /// The scenario at a point, with the seed.
    ///
    /// # Errors
    /// Keys that there are not and values that do not fit, with the first that is to blame.
    pub fn scenario(&self, point: usize, seed: u64) -> Result<ScenarioFile, SweepError> {
        let settings = self.settings(point);
        let edited = self.edited(&settings)?;
        match ScenarioFile::parse(&edited.text.file, &edited.text.text) {
            Ok(mut file) => {
                file.scenario.seed = seed;
                Ok(file)
            }
            Err(fault) => Err(self.first_refused(&settings, fault)),
        }
    }

    /// The first of the values with which the file cannot be read; `fault` if it could be read with each of them.
    fn first_refused(&self, settings: &[(&str, &Setting)], fault: ScenarioError) -> SweepError {
        for (n, setting) in settings.iter().enumerate() {
            let edited = match self.edited(&settings[..=n]) {
                Ok(edited) => edited,
                Err(error) => return error,
            };
            if let Err(fault) = ScenarioFile::parse(&edited.text.file, &edited.text.text) {
                return refused(*setting, &edited.places[n], fault);
            }
        }
        fault.into()
    }

    /// A fault that was found in a point's scenario, with the point's values. Lines are those of the scenario's file.
    pub fn blame(&self, point: usize, fault: ScenarioError) -> SweepError {
        let fault = ScenarioError {
            line: self.base.source.line_of(&fault.key),
            ..fault
        };
        if self.axes.is_empty() {
            return SweepError::Scenario(fault);
        }
        SweepError::Point {
            settings: label(&self.settings(point)),
            fault,
        }
    }

    /// All that the result of a cell depends on, besides the program: equal for cells that need to be run only once.
    /// `file` is the scenario at the cell's point; `uses` and `parameters` are the strategy and its parameters ([`ScenarioFile::parameters`]);
    /// `inputs` are hashes of the other files of the scenario.
    ///
    /// # Errors
    /// A scenario that has no JSON form.
    pub fn identity(
        &self,
        file: &ScenarioFile,
        cell: &Cell,
        (uses, parameters): (String, Value),
        traces: &[TraceHash],
        inputs: &[String],
    ) -> Result<Value, ScenarioError> {
        let words = serde_json::to_value(&file.scenario);
        let mut scenario = words.map_err(|e| file.fault("", e.to_string()))?;
        if let Some(keys) = scenario.as_object_mut() {
            // The scenario's name is kept: it is in the result.
            keys.retain(|key, _| {
                let elsewhere = key == "strategies" || NOT_FOR_GRIDS.iter().any(|(k, _)| k == key);
                key == "name" || !elsewhere
            });
        }
        Ok(json!({
            "scenario": scenario,
            "traces": traces,
            "inputs": inputs,
            "strategy": cell.strategy,
            "uses": uses,
            "parameters": parameters,
            "seed": cell.seed,
        }))
    }
}

/// Whether a place is the other one, or below it.
fn within(place: &str, above: &str) -> bool {
    let rest = place.strip_prefix(above);
    rest.is_some_and(|r| r.is_empty() || r.starts_with(['.', '[']))
}

/// `policy.hold=2, extent=64 MiB`
pub fn label(settings: &[(&str, &Setting)]) -> String {
    let parts: Vec<String> = settings.iter().map(|(k, v)| format!("{k}={v}")).collect();
    parts.join(", ")
}

fn refused(setting: (&str, &Setting), places: &[String], fault: ScenarioError) -> SweepError {
    let own = fault.key.is_empty() || fault.key == setting.0 || places.contains(&fault.key);
    SweepError::Setting {
        setting: label(&[setting]),
        why: match own {
            true => fault.why,
            false => format!("{}: {}", fault.key, fault.why),
        },
    }
}

fn once<T: PartialEq + std::fmt::Display>(what: &str, list: &[T]) -> Result<(), SweepError> {
    for (i, item) in list.iter().enumerate() {
        if list[..i].contains(item) {
            let why = format!("{what} {item} is listed twice");
            return Err(SweepError::Shape(why));
        }
    }
    Ok(())
}

/// The position of a name, or what was meant.
fn known<'a>(
    what: &str,
    name: &str,
    names: impl Iterator<Item = &'a str> + Clone,
) -> Result<usize, String> {
    find(name, names).map_err(|why| format!("{what}: {why}"))
}
