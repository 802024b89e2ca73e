//! What a run leaves that claims and figures need.

use serde::{Deserialize, Serialize};
use sim::{AccessLog, ApplianceRecord, Evidence, RunResult, VolumeEvidence};
use slo::curve::Curve;
use slo::load::Backend;
use slo::zones::Zone;
use slo::{Decision, Sample, Standing};
use units::{Bytes, Nanos};

use super::exact::exact_lru;

/// Length of the windows that an estimated curve counts: the current one and that before it. An exact one counts the same.
const WINDOW: Nanos = Nanos::from_secs(300);
/// Cache sizes of drawn curves, in half gibibytes.
const CURVE_SIZES: u64 = 32;

/// What happened when.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CaseEvent {
    /// When, seconds.
    pub at_s: f64,
    /// What.
    pub what: String,
}

/// Curves of one workload at one time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CurvePair {
    /// When.
    pub at: Nanos,
    /// Whose.
    pub workload: usize,
    /// Cache size, estimated and exact miss ratio.
    pub points: Vec<(Bytes, f64, f64)>,
}

/// One workload's results.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CaseSeries {
    /// Its name.
    pub name: String,
    /// Every ten seconds.
    pub samples: Vec<Sample>,
    /// How each stands to the promise.
    pub standings: Vec<Standing>,
    /// Requests that had arrived and were not issued at the end.
    pub unserved: u64,
    /// Requests that a rate-limited client left out.
    pub left_out: u64,
    /// When the last request that arrived before the mark was issued; `None` if that was not during the run.
    pub caught_up: Option<Nanos>,
    /// Latency that 99 % of the requests in the span did not exceed, from issue to completion; `None` without any.
    pub p99_us: Option<f64>,
    /// Every five minutes, and when curves are drawn: heavy zones of the window that ended then.
    pub zones: Vec<(Nanos, Vec<Zone>)>,
    /// At the same times: the curve.
    pub curves: Vec<(Nanos, Option<Curve>)>,
}

/// Everything of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CaseResult {
    /// By workload.
    pub series: Vec<CaseSeries>,
    /// What was ordered and what happened, in order.
    pub events: Vec<CaseEvent>,
    /// Decisions with their evidence.
    pub decisions: Vec<Decision>,
    /// Appliances, in the order in which they were ordered.
    pub appliances: Vec<ApplianceRecord>,
    /// Curves, where asked for.
    pub curves: Vec<CurvePair>,
    /// The array as the responder knows it.
    pub backend: Backend,
    /// Requests simulated.
    pub requests: u64,
}

/// What a workload had asked for: what a run does not know.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Asked {
    /// Requests that arrive before the mark; none of a client, which asks for what is answered.
    pub(super) before_mark: Option<u64>,
    /// Requests that arrive, or that a client asks for.
    pub(super) all: u64,
}

/// Times that results are looked at.
#[derive(Debug, Clone)]
pub(super) struct Looks {
    /// See [`CaseSeries::caught_up`].
    pub(super) mark: Nanos,
    /// See [`CaseSeries::p99_us`].
    pub(super) span: (Nanos, Nanos),
    /// When curves are drawn.
    pub(super) curves_at: Vec<Nanos>,
    /// Windows.
    pub(super) windows: usize,
}

impl CaseSeries {
    /// Minutes in violation.
    pub fn violation_minutes(&self) -> f64 {
        self.standings.iter().filter(|s| s.violates()).count() as f64 / 6.0
    }

    fn new(of: VolumeEvidence, asked: Asked, looks: &Looks) -> Self {
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
    pub(super) fn new(run: &RunResult, evidence: Evidence, asked: &[Asked], looks: &Looks) -> Self {
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

/// A workload's estimated curve at a time, beside the exact one of the same accesses.
fn drawn(workload: usize, of: &VolumeEvidence, at: Nanos) -> Option<CurvePair> {
    let estimated = of.curves.iter().find(|c| c.0 == at)?.1.as_ref()?;
    let log: &AccessLog = &of.accesses;
    // How many accesses there were at the end of a window.
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
