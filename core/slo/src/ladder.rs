//! Ladder of remedies: each is predicted and priced. Among the sufficient remedies the cheapest is chosen
//! ([`crate::price`]), or the first of the ladder ([`Choice`]). Each other remedy has the reason of its rejection.
//!
//! ```text
//!  throttle a ▸ cache share ▸ over-provisioning ▸ mirror     ▸ appliance ▸ move
//!  neighbour                  share
//!  seconds      a minute      minutes             seconds      minutes     hours
//!  load of      hits of       unused flash        space        memory      copies
//!  others       others                            elsewhere                everything
//! ```
//!
//! The order is by cost and by the effort to undo a remedy. The paper's figure 2 orders the same techniques by their
//! duration. Dynamite itself uses only the appliance.

use units::{Bytes, Nanos};

use crate::host::{APPLIANCE_CPUS, Host, HostFinding, Needs, choose, most_room};
use crate::judged::JudgedSituation;
use crate::load::{Backend, Change, Stream, predict};
pub use crate::price::{Choice, PriceWeights, Total};
pub use crate::remedy::{
    MEMORY_EFFECT, OPS_EFFECT, OtherDevice, Price, Remedy, RemedyAction, RemedyKind, SecondCopies,
    SpareOps, ThrottledWorkload,
};
use crate::sample::{HostId, ResourceId, WorkloadId};
use crate::sizing::SizingConfig;
use crate::solutions::{Solution, best};

/// Inputs of the predictions and prices of all remedies.
#[derive(Debug, Clone, Copy)]
pub struct Situation<'a> {
    pub backend: &'a Backend,
    /// All streams, by workload. The rates of throttled workloads are at most their limits ([`hold`]).
    pub streams: &'a [Stream],
    /// Workload whose objective is violated.
    pub affected: WorkloadId,
    /// Interfering set, including the affected workload.
    pub set: &'a [WorkloadId],
    /// Predictions for pairs of workload and cache size.
    pub solutions: &'a [Solution],
    /// Compute servers.
    pub hosts: &'a [Host],
    /// Host of each workload.
    pub own_hosts: &'a [HostId],
    /// Workloads that are throttled already.
    pub held: &'a [ThrottledWorkload],
    /// Hosts on which an appliance failed recently.
    pub avoid: &'a [HostId],
    /// Workloads of the set whose appliance was recently ineffective.
    pub resting: &'a [WorkloadId],
    /// Number of workloads whose interference with the affected one could not be tested yet.
    pub untested: usize,
    /// Cache sizes to evaluate.
    pub sizing: &'a SizingConfig,
    /// Time from the order of an appliance until requests go through it.
    pub boot: Nanos,
    /// Workloads whose writes would cost less with unused flash.
    pub ops: &'a [SpareOps],
    /// Resources with unknown demand, because they are saturated: the measured load is all that they can serve.
    pub full: &'a [ResourceId],
    /// Possible mirrors of data that the set reads.
    pub copies: &'a [SecondCopies],
    /// Other devices to which the set's data could move.
    pub others: &'a [OtherDevice],
    /// Choice among sufficient remedies.
    pub choice: Choice,
    /// Weights of prices.
    pub weights: &'a PriceWeights,
}

/// Smallest rate for a throttled neighbour without an objective, as a share of its demand.
const UNPROMISED_LEFT: f64 = 0.2;
/// Precision of a throttle's rate, as a share of the present rate.
const RATE_STEP: f64 = 0.02;
/// Largest number of rates that are tried for one throttle. It is more than [`RATE_STEP`] needs and bounds the search for
/// any rates.
const RATES_MAX: u32 = 8;
/// Largest new rate of a throttled neighbour, as a share of its present limit. The present limit was predicted to suffice
/// and did not, so a slightly lower one is no remedy.
const TIGHTER_MAX: f64 = 0.9;
/// Cache shares that are tried, in eighths of the pool.
const MEMORY_EIGHTHS: [u64; 6] = [1, 2, 3, 4, 5, 6];

