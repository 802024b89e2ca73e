//! Miss-ratio curves of a trace's records, by several methods.
//!
//! Each method reads the records once more, so that a stream needs no memory for them.

use std::path::PathBuf;
use std::str::FromStr;

use algo::DenseIds;
use algo::mrc::{
    Confidence, Curve, ExactCurve, FixedRate, FixedSize, ReuseTimes, SAMPLED_BLOCKS_MIN, Sampler,
    WorkingSets,
};

use crate::{OptionError, PageReferences, ReadOptions, Record, Touch, TraceError, TraceStream};

/// Number of pages of the fixed-size sample.
const BLOCKS_MAX: usize = 8192;
/// Published sampling rate, for footprints that are large enough for it.
const RATE_USUAL: f64 = 0.001;
/// Sampling rate from which all pages are used instead.
const RATE_MAX: f64 = 0.5;
/// Factor of safety for the number of sampled pages, which is random for a given rate.
const MARGIN: f64 = 1.25;
/// Records of a stream that are read at once.
const PART_RECORDS: usize = 1 << 12;
/// References between two flushes of the tables.
const PART: usize = 1 << 16;

/// Method of computing a curve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Stack distances of all references.
    Exact,
    /// SHARDS at a fixed rate, with its adjustment.
    Shards,
    /// SHARDS with 8,192 pages at most.
    ShardsSize,
    /// Average eviction time, from reuse times.
    Aet,
    /// Growth of working sets, from distinct pages in windows of references.
    Wss,
}

impl Method {
    /// All methods.
    pub const ALL: [Method; 5] = [
        Method::Exact,
        Method::Shards,
        Method::ShardsSize,
        Method::Aet,
        Method::Wss,
    ];

    /// Returns the name on command lines and in results.
    pub fn name(self) -> &'static str {
        match self {
            Method::Exact => "exact",
            Method::Shards => "shards",
            Method::ShardsSize => "shards-size",
            Method::Aet => "aet",
            Method::Wss => "wss",
        }
    }

    /// Returns one line for lists of methods.
    pub fn summary(self) -> &'static str {
        match self {
            Method::Exact => "Stack distances of all references",
            Method::Shards => "SHARDS at a fixed rate, with its adjustment",
            Method::ShardsSize => "SHARDS with 8,192 pages at most",
            Method::Aet => "Average eviction time, from reuse times",
            Method::Wss => "Growth of working sets, from distinct pages in windows of references",
        }
    }
}

impl FromStr for Method {
    type Err = OptionError;

    fn from_str(name: &str) -> Result<Self, OptionError> {
        let found = Method::ALL.into_iter().find(|m| m.name() == name);
        found.ok_or_else(|| {
            let known: Vec<&str> = Method::ALL.iter().map(|m| m.name()).collect();
            OptionError::Method {
                name: name.into(),
                known: known.join(", "),
            }
        })
    }
}

/// Share of the pages that SHARDS samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rate {
    /// 0.001, or more for 8,192 pages; exact if that is most of the pages.
    Auto,
    /// Share, above 0 and at most 1.
    Share(f64),
}

impl FromStr for Rate {
    type Err = OptionError;

    fn from_str(text: &str) -> Result<Self, OptionError> {
        if text == "auto" {
            return Ok(Rate::Auto);
        }
        match text.parse::<f64>() {
            Ok(share) if share > 0.0 && share <= 1.0 => Ok(Rate::Share(share)),
            _ => Err(OptionError::Rate),
        }
    }
}

/// Choice of the curves to compute.
#[derive(Debug, Clone, Copy)]
pub struct CurveOptions<'a> {
    /// Methods, in the order of the results.
    pub methods: &'a [Method],
    /// Share of the pages that SHARDS samples.
    pub rate: Rate,
    /// Seed of the samples.
    pub seed: u64,
}

/// Miss-ratio curve of one method.
#[derive(Debug, Clone)]
pub struct Estimate {
    /// Method.
    pub method: Method,
    /// Miss ratio by size in pages.
    pub curve: Curve,
    /// Curve without the correction of the sampling.
    pub raw: Option<Curve>,
    /// Share of the pages that was sampled at the end.
    pub rate: Option<f64>,
}

/// Records that can be read again and again.
pub trait Records {
    /// Calls `take` with all records in order, part by part.
    ///
    /// # Errors
    /// Those of the trace.
    fn each_part(&self, take: &mut dyn FnMut(&[Record])) -> Result<(), TraceError>;
}

