//! The experiment on recorded volumes: each next to a neighbour with random reads, on storage that is slightly too
//! small for both.
//!
//! The times of a recorded volume are scaled to two hours, like the paper's segment, and the storage is sized to it. It
//! is one disk with a fixed time per random read. The busiest twelfth of the recording would use 70 % of it if every
//! request reached the disk, and the neighbour 60 %. So the contention is given, and the experiment shows the response
//! to it.

use std::fmt;
use std::sync::Arc;

use model::Op;
use serde::{Deserialize, Serialize};
use slo::cacheable::why_not;
use slo::ladder::{RemedyAction, taken};
use trace::{LoadedTrace, Record, Request};
use units::{Bytes, Nanos};

use super::array::ArrayModel;
use super::case::{Case, Load, Part, RemedyParameters, Workload};
use super::load::{LoadPhase, RandomLoad, Region};
use super::result::CaseResult;
use super::scenario::requests;
use super::variants::ALL_REMEDIES;
use crate::claim::Value;

/// Unit of caching, in bytes, and the longest request that is not cut, in units.
const OBJECT: u32 = 16 << 10;
const OBJECTS_MAX: u32 = 64;
/// Number of parts of a recording among which its peak is found.
const PARTS: usize = 12;
/// Length of a run.
const SPAN: Nanos = Nanos::from_secs(7200);
/// Shares of the disk that the recording's peak and the neighbour would use.
const PEAK_SHARE: f64 = 0.7;
const NEIGHBOUR_SHARE: f64 = 0.6;
/// Guaranteed rates, as shares of the recording's peak rate and of the neighbour's rate.
const PROMISED: (f64, f64) = (0.9, 0.95);
/// Minimum number of requests of a usable recording.
const REQUESTS_MIN: usize = 5_000;

/// Volume of a recording.
#[derive(Debug, Clone)]
pub struct RecordedVolume {
    /// Name.
    pub name: String,
    requests: Arc<[Record]>,
    objects: u32,
    /// Factor by which its times were stretched.
    stretched: f64,
}

/// Result of one recorded volume with one seed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordedRun {
    /// Minutes in violation without remedies: of the volume and of its neighbour.
    violation_min: [f64; 2],
    /// Minutes in violation with the responder.
    answered_min: [f64; 2],
    /// First decision.
    first_decision: String,
    /// Events by minute.
    events: Vec<(f64, String)>,
}

/// Result of one recorded volume.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RecordedRow {
    /// Name.
    pub name: String,
    /// Number of reads and writes.
    pub requests: usize,
    /// Factor by which its times were stretched.
    pub stretched: f64,
    /// Ratio of the busiest twelfth to the mean.
    pub peak_over_mean: f64,
    /// Share of writes.
    pub write_share: f64,
    /// Guaranteed requests per second.
    pub promised_per_s: f64,
    /// Minutes in violation without remedies: of the volume and of its neighbour.
    pub violation_min: (Value, Value),
    /// Minutes in violation with the responder.
    pub answered_min: (Value, Value),
    /// First decision, with the first seed.
    pub first_decision: String,
    /// Events by minute.
    pub events: Vec<(f64, String)>,
}

/// Returns the volumes of a trace that have enough requests, scaled to two hours.
pub fn recorded_volumes(name: &str, trace: &LoadedTrace) -> Vec<RecordedVolume> {
    let several = trace.volumes.len() > 1;
    let volumes = (0..trace.volumes.len()).filter_map(|v| {
        let records: Vec<&Record> = trace
            .records()
            .iter()
            .filter(|r| r.volume() as usize == v && matches!(r.op(), Op::Read | Op::Write))
            .collect();
        let (first_ns, last_ns) = (records.first()?.time_ns, records.last()?.time_ns);
        if records.len() < REQUESTS_MIN || last_ns == first_ns {
            return None;
        }
        let stretched = SPAN.as_f64() / (last_ns - first_ns + 1) as f64;
        // Objects of a record, up to the maximum.
        let reach = |r: &Record| {
            let first = r.offset_bytes / u64::from(OBJECT);
            let last = (r.end_offset_bytes().max(r.offset_bytes + 1) - 1) / u64::from(OBJECT);
            (first, (last - first + 1).min(u64::from(OBJECTS_MAX)))
        };
        let touched = TouchedObjects::new(records.iter().map(|r| reach(r)));
        let request = |r: &&Record| {
            let (first, n) = reach(r);
            Record::new(Request {
                time_ns: ((r.time_ns - first_ns) as f64 * stretched) as u64,
                volume: 0,
                op: r.op(),
                offset_bytes: u64::from(touched.number(first)) * u64::from(OBJECT),
                length_bytes: n as u32 * OBJECT,
            })
        };
        let requests: Vec<Record> = records.iter().map(request).collect();
        let objects = touched.objects();
        Some(RecordedVolume {
            name: match several {
                true => format!("{name}/{}", trace.volumes[v].name),
                false => name.into(),
            },
            requests: requests.into(),
            objects,
            stretched,
        })
    });
    volumes.collect()
}

