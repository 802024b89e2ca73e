//! What is simulated, and what comes out of it.

use serde::{Deserialize, Serialize};
use slo::curve::Curve;
use slo::host::Host;
use slo::ladder::{Elsewhere, SpareOps};
use slo::reroute::Attachment;
use slo::zones::Zone;
use slo::{Decision, Forecast, HostId, Promise, ResponderConfig, Sample, Standing};
use units::{Bytes, BytesPerSec, Nanos};

use super::backend::ArrayModel;
use super::keeps::Keeps;
use super::load::Load;
use super::nodes::Writes;

/// A workload of a scenario.
#[derive(Debug, Clone)]
pub struct ResponseWorkload {
    /// For people.
    pub name: String,
    /// What it asks for.
    pub load: Load,
    /// Its data, in objects: what is cached and read at once.
    pub objects: u32,
    /// Bytes of an object, and of a request for one.
    pub object_bytes: u32,
    /// Requests that are outstanding at once, at most (16 in the paper: the buffer of Linux's asynchronous I/O).
    pub outstanding_max: usize,
    /// What it was promised.
    pub objective: Promise,
    /// Where its virtual machine runs.
    pub host: HostId,
    /// How it reaches its storage.
    pub attachment: Attachment,
    /// Whether the array's memory is full of its data when the run begins.
    pub memory_before: MemoryBefore,
    /// Whether it uses the disks and the link that the others use.
    pub uses: Uses,
}

/// What of a workload is in the array's memory at the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryBefore {
    /// Nothing.
    Empty,
    /// As much as fits: it has been running for long.
    Full,
}

/// Whether a workload shares the data path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Uses {
    /// Disks, memory and link, with the others.
    TheGroup,
    /// The controller alone; its disks are its own (an array's own root volume).
    OwnDisks,
}

/// How appliances behave.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ApplianceModel {
    /// From order to being up.
    pub create: Nanos,
    /// Until requests go through it, or back.
    pub reroute: Nanos,
    /// Until it is gone.
    pub destroy: Nanos,
    /// Its processors, each request: a bound on its rate.
    pub per_request: Nanos,
    /// A hit in memory, on top.
    pub memory_hit: Nanos,
    /// A hit on the SSD, on top.
    pub ssd_hit: Nanos,
    /// Its SSD.
    pub ssd: Bytes,
    /// One way between hosts, where it is not beside its workload; and at which rate.
    pub hop: Nanos,
    /// What it does with writes.
    pub writes: Writes,
    /// How it keeps it.
    pub keeps: Keeps,
    /// Most that it takes in, a second; none: as fast as the backend reads. A read beyond that is answered by the backend and not kept.
    pub fill_max: Option<BytesPerSec>,
    /// Reads of a warm-up that are outstanding at once.
    pub warm_outstanding: usize,
}

impl Default for ApplianceModel {
    fn default() -> Self {
        Self {
            create: Nanos::from_secs(59),
            reroute: Nanos::from_secs(1),
            destroy: Nanos::from_secs(10),
            per_request: Nanos::from_micros(320),
            memory_hit: Nanos::from_micros(150),
            ssd_hit: Nanos::from_micros(500),
            ssd: Bytes::gib(64),
            hop: Nanos::from_micros(200),
            writes: Writes::Around,
            keeps: Keeps::AsIs,
            fill_max: None,
            warm_outstanding: 8,
        }
    }
}

/// Something that goes wrong, for tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseFault {
    /// The nth creation fails after its time, counted from 0.
    CreationFails(u32),
    /// The nth re-routing fails, and may have taken place.
    ReroutingFails(u32),
    /// The host of every appliance is lost at a time.
    HostLost(Nanos),
    /// Until a time no virtual machine can be destroyed.
    DestroyingFailsUntil(Nanos),
    /// Copies to the other backend that are under way at a time fail.
    MoveFails(Nanos),
}

/// Which zones a reactive warm-up is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZonesKnown {
    /// Those of the last minutes.
    Latest,
    /// Those from before the violation began, as in the paper.
    BeforeViolation,
}

