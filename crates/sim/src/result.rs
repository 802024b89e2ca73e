//! What a run leaves behind. The schema's version is part of it: a reader of version 1 never meets a changed meaning.

use algo::Histogram;
use cache::{PageCounts, WriteMode};
use model::{ExtentRanges, JobStatus, Report};
use serde::{Deserialize, Serialize};
use slo::ladder::RemedyKind;
use slo::{Cause, Decision, WorkloadId};

use crate::optimum::AssignmentRecord;
use crate::stretch::Stretches;
use crate::wear::WearSummary;

/// Name and version of the layout.
pub const RUN_SCHEMA: &str = "terrace.sim.run/1";

/// One run of one strategy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// [`RUN_SCHEMA`].
    pub schema: String,
    /// What was run.
    pub manifest: Manifest,
    /// Length of the run, seconds: more than the manifest's where window-limited traces took longer than their span.
    pub simulated_s: f64,
    /// Whether every request of the traces was issued (never, where there are clients).
    pub traces_ended: bool,
    /// Requests that were issued and not complete at the end; they count nowhere.
    pub unfinished: u64,
    /// Seconds that count: the run without its warm-up.
    pub counted_s: f64,
    /// Groups: total, tiers, classes, VMs, volumes.
    pub groups: Vec<GroupSummary>,
    /// What moving took.
    pub moves: MoveTotals,
    /// Every move.
    pub move_log: Vec<MoveRecord>,
    /// Wear of devices with flash inside, in the time that counts.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub wear: Option<WearSummary>,
    /// What the cache in front did, in the time that counts.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cache: Option<CacheSummary>,
    /// What was done when objectives broke, in the whole run.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub response: Option<ResponseSummary>,
    /// What had second copies, in the whole run.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub mirrors: Option<MirrorSummary>,
    /// Results by stretches of time, where the scenario asks for them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub stretches: Option<Stretches>,
    /// What the controller noted, where the scenario says how its host is run.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub events: Vec<RunEvent>,
    /// Tier of every volume at the end, in the scenario's order.
    pub final_tiers: Vec<(String, String)>,
    /// The assignment problem of every decision and its value, of strategies that solve one.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub assignments: Vec<AssignmentRecord>,
    /// Results over time.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub series: Option<Series>,
    /// Every decision about placement, with its reasons.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub decisions: Option<Vec<Report>>,
}

impl RunResult {
    /// The groups of a kind.
    pub fn of_kind(&self, kind: GroupKind) -> impl Iterator<Item = &GroupSummary> {
        self.groups.iter().filter(move |g| g.kind == kind)
    }

    /// All volumes together.
    pub fn total(&self) -> &GroupSummary {
        self.of_kind(GroupKind::Total)
            .next()
            .expect("every run has a total")
    }
}

/// Extents that had a second copy.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MirrorSummary {
    /// Sets, as they were begun.
    pub sets: Vec<MirrorRecord>,
}

/// A set of extents of one volume that had second copies on one device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MirrorRecord {
    /// The volume.
    pub volume: String,
    /// The device of the second copies.
    pub device: String,
    /// How many extents.
    pub extents: u32,
    /// Their bytes.
    pub bytes: u64,
    /// When their copy began, seconds.
    pub begun_s: f64,
    /// From when on all of them were there, seconds.
    pub alike_s: Option<f64>,
    /// When they were given up, seconds; none at the end of the run.
    pub ended_s: Option<f64>,
    /// Bytes that were copied for it, those that were copied again included.
    pub copied_bytes: u64,
    /// Reads of what was alike that the first copies answered.
    pub first_reads: u64,
    /// And those that the second ones did.
    pub second_reads: u64,
    /// Share of reads for the second copies in the end, 0..=1.
    pub second_share: f64,
}

/// What makes a run repeatable.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of the program.
    pub version: String,
    /// Name of the scenario.
    pub scenario: String,
    /// XXH3-64 of the scenario's text.
    pub scenario_xxh3: String,
    /// The traces.
    pub traces: Vec<TraceHash>,
    /// Strategy.
    pub strategy: String,
    /// Its parameters where they are not the defaults.
    pub strategy_config: serde_json::Value,
    /// Seed.
    pub seed: u64,
    /// Length of the run, seconds.
    pub duration_s: f64,
    /// Time at its start that does not count, seconds.
    pub warmup_s: f64,
}