/// Dense numbers for the objects of all touched megabytes. To keep distances, one untouched megabyte is left between
/// separate runs.
struct TouchedObjects {
    /// Runs of touched objects, by place, each with the number of its first object.
    runs: Vec<(u64, u32)>,
    objects: u32,
}

impl TouchedObjects {
    /// Creates the numbers from ranges: first object and count.
    fn new(ranges: impl Iterator<Item = (u64, u64)>) -> Self {
        let unit = u64::from(OBJECTS_MAX);
        let mut units: Vec<u64> = ranges
            .flat_map(|(first, n)| first / unit..=(first + n - 1) / unit)
            .collect();
        units.sort_unstable();
        units.dedup();
        let (mut runs, mut next) = (Vec::new(), 0u32);
        for (i, at) in units.iter().enumerate() {
            let apart = i > 0 && units[i - 1] + 1 != *at;
            next += if apart {
                2 * OBJECTS_MAX
            } else {
                u32::from(i > 0) * OBJECTS_MAX
            };
            runs.push((*at, next));
        }
        Self {
            runs,
            objects: next + OBJECTS_MAX,
        }
    }

    fn number(&self, object: u64) -> u32 {
        let unit = u64::from(OBJECTS_MAX);
        let at = self.runs.partition_point(|r| r.0 <= object / unit);
        let first = at.checked_sub(1).map_or(0, |i| self.runs[i].1);
        first + (object % unit) as u32
    }

    fn objects(&self) -> u32 {
        self.objects
    }
}

impl RecordedVolume {
    /// Returns all values that determine a run's result.
    pub fn identity(&self, seed: u64) -> impl Serialize + PartialEq + fmt::Debug + use<> {
        let mut hash = 0;
        for r in self.requests.iter() {
            let write = u64::from(r.op() == Op::Write);
            let place = algo::mix(r.offset_bytes, u64::from(r.length_bytes));
            hash = algo::mix(hash, algo::mix(r.time_ns, algo::mix(place, write)));
        }
        (
            "dynamite recorded, as a scenario/2",
            self.name.clone(),
            self.requests.len(),
            self.objects,
            hash,
            seed,
        )
    }

    /// Runs the volume twice with a seed, without and with a responder.
    pub fn run(&self, seed: u64) -> RecordedRun {
        let mut case = self.case(self.peak().1, seed);
        let watched = case.run();
        case.answering.remedies = ALL_REMEDIES.to_vec();
        let answered = case.run();
        let minutes = |r: &CaseResult| [0, 1].map(|w| r.series[w].violation_minutes());
        RecordedRun {
            violation_min: minutes(&watched),
            answered_min: minutes(&answered),
            first_decision: first_decision(&answered),
            events: answered
                .events
                .iter()
                .map(|e| (e.at_s / 60.0, e.what.clone()))
                .collect(),
        }
    }

    /// Returns the ratio of the busiest twelfth to the mean, and its requests per second.
    fn peak(&self) -> (f64, f64) {
        let mut parts = [0usize; PARTS];
        for r in self.requests.iter() {
            parts[((r.time_ns * PARTS as u64) / SPAN.0).min(PARTS as u64 - 1) as usize] += 1;
        }
        let most = parts.into_iter().max().unwrap_or(0) as f64 * PARTS as f64;
        (most / self.requests.len() as f64, most / SPAN.as_secs_f64())
    }