/// A scenario.
#[derive(Debug, Clone)]
pub struct ResponseModel {
    /// Workloads, by number.
    pub workloads: Vec<ResponseWorkload>,
    /// Compute servers.
    pub hosts: Vec<Host>,
    /// The array.
    pub array: ArrayModel,
    /// Appliances.
    pub appliance: ApplianceModel,
    /// Flash below one workload's writes, and what could be spared for it. Its writes cost their time once for each byte that
    /// flash writes; all others' once.
    pub ops: Option<SpareOps>,
    /// Another backend: four stations, which together serve a quarter more than its spare rate.
    pub elsewhere: Option<Elsewhere>,
    /// The responder; `None` watches and does nothing.
    pub responder: Option<ResponderConfig>,
    /// What a reactive warm-up is told.
    pub zones_known: ZonesKnown,
    /// Peaks that are known beforehand, with the time at which each is acted on.
    pub forecasts: Vec<(Nanos, Forecast)>,
    /// What goes wrong.
    pub faults: Vec<ResponseFault>,
    /// End of the run.
    pub duration: Nanos,
    /// When curves are drawn, with the reads that exact ones need kept; none costs nothing.
    pub curves_at: Vec<Nanos>,
    /// Times for which it is noted when the last request that arrived before them was issued.
    pub marks: Vec<Nanos>,
    /// Spans of time whose latencies are kept.
    pub spans: Vec<(Nanos, Nanos)>,
    /// Of service times.
    pub seed: u64,
}

/// What happened when.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResponseEvent {
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
    /// Working set of the ten seconds before.
    pub working_set: Bytes,
}

/// One workload's results.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResponseSeries {
    /// Its name.
    pub name: String,
    /// Every ten seconds.
    pub samples: Vec<Sample>,
    /// How each stands to the promise.
    pub standings: Vec<Standing>,
    /// Requests completed.
    pub served: u64,
    /// Requests that had arrived and were not issued at the end.
    pub unserved: u64,
    /// Requests that a rate-limited generator left out.
    pub left_out: u64,
    /// For each mark: when the last request that arrived before it was issued; `None` if that was not during the run.
    pub caught_up: Vec<Option<Nanos>>,
    /// For each span: latency that 99 % of its requests did not exceed, from issue to completion; `None` without any.
    pub p99_us: Vec<Option<f64>>,
    /// By five minutes: heavy zones of the window that ended then.
    pub zones: Vec<(Nanos, Vec<Zone>)>,
    /// By five minutes: the curve.
    pub curves: Vec<(Nanos, Option<Curve>)>,
}

impl ResponseSeries {
    /// Minutes in violation.
    pub fn violation_minutes(&self) -> f64 {
        self.standings.iter().filter(|s| s.violates()).count() as f64 / 6.0
    }
}

/// A volume that was copied to the other backend while its guest wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResponseMove {
    /// Whose.
    pub workload: usize,
    /// Objects copied, those included that were copied again.
    pub objects: u64,
    /// Guest's writes that went to both backends.
    pub mirrored: u64,
    /// Objects that were copied again, as they were written while they were on their way.
    pub again: u64,
}

/// Everything that a run leaves.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResponseResult {
    /// By workload.
    pub series: Vec<ResponseSeries>,
    /// What was ordered and what happened, in order.
    pub events: Vec<ResponseEvent>,
    /// Decisions with their evidence.
    pub decisions: Vec<Decision>,
    /// Curves, where asked for.
    pub curves: Vec<CurvePair>,
    /// Requests simulated.
    pub requests: u64,
    /// Volumes whose requests do not go to the backend at the end.
    pub routed_away: Vec<usize>,
    /// Copies to the other backend that were completed.
    pub moves: Vec<ResponseMove>,
    /// Reads answered with less than what was written last, and objects that differed from their copy when their volume was
    /// switched over: 0, or the run is no good.
    pub stale: u64,
}
