//! Sweeps: one scenario at all points of a grid of values, with several strategies and seeds.
//!
//! ```text
//!  grid ──▶ points ─┬─▶ cells = points × strategies × seeds ──(the caller runs them)──▶ CellResult
//!  scenario ────────┘                                                                      │ metrics
//!                                                SweepResult: a row per cell, means over seeds
//! ```
//!
//! A point is the scenario's text with other values of some keys. It is parsed like any other scenario, with the same
//! checks. Cells have an identity of all their inputs ([`Sweep::identity`]), so an existing result need not be computed
//! again. The caller runs the cells, and handles files and threads.

mod file;
mod metric;
mod outcome;
#[cfg(test)]
mod tests;

use config::{Axis, Setting, ValueError, find};
use serde_json::{Value, json};
use thiserror::Error;

use crate::{ScenarioError, ScenarioFile, TraceHash};

pub use file::{SeedWords, SweepWords, parse_seeds, parse_sweep};
pub use metric::{DEFAULT_METRICS, Metric, metric_names};
pub use outcome::{CellResult, CellRow, MeanRow, SWEEP_SCHEMA, SweepResult, means};

/// Largest number of cells of a sweep. Protects against a grid that is larger than intended.
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

/// Error of a sweep: invalid keys, values, seeds or metrics.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SweepError {
    /// Unknown key, or invalid value of a key.
    #[error("{setting}: {why}")]
    Setting {
        /// Name of the key, with the value if the value is invalid.
        setting: String,
        /// Reason.
        why: String,
    },
    /// Scenario that is invalid with the values of a point.
    #[error("{settings}: {fault}")]
    Point {
        /// Keys and values of the point.
        settings: String,
        /// Error, with the line of the scenario's file that sets the key, if it does.
        fault: ScenarioError,
    },
    /// Scenario that is invalid for any grid.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// The grid has too many cells.
    #[error("{0} cells exceed the limit of {max}: use a smaller grid", max = CELLS_MAX)]
    TooManyCells(usize),
    /// Two axes set the same key.
    #[error("{0} and {1} set the same key")]
    SameKey(String, String),
    /// A strategy or seed is listed twice.
    #[error("{what} {item} is listed twice")]
    Repeated {
        /// `strategy` or `seed`.
        what: &'static str,
        /// Strategy or seed.
        item: String,
    },
    /// A part of the text of seeds has another form.
    #[error("\"{0}\" must be a seed or a range such as 1..5")]
    SeedForm(String),
    /// A range of seeds is empty.
    #[error("range {0} is empty: its first seed is above its last")]
    EmptyRange(String),
    /// The text has too many seeds.
    #[error("{0} exceeds the limit of {max} seeds", max = CELLS_MAX)]
    TooManySeeds(String),
    /// The name of a group's metric has another form.
    #[error("metric \"{0}\" must have the form class[gold].iops")]
    MetricForm(String),
    /// The metric, the kind of its group, or its group does not exist.
    #[error("{what}: {error}")]
    Unknown {
        /// Subject, with the metric.
        what: String,
        /// Unknown name.
        error: ValueError,
    },
    /// The metric does not apply to the kind of group.
    #[error("metric \"{metric}\": {kind} {why}")]
    NotOfGroup {
        /// Name of the metric with its group.
        metric: String,
        /// Name without the group.
        kind: String,
        /// Subjects of the metric.
        why: &'static str,
    },
}

/// Sweep of a scenario.
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
    /// Number of the point.
    pub point: usize,
    /// Name of the strategy.
    pub strategy: String,
    /// Seed of the simulation.
    pub seed: u64,
}

impl Sweep {
    /// Creates a sweep of the scenario at all points of the axes. Without strategies or seeds, those of the scenario
    /// apply.
    ///
    /// # Errors
    /// Unknown keys or keys of two axes, repeated strategies and seeds, and too many cells.
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
            return Err(SweepError::TooManyCells(cells));
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
                    return Err(SweepError::SameKey(a.clone(), b.clone()));
                }
            }
        }
        Ok(())
    }

    /// Returns the keys that vary.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.axes.iter().map(|a| a.key.as_str())
    }

    /// Returns the strategies.
    pub fn strategies(&self) -> &[String] {
        &self.strategies
    }

    /// Returns the seeds.
    pub fn seeds(&self) -> &[u64] {
        &self.seeds
    }

    /// Returns the base scenario of all points.
    pub fn base(&self) -> &ScenarioFile {
        &self.base
    }

    /// Returns the number of points.
    pub fn points(&self) -> usize {
        self.axes.iter().map(|a| a.values.len()).product()
    }

    /// Returns all cells. Seeds of one strategy are together, strategies of one point are together, and the last axis
    /// changes first.
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

    /// Returns the keys and values of a point.
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

    /// Returns the keys and values of a point without keys that have only one value.
    pub fn varying(&self, point: usize) -> Vec<(&str, &Setting)> {
        let settings = self.settings(point).into_iter().zip(&self.axes);
        settings
            .filter(|(_, axis)| axis.values.len() > 1)
            .map(|(setting, _)| setting)
            .collect()
    }

    fn edited(&self, settings: &[(&str, &Setting)]) -> Result<config::EditedText, SweepError> {
        let edited = self.base.source.with(settings);
        edited.map_err(|fault| SweepError::Setting {
            setting: fault.key,
            why: fault.why,
        })
    }

    /// Returns the scenario at a point, with the seed.
    ///
    /// # Errors
    /// Unknown keys and invalid values; the error names the first one that causes it.
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

    /// Returns the error of the first value with which the file is invalid; `fault` if the file is valid with each
    /// single value.
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

    /// Returns an error of a point's scenario with the point's values. Lines are those of the scenario's file.
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

    /// Returns all inputs of a cell's result, except the program. Cells with equal identities need to run only once.
    /// `file` is the scenario at the cell's point; `uses` and `parameters` are the strategy and its parameters
    /// ([`ScenarioFile::parameters`]); `inputs` are hashes of the other files of the scenario.
    ///
    /// # Errors
    /// A scenario without a JSON form.
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
            // The scenario's name remains, because it is in the result.
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

/// Returns true if `place` is equal to `above` or below it.
fn within(place: &str, above: &str) -> bool {
    let rest = place.strip_prefix(above);
    rest.is_some_and(|r| r.is_empty() || r.starts_with(['.', '[']))
}

/// Returns the settings as text, such as `policy.hold=2, extent=64 MiB`.
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

fn once<T: PartialEq + ToString>(what: &'static str, list: &[T]) -> Result<(), SweepError> {
    for (i, item) in list.iter().enumerate() {
        if list[..i].contains(item) {
            let item = item.to_string();
            return Err(SweepError::Repeated { what, item });
        }
    }
    Ok(())
}

/// Returns the position of a name; the error suggests a similar one.
fn known<'a>(
    what: &str,
    name: &str,
    names: impl Iterator<Item = &'a str> + Clone,
) -> Result<usize, SweepError> {
    find(name, names).map_err(|error| SweepError::Unknown {
        what: what.into(),
        error,
    })
}
