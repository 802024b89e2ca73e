//! The performance model: how busy the backend would be if something were changed.
//!
//! ```text
//!  stream ──(cache of its own)──▶ memory that all share ──▶ disks      uses of a resource add up
//!         writes ────────────────────────────────────────▶ disks      kept if every use ≤ 0.8 and
//!         └── all of it that reaches the backend ─────────▶ link       what others leave is enough
//! ```
//!
//! The paper uses "a simple performance model" and does not describe it (sec. 5.2). Here: what a request costs on each resource
//! is measured; how many requests get there follows from miss-ratio curves; each part of the array's memory is shared as an
//! LRU cache shares itself (every stream holds what it missed in one common time). A promise b is kept by conservation of rates: what
//! all others leave of each resource must be enough for b. A resource that nobody uses who was promised anything may be as busy as it likes.
//!
//! What it does not know: latency. Eighty percent is the stand-in: beyond it queues grow fast.

use serde::{Deserialize, Serialize};
use units::Bytes;
use volume::OffloadLimits;

use crate::curve::Curve;
use crate::remedy::{OtherDevice, SecondCopies};
use crate::sample::{Promise, WorkloadId};

/// Whether the array's memory stands before a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// Only reads that miss the memory get there: disks.
    BehindMemory,
    /// All requests that reach the backend: links, controllers.
    InFront,
}

/// A resource of the backend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resource {
    /// For people.
    pub name: String,
    pub place: Place,
}

/// What a request costs on one resource: share of a second of the whole resource.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// A read that gets there.
    pub read_s: f64,
    pub write_s: f64,
}

/// What one workload asks of the backend.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stream {
    pub workload: WorkloadId,
    /// Reads that it is to be served, per second.
    pub reads_per_s: f64,
    pub writes_per_s: f64,
    /// Mean bytes of a read.
    pub read_bytes: f64,
    /// By resource.
    pub costs: Vec<Cost>,
    /// Which part of the memory its data is kept in.
    pub pool: usize,
    /// Share of its reads that get past an appliance of its own, as measured; 1 without one.
    #[serde(default = "all_pass")]
    pub passes: f64,
    /// Share of its reads at the backend that miss the array's memory now.
    pub memory_misses: f64,
    /// Its reads' curve; without one its share of the memory stays what it is.
    pub curve: Option<Curve>,
    /// A part of the memory that is its own; without one it shares.
    #[serde(default)]
    pub part: Option<Bytes>,
    /// What it was promised.
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
    /// Its memory for data, in the parts that it keeps apart (one, where it keeps none apart).
    pub memory: Vec<Bytes>,
    /// Use of a resource up to which it is taken to be quick.
    pub use_max: f64,
}

/// What is changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "kebab-case")]
pub enum Change {
    /// Nothing.
    None,
    /// A read cache before the backend.
    Cached {
        workload: WorkloadId,
        /// How large.
        size: Bytes,
        /// By so much a read that misses it is larger than the read that was asked for: it reads whole pages. At least 1.
        #[serde(default = "as_asked")]
        grows: f64,
    },
    /// Held to a rate.
    Throttled {
        workload: WorkloadId,
        /// Requests per second.
        rate_per_s: f64,
    },
    /// A part of the memory is its own, the others share the rest.
    MemoryFor {
        workload: WorkloadId,
        /// How much.
        size: Bytes,
    },
    /// Its own part of the memory is everybody's again.
    MemoryShared { workload: WorkloadId },
    /// Its writes cost another share of what they do: more over-provisioned flash, less to copy.
    WritesCost {
        workload: WorkloadId,
        /// New cost over the present one.
        times: f64,
    },
    /// Some of what it reads has second copies, and reads go to either end, so that both are equally busy.
    Mirrored(SecondCopies),
    /// Its data is on another device.
    Moved(OtherDevice),
}

/// What would be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// Use of each resource; above 1 where more is asked for than there is.
    pub uses: Vec<f64>,
    /// Share of each stream's own reads that gets to the disks.
    pub disk_reads: Vec<f64>,
    /// Requests per second that the others leave for each stream; unlimited if it needs nothing.
    pub available_per_s: Vec<f64>,
    /// Why it does not do; `None` if all promises are kept.
    pub fails: Option<String>,
}

/// Predicts a change.
pub fn predict(backend: &Backend, streams: &[Stream], change: &Change) -> Prediction {
    let after: Vec<After> = after(streams, change);
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
    // What is full and used by nobody who was promised anything breaks no promise.
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

/// Moves reads of what is mirrored to the second copies until both ends are equally busy, which stands for what is done on the data path: there both come
/// to answer in the same time. Writes are done at both.
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

/// What a stream takes of the device that it leaves is asked of the other one, at that one's cost.
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
struct After {
    reads: f64,
    writes: f64,
    /// Share of the reads that gets past a cache of its own.
    passes: f64,
}

fn after(streams: &[Stream], change: &Change) -> Vec<After> {
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
        After {
            reads: scale * s.reads_per_s,
            writes: scale * s.writes_per_s,
            passes,
        }
    };
    streams.iter().map(one).collect()
}

/// Share of each stream's reads that misses its own cache and the memory.
fn memory_misses(
    backend: &Backend,
    streams: &[Stream],
    after: &[After],
    change: &Change,
) -> Vec<f64> {
    // The part that is a stream's own after the change.
    let part = |s: &Stream| match change {
        Change::MemoryFor { workload, size } if *workload == s.workload => Some(*size),
        Change::MemoryShared { workload } if *workload == s.workload => None,
        _ => s.part,
    };
    // What a stream holds of the memory after a common time, in bytes.
    let held = |s: usize, seconds: f64| {
        let (stream, after) = (&streams[s], &after[s]);
        let bytes = after.reads * stream.read_bytes;
        match &stream.curve {
            // Without one as much gets past the memory as does now, and fills it.
            None => bytes * after.passes * stream.memory_misses * seconds,
            // What gets past a cache has no reuse within it: it fills the memory as it comes.
            Some(_) if after.passes < 1.0 => bytes * after.passes * seconds,
            Some(curve) => curve.held_after(seconds, bytes),
        }
    };
    // The common time of each part of the memory.
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
        // A read that passes its own cache is in the memory only if the memory holds more of the stream than the cache.
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
