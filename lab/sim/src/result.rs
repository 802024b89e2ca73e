//! Result of a run. The schema has a version: the meaning of a field never changes within version 1.

use algo::Histogram;
use cache::{PageCounts, WriteMode};
use model::{ExtentRanges, JobStatus, Report};
use serde::{Deserialize, Serialize};
use slo::ladder::RemedyKind;
use slo::{Cause, Decision, WorkloadId};

use crate::optimum::AssignmentRecord;
use crate::stretch::Stretches;
use crate::wear::WearSummary;

/// Name and version of the schema.
pub const RUN_SCHEMA: &str = "terrace.sim.run/1";

/// Result of one run of one strategy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// [`RUN_SCHEMA`].
    pub schema: String,
    /// Inputs of the run.
    pub manifest: Manifest,
    /// Length of the run, seconds. It exceeds the manifest's length if traces with limited outstanding requests took
    /// longer than their span.
    pub simulated_s: f64,
    /// True if all requests of the traces were issued. Always false with clients.
    pub traces_ended: bool,
    /// Requests that were issued and incomplete at the end. They are not in any count.
    pub unfinished: u64,
    /// Measured time, seconds: the run without its warm-up.
    pub counted_s: f64,
    /// Summaries of groups in this order: total, tiers, classes, VMs, volumes.
    pub groups: Vec<GroupSummary>,
    /// Totals of moves.
    pub moves: MoveTotals,
    /// All moves.
    pub move_log: Vec<MoveRecord>,
    /// Wear of devices with a flash model in the measured time.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub wear: Option<WearSummary>,
    /// Results of the cache in front of the devices, in the measured time.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cache: Option<CacheSummary>,
    /// Remedies for SLO violations, in the whole run.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub response: Option<ResponseSummary>,
    /// Mirrored extents, in the whole run.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub mirrors: Option<MirrorSummary>,
    /// Results by stretches of time, if the scenario requests them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub stretches: Option<Stretches>,
    /// Events of the controller, if the scenario has settings for the operation of its host.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub events: Vec<RunEvent>,
    /// Tier of every volume at the end, in the scenario's order.
    pub final_tiers: Vec<(String, String)>,
    /// Assignment problem and value of every decision, for strategies that solve one.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub assignments: Vec<AssignmentRecord>,
    /// Results over time.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub series: Option<Series>,
    /// All placement decisions with their reasons.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub decisions: Option<Vec<Report>>,
}

impl RunResult {
    /// Returns the groups of a kind.
    pub fn of_kind(&self, kind: GroupKind) -> impl Iterator<Item = &GroupSummary> {
        self.groups.iter().filter(move |g| g.kind == kind)
    }

    /// Returns the summary of all volumes together.
    pub fn total(&self) -> &GroupSummary {
        self.of_kind(GroupKind::Total)
            .next()
            .expect("every run has a total")
    }
}

/// Extents that were mirrored.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MirrorSummary {
    /// Sets of mirrored extents, in the order of their start.
    pub sets: Vec<MirrorRecord>,
}

/// Set of mirrored extents of one volume on one device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MirrorRecord {
    /// Name of the volume.
    pub volume: String,
    /// Device of the second copies.
    pub device: String,
    /// Number of extents.
    pub extents: u32,
    /// Size of the extents, bytes.
    pub bytes: u64,
    /// Start of the copy, seconds.
    pub begun_s: f64,
    /// Time from which all extents had two identical copies, seconds.
    pub alike_s: Option<f64>,
    /// End of the mirror, seconds; `None` if it still existed at the end of the run.
    pub ended_s: Option<f64>,
    /// Copied bytes, including repeated copies.
    pub copied_bytes: u64,
    /// Reads of mirrored extents that the first copies served.
    pub first_reads: u64,
    /// Reads of mirrored extents that the second copies served.
    pub second_reads: u64,
    /// Share of reads directed to the second copies at the end, 0..=1.
    pub second_share: f64,
}