/// A trace, by content.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TraceHash {
    /// As the scenario names it.
    pub file: String,
    /// XXH3-128 over its records.
    pub xxh3: String,
    /// Requests in it.
    pub requests: u64,
}

/// What a group is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GroupKind {
    /// Everything.
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

/// A group over the whole run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GroupSummary {
    /// What it is.
    pub kind: GroupKind,
    /// Its name.
    pub name: String,
    /// Reads.
    pub reads: DirectionSummary,
    /// Writes; trims and flushes count here.
    pub writes: DirectionSummary,
    /// Both.
    pub all: DirectionSummary,
    /// Seconds in which volumes of the group missed their objective (two volumes in one second are two); `None` without
    /// an objective.
    pub slo_violation_s: Option<f64>,
    /// By how much they missed it, as a share of the objective and capped ([`algo::objective::excess`]), times the seconds of the windows in which
    /// they did; `None` without an objective.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slo_excess_s: Option<f64>,
}

/// One direction over the whole run.
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

/// What moving took, over the whole run, warm-up included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct MoveTotals {
    /// Moves that ended well.
    pub done: u64,
    /// Moves that were started and failed or were cancelled.
    pub not_done: u64,
    /// Moves that a newer plan dropped before they were started.
    pub dropped: u64,
    /// Moves still under way at the end.
    pub under_way: u64,
    /// Bytes copied, also by moves that did not end well.
    pub bytes: u64,
    /// Distinct volumes that were moved.
    pub volumes: u64,
    /// Distinct VMs with a volume that was moved (paper 0, Fig. 7 counts a VM once).
    pub vms: u64,
}

/// One move.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MoveRecord {
    /// The volume.
    pub volume: String,
    /// Its VM.
    pub vm: String,
    /// Tier that it left.
    pub from: String,
    /// Tier that it went to.
    pub to: String,
    /// Devices that it left and went to.
    #[serde(default)]
    pub devices: (String, String),
    /// When it was planned, seconds.
    pub planned_s: f64,
    /// When the copy started.
    pub started_s: Option<f64>,
    /// When it ended.
    pub ended_s: Option<f64>,
    /// How it ended, or where it stood at the end of the run.
    pub state: JobStatus,
    /// Why it failed, if it did.
    pub why_not: Option<String>,
    /// Why it was planned.
    pub reason: String,
    /// Whether it was no plan's, but the answer to a broken objective.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_remedy: bool,
    /// How many extents were to move; `None` where it was the whole volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extents: Option<u32>,
    /// Which ones; not in files, as there may be thousands of ranges.
    #[serde(skip)]
    pub ranges: Option<ExtentRanges>,
    /// Bytes copied.
    pub bytes: u64,
    /// Mean latency that was predicted for the target, microseconds.
    pub predicted_us: Option<f64>,
    /// Mean latency before, microseconds.
    pub before_us: Option<f64>,
    /// Between what bounds it was predicted with 90 % confidence, microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range_us: Option<(f64, f64)>,
    /// Mean latency in the first whole monitor epoch after a move of a whole volume in which no other move goes on from or to its target, at
    /// most ten epochs later, microseconds; none where the run or the volume's stay there ended before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_us: Option<f64>,
}

/// Something that the controller noted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEvent {
    /// When, nanoseconds.
    pub at_ns: u64,
    /// Who did it: `controller`, `agent` or `operator`.
    pub actor: String,
    /// The volume that it concerns.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub volume: Option<String>,
    /// In words.
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
    /// Share of reads that hit the cache, window by window, where there is one; none in windows without reads.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub cache_read_hit_ratio: Vec<Option<f64>>,
}

/// What was done when objectives broke.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ResponseSummary {
    /// Every time an answer was looked for, in order.
    pub remedies: Vec<RemedyRecord>,
    /// Every appliance that was ordered.
    pub appliances: Vec<ApplianceRecord>,
    /// Volumes that were promised a rate, in the scenario's order.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub rates: Vec<RateRecord>,
}

/// How a promised rate was kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RateRecord {
    /// The volume.
    pub volume: String,
    /// Requests per second that it was promised.
    pub rate_min_per_s: f64,
    /// Seconds of the windows in which it asked for as many and had fewer, as the controller was told of them.
    pub violated_s: f64,
}

