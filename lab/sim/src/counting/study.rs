//! Scenario for evaluation by counting. It shows which method serves most of the recorded loads from a small fast tier.

use config::scenario::CountingConfig;
use serde::Serialize;
use trace::LoadedTrace;
use trace::measurements::Measurements;
use units::{Bytes, Nanos};

use planner::extents::Terms;

use super::formula::{Directions, Formula, Score};
use super::heats::{self, Heats};
use super::{CellSpec, evaluate, methods};
use crate::{ScenarioError, ScenarioFile};

/// Largest number of intervals of one load. Protects memory from an interval in a wrong unit.
const INTERVALS_MAX: usize = 1_000_000;

/// Smallest extent: one page.
const EXTENT_MIN: Bytes = Bytes(4096);

/// Load for the comparison of methods.
#[derive(Debug, Clone)]
pub struct CountingLoad {
    /// Name of the source file in the scenario.
    pub name: String,
    heats: Heats,
}

/// Result of a method for one load and one size of the fast tier.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CountingRow {
    /// Name of the load.
    pub load: String,
    /// Number of extents with requests.
    pub extents: u32,
    /// Number of measured intervals.
    pub intervals: usize,
    /// Requests to extents in all measured intervals.
    pub requests: u64,
    /// Size of the fast tier as a share of the extents.
    pub fast_tier_share: f64,
    /// Name of the method in the scenario.
    pub strategy: String,
    /// True if the method receives future requests. Its result is a bound.
    pub knows_the_future: bool,
    /// Score; `None` without requests in the measured time.
    pub score: Option<Score>,
}

/// Results of a scenario.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CountingResult {
    /// Name and version of the schema.
    pub schema: &'static str,
    /// Name of the scenario.
    pub scenario: String,
    /// Purpose of the scenario.
    pub about: String,
    /// Settings of the scenario.
    pub counting: CountingConfig,
    /// Size of extents.
    pub extent: Bytes,
    /// Rows by load, size of the fast tier, and method.
    pub rows: Vec<CountingRow>,
}

/// Name and version of the schema of [`CountingResult`].
pub const COUNTING_SCHEMA: &str = "terrace.counting/1";

impl ScenarioFile {
    /// Returns the loads of a scenario with a table `counting`: one per trace, and one per file of measurements. Traces
    /// and measurements are in the scenario's order.
    ///
    /// # Errors
    /// Invalid settings, with their key, and a trace without times.
    pub fn counting_loads(
        &self,
        traces: &[&LoadedTrace],
        measurements: &[&Measurements],
    ) -> Result<Vec<CountingLoad>, ScenarioError> {
        let s = &self.scenario;
        let config = self.counting()?;
        let mut loads = vec![];
        for (i, (trace, from)) in traces.iter().zip(&s.traces).enumerate() {
            if trace.times == trace::Times::Order {
                let why = "has no times; if it is a .lis file whose third column is a day, use format = \"lis-days\"";
                return Err(self.fault(&format!("traces[{i}].file"), why));
            }
            self.bounded(&format!("traces[{i}].file"), trace.span_ns)?;
            let heats = heats::of_trace(trace, s.extent, config.interval);
            let name = from.file.clone();
            loads.push(CountingLoad { name, heats });
        }
        for (i, (measured, from)) in measurements.iter().zip(&s.measurements).enumerate() {
            let ends = measured.volumes.iter().flat_map(|v| &v.intervals);
            let end = ends.map(|i| i.end.0).max().unwrap_or(0);
            self.bounded(&format!("measurements[{i}].file"), end)?;
            let heats = heats::of_measurements(measured, config.interval);
            let name = from.file.clone();
            loads.push(CountingLoad { name, heats });
        }
        if loads.is_empty() {
            return Err(self.fault("", "the scenario has no load: add traces or measurements"));
        }
        Ok(loads)
    }

    fn counting(&self) -> Result<&CountingConfig, ScenarioError> {
        let config = self.scenario.counting.as_ref();
        let config = config.ok_or_else(|| self.fault("counting", "missing table"))?;
        let fault = |key: &str, why: &str| Err(self.fault(&format!("counting.{key}"), why));
        if self.scenario.extent < EXTENT_MIN {
            let why = format!("must be at least {EXTENT_MIN}");
            return Err(self.fault("extent", why));
        }
        if config.interval == Nanos::ZERO {
            return fault("interval", "must be above 0");
        }
        if config.fast_shares.is_empty() {
            return fault("fast_shares", "must list at least one share");
        }
        if !config.fast_shares.iter().all(|s| *s > 0.0 && *s < 1.0) {
            return fault("fast_shares", "must be above 0 and below 1");
        }
        if config.movement_io.0 == 0 {
            return fault("movement_io", "must be above 0");
        }
        if !(config.speed_ratio >= 1.0 && config.speed_ratio.is_finite()) {
            return fault("speed_ratio", "must be 1 or more");
        }
        Ok(config)
    }

