//! The ladder of answers. Each rung is priced and predicted; of those that are predicted to keep all promises the cheapest is taken
//! ([`crate::price`]), or the first in the ladder's order ([`Choice`]), and of the others it is said why not.
//!
//! ```text
//!  throttle a neighbour ▸ a share of the array's memory ▸ a share of over-provisioned flash ▸ second copies  ▸ appliance ▸ move away
//!  seconds, others lose   a minute, others lose hits      minutes, nobody else's          seconds, space   minutes,    hours, copies
//!                                                                                         elsewhere        memory      everything
//! ```
//!
//! The order is that of what a rung takes and how hard it is to undo. The paper's figure 2 draws the same techniques by how long they take. Dynamite itself
//! knows the appliance only.

use units::{Bytes, Nanos};

use crate::host::{APPLIANCE_CPUS, Host, HostFinding, Needs, choose, most_room};
use crate::judged::Judged;
use crate::load::{Backend, Change, Stream, predict};
pub use crate::price::{Choice, PriceWeights, Total};
pub use crate::remedy::{
    Held, MEMORY_EFFECT, OPS_EFFECT, OtherDevice, Price, Remedy, RemedyAction, RemedyKind,
    SecondCopies, SpareOps,
};
use crate::sample::{HostId, ResourceId, WorkloadId};
use crate::sizing::SizingConfig;
use crate::solutions::{Solution, best};

/// What the rungs are judged on.
#[derive(Debug, Clone, Copy)]
pub struct Situation<'a> {
    pub backend: &'a Backend,
    /// All streams, by workload; of those that are held to a rate no more than that ([`hold`]).
    pub streams: &'a [Stream],
    /// Whose promise is broken.
    pub affected: WorkloadId,
    /// The interfering set, the affected one included.
    pub set: &'a [WorkloadId],
    /// Pairs of workload and size.
    pub solutions: &'a [Solution],
    /// Compute servers.
    pub hosts: &'a [Host],
    /// Where each workload runs.
    pub own_hosts: &'a [HostId],
    /// Those that are held to a rate already.
    pub held: &'a [Held],
    /// Hosts where an appliance failed lately.
    pub avoid: &'a [HostId],
    /// Those of the set whose appliance was of no use lately.
    pub resting: &'a [WorkloadId],
    /// Workloads of which it is not known yet whether they disturb the affected one.
    pub untested: usize,
    /// Sizes.
    pub sizing: &'a SizingConfig,
    /// From order to re-routed.
    pub boot: Nanos,
    /// Whose writes spare over-provisioning would make cheaper.
    pub ops: &'a [SpareOps],
    /// Resources of which it is not known how much is asked of them: what is seen is all that they can do.
    pub full: &'a [ResourceId],
    /// Second copies that could be made of what the set reads.
    pub copies: &'a [SecondCopies],
    /// Other devices that the set's data could move to.
    pub others: &'a [OtherDevice],
    /// Which of those that would do is taken.
    pub choice: Choice,
    /// What prices are weighed by.
    pub weights: &'a PriceWeights,
}

/// Rate that a neighbour without a promise is left at least, share of what it asks for.
const UNPROMISED_LEFT: f64 = 0.2;
/// How closely the rate of a throttle is looked for, share of the present one.
const RATE_STEP: f64 = 0.02;
/// Rates that are looked at for one throttle; more than are needed for [`RATE_STEP`], and an end whatever the rates are.
const RATES_MAX: u32 = 8;
/// Share of its rate that a neighbour who is held already keeps at most: that his rate would do was predicted and refuted, and a
/// little less of the same prediction is no answer.
const TIGHTER_MAX: f64 = 0.9;
/// Parts of the memory that are tried, in eighths.
const MEMORY_EIGHTHS: [u64; 6] = [1, 2, 3, 4, 5, 6];