    /// Combines its runs over the seeds; `None` without runs.
    pub fn row(&self, runs: &[RecordedRun]) -> Option<RecordedRow> {
        let first = runs.first()?;
        let (over_mean, peak) = self.peak();
        let writes = self.requests.iter().filter(|r| r.op() == Op::Write);
        let pair = |of: fn(&RecordedRun) -> [f64; 2]| {
            let one = |w: usize| Value::over(runs, |r| Some(of(r)[w]));
            Some((one(0)?, one(1)?))
        };
        Some(RecordedRow {
            name: self.name.clone(),
            requests: self.requests.len(),
            stretched: self.stretched,
            peak_over_mean: over_mean,
            write_share: writes.count() as f64 / self.requests.len() as f64,
            promised_per_s: promised(PROMISED.0 * peak),
            violation_min: pair(|r| r.violation_min)?,
            answered_min: pair(|r| r.answered_min)?,
            first_decision: first.first_decision.clone(),
            events: first.events.clone(),
        })
    }

    fn case(&self, peak: f64, seed: u64) -> Case {
        const NEIGHBOUR: &str = "neighbour";
        const NEIGHBOUR_OBJECTS: u32 = 2 << 20;
        let seek = Nanos((1e9 * PEAK_SHARE / peak) as u64);
        let rate_per_s = NEIGHBOUR_SHARE * peak / PEAK_SHARE;
        let workload = |name: &str, load: Load, objects: u32, of: f64| Workload {
            name: name.into(),
            size: Bytes(u64::from(objects) * u64::from(OBJECT)),
            load,
            promised_per_s: Some(promised(of)),
            part: Part::Small,
        };
        let random = RandomLoad {
            phases: vec![LoadPhase {
                until: SPAN,
                rate_per_s,
                hot: 0,
                cold_share: 1.0,
                write_share: 0.0,
            }],
            regions: vec![Region {
                first: 0,
                objects: 1,
                theta: 0.0,
            }],
            objects: NEIGHBOUR_OBJECTS,
            object_bytes: OBJECT,
            seed,
        };
        let name = self.plain_name();
        let recorded = requests(self.requests.to_vec(), &name);
        let neighbour = requests(random.records(SPAN), NEIGHBOUR);
        let wanted = (PROMISED.0 * peak, PROMISED.1 * rate_per_s);
        Case {
            workloads: vec![
                workload(&name, recorded, self.objects, wanted.0),
                workload(NEIGHBOUR, neighbour, NEIGHBOUR_OBJECTS, wanted.1),
            ],
            array: ArrayModel {
                data_disks: 1,
                parity: false,
                seek,
                write_back: seek,
                memory: [Bytes::mib(64), Bytes::ZERO],
                ..ArrayModel::default()
            },
            page: Bytes(OBJECT.into()),
            answering: RemedyParameters::default(),
            duration: SPAN,
            mark: SPAN,
            span: (Nanos::ZERO, SPAN),
            curves_at: vec![],
            seed,
        }
    }

    /// Returns its name in characters that are allowed in a quoted string of a scenario.
    fn plain_name(&self) -> String {
        let plain = |c: char| match c {
            c if c.is_ascii_alphanumeric() || "-_./".contains(c) => c,
            _ => '-',
        };
        self.name.chars().map(plain).collect()
    }
}

/// A guarantee is an integer number of requests per second.
fn promised(rate_per_s: f64) -> f64 {
    rate_per_s.round().max(1.0)
}

