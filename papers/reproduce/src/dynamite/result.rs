//! Results of a run that claims and figures need.

use serde::{Deserialize, Serialize};
use sim::{AccessLog, ApplianceRecord, Evidence, RunResult, VolumeEvidence};
use slo::curve::Curve;
use slo::load::Backend;
use slo::zones::Zone;
use slo::{Decision, ObjectiveRelation, Sample};
use units::{Bytes, Nanos};

use super::exact::exact_lru;

/// Window of an estimated curve: the present one and the previous one. An exact curve uses the same span.
const WINDOW: Nanos = Nanos::from_secs(300);
/// Number of cache sizes of drawn curves, in steps of half a gibibyte.
const CURVE_SIZES: u64 = 32;

/// Event of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CaseEvent {
    /// Time in seconds.
    pub at_s: f64,
    /// Description.
    pub what: String,
}

/// Curves of one workload at one time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CurvePair {
    /// Time.
    pub at: Nanos,
    /// Workload.
    pub workload: usize,
    /// Cache size, estimated and exact miss ratio.
    pub points: Vec<(Bytes, f64, f64)>,
}

/// Results of one workload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CaseSeries {
    /// Name.
    pub name: String,
    /// Samples every ten seconds.
    pub samples: Vec<Sample>,
    /// Compliance of each sample with the guarantee.
    pub standings: Vec<ObjectiveRelation>,
    /// Number of requests that had arrived but were not issued at the end.
    pub unserved: u64,
    /// Number of requests that a rate-limited client skipped.
    pub left_out: u64,
    /// Time at which the last request that arrived before the mark was issued; `None` if that was after the run.
    pub caught_up: Option<Nanos>,
    /// 99th percentile of the latency in the span, from issue to completion; `None` without requests.
    pub p99_us: Option<f64>,
    /// Heavy zones of the window that ended at each time: every five minutes, and the times of drawn curves.
    pub zones: Vec<(Nanos, Vec<Zone>)>,
    /// Curves at the same times.
    pub curves: Vec<(Nanos, Option<Curve>)>,
}

/// Result of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CaseResult {
    /// Results by workload.
    pub series: Vec<CaseSeries>,
    /// Orders and events, in order of time.
    pub events: Vec<CaseEvent>,
    /// Decisions with their evidence.
    pub decisions: Vec<Decision>,
    /// Appliances in the order of their orders.
    pub appliances: Vec<ApplianceRecord>,
    /// Requested curves.
    pub curves: Vec<CurvePair>,
    /// Array as the responder knows it.
    pub backend: Backend,
    /// Number of simulated requests.
    pub requests: u64,
}

/// Requests that a workload offered, which a run does not record.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct OfferedRequests {
    /// Number of requests that arrive before the mark; `None` for a client, which issues requests on completion.
    pub(super) before_mark: Option<u64>,
    /// Number of requests that arrive, or that a client would issue.
    pub(super) all: u64,
}

/// Times at which results are evaluated.
#[derive(Debug, Clone)]
pub(super) struct Looks {
    /// See [`CaseSeries::caught_up`].
    pub(super) mark: Nanos,
    /// See [`CaseSeries::p99_us`].
    pub(super) span: (Nanos, Nanos),
    /// Times of drawn curves.
    pub(super) curves_at: Vec<Nanos>,
    /// Number of windows.
    pub(super) windows: usize,
}

impl CaseSeries {
    /// Returns the minutes in violation.
    pub fn violation_minutes(&self) -> f64 {
        self.standings.iter().filter(|s| s.violates()).count() as f64 / 6.0
    }

    fn new(of: VolumeEvidence, asked: OfferedRequests, looks: &Looks) -> Self {
        let mut windows = of.windows;
        windows.truncate(looks.windows);
        let mut issued = 0;
        let mut caught_up = None;
        let mut latencies = Vec::new();
        for (i, window) in windows.iter().enumerate() {
            issued += window.issued;
            let ended = Nanos((i as u64 + 1) * slo::SAMPLE.0);
            let done = asked.before_mark.is_some_and(|n| issued >= n);
            if caught_up.is_none() && done && ended >= looks.mark {
                caught_up = Some(ended);
            }
            if ended > looks.span.0 && ended <= looks.span.1 {
                latencies = algo::merged_buckets(&latencies, &window.latencies);
            }
        }
        let missing = asked.all.saturating_sub(issued);
        let client = asked.before_mark.is_none();
        let p99_ns = algo::bucket_quantile_ns(&latencies, 0.99);
        Self {
            name: of.name,
            unserved: if client { 0 } else { missing },
            left_out: if client { missing } else { 0 },
            caught_up,
            p99_us: p99_ns.map(|ns| ns as f64 / 1e3),
            zones: of.zones,
            curves: of.curves,
            standings: windows.iter().map(|w| w.standing).collect(),
            samples: windows.into_iter().map(|w| w.sample).collect(),
        }
    }
}

impl CaseResult {
    pub(super) fn new(
        run: &RunResult,
        evidence: Evidence,
        asked: &[OfferedRequests],
        looks: &Looks,
    ) -> Self {
        let event = |(at, what): (Nanos, String)| CaseEvent {
            at_s: at.as_secs_f64(),
            what,
        };
        let volumes = evidence.volumes;
        let mut curves = Vec::new();
        for at in &looks.curves_at {
            let all = volumes.iter().enumerate();
            curves.extend(all.filter_map(|(w, v)| drawn(w, v, *at)));
        }
        let series = volumes.into_iter().zip(asked);
        Self {
            series: series
                .map(|(v, asked)| CaseSeries::new(v, *asked, looks))
                .collect(),
            events: evidence.events.into_iter().map(event).collect(),
            decisions: evidence.decisions,
            appliances: run
                .response
                .iter()
                .flat_map(|r| r.appliances.clone())
                .collect(),
            curves,
            backend: evidence.backend,
            requests: run.total().all.ios,
        }
    }
}

/// Returns a workload's estimated curve at a time, with the exact one of the same accesses.
fn drawn(workload: usize, of: &VolumeEvidence, at: Nanos) -> Option<CurvePair> {
    let estimated = of.curves.iter().find(|c| c.0 == at)?.1.as_ref()?;
    let log: &AccessLog = &of.accesses;
    // Number of accesses at the end of a window.
    let count = |end: Nanos| match (end.0 / slo::SAMPLE.0).checked_sub(1) {
        None => Some(0),
        Some(window) => log.ends.get(window as usize).copied(),
    };
    let begins = Nanos((at.0.saturating_sub(1) / WINDOW.0).saturating_sub(1) * WINDOW.0);
    let (from, to) = (count(begins)?, count(at)?);
    let sizes: Vec<Bytes> = (1..=CURVE_SIZES).map(|i| Bytes::mib(512 * i)).collect();
    let each = log.object_bytes * u64::from(log.one_in);
    let objects: Vec<u64> = sizes.iter().map(|s| s.0 / each).collect();
    let exact = exact_lru(&log.accesses[..to], from, &objects);
    let points = sizes.iter().zip(exact);
    Some(CurvePair {
        at,
        workload,
        points: points.map(|(s, e)| (*s, estimated.at(*s), e)).collect(),
    })
}