/// Evaluates all `allowed` remedies. Sufficient ones come first, in the order of choice. The findings about hosts belong to
/// the appliance.
pub fn remedies(at: &Situation<'_>, allowed: &[RemedyKind]) -> (Vec<Remedy>, Vec<HostFinding>) {
    let at = &JudgedSituation::new(at);
    let mut findings = Vec::new();
    let mut remedies: Vec<Remedy> = RemedyKind::ALL
        .into_iter()
        .map(|kind| {
            if !allowed.contains(&kind) {
                return none(kind, "not allowed here");
            }
            match kind {
                RemedyKind::Throttle => at.with_unknown(throttle(at)),
                RemedyKind::MemoryShare => memory(at),
                RemedyKind::OpsShare => ops(at),
                RemedyKind::Mirror => mirror(at),
                RemedyKind::Appliance => {
                    let (remedy, found) = appliance(at);
                    findings = found;
                    remedy
                }
                RemedyKind::Move => at.with_unknown(other_device(at)),
            }
        })
        .collect();
    for remedy in &mut remedies {
        remedy.total = Total::of(&remedy.price, at.weights);
    }
    // The sort is stable: among equals the first of the ladder wins.
    match at.choice {
        Choice::Order => {}
        Choice::Price => remedies.sort_by_key(|r| match r.would_do() {
            true => (false, r.total.millis()),
            false => (true, 0),
        }),
    }
    (remedies, findings)
}

/// Returns the remedy to take: the first sufficient one.
pub fn taken(remedies: &[Remedy]) -> Option<&Remedy> {
    remedies.iter().find(|r| r.would_do())
}

/// Returns all remedies, rejected for the same reason without an evaluation.
pub(crate) fn unneeded(why: &str) -> Vec<Remedy> {
    RemedyKind::ALL.map(|kind| none(kind, why)).into()
}

fn none(kind: RemedyKind, why: &str) -> Remedy {
    Remedy {
        kind,
        action: None,
        price: Price::default(),
        total: Total::default(),
        prediction: None,
        refused: Some(why.into()),
    }
}

/// Returns the first sufficient remedy, or the last one that was tried.
fn first_or_last(kind: RemedyKind, tried: Vec<Remedy>, nothing: &str) -> Remedy {
    let good = tried.iter().position(|r| r.refused.is_none());
    let last = tried.len().checked_sub(1);
    match good.or(last) {
        Some(i) => tried.into_iter().nth(i).expect("an index of the list"),
        None => none(kind, nothing),
    }
}

fn rate(stream: &Stream) -> f64 {
    stream.reads_per_s + stream.writes_per_s
}

/// Limits streams to the rates of their throttles. A measured rate above the limit is not guaranteed, so predictions ignore
/// it.
pub fn hold(streams: &mut [Stream], held: &[ThrottledWorkload]) {
    for h in held {
        let of = streams.iter_mut().filter(|s| s.workload == h.workload);
        for stream in of.filter(|s| rate(s) > h.rate_per_s) {
            let times = h.rate_per_s / rate(stream);
            stream.reads_per_s *= times;
            stream.writes_per_s *= times;
        }
    }
}

/// Returns the throttle of the neighbour that would lose least.
fn throttle(at: &JudgedSituation<'_>) -> Remedy {
    let mut tried = Vec::new();
    for stream in at.streams {
        let workload = stream.workload;
        if workload == at.affected || !at.set.contains(&workload) {
            continue;
        }
        let held = at.held.iter().find(|h| h.workload == workload);
        let present = rate(stream);
        // The share refers to the demand before the throttle, not to the present limit.
        let asked = held.map_or(present, |h| h.asked_per_s);
        // A throttle respects objectives: a workload with a latency objective, with or without a guaranteed rate, keeps its
        // present rate.
        let promised = stream.objective;
        let least = match (promised.latency_max, promised.rate_min_per_s) {
            (Some(_), rate) => rate.unwrap_or(0.0).max(present),
            (None, Some(rate)) => rate,
            (None, None) => UNPROMISED_LEFT * asked,
        };
        if least < present {
            tried.push(held_to(at, workload, least, present));
        }
    }
    tried.sort_by(|a, b| a.price.lost_per_s.total_cmp(&b.price.lost_per_s));
    first_or_last(
        RemedyKind::Throttle,
        tried,
        "no interfering workload can be throttled within its objective and guaranteed rate",
    )
}