fn first_decision(result: &CaseResult) -> String {
    let acted = result
        .decisions
        .iter()
        .find(|d| taken(&d.remedies).is_some());
    let Some(decision) = acted.or(result.decisions.first()) else {
        return "no lasting violation".into();
    };
    match taken(&decision.remedies).and_then(|r| r.action.as_ref()) {
        Some(RemedyAction::Appliance {
            workload, cache, ..
        }) => {
            format!(
                "appliance for {}: {cache}",
                result.series[workload.index()].name
            )
        }
        Some(RemedyAction::Throttle {
            workload,
            rate_per_s,
        }) => {
            let name = &result.series[workload.index()].name;
            format!("{name} throttled to {rate_per_s:.0}/s")
        }
        Some(RemedyAction::GiveMemory { workload, size }) => {
            format!(
                "{size} of memory for {}",
                result.series[workload.index()].name
            )
        }
        Some(RemedyAction::GiveOps { workload, .. }) => {
            format!(
                "over-provisioning for {}",
                result.series[workload.index()].name
            )
        }
        Some(RemedyAction::Mirror(copies)) => {
            let name = &result.series[copies.workload.index()].name;
            format!("mirror for {name}: {}", copies.bytes)
        }
        Some(RemedyAction::Move(other)) => {
            let name = &result.series[other.workload.index()].name;
            format!("move of {name} to another device")
        }
        None => {
            let whys = decision.cacheable.iter().filter_map(|c| {
                let name = &result.series[c.workload.index()].name;
                Some(format!("{name}: {}", why_not(&c.findings)?))
            });
            let whys: Vec<String> = whys.collect();
            let appliance = decision
                .remedies
                .iter()
                .find(|r| r.kind == slo::ladder::RemedyKind::Appliance);
            let refused = appliance
                .and_then(|r| r.refused.clone())
                .unwrap_or_default();
            if whys.is_empty() {
                format!("no remedy: {refused}")
            } else {
                format!("no remedy: {refused} ({})", whys.join("; "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dynamite::{Outcome, Setup, document};
    use trace::Request;
    use units::Bytes;

    /// Returns ten minutes with a peak of three minutes, in which 128 MiB are read repeatedly.
    fn recording() -> LoadedTrace {
        let mut records = Vec::new();
        let mut rng = algo::Rng::new(1, 1);
        let mut time_ns = 0;
        while time_ns < 600_000_000_000 {
            let peak = (240_000_000_000..420_000_000_000).contains(&time_ns);
            let rate = if peak { 600.0 } else { 40.0 };
            time_ns += (rng.exponential() * 1e9 / rate) as u64;
            let page = rng.below(1 << 13) * u64::from(OBJECT);
            let write = rng.below(20) == 0;
            records.push(Record::new(Request {
                time_ns,
                volume: 0,
                op: if write { Op::Write } else { Op::Read },
                // Writes go elsewhere.
                offset_bytes: page + if write { Bytes::gib(1).0 } else { 0 },
                length_bytes: OBJECT,
            }));
        }
        LoadedTrace::from_records(records, None, &["made"]).unwrap()
    }

    #[test]
    fn distant_offsets_use_only_memory_for_touched_ranges() {
        let ranges = [
            (0, 64),
            (32, 64),
            (70_368_744_161_280 / 16_384, 3),
            (u64::MAX / 16_384, 1),
        ];
        let touched = TouchedObjects::new(ranges.into_iter());
        assert_eq!(
            [0, 63, 64, 127].map(|o| touched.number(o)),
            [0, 63, 64, 127]
        );
        let far = touched.number(ranges[2].0);
        assert!((192..256).contains(&far), "a megabyte apart: {far}");
        assert_eq!(touched.number(ranges[2].0 + 2), far + 2);
        assert!(touched.number(ranges[3].0) < touched.objects());
        assert!(touched.objects() <= 64 * 8);
    }

    #[test]
    fn recording_with_a_cacheable_peak_is_improved() {
        let volumes = recorded_volumes("made", &recording());
        assert_eq!(volumes.len(), 1);
        let runs = [1, 2].map(|seed| volumes[0].run(seed));
        assert_eq!(runs[0], volumes[0].run(1), "the same seed, the same run");
        assert_ne!(volumes[0].identity(1), volumes[0].identity(2));
        let row = volumes[0].row(&runs).unwrap();
        assert_eq!(row.violation_min.0.interval.unwrap().n, 2);
        assert!((row.stretched - 12.0).abs() < 0.1, "{}", row.stretched);
        assert!((2.5..3.5).contains(&row.peak_over_mean), "{row:?}");
        let sum = |p: (Value, Value)| p.0.mean + p.1.mean;
        assert!(sum(row.violation_min) > 15.0, "{row:?}");
        assert!(
            sum(row.answered_min) < 0.7 * sum(row.violation_min),
            "{row:?}"
        );
        assert!(
            row.first_decision.starts_with("appliance for made"),
            "{row:?}"
        );
        // Without other runs the outcome has gaps but can be read.
        let outcome = Outcome::new("0", Setup::new(1, 2, true), &[], vec![row]);
        let measures = outcome
            .scorecard
            .claims
            .iter()
            .flat_map(|c| &c.readings[0].measures);
        assert!(measures.clone().count() > 0 && measures.clone().all(|m| m.ours.is_none()));
        let text = document(&outcome).text();
        assert!(
            text.contains("appliance for made") && text.contains("undecided"),
            "{text}"
        );
    }
}