/// Inputs that make a run repeatable.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of the program.
    pub version: String,
    /// Name of the scenario.
    pub scenario: String,
    /// XXH3-64 of the scenario's text.
    pub scenario_xxh3: String,
    /// Traces.
    pub traces: Vec<TraceHash>,
    /// Name of the strategy.
    pub strategy: String,
    /// Parameters of the strategy that differ from the defaults.
    pub strategy_config: serde_json::Value,
    /// Seed of all random numbers.
    pub seed: u64,
    /// Length of the run, seconds.
    pub duration_s: f64,
    /// Warm-up at the start, which is not measured, seconds.
    pub warmup_s: f64,
}

/// Trace, identified by its content.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TraceHash {
    /// File name in the scenario.
    pub file: String,
    /// XXH3-128 of its records.
    pub xxh3: String,
    /// XXH3-128 of the names of its volumes and the meaning of its times.
    pub volumes_xxh3: String,
    /// Number of requests.
    pub requests: u64,
}

/// Kind of a group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GroupKind {
    /// All volumes.
    #[default]
    Total,
    /// Requests that a tier served.
    Tier,
    /// Volumes of a service class.
    Class,
    /// Volumes of a VM.
    Vm,
    /// One volume.
    Volume,
}

/// Results of a group over the whole run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GroupSummary {
    /// Kind of the group.
    pub kind: GroupKind,
    /// Name of the group.
    pub name: String,
    /// Reads.
    pub reads: DirectionSummary,
    /// Writes, including trims and flushes.
    pub writes: DirectionSummary,
    /// Reads and writes together.
    pub all: DirectionSummary,
    /// Total violation time of the group's volumes, seconds: two volumes in violation for the same second count as two.
    /// `None` without an objective.
    pub slo_violation_s: Option<f64>,
    /// Violation time weighted by the excess over the objective: the excess as a share of the objective, capped
    /// ([`algo::objective::excess`]), multiplied by the seconds of each window in violation. `None` without an
    /// objective.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slo_excess_s: Option<f64>,
}

/// Results of one direction over the whole run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct DirectionSummary {
    /// Requests.
    pub ios: u64,
    /// Bytes.
    pub bytes: u64,
    /// Requests per second.
    pub iops: f64,
    /// MiB per second.
    pub mib_per_s: f64,
    /// Mean latency, microseconds.
    pub mean_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 95th percentile.
    pub p95_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
}

impl DirectionSummary {
    pub(crate) fn new(latencies: &Histogram, bytes: u64, seconds: f64) -> Self {
        let s = latencies.summary();
        let per_s = |x: f64| if seconds > 0.0 { x / seconds } else { 0.0 };
        Self {
            ios: latencies.count(),
            bytes,
            iops: per_s(latencies.count() as f64),
            mib_per_s: per_s(bytes as f64 / (1u64 << 20) as f64),
            mean_us: s.mean_us,
            p50_us: s.p50_us,
            p95_us: s.p95_us,
            p99_us: s.p99_us,
            p999_us: s.p999_us,
        }
    }
}

/// Totals of moves over the whole run, including the warm-up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct MoveTotals {
    /// Moves that completed.
    pub done: u64,
    /// Moves that failed or were cancelled after their start.
    pub not_done: u64,
    /// Moves that a newer plan dropped before their start.
    pub dropped: u64,
    /// Moves in progress at the end.
    pub under_way: u64,
    /// Copied bytes, including those of moves that did not complete.
    pub bytes: u64,
    /// Distinct volumes that moved.
    pub volumes: u64,
    /// Distinct VMs with a volume that moved (paper 0, Fig. 7 counts a VM once).
    pub vms: u64,
}

/// Record of one move.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MoveRecord {
    /// Name of the volume.
    pub volume: String,
    /// Name of its VM.
    pub vm: String,
    /// Source tier.
    pub from: String,
    /// Target tier.
    pub to: String,
    /// Source device and target device.
    #[serde(default)]
    pub devices: (String, String),
    /// Time of the plan, seconds.
    pub planned_s: f64,
    /// Start of the copy, seconds.
    pub started_s: Option<f64>,
    /// End of the move, seconds.
    pub ended_s: Option<f64>,
    /// Result of the move, or its state at the end of the run.
    pub state: JobStatus,
    /// Reason of a failure.
    pub why_not: Option<String>,
    /// Reason of the move.
    pub reason: String,
    /// True if the move was a remedy for an SLO violation, not part of a plan.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_remedy: bool,
    /// Number of extents to move; `None` for a whole volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extents: Option<u32>,
    /// Extents to move. Not serialized, because there may be thousands of ranges.
    #[serde(skip)]
    pub ranges: Option<ExtentRanges>,
    /// Bytes copied.
    pub bytes: u64,
    /// Predicted mean latency at the target, microseconds.
    pub predicted_us: Option<f64>,
    /// Mean latency before the move, microseconds.
    pub before_us: Option<f64>,
    /// Bounds of the prediction with 90 % confidence, microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range_us: Option<(f64, f64)>,
    /// Mean latency after the move of a whole volume, microseconds. It is measured in the first complete monitor epoch
    /// in which no other move uses its target, at most ten epochs later. `None` if the run ended or the volume left the
    /// target before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_us: Option<f64>,
}