/// Returns a throttle at the highest rate from `least` to `present` that is predicted to suffice. The rate of a workload
/// that is throttled already is at least a tenth below its limit. If no rate suffices, the throttle is at `least`. Only
/// evaluated rates are returned: in a model that is not quite monotone a better rate may be missed, but no insufficient rate
/// is accepted.
fn held_to(at: &JudgedSituation<'_>, workload: WorkloadId, least: f64, present: f64) -> Remedy {
    let look = |rate_per_s: f64| {
        let change = Change::Throttled {
            workload,
            rate_per_s,
        };
        let price = Price {
            effect_after: Nanos::from_secs(10),
            lost_per_s: present - rate_per_s,
            lost_share: (present - rate_per_s) / present,
            ..Price::default()
        };
        let action = RemedyAction::Throttle {
            workload,
            rate_per_s,
        };
        let prediction = predict(at.backend, at.streams, &change);
        at.remedy(RemedyKind::Throttle, action, price, prediction)
    };
    let mut best = look(least);
    // If the model does not predict the violation, it cannot predict a sufficient rate: the lowest permitted rate is taken.
    if best.refused.is_some() || !at.sees() {
        return best;
    }
    let (mut low, mut high) = (least, present);
    if let Some(held) = at.held.iter().find(|h| h.workload == workload) {
        let most = (TIGHTER_MAX * held.rate_per_s).clamp(least, present);
        let remedy = look(most);
        if remedy.refused.is_none() {
            return remedy;
        }
        high = most;
    }
    for _ in 0..RATES_MAX {
        if high - low <= RATE_STEP * present {
            break;
        }
        let middle = 0.5 * (low + high);
        let remedy = look(middle);
        if remedy.refused.is_none() {
            (low, best) = (middle, remedy);
        } else {
            high = middle;
        }
    }
    best
}

fn memory(at: &JudgedSituation<'_>) -> Remedy {
    let affected = at.streams.iter().find(|s| s.workload == at.affected);
    let Some(affected) = affected.filter(|s| s.curve.is_some()) else {
        return none(RemedyKind::MemoryShare, "no miss-ratio curve is known");
    };
    let pool = at.backend.memory[affected.pool];
    let others = at.streams.iter().filter(|s| s.workload != at.affected);
    let theirs = others.filter(|s| s.pool == affected.pool);
    let theirs: u64 = theirs.filter_map(|s| s.part).map(|part| part.0).sum();
    // The sharing workloads keep a fourth of the unreserved memory.
    let most = pool.saturating_sub(Bytes(theirs)).0 / 4 * 3;
    let sizes = MEMORY_EIGHTHS.map(|eighths| Bytes(pool.0 / 8 * eighths));
    let own = affected.part.unwrap_or(Bytes::ZERO);
    let larger = sizes.into_iter().filter(|s| *s > own && s.0 <= most);
    let now = predict(at.backend, at.streams, &Change::None);
    let tried = larger.map(|size| {
        let workload = at.affected;
        let change = Change::MemoryFor { workload, size };
        let prediction = predict(at.backend, at.streams, &change);
        let more = prediction.disk_reads.iter().zip(&now.disk_reads);
        let more = more.zip(at.streams).map(|((after, before), s)| {
            let lost = s.reads_per_s * (after - before).max(0.0);
            (lost, if lost > 0.0 { rate(s) } else { 0.0 })
        });
        // Hits that others lose, counted as requests, and the demand of these workloads.
        let (lost, theirs) = more.fold((0.0, 0.0), |sum, of| (sum.0 + of.0, sum.1 + of.1));
        let price = Price {
            effect_after: MEMORY_EFFECT,
            lost_per_s: lost,
            lost_share: if lost > 0.0 { lost / theirs } else { 0.0 },
            ..Price::default()
        };
        let action = RemedyAction::GiveMemory { workload, size };
        at.remedy(RemedyKind::MemoryShare, action, price, prediction)
    });
    let nothing = "its cache share cannot be larger";
    first_or_last(RemedyKind::MemoryShare, tried.collect(), nothing)
}

