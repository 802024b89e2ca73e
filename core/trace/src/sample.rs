//! Sample of a trace that represents the whole: by place, by volume, by time, or every n-th request.
//!
//! Sampling by place is that of SHARDS (Waldspurger et al., FAST '15): a request is kept if the hash of its volume and
//! of the unit in which it begins is below a threshold. So a unit is kept with all its requests or not at all. Reuse,
//! working sets and miss ratios of the sample are those of the trace, scaled by the rate. Sampling of single requests
//! does not preserve them. The hash includes the volume's name and a seed: the same places are kept in every trace of
//! the same volumes.
//!
//! The order of requests to different units is not preserved. A request that reaches into the next unit is kept or
//! dropped as a whole, by its first unit. A flush has no place: it is kept by its number, at the same rate.

use std::collections::BTreeSet;

use model::Op;
use serde::Serialize;
use units::{Bytes, Nanos};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::error::OptionError;
use crate::record::{Record, Request};
use crate::source::VolumeNames;

/// Resolution of the threshold.
const RATE_STEPS: u64 = 1 << 24;
/// Smallest unit: a page.
pub const SAMPLE_UNIT_MIN: Bytes = Bytes(4096);
/// Largest unit.
pub const SAMPLE_UNIT_MAX: Bytes = Bytes(1 << 30);

/// Specification of a sample. All given conditions must hold.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SampleSpec {
    /// Share of the places to keep, above 0 and at most 1.
    pub rate: Option<f64>,
    /// Size of a place: a power of two from [`SAMPLE_UNIT_MIN`] to [`SAMPLE_UNIT_MAX`]. Default: 1 MiB.
    pub unit: Option<Bytes>,
    /// Seed of the hash.
    pub seed: u64,
    /// Names of the volumes to keep; all if empty.
    pub volumes: Vec<String>,
    /// Start: requests before this time are dropped, and it becomes time 0.
    pub from: Option<Nanos>,
    /// End: requests at or after this time are dropped.
    pub to: Option<Nanos>,
    /// Keeps only the first of every `every` remaining requests.
    pub every: Option<u64>,
}

/// Counts of a sample.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct SampleCounts {
    /// Requests read.
    pub requests_seen: u64,
    /// Requests kept.
    pub requests_kept: u64,
    /// Bytes of the requests read.
    pub bytes_seen: u64,
    /// Bytes of the requests kept.
    pub bytes_kept: u64,
}

impl SampleCounts {
    /// Returns the share of requests kept, 0..=1; `None` if none were read.
    pub fn rate(&self) -> Option<f64> {
        (self.requests_seen > 0).then(|| self.requests_kept as f64 / self.requests_seen as f64)
    }
}

/// Volume of the source.
#[derive(Debug, Clone, Copy)]
struct Volume {
    hash: u64,
    wanted: bool,
    /// Index in the sample, after its first request was kept.
    kept: Option<u32>,
    flushes: u64,
}

#[derive(Debug)]
pub(crate) struct Sampler {
    /// Hashes below this threshold, in units of 1 / [`RATE_STEPS`], are kept.
    threshold: u64,
    unit_shift: u32,
    seed: u64,
    wanted: BTreeSet<String>,
    from_ns: u64,
    to_ns: u64,
    every: u64,
    passed: u64,
    volumes: Vec<Volume>,
    names: VolumeNames,
    sampled: SampleCounts,
}