/// Event that the controller recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEvent {
    /// Time of the event, nanoseconds.
    pub at_ns: u64,
    /// Cause of the event: `controller`, `agent` or `operator`.
    pub actor: String,
    /// Volume that the event concerns.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub volume: Option<String>,
    /// Description of the event.
    pub text: String,
}

/// Results over time, one value per window.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Length of a window, seconds.
    pub window_s: f64,
    /// Groups in the order of [`RunResult::groups`].
    pub groups: Vec<GroupSeries>,
    /// Devices.
    pub devices: Vec<DeviceSeries>,
    /// Share of reads that hit the cache, by window; `None` in windows without reads. Empty without a cache.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub cache_read_hit_ratio: Vec<Option<f64>>,
}

/// Remedies for SLO violations.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ResponseSummary {
    /// All searches for a remedy, in order.
    pub remedies: Vec<RemedyRecord>,
    /// All appliances that were ordered.
    pub appliances: Vec<ApplianceRecord>,
    /// Volumes with a guaranteed rate, in the scenario's order.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub rates: Vec<RateRecord>,
}

/// Compliance with a guaranteed rate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RateRecord {
    /// Name of the volume.
    pub volume: String,
    /// Guaranteed requests per second.
    pub rate_min_per_s: f64,
    /// Total length of the windows in which the volume requested at least this rate and received less, seconds, as
    /// reported to the controller.
    pub violated_s: f64,
}

/// Search for a remedy: the remedy that was taken, or none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RemedyRecord {
    /// Time of the search, seconds.
    pub at_s: f64,
    /// Volume in violation.
    pub volume: String,
    /// Remedy that was taken; `None` if no remedy would help.
    pub remedy: Option<RemedyKind>,
    /// Target of the remedy.
    pub to: Option<String>,
    /// Expected time until the remedy takes effect, seconds.
    pub effect_after_s: Option<f64>,
    /// Expected loss of other volumes, requests per second.
    pub lost_per_s: Option<f64>,
    /// Total price of the remedy, in seconds of the violation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price_s: Option<f64>,
    /// Other remedies that would have helped, in order of preference.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<OtherRemedy>,
    /// Rejected remedies with their reasons.
    pub refused: Vec<RefusedRemedy>,
}

/// Remedy that would also have helped.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OtherRemedy {
    /// Kind of the remedy.
    pub remedy: RemedyKind,
    /// Total price of the remedy, in seconds of the violation.
    pub price_s: f64,
    /// Components of the price, as text.
    pub price: String,
}

/// Rejected remedy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RefusedRemedy {
    /// Kind of the remedy.
    pub remedy: RemedyKind,
    /// Reason of the rejection.
    pub why: String,
}

impl RemedyRecord {
    /// Returns the record of a decision. `names` has the names of the volumes.
    pub(crate) fn of(decision: &Decision, names: &[&str]) -> Self {
        let name = |w: WorkloadId| names[w.index()].to_string();
        let affected = match decision.cause {
            Cause::Violation { affected, .. } => affected,
            Cause::Forecast { workload, .. } => workload,
        };
        let taken = slo::ladder::taken(&decision.remedies);
        let to = taken.and_then(|r| Some(name(r.action.as_ref()?.workload())));
        let refused = decision.remedies.iter().filter_map(|r| {
            Some(RefusedRemedy {
                remedy: r.kind,
                why: r.refused.clone()?,
            })
        });
        let others = decision.remedies.iter().filter(|r| r.would_do()).skip(1);
        let others = others.map(|r| OtherRemedy {
            remedy: r.kind,
            price_s: r.total.seconds(),
            price: r.total.to_string(),
        });
        Self {
            at_s: decision.at.as_secs_f64(),
            volume: name(affected),
            remedy: taken.map(|r| r.kind),
            to,
            effect_after_s: taken.map(|r| r.price.effect_after.as_secs_f64()),
            lost_per_s: taken.map(|r| r.price.lost_per_s),
            price_s: taken.map(|r| r.total.seconds()),
            others: others.collect(),
            refused: refused.collect(),
        }
    }
}