fn ops(at: &JudgedSituation<'_>) -> Remedy {
    let of_set = at.ops.iter().filter(|o| at.set.contains(&o.workload));
    let tried = of_set.map(|ops| {
        let (workload, waf, waf_with_spare) = (ops.workload, ops.waf, ops.waf_with_spare);
        let change = Change::WritesCost {
            workload,
            times: waf_with_spare.max(1.0) / waf.max(1.0),
        };
        let price = Price {
            effect_after: OPS_EFFECT,
            ..Price::default()
        };
        let action = RemedyAction::GiveOps {
            workload,
            waf,
            waf_with_spare,
        };
        let prediction = predict(at.backend, at.streams, &change);
        at.remedy(RemedyKind::OpsShare, action, price, prediction)
    });
    let nothing = "the devices of these workloads have no unused flash";
    first_or_last(RemedyKind::OpsShare, tried.collect(), nothing)
}

/// Returns the mirror with the fewest bytes. If its source device is saturated, the one that relieves the device most comes
/// first, in steps of a twentieth of its capacity.
fn mirror(at: &JudgedSituation<'_>) -> Remedy {
    let of_set = at.copies.iter().filter(|c| at.set.contains(&c.workload));
    let tried = of_set.map(|copies| {
        let from = copies.from.index();
        let prediction = predict(at.backend, at.streams, &Change::Mirrored(copies.clone()));
        let price = Price {
            effect_after: copies.copy_rate.time_for(copies.bytes),
            copied: copies.bytes,
            ..Price::default()
        };
        let twentieths = match at.full.contains(&copies.from) {
            true => (20.0 * prediction.uses[from]).round() as u64,
            false => 0,
        };
        let action = RemedyAction::Mirror(copies.clone());
        let remedy = at.remedy(RemedyKind::Mirror, action, price, prediction);
        ((twentieths, copies.bytes), remedy)
    });
    let mut tried: Vec<_> = tried.collect();
    tried.sort_by_key(|(order, _)| *order);
    let tried = tried.into_iter().map(|(_, remedy)| remedy).collect();
    let nothing = "no extents with many reads can be mirrored to a device with time and space";
    first_or_last(RemedyKind::Mirror, tried, nothing)
}