impl SampleSpec {
    /// Checks the specification.
    ///
    /// # Errors
    /// [`OptionError`], if it is invalid.
    pub(crate) fn sampler(&self) -> Result<Sampler, OptionError> {
        let rate = self.rate.unwrap_or(1.0);
        let least = 1.0 / RATE_STEPS as f64;
        if !(rate >= least && rate <= 1.0) {
            return Err(OptionError::SampleRate { least, rate });
        }
        let unit = self.unit.unwrap_or(Bytes::mib(1));
        if !unit.0.is_power_of_two() || unit < SAMPLE_UNIT_MIN || unit > SAMPLE_UNIT_MAX {
            return Err(OptionError::SampleUnit(unit));
        }
        let (from_ns, to_ns) = (
            self.from.map_or(0, |t| t.0),
            self.to.map_or(u64::MAX, |t| t.0),
        );
        if from_ns >= to_ns {
            return Err(OptionError::SampleTimes);
        }
        if self.every == Some(0) {
            return Err(OptionError::SampleEvery);
        }
        Ok(Sampler {
            threshold: ((rate * RATE_STEPS as f64).round() as u64).max(1),
            unit_shift: unit.0.trailing_zeros(),
            seed: self.seed,
            wanted: self.volumes.iter().cloned().collect(),
            from_ns,
            to_ns,
            every: self.every.unwrap_or(1),
            passed: 0,
            volumes: Vec::new(),
            names: VolumeNames::default(),
            sampled: SampleCounts::default(),
        })
    }

    /// Returns true if the specification uses times.
    pub(crate) fn needs_times(&self) -> bool {
        self.from.is_some() || self.to.is_some()
    }
}

impl Sampler {
    /// Returns the record for the sample, if it is kept.
    pub(crate) fn keep(&mut self, record: Record, names: &VolumeNames) -> Option<Record> {
        let index = record.volume() as usize;
        while self.volumes.len() <= index {
            let name = names.get(self.volumes.len() as u32).unwrap_or_default();
            self.volumes.push(Volume {
                hash: xxh3_64_with_seed(name.as_bytes(), self.seed),
                wanted: self.wanted.is_empty() || self.wanted.contains(name),
                kept: None,
                flushes: 0,
            });
        }
        let bytes = u64::from(record.length_bytes);
        self.sampled.requests_seen += 1;
        self.sampled.bytes_seen = self.sampled.bytes_seen.saturating_add(bytes);
        let volume = &mut self.volumes[index];
        let place = if record.op() == Op::Flush {
            volume.flushes += 1;
            volume.flushes
        } else {
            record.offset_bytes >> self.unit_shift
        };
        let kept = volume.wanted
            && (self.from_ns..self.to_ns).contains(&record.time_ns)
            && mixed(volume.hash ^ place) >> 40 < self.threshold;
        if !kept {
            return None;
        }
        self.passed += 1;
        if !(self.passed - 1).is_multiple_of(self.every) {
            return None;
        }
        let kept = match volume.kept {
            Some(kept) => kept,
            None => {
                let name = names.get(record.volume()).unwrap_or_default();
                // A name that the source has interned is valid, and there are no more names here than there.
                *volume.kept.insert(self.names.intern(name.as_bytes()).ok()?)
            }
        };
        self.sampled.requests_kept += 1;
        self.sampled.bytes_kept = self.sampled.bytes_kept.saturating_add(bytes);
        Some(Record::new(Request {
            time_ns: record.time_ns - self.from_ns,
            volume: kept,
            op: record.op(),
            offset_bytes: record.offset_bytes,
            length_bytes: record.length_bytes,
        }))
    }

    /// Returns true if no later request can be kept.
    pub(crate) fn is_past(&self, time_ns: u64) -> bool {
        time_ns >= self.to_ns
    }

    /// Returns a requested volume that is not in the trace.
    pub(crate) fn missing(&self, names: &VolumeNames) -> Option<&str> {
        let known: BTreeSet<&str> = names.iter().collect();
        let mut missing = self.wanted.iter().filter(|w| !known.contains(w.as_str()));
        missing.next().map(String::as_str)
    }

    pub(crate) fn names(&self) -> &VolumeNames {
        &self.names
    }

    pub(crate) fn begin_ns(&self) -> u64 {
        self.from_ns
    }

    pub(crate) fn sampled(&self) -> SampleCounts {
        self.sampled
    }
}

/// Finalizer of splitmix64: every bit of the result depends on every bit of the input.
fn mixed(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