impl Records for &[Record] {
    fn each_part(&self, take: &mut dyn FnMut(&[Record])) -> Result<(), TraceError> {
        take(self);
        Ok(())
    }
}

/// Trace that is opened for each reading, and read as a stream.
#[derive(Debug, Clone)]
pub struct Reopened {
    /// File, or name of a generated trace.
    pub path: PathBuf,
    /// Options of each reading.
    pub options: ReadOptions,
}

impl Records for Reopened {
    fn each_part(&self, take: &mut dyn FnMut(&[Record])) -> Result<(), TraceError> {
        let mut stream = TraceStream::open(&self.path, &self.options)?;
        let mut part = Vec::with_capacity(PART_RECORDS);
        while let Some((record, _)) = stream.next_record()? {
            part.push(record);
            if part.len() == PART_RECORDS {
                take(&part);
                part.clear();
            }
        }
        take(&part);
        Ok(())
    }
}

/// Returns the curves in the order of the methods. Warnings and replaced methods go to `note`.
///
/// # Errors
/// Those of reading the records.
pub fn estimates(
    records: &dyn Records,
    pages: &PageReferences,
    asked: &CurveOptions<'_>,
    note: &mut impl FnMut(String),
) -> Result<Vec<Estimate>, TraceError> {
    let wants = |method| asked.methods.contains(&method);
    let mut dense = DenseState::default();
    if wants(Method::Exact) || wants(Method::Aet) {
        dense = DenseState::of(records, pages, wants(Method::Exact), wants(Method::Aet))?;
    }
    let mut estimates: Vec<Estimate> = Vec::new();
    for method in asked.methods {
        if estimates.iter().any(|e| e.method == *method) {
            continue;
        }
        let estimate = match method {
            Method::Exact => dense
                .exact
                .as_ref()
                .map(|exact| plain(*method, exact.curve())),
            Method::Aet => dense
                .times
                .as_ref()
                .map(|times| plain(*method, times.curve())),
            Method::Wss => Some(plain(*method, working_sets(records, pages)?)),
            Method::ShardsSize => Some(fixed_size(records, pages, asked.seed)?),
            Method::Shards => {
                let blocks = dense.blocks();
                match fixed_rate(records, pages, asked, blocks)? {
                    Some(estimate) => {
                        let confidence = estimate.curve.confidence;
                        if !confidence.enough_blocks() {
                            note(format!(
                                "warning: {} sampled pages are too few for a reliable curve: {} are needed; use a higher rate",
                                confidence.blocks,
                                Confidence::BLOCKS_MIN
                            ));
                        }
                        Some(estimate)
                    }
                    None => {
                        note(format!(
                            "too few pages for samples of {}: exact instead of shards",
                            Confidence::BLOCKS_MIN
                        ));
                        if dense.exact.is_none() {
                            dense = DenseState {
                                times: dense.times.take(),
                                ..DenseState::of(records, pages, true, false)?
                            };
                        }
                        // The exact curve is returned only once.
                        let there = wants(Method::Exact);
                        let exact = dense.exact.as_ref().filter(|_| !there);
                        exact.map(|exact| plain(Method::Exact, exact.curve()))
                    }
                }
            }
        };
        estimates.extend(estimate);
    }
    Ok(estimates)
}

/// Returns the sizes of caches at which curves are shown by default, in pages: powers of two up to the first that holds everything,
/// twelve at most.
pub fn default_sizes(estimates: &[Estimate]) -> Vec<u64> {
    let largest = estimates.iter().map(|e| e.curve.size_max()).max();
    let bits = largest
        .unwrap_or(1)
        .max(1)
        .next_power_of_two()
        .trailing_zeros();
    (bits.saturating_sub(11)..=bits)
        .map(|bits| 1u64 << bits)
        .collect()
}

fn plain(method: Method, curve: Curve) -> Estimate {
    Estimate {
        method,
        curve,
        raw: None,
        rate: None,
    }
}

/// State of the methods that need a dense number per page.
#[derive(Default)]
struct DenseState {
    ids: DenseIds,
    exact: Option<ExactCurve>,
    times: Option<ReuseTimes>,
    references: u64,
    names: Vec<u64>,
    found: Vec<u32>,
}