fn appliance(at: &JudgedSituation<'_>) -> (Remedy, Vec<HostFinding>) {
    let kind = RemedyKind::Appliance;
    let does = |s: &Solution| at.refusal(kind, &s.prediction).is_none();
    let leaves = |s: &Solution| {
        let full = at.full.iter().filter(|_| at.sizing.relief);
        let uses = full.map(|r| s.prediction.uses[r.index()]);
        let twentieths = uses.map(|used| (20.0 * used).round() as u64);
        twentieths.max().unwrap_or(0)
    };
    let needs = |s: &Solution| Needs {
        cpus: APPLIANCE_CPUS,
        memory: s.size + at.sizing.own_memory,
    };
    let room = most_room(at.hosts, APPLIANCE_CPUS, at.avoid);
    let has_room = |s: &Solution| does(s) && room.is_some_and(|room| needs(s).memory <= room);
    // If no host has room for a sufficient cache, this one is used in the findings about hosts.
    let found = best(at.solutions, has_room, leaves).or_else(|| best(at.solutions, does, leaves));
    let Some(solution) = found else {
        let why = match at.solutions.last() {
            None if !at.resting.is_empty() => {
                let w = at.resting[0].0;
                format!("an appliance for workload {w} was recently ineffective")
            }
            None => "no affected or interfering workload is cacheable".into(),
            Some(s) => format!(
                "no cache size is sufficient; with {} for workload {}: {}",
                s.size,
                s.workload.0,
                at.refusal(kind, &s.prediction).unwrap_or_default()
            ),
        };
        return (none(kind, &why), Vec::new());
    };
    let workload = solution.workload;
    let needs = needs(solution);
    let own = at.own_hosts[workload.index()];
    let (host, findings) = choose(at.hosts, own, needs, at.avoid);
    let Some(host) = host else {
        return (
            none(kind, "no host has enough free CPUs and memory"),
            findings,
        );
    };
    let stream = at.streams.iter().find(|s| s.workload == workload);
    let fills = stream.map_or(Nanos::ZERO, |s| fill_time(s, solution.size));
    let price = Price {
        effect_after: at.boot + fills,
        cpus: needs.cpus,
        memory: needs.memory,
        ..Price::default()
    };
    let action = RemedyAction::Appliance {
        workload,
        host,
        cache: solution.size,
        hits: 1.0 - solution.miss_ratio,
    };
    let remedy = at.remedy(kind, action, price, solution.prediction.clone());
    (remedy, findings)
}

/// Returns the time until a cold cache holds nine tenths of its final content.
fn fill_time(stream: &Stream, size: Bytes) -> Nanos {
    const STEP_S: u64 = 10;
    let Some(curve) = &stream.curve else {
        return Nanos::ZERO;
    };
    let bytes = stream.reads_per_s * stream.read_bytes;
    let most = curve.held_after(7200.0, bytes).min(size.as_f64());
    let full = |steps: &u64| curve.held_after((steps * STEP_S) as f64, bytes) >= 0.9 * most;
    Nanos::from_secs((0..720).find(full).unwrap_or(720) * STEP_S)
}

/// Returns the move with the least data to copy. Among equals it has the target with the most unused capacity after the
/// move, in steps of a twentieth.
fn other_device(at: &JudgedSituation<'_>) -> Remedy {
    let of_set = at.others.iter().filter(|o| at.set.contains(&o.workload));
    let tried = of_set.map(|other| {
        let mut prediction = predict(at.backend, at.streams, &Change::Moved(other.clone()));
        if prediction.fails.is_none() {
            prediction.fails = slow_there(at, other);
        }
        let price = Price {
            effect_after: other.copy_rate.time_for(other.bytes),
            copied: other.bytes,
            ..Price::default()
        };
        let twentieths = (20.0 * prediction.uses[other.to.index()]).round() as u64;
        let action = RemedyAction::Move(other.clone());
        let remedy = at.remedy(RemedyKind::Move, action, price, prediction);
        ((other.bytes, twentieths), remedy)
    });
    let mut tried: Vec<_> = tried.collect();
    tried.sort_by_key(|(order, _)| *order);
    let tried = tried.into_iter().map(|(_, remedy)| remedy).collect();
    let nothing = "no other device has time and space for the data of these workloads";
    first_or_last(RemedyKind::Move, tried, nothing)
}

/// Returns the reason why an idle device is too slow for a workload's latency objective.
fn slow_there(at: &JudgedSituation<'_>, other: &OtherDevice) -> Option<String> {
    let stream = at.streams.iter().find(|s| s.workload == other.workload)?;
    let most_us = stream.objective.latency_max?.as_micros_f64();
    let idle_us = other.idle_us.filter(|idle| *idle > most_us)?;
    let name = &at.backend.resources[other.to.index()].name;
    Some(format!(
        "a request takes at least {idle_us:.0} us on {name}, more than the objective of {most_us:.0} us"
    ))
}

#[cfg(test)]
#[path = "ladder_tests.rs"]
mod tests;