/// Caching appliance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ApplianceRecord {
    /// Volume that it served.
    pub volume: String,
    /// Compute server that it ran on.
    pub host: String,
    /// Size of its cache, bytes.
    pub cache_bytes: u64,
    /// Time of the order, seconds.
    pub ordered_s: f64,
    /// Time from which requests went through it, seconds.
    pub serving_s: Option<f64>,
    /// End of the appliance, seconds.
    pub ended_s: Option<f64>,
    /// Reason of the end; `None` while the appliance exists.
    pub outcome: Option<String>,
    /// Reads that it served from its cache.
    pub read_hits: u64,
    /// Reads that it forwarded to the array.
    pub read_misses: u64,
}

/// Cache in front of the devices, in the measured time. Counts are in pages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CacheSummary {
    /// Name of the policy.
    pub policy: String,
    /// Handling of writes.
    pub writes: WriteMode,
    /// Size of the cache, bytes.
    pub size_bytes: u64,
    /// Size of a page, bytes.
    pub page_bytes: u64,
    /// Destaged pages.
    pub destaged_pages: u64,
    /// Partitions of the cache.
    pub parts: Vec<CachePartSummary>,
    /// Cached volumes.
    pub volumes: Vec<CacheVolumeSummary>,
}

/// Partition of a cache.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CachePartSummary {
    /// Class or volume of the partition; `others` for all remaining volumes.
    pub name: String,
    /// Size of the partition, bytes.
    pub size_bytes: u64,
    /// Used bytes at the end.
    pub used_bytes: u64,
    /// Share of page reads that hit, 0..=1.
    pub read_hit_ratio: Option<f64>,
    /// Counts of requested pages.
    #[serde(flatten)]
    pub counts: PageCounts,
}

/// Volume behind a cache.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CacheVolumeSummary {
    /// Name of the volume.
    pub name: String,
    /// Class of the volume.
    pub class: String,
    /// Partition of the volume.
    pub part: String,
    /// Share of page reads that hit, 0..=1.
    pub read_hit_ratio: Option<f64>,
    /// Priority of the volume at the end in percent, under policies with priorities.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub priority_percent: Option<i32>,
    /// Counts of requested pages.
    #[serde(flatten)]
    pub counts: PageCounts,
}

/// Results of a group over time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GroupSeries {
    /// Kind of the group.
    pub kind: GroupKind,
    /// Name of the group.
    pub name: String,
    /// Reads.
    pub reads: DirectionSeries,
    /// Writes.
    pub writes: DirectionSeries,
    /// Volumes of the group in violation of their objective, by window.
    pub violating: Vec<u32>,
}

impl GroupSeries {
    /// Counts one volume in violation in the window that ends now. Call this before [`DirectionSeries::push`], which
    /// ends the window.
    pub(crate) fn violating_now(&mut self, violated: bool) {
        let windows = self.reads.iops.len() + 1;
        self.violating.resize(windows, 0);
        self.violating[windows - 1] += u32::from(violated);
    }
}

/// Results of one direction over time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)] // as in DirectionSummary
pub struct DirectionSeries {
    pub iops: Vec<f64>,
    pub mib_per_s: Vec<f64>,
    pub mean_us: Vec<f64>,
    pub p50_us: Vec<f64>,
    pub p95_us: Vec<f64>,
    pub p99_us: Vec<f64>,
    pub p999_us: Vec<f64>,
}

/// Results of a device over time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceSeries {
    /// Name of the device.
    pub name: String,
    /// Tier of the device.
    pub tier: String,
    /// Capacity, bytes.
    pub capacity_bytes: u64,
    /// Share of time in use, 0..=1.
    pub utilization: Vec<f64>,
    /// Used and reserved space at the end of the window, bytes.
    pub used_bytes: Vec<u64>,
}
