//! Performance model: predicted use of the backend's resources after a change.
//!
//! ```text
//!  stream ──(own cache)──▶ shared memory ──▶ disks    uses of a resource add up
//!         writes ──────────────────────────▶ disks    met if every use ≤ 0.8 and
//!         └── all requests to the backend ─▶ link     the rest that others leave suffices
//! ```
//!
//! The paper uses "a simple performance model" and does not describe it (sec. 5.2). In our model the cost of a request on
//! each resource is measured. The number of requests at a resource follows from miss-ratio curves. Each pool of the array's
//! memory is divided as an LRU cache divides itself: each stream holds its misses of one common time. A guaranteed rate b is
//! met by conservation of rates: the capacity that all others leave on each resource must suffice for b. The use of a
//! resource is unlimited if no workload on it has an objective.
//!
//! The model does not predict latency. The use limit of 80 % stands in for it: queues grow fast beyond it.

use serde::{Deserialize, Serialize};
use units::Bytes;
use volume::OffloadLimits;

use crate::curve::Curve;
use crate::remedy::{OtherDevice, SecondCopies};
use crate::sample::{Promise, WorkloadId};

/// Position of a resource relative to the array's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// Behind it: only reads that miss the memory and writes arrive. Disks.
    BehindMemory,
    /// In front of it: all requests to the backend arrive. Links, controllers.
    InFront,
}

/// A resource of the backend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resource {
    /// Name in messages.
    pub name: String,
    pub place: Place,
}

/// Cost of a request on one resource: seconds of the whole resource.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Cost of a read that arrives at the resource, s.
    pub read_s: f64,
    pub write_s: f64,
}

/// Demand of one workload on the backend.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stream {
    pub workload: WorkloadId,
    /// Demanded reads per second.
    pub reads_per_s: f64,
    pub writes_per_s: f64,
    /// Mean bytes of a read.
    pub read_bytes: f64,
    /// Costs by resource.
    pub costs: Vec<Cost>,
    /// Pool of the memory that holds its data.
    pub pool: usize,
    /// Measured share of its reads that miss its own appliance; 1 without one.
    #[serde(default = "all_pass")]
    pub passes: f64,
    /// Share of its backend reads that miss the array's memory now.
    pub memory_misses: f64,
    /// Miss-ratio curve of its reads. Without one, its miss ratio in the memory is assumed to stay as it is.
    pub curve: Option<Curve>,
    /// Reserved share of the memory; `None` if it has none.
    #[serde(default)]
    pub part: Option<Bytes>,
    /// Objective of the workload.
    pub objective: Promise,
}

fn as_asked() -> f64 {
    1.0
}

fn all_pass() -> f64 {
    1.0
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Backend {
    pub resources: Vec<Resource>,
    /// Sizes of the memory pools for data; a backend without separate pools has one.
    pub memory: Vec<Bytes>,
    /// Use of a resource above which its queues are too long, 0..=1.
    pub use_max: f64,
}

/// Change to predict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "kebab-case")]
pub enum Change {
    /// No change.
    None,
    /// A read cache in front of the backend.
    Cached {
        workload: WorkloadId,
        /// Size of the cache.
        size: Bytes,
        /// Size of a read that misses the cache relative to the original read, at least 1: the cache reads whole pages.
        #[serde(default = "as_asked")]
        grows: f64,
    },
    /// A limit of the rate.
    Throttled {
        workload: WorkloadId,
        /// Requests per second.
        rate_per_s: f64,
    },
    /// A reserved share of the memory; the others share the rest.
    MemoryFor {
        workload: WorkloadId,
        /// Size of the share.
        size: Bytes,
    },
    /// Return of the reserved share to the others.
    MemoryShared { workload: WorkloadId },
    /// Another cost of writes, as with more over-provisioned flash.
    WritesCost {
        workload: WorkloadId,
        /// New cost relative to the present one.
        times: f64,
    },
    /// A mirror of some extents. Their reads are divided between both devices, so that these are equally busy.
    Mirrored(SecondCopies),
    /// The data on another device.
    Moved(OtherDevice),
}

/// Predicted state after a change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// Use of each resource; above 1 if the demand exceeds its capacity.
    pub uses: Vec<f64>,
    /// Share of each stream's reads that reaches the disks.
    pub disk_reads: Vec<f64>,
    /// Requests per second that the others leave for each stream; `f64::MAX` if it uses no resource.
    pub available_per_s: Vec<f64>,
    /// Reason of a violation; `None` if all objectives are met.
    pub fails: Option<String>,
}