/// Looks at all rungs that are `allowed`; the findings about hosts belong to the appliance's. Those that would do come first, in the order in
/// which they are to be taken.
pub fn remedies(at: &Situation<'_>, allowed: &[RemedyKind]) -> (Vec<Remedy>, Vec<HostFinding>) {
    let at = &Judged::new(at);
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
    // Stable: of equals the first of the ladder.
    match at.choice {
        Choice::Order => {}
        Choice::Price => remedies.sort_by_key(|r| match r.would_do() {
            true => (false, r.total.millis()),
            false => (true, 0),
        }),
    }
    (remedies, findings)
}

/// The rung that is taken: the first that would do.
pub fn taken(remedies: &[Remedy]) -> Option<&Remedy> {
    remedies.iter().find(|r| r.would_do())
}

/// All rungs, none of them looked at.
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

/// The first that would do, else the one tried last.
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

/// Clips streams to the rates that their workloads are held to: what a sample shows above that is measured, not granted, and no
/// prediction is made of it.
pub fn hold(streams: &mut [Stream], held: &[Held]) {
    for h in held {
        let of = streams.iter_mut().filter(|s| s.workload == h.workload);
        for stream in of.filter(|s| rate(s) > h.rate_per_s) {
            let times = h.rate_per_s / rate(stream);
            stream.reads_per_s *= times;
            stream.writes_per_s *= times;
        }
    }
}

/// Of all neighbours who could be held the one who would lose least.
fn throttle(at: &Judged<'_>) -> Remedy {
    let mut tried = Vec::new();
    for stream in at.streams {
        let workload = stream.workload;
        if workload == at.affected || !at.set.contains(&workload) {
            continue;
        }
        let held = at.held.iter().find(|h| h.workload == workload);
        let present = rate(stream);
        // One that is held already is not held to a share of that.
        let asked = held.map_or(present, |h| h.asked_per_s);
        // A throttle respects what was promised: who was promised a latency, with a rate or without, is not held below what it uses.
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

/// The highest rate from `least` to `present` that is predicted to do, or to a tenth less than it is held to already;
/// `least` where none does. It is one that was asked about, so a model that is not quite monotone may hide a better one but makes no
/// worse one look good.
fn held_to(at: &Judged<'_>, workload: WorkloadId, least: f64, present: f64) -> Remedy {
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
    // What the model does not see broken it cannot say how to mend: all is taken that may be.
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

fn memory(at: &Judged<'_>) -> Remedy {
    let affected = at.streams.iter().find(|s| s.workload == at.affected);
    let Some(affected) = affected.filter(|s| s.curve.is_some()) else {
        return none(RemedyKind::MemoryShare, "no miss-ratio curve is known");
    };
    let pool = at.backend.memory[affected.pool];
    let others = at.streams.iter().filter(|s| s.workload != at.affected);
    let theirs = others.filter(|s| s.pool == affected.pool);
    let theirs: u64 = theirs.filter_map(|s| s.part).map(|part| part.0).sum();
    // Those who share keep a fourth of what nobody has for himself.
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
        // Hits that others lose, counted as requests, and what those who lose them ask for.
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

fn ops(at: &Judged<'_>) -> Remedy {
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

/// Of all second copies that could be made the fewest bytes; where their device is full, those that take most off it, to a twentieth of what it can do.
fn mirror(at: &Judged<'_>) -> Remedy {
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

fn appliance(at: &Judged<'_>) -> (Remedy, Vec<HostFinding>) {
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
    // Where there is room for none that would do, the one is named that there should be.
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

/// Until a cold cache holds nine tenths of what it is to hold.
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

/// Of all who could move to another device the one with least to copy, and of its devices the one that has most to spare then, to a twentieth of what it
/// can do.
fn other_device(at: &Judged<'_>) -> Remedy {
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

/// Why a device is too slow for a workload's promise, whatever else is asked of it.
fn slow_there(at: &Judged<'_>, other: &OtherDevice) -> Option<String> {
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
