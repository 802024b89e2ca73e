//! A scenario at counting level: which method serves most of some real loads from a small fast tier.

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

/// Intervals of one load. Protects memory from an interval that was meant in another unit.
const INTERVALS_MAX: usize = 1_000_000;

/// Smaller extents are pages.
const EXTENT_MIN: Bytes = Bytes(4096);

/// One load that methods are held against.
#[derive(Debug, Clone)]
pub struct CountingLoad {
    /// The file that it is from, as the scenario names it.
    pub name: String,
    heats: Heats,
}

/// A method on one load and one size of fast tier.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CountingRow {
    /// The load.
    pub load: String,
    /// Extents that are ever asked for.
    pub extents: u32,
    /// Intervals that count.
    pub intervals: usize,
    /// Requests of an extent in all intervals that count.
    pub requests: u64,
    /// Size of the fast tier, as a share of the extents.
    pub fast_tier_share: f64,
    /// The method, by the scenario's name for it.
    pub strategy: String,
    /// Whether it is told what will be asked for: a bound.
    pub knows_the_future: bool,
    /// How it did; none where nothing is asked for in the time that counts.
    pub score: Option<Score>,
}

/// All rows of a scenario.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CountingResult {
    /// Marks the form of this document.
    pub schema: &'static str,
    /// The scenario.
    pub scenario: String,
    /// What it shows.
    pub about: String,
    /// Its settings.
    pub counting: CountingConfig,
    /// Extent size.
    pub extent: Bytes,
    /// By load, size of the fast tier, and method.
    pub rows: Vec<CountingRow>,
}

/// Of [`CountingResult`].
pub const COUNTING_SCHEMA: &str = "terrace.counting/1";

impl ScenarioFile {
    /// The loads of a scenario with a table `counting`: a trace each, and the measurements of a file each. Traces and
    /// measurements are in the scenario's order.
    ///
    /// # Errors
    /// Settings that make no sense, with their key; a trace without times.
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

    /// Whether these are names of methods with parameters that make sense, in a scenario with a table `counting`.
    ///
    /// # Errors
    /// The first that is not.
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

    /// All methods on one load, for every size of the fast tier, in one pass.
    ///
    /// # Errors
    /// What [`ScenarioFile::check_methods`] refuses.
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

    /// The document of all rows.
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