/// Predicts a change.
pub fn predict(backend: &Backend, streams: &[Stream], change: &Change) -> Prediction {
    let after: Vec<ChangedStream> = after(streams, change);
    let misses = memory_misses(backend, streams, &after, change);
    let uses_of = |s: usize| -> Vec<f64> {
        let (stream, after) = (&streams[s], &after[s]);
        let write_times = match change {
            Change::WritesCost { workload, times } if *workload == stream.workload => *times,
            _ => 1.0,
        };
        let read_times = match change {
            Change::Cached {
                workload, grows, ..
            } if *workload == stream.workload => *grows,
            _ => 1.0,
        };
        let resources = backend.resources.iter().zip(&stream.costs);
        resources
            .map(|(resource, cost)| {
                let share = match resource.place {
                    Place::BehindMemory => misses[s],
                    Place::InFront => after.passes,
                };
                after.reads * share * read_times * cost.read_s
                    + after.writes * write_times * cost.write_s
            })
            .collect()
    };
    let mut each: Vec<Vec<f64>> = (0..streams.len()).map(uses_of).collect();
    if let Change::Mirrored(copies) = change {
        mirror(streams, &misses, copies, &mut each);
    }
    if let Change::Moved(other) = change {
        relocate(streams, &misses, other, &mut each);
    }
    let of = |r: usize| each.iter().map(|u| u[r]).sum::<f64>();
    let uses: Vec<f64> = (0..backend.resources.len()).map(of).collect();
    let available = |s: usize| {
        let rate = after[s].reads + after[s].writes;
        let left = uses.iter().zip(&each[s]).map(|(all, own)| {
            if *own > 1e-12 {
                (1.0 - (all - own)).max(0.0) * rate / own
            } else {
                f64::MAX
            }
        });
        left.fold(f64::MAX, f64::min)
    };
    let available_per_s: Vec<f64> = (0..streams.len()).map(available).collect();
    // A full resource without users that have an objective violates none.
    let promised =
        |s: &Stream| s.objective.rate_min_per_s.is_some() || s.objective.latency_max.is_some();
    let matters = |r: usize| {
        let mut all = streams.iter().zip(&each);
        all.any(|(s, takes)| promised(s) && takes[r] > 1e-12)
    };
    let of_promised: Vec<f64> = (0..uses.len())
        .map(|r| if matters(r) { uses[r] } else { 0.0 })
        .collect();
    let fails = why(backend, streams, &of_promised, &available_per_s, change);
    Prediction {
        uses,
        disk_reads: misses,
        available_per_s,
        fails,
    }
}

/// Moves reads of mirrored extents to the mirror until both devices are equally busy. This approximates the data path, which
/// divides reads until the latencies are equal. Writes go to both devices.
fn mirror(streams: &[Stream], misses: &[f64], copies: &SecondCopies, each: &mut [Vec<f64>]) {
    let Some(s) = streams.iter().position(|s| s.workload == copies.workload) else {
        return;
    };
    let (stream, from, to) = (&streams[s], copies.from.index(), copies.to.index());
    let reads = stream.reads_per_s * misses[s] * copies.reads;
    let (here, there) = (
        reads * stream.costs[from].read_s,
        reads * copies.cost.read_s,
    );
    each[s][to] += stream.writes_per_s * copies.writes * copies.cost.write_s;
    let used = |r: usize| each.iter().map(|u| u[r]).sum::<f64>();
    let balanced = (used(from) - used(to)) / (here + there).max(1e-12);
    let OffloadLimits { least, most } = OffloadLimits::default();
    let share = balanced.clamp(least, most);
    each[s][from] -= share * here;
    each[s][to] += share * there;
}

/// Moves a stream's load from its present device to the target, with the target's cost.
fn relocate(streams: &[Stream], misses: &[f64], other: &OtherDevice, each: &mut [Vec<f64>]) {
    let Some(s) = streams.iter().position(|s| s.workload == other.workload) else {
        return;
    };
    let stream = &streams[s];
    each[s][other.from.index()] = 0.0;
    each[s][other.to.index()] += stream.reads_per_s * misses[s] * other.cost.read_s
        + stream.writes_per_s * other.cost.write_s;
}

/// A stream after the change.
struct ChangedStream {
    reads: f64,
    writes: f64,
    /// Share of the reads that miss the stream's own cache.
    passes: f64,
}