impl DenseState {
    fn of(
        records: &dyn Records,
        pages: &PageReferences,
        exact: bool,
        times: bool,
    ) -> Result<Self, TraceError> {
        let mut dense = Self {
            exact: exact.then(ExactCurve::new),
            times: times.then(ReuseTimes::new),
            ..Self::default()
        };
        records.each_part(&mut |part| {
            pages.each(part, |name, touch| match touch {
                Touch::Reference => {
                    dense.names.push(name);
                    if dense.names.len() == PART {
                        dense.flush();
                    }
                }
                Touch::Drop => {
                    // Earlier reads must be processed first.
                    dense.flush();
                    dense.invalidate(name);
                }
            });
        })?;
        dense.flush();
        Ok(dense)
    }

    /// Returns the number of distinct pages, if they were counted.
    fn blocks(&self) -> Option<u64> {
        (self.references > 0).then(|| u64::from(self.ids.len()))
    }

    fn flush(&mut self) {
        self.found.clear();
        self.ids.ids(&self.names, &mut self.found);
        self.names.clear();
        if let Some(exact) = &mut self.exact {
            exact.feed(&self.found);
        }
        if let Some(times) = &mut self.times {
            times.feed(&self.found, self.references);
        }
        self.references += self.found.len() as u64;
    }

    fn invalidate(&mut self, name: u64) {
        let Some(id) = self.ids.get(name) else {
            return;
        };
        if let Some(exact) = &mut self.exact {
            exact.invalidate(id);
        }
        if let Some(times) = &mut self.times {
            times.invalidate(id, self.references, 1.0);
        }
    }
}

fn working_sets(records: &dyn Records, pages: &PageReferences) -> Result<Curve, TraceError> {
    let mut sets = WorkingSets::new();
    records.each_part(&mut |part| pages.each(part, |name, _| sets.reference(name)))?;
    Ok(sets.curve())
}

fn fixed_size(
    records: &dyn Records,
    pages: &PageReferences,
    seed: u64,
) -> Result<Estimate, TraceError> {
    let mut shards = FixedSize::new(BLOCKS_MAX, seed);
    records.each_part(&mut |part| {
        pages.each(part, |name, touch| match touch {
            Touch::Reference => shards.reference(name),
            Touch::Drop => shards.invalidate(name),
        });
    })?;
    Ok(Estimate {
        method: Method::ShardsSize,
        curve: shards.curve(),
        raw: Some(shards.curve_raw()),
        rate: Some(shards.sampler().rate()),
    })
}

/// Returns `None` if so few pages are accessed that the exact method is better. `blocks` is their number, if it is
/// known.
fn fixed_rate(
    records: &dyn Records,
    pages: &PageReferences,
    asked: &CurveOptions<'_>,
    blocks: Option<u64>,
) -> Result<Option<Estimate>, TraceError> {
    let enough = SAMPLED_BLOCKS_MIN as f64 * MARGIN;
    let (mut rate, auto) = match (asked.rate, blocks) {
        (Rate::Share(rate), _) => (rate, false),
        (Rate::Auto, Some(blocks)) => (RATE_USUAL.max(enough / blocks.max(1) as f64), true),
        (Rate::Auto, None) => (RATE_USUAL, true),
    };
    loop {
        if auto && rate > RATE_MAX {
            return Ok(None);
        }
        let shards = sampled(records, pages, Sampler::new(rate, asked.seed))?;
        if !auto || shards.confidence().enough_blocks() {
            return Ok(Some(Estimate {
                method: Method::Shards,
                curve: shards.curve(),
                raw: Some(shards.curve_raw()),
                rate: Some(shards.sampler().rate()),
            }));
        }
        // A sample predicts the size of the next one. Small samples predict poorly, so steps have an upper and a lower
        // bound.
        let factor = enough / shards.blocks().max(1) as f64;
        rate *= factor.clamp(MARGIN, 100.0);
    }
}

fn sampled(
    records: &dyn Records,
    pages: &PageReferences,
    sampler: Sampler,
) -> Result<FixedRate, TraceError> {
    let mut shards = FixedRate::new(sampler);
    let mut passed = 0;
    records.each_part(&mut |part| {
        passed += pages.sampled(part, &sampler, |name, touch| match touch {
            Touch::Reference => shards.sampled_reference(name),
            Touch::Drop => shards.invalidate(name),
        });
    })?;
    shards.passed(passed);
    Ok(shards)
}