    fn bounded(&self, key: &str, span_ns: u64) -> Result<(), ScenarioError> {
        let interval = self.counting()?.interval;
        let intervals = span_ns / interval.0;
        if intervals < INTERVALS_MAX as u64 {
            return Ok(());
        }
        let why =
            format!("has {intervals} intervals of {interval}, too many: use longer intervals");
        Err(self.fault(key, why))
    }

    /// Checks that `names` are methods with valid parameters, in a scenario with a table `counting`.
    ///
    /// # Errors
    /// The first invalid name.
    pub fn check_methods(&self, names: &[String]) -> Result<(), ScenarioError> {
        let spec = CellSpec {
            extents: 2,
            capacity: 1,
            count_from: Nanos::ZERO,
            terms: Terms::default(),
        };
        let interval = self.counting()?.interval;
        names.iter().try_for_each(|name| {
            self.cell(name, spec)?;
            let (method, config) = self.parameters(name)?;
            let periods = methods::periods(&method, config);
            let odd = periods
                .into_iter()
                .find(|p| !p.1.0.is_multiple_of(interval.0));
            odd.map_or(Ok(()), |(key, period)| {
                let why = format!("{period} is not a multiple of the interval of {interval}");
                Err(self.fault(&format!("strategies.{name}.{key}"), why))
            })
        })
    }

    fn cell(&self, name: &str, spec: CellSpec) -> Result<Box<dyn super::Cell>, ScenarioError> {
        let (method, config) = self.parameters(name)?;
        let found = methods::cell(&method, config, spec).map_err(|e| {
            let dot = if e.key.is_empty() { "" } else { "." };
            self.fault(&format!("strategies.{name}{dot}{}", e.key), e.why)
        })?;
        found.ok_or_else(|| {
            let known: Vec<&str> = methods::METHODS.iter().map(|m| m.name).collect();
            let why = format!(
                "{method} does not place extents, which evaluation by counting requires; usable methods: {}",
                known.join(", ")
            );
            self.fault("compare", why)
        })
    }

    /// Evaluates all methods on one load, for every size of the fast tier, in one pass.
    ///
    /// # Errors
    /// As [`ScenarioFile::check_methods`].
    pub fn count(
        &self,
        load: &CountingLoad,
        names: &[String],
    ) -> Result<Vec<CountingRow>, ScenarioError> {
        let config = self.counting()?;
        let terms = Terms {
            extent: self.scenario.extent,
            movement_io: config.movement_io,
            speed_ratio: config.speed_ratio,
        };
        let formula = Formula {
            terms,
            reading: config.movement,
            directions: Directions::default(),
            aggregation: config.average,
            interval: config.interval,
            count_from: config.count_from,
        };
        let heats = &load.heats;
        let mut cells = vec![];
        for share in &config.fast_shares {
            let capacity = (share * f64::from(heats.extents)).round() as u32;
            let spec = CellSpec {
                extents: heats.extents,
                capacity: capacity.max(1),
                count_from: config.count_from,
                terms,
            };
            for name in names {
                cells.push(self.cell(name, spec)?);
            }
        }
        evaluate(config.interval, heats.intervals.iter().cloned(), &mut cells);
        let skip = config.count_from.0.div_ceil(config.interval.0) as usize;
        let counted = heats.intervals.get(skip..).unwrap_or(&[]);
        let requests = counted.iter().flatten().map(|c| u64::from(c.1)).sum();
        let keys = config.fast_shares.iter();
        let keys = keys.flat_map(|share| names.iter().map(move |name| (share, name)));
        let rows = cells
            .into_iter()
            .zip(keys)
            .map(|(cell, (share, name))| CountingRow {
                load: load.name.clone(),
                extents: heats.extents,
                intervals: counted.len(),
                requests,
                fast_tier_share: *share,
                strategy: name.clone(),
                knows_the_future: self.knows_the_future(name),
                score: formula.score(&cell.finish()),
            });
        Ok(rows.collect())
    }

    fn knows_the_future(&self, name: &str) -> bool {
        let method = self.parameters(name).map(|(method, _)| method);
        let of = |name: &str| methods::METHODS.iter().find(|m| m.name == name);
        method.is_ok_and(|name| of(&name).is_some_and(|m| m.knows_the_future))
    }

    /// Returns the document with all rows.
    ///
    /// # Errors
    /// A scenario without a table `counting`.
    pub fn counting_result(&self, rows: Vec<CountingRow>) -> Result<CountingResult, ScenarioError> {
        Ok(CountingResult {
            schema: COUNTING_SCHEMA,
            scenario: self.scenario.name.clone(),
            about: self.scenario.about.clone(),
            counting: self.counting()?.clone(),
            extent: self.scenario.extent,
            rows,
        })
    }
}