/// An answer to a broken objective, or that there was none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RemedyRecord {
    /// When, seconds.
    pub at_s: f64,
    /// The volume whose objective is broken.
    pub volume: String,
    /// What was done; none where nothing would do.
    pub remedy: Option<RemedyKind>,
    /// To whom.
    pub to: Option<String>,
    /// Until it helps, seconds, as expected.
    pub effect_after_s: Option<f64>,
    /// Requests per second that others lose, as expected.
    pub lost_per_s: Option<f64>,
    /// Its price in all, in seconds of the broken objective.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price_s: Option<f64>,
    /// What else would have done, in the order in which it would have been taken.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<OtherRemedy>,
    /// What would not have done, and why.
    pub refused: Vec<RefusedRemedy>,
}

/// What would have done, too.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OtherRemedy {
    /// Which.
    pub remedy: RemedyKind,
    /// Its price in all, in seconds of the broken objective.
    pub price_s: f64,
    /// Of what parts, in words.
    pub price: String,
}

/// What would not have done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RefusedRemedy {
    /// Which.
    pub remedy: RemedyKind,
    /// Why.
    pub why: String,
}

impl RemedyRecord {
    /// Of a decision; `names` are those of the volumes.
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

/// A caching appliance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ApplianceRecord {
    /// The volume that it served.
    pub volume: String,
    /// The compute server that it ran on.
    pub host: String,
    /// Its cache, bytes.
    pub cache_bytes: u64,
    /// When it was ordered, seconds.
    pub ordered_s: f64,
    /// When requests first went through it, seconds.
    pub serving_s: Option<f64>,
    /// When it ended, seconds.
    pub ended_s: Option<f64>,
    /// How; none while it is there.
    pub outcome: Option<String>,
    /// Reads that it answered.
    pub read_hits: u64,
    /// Reads that it had to ask the array for.
    pub read_misses: u64,
}

/// A cache in front of the devices, in the time that counts. What is counted are pages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CacheSummary {
    /// Its policy.
    pub policy: String,
    /// What happens to writes.
    pub writes: WriteMode,
    /// What it holds, bytes.
    pub size_bytes: u64,
    /// Size of a page, bytes.
    pub page_bytes: u64,
    /// Pages that were written back.
    pub destaged_pages: u64,
    /// Its parts.
    pub parts: Vec<CachePartSummary>,
    /// Volumes that are cached.
    pub volumes: Vec<CacheVolumeSummary>,
}

/// A part of a cache.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CachePartSummary {
    /// Class or volume that it is for; `others` is what is left.
    pub name: String,
    /// What it holds, bytes.
    pub size_bytes: u64,
    /// What it held at the end, bytes.
    pub used_bytes: u64,
    /// Share of reads of pages that hit, 0..=1.
    pub read_hit_ratio: Option<f64>,
    /// Pages that were asked for.
    #[serde(flatten)]
    pub counts: PageCounts,
}

/// A volume behind a cache.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CacheVolumeSummary {
    /// The volume.
    pub name: String,
    /// Its class.
    pub class: String,
    /// The part that it is in.
    pub part: String,
    /// Share of reads of pages that hit, 0..=1.
    pub read_hit_ratio: Option<f64>,
    /// Its priority at the end, percent, under policies with priorities.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub priority_percent: Option<i32>,
    /// Pages that were asked for.
    #[serde(flatten)]
    pub counts: PageCounts,
}

/// A group over time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GroupSeries {
    /// What it is.
    pub kind: GroupKind,
    /// Its name.
    pub name: String,
    /// Reads.
    pub reads: DirectionSeries,
    /// Writes.
    pub writes: DirectionSeries,
    /// Volumes of the group that missed their objective in the window.
    pub violating: Vec<u32>,
}

impl GroupSeries {
    /// Counts one volume of the group in the window that ends now (before [`DirectionSeries::push`] ends it).
    pub(crate) fn violating_now(&mut self, violated: bool) {
        let windows = self.reads.iops.len() + 1;
        self.violating.resize(windows, 0);
        self.violating[windows - 1] += u32::from(violated);
    }
}

/// One direction over time.
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

/// A device over time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceSeries {
    /// Its name.
    pub name: String,
    /// Its tier.
    pub tier: String,
    /// Its space, bytes.
    pub capacity_bytes: u64,
    /// Share of its time in use, 0..=1.
    pub utilization: Vec<f64>,
    /// Space taken and reserved at the end of the window, bytes.
    pub used_bytes: Vec<u64>,
}