fn after(streams: &[Stream], change: &Change) -> Vec<ChangedStream> {
    let one = |s: &Stream| {
        let rate = s.reads_per_s + s.writes_per_s;
        let (scale, passes) = match change {
            Change::Cached { workload, size, .. } if *workload == s.workload => {
                (1.0, s.curve.as_ref().map_or(s.passes, |c| c.at(*size)))
            }
            Change::Throttled {
                workload,
                rate_per_s,
            } if *workload == s.workload && rate > *rate_per_s => (rate_per_s / rate, s.passes),
            _ => (1.0, s.passes),
        };
        ChangedStream {
            reads: scale * s.reads_per_s,
            writes: scale * s.writes_per_s,
            passes,
        }
    };
    streams.iter().map(one).collect()
}

/// Returns the share of each stream's reads that misses both its own cache and the memory.
fn memory_misses(
    backend: &Backend,
    streams: &[Stream],
    after: &[ChangedStream],
    change: &Change,
) -> Vec<f64> {
    // Reserved share of a stream after the change.
    let part = |s: &Stream| match change {
        Change::MemoryFor { workload, size } if *workload == s.workload => Some(*size),
        Change::MemoryShared { workload } if *workload == s.workload => None,
        _ => s.part,
    };
    // Content of a stream in the memory after a common time, in bytes.
    let held = |s: usize, seconds: f64| {
        let (stream, after) = (&streams[s], &after[s]);
        let bytes = after.reads * stream.read_bytes;
        match &stream.curve {
            // Without a curve, the present share of reads misses and fills the memory.
            None => bytes * after.passes * stream.memory_misses * seconds,
            // Reads that miss the stream's own cache have no reuse in the memory: each of them fills it.
            Some(_) if after.passes < 1.0 => bytes * after.passes * seconds,
            Some(curve) => curve.held_after(seconds, bytes),
        }
    };
    // Common time of each memory pool.
    let common = |pool: usize| {
        let of_pool = streams.iter().filter(|s| s.pool == pool);
        let given: u64 = of_pool.filter_map(part).map(|size| size.0).sum();
        let memory = backend.memory[pool].saturating_sub(Bytes(given)).as_f64();
        let total = |seconds: f64| {
            let shares = |s: &usize| streams[*s].pool == pool && part(&streams[*s]).is_none();
            let all = (0..streams.len()).filter(shares);
            all.map(|s| held(s, seconds)).sum::<f64>()
        };
        let (mut low, mut high) = (0.0, 1e6);
        for _ in 0..60 {
            let mid = 0.5 * (low + high);
            if total(mid) > memory {
                high = mid;
            } else {
                low = mid;
            }
        }
        low
    };
    let times: Vec<f64> = (0..backend.memory.len()).map(common).collect();
    let ratio = |s: usize| {
        let (stream, after) = (&streams[s], &after[s]);
        let Some(curve) = &stream.curve else {
            return stream.memory_misses * after.passes;
        };
        let size = match part(stream) {
            Some(size) => size.as_f64(),
            None => held(s, times[stream.pool]),
        };
        let at = curve.at(Bytes(size.max(0.0) as u64));
        // A read that misses the own cache hits the memory only if the memory holds more of the stream than that cache.
        at.min(after.passes)
    };
    (0..streams.len()).map(ratio).collect()
}

fn why(
    backend: &Backend,
    streams: &[Stream],
    uses: &[f64],
    available: &[f64],
    change: &Change,
) -> Option<String> {
    let full = uses
        .iter()
        .zip(&backend.resources)
        .filter(|(u, _)| **u > backend.use_max)
        .max_by(|a, b| a.0.total_cmp(b.0));
    if let Some((used, resource)) = full {
        let (used, max) = (100.0 * used, 100.0 * backend.use_max);
        let name = &resource.name;
        return Some(format!(
            "{name} would be {used:.0} % busy, more than {max:.0} %"
        ));
    }
    for (stream, available) in streams.iter().zip(available) {
        let asks = stream.reads_per_s + stream.writes_per_s;
        let Some(promised) = stream.objective.rate_min_per_s else {
            continue;
        };
        let needs = promised.min(asks);
        if let Change::Throttled {
            workload,
            rate_per_s,
        } = change
            && *workload == stream.workload
            && *rate_per_s < needs
        {
            return Some("the throttle would be below its guaranteed rate".into());
        }
        if *available < needs {
            let w = stream.workload.0;
            return Some(format!(
                "workload {w} would get {available:.0} of {needs:.0} requests/s"
            ));
        }
    }
    None
}

#[cfg(test)]
#[path = "load_tests.rs"]
mod tests;
