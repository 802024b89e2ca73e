//! Advice: the best tier for a volume that does not exist yet. It makes no plan.
//!
//! A strategy with a model predicts the volume on each device ([`Strategy::place`](crate::Strategy::place)). This module has
//! the rules of all strategies: tiers that accept the volume (rules and space, by the [`Ledger`]), the best device of each
//! tier, and the order of tiers.

use model::{Facts, MeasuredLoad, Policy, Reason, Rejection};
use units::{Bytes, ClassId, DeviceId, TierId};

use crate::{AnyStrategy, Context, Ledger, StrategyState};

/// Largest difference of costs at which two tiers count as equally good, for a class of weight 1. Of equally good tiers, the
/// lowest is advised, which leaves the others to volumes that need them. Class-weighted seconds of SLO violation per second.
const AS_GOOD: f64 = 0.02;

/// A volume that does not exist yet.
#[derive(Debug, Clone, PartialEq)]
pub struct PlaceRequest {
    /// Space that the volume will use.
    pub size: Bytes,
    /// Service class.
    pub class: ClassId,
    /// Expected load. Its latencies are those of the place of measurement.
    pub load: MeasuredLoad,
}

/// Expected SLO violation of a placement: seconds of violation, times the weight of the class, per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PlaceCost {
    /// Violation of the new volume.
    pub own: f64,
    /// Additional violation of other volumes; `None` if the strategy does not predict it.
    pub others: Option<f64>,
}

impl PlaceCost {
    /// Returns the sum of both.
    pub fn total(&self) -> f64 {
        self.own + self.others.unwrap_or(0.0)
    }
}

/// Prediction for a volume on a device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DeviceOption {
    /// The device.
    pub device: DeviceId,
    /// Expected SLO violation with the volume on this device.
    pub cost: PlaceCost,
    /// Mean latency of the volume, microseconds; `None` for a volume without requests.
    pub latency_us: Option<f64>,
    /// Bounds of the mean latency with 90 % confidence, microseconds.
    pub range_us: Option<(f64, f64)>,
    /// Share of the device's time in use with the volume; above 1 the device is overloaded.
    pub use_after: f64,
}

/// Verdict on a tier as a place for a volume.
#[derive(Debug, Clone, PartialEq)]
pub enum PlaceVerdict {
    /// Best tier.
    Best,
    /// Possible, but not the best.
    Possible,
    /// The strategy has no prediction for this tier.
    NotJudged,
    /// The tier does not accept the volume.
    Refused {
        /// Filter that rejects it, with its numbers.
        by: Rejection,
    },
}

/// A tier as a place for a volume.
#[derive(Debug, Clone, PartialEq)]
pub struct TierAdvice {
    /// The tier.
    pub tier: TierId,
    /// Best device of the tier, among those with room if there are any; `None` without a prediction of the strategy.
    pub best: Option<DeviceOption>,
    /// Space of the tier that would remain; `None` if it does not accept the volume.
    pub free_after: Option<Bytes>,
    /// Verdict.
    pub verdict: PlaceVerdict,
}

/// Advice for a volume: all tiers in order.
#[derive(Debug, Clone, PartialEq)]
pub struct PlaceAdvice {
    /// Name of the strategy.
    pub strategy: String,
    /// All tiers, best first.
    pub tiers: Vec<TierAdvice>,
    /// Reason why the first tier is the best; `None` without a best tier.
    pub reason: Option<Reason>,
    /// Reason why there is no advice; `None` with a best tier.
    pub why_not: Option<String>,
}

impl PlaceAdvice {
    /// Returns the best tier, if there is one.
    pub fn best(&self) -> Option<&TierAdvice> {
        let first = self.tiers.first();
        first.filter(|t| t.verdict == PlaceVerdict::Best)
    }
}

/// Returns advice for a volume. A pure function: the same arguments give the same result. `state` must be the strategy's
/// own.
pub fn place(
    strategy: &dyn AnyStrategy,
    facts: &Facts,
    policy: &Policy,
    state: &StrategyState,
    request: &PlaceRequest,
) -> PlaceAdvice {
    let context = Context {
        facts,
        policy,
        seed: algo::mix(0, facts.epoch),
    };
    let options = strategy.place(&context, state, request);
    let ledger = Ledger::new(&context);
    let all = options.as_deref().unwrap_or_default();
    let tiers = facts.topology.tier_ids();
    let tiers: Vec<TierAdvice> = tiers.map(|t| weigh(&ledger, request, all, t)).collect();
    let tolerance = AS_GOOD * facts.classes[request.class.index()].weight;
    let (tiers, reason) = ranked(facts, tiers, tolerance);
    let why_not = match (&reason, &options) {
        (Some(_), _) => None,
        (None, None) => Some(format!(
            "strategy {} does not advise on new volumes",
            strategy.name()
        )),
        (None, Some(_)) => Some("no tier accepts the volume".into()),
    };
    PlaceAdvice {
        strategy: strategy.name().to_owned(),
        tiers,
        reason,
        why_not,
    }
}

/// Judges one tier, without regard to the others.
fn weigh(
    ledger: &Ledger<'_>,
    request: &PlaceRequest,
    options: &[DeviceOption],
    tier: TierId,
) -> TierAdvice {
    let admitted = ledger.admits_new(tier, request.size);
    let of_tier = ledger.devices(tier);
    let among = admitted.as_deref().unwrap_or(of_tier);
    let best = options.iter().filter(|o| among.contains(&o.device));
    let best = best.min_by_key(|o| (steps(o), o.device)).copied();
    let (verdict, free_after) = match (admitted, &best) {
        (Err(by), _) => (PlaceVerdict::Refused { by }, None),
        (Ok(_), best) => {
            let free: i128 = of_tier.iter().map(|d| ledger.free(*d)).sum();
            let left = u64::try_from(free - i128::from(request.size.0)).unwrap_or(0);
            let verdict = match best {
                Some(_) => PlaceVerdict::Possible,
                None => PlaceVerdict::NotJudged,
            };
            (verdict, Some(Bytes(left)))
        }
    };
    TierAdvice {
        tier,
        best,
        free_after,
        verdict,
    }
}

/// Returns a cost in steps, so rounding in the last bit cannot change an order.
fn steps(option: &DeviceOption) -> i64 {
    (option.cost.total().clamp(-1e6, 1e6) * 1e9).round() as i64
}

/// Sorts tiers, best first, and returns the reason for the first: first the lowest of those as good as the cheapest, then
/// the others by cost, then those without a prediction, then those that reject the volume.
fn ranked(
    facts: &Facts,
    mut tiers: Vec<TierAdvice>,
    tolerance: f64,
) -> (Vec<TierAdvice>, Option<Reason>) {
    let cost = |t: &TierAdvice| match (&t.verdict, &t.best) {
        (PlaceVerdict::Possible, Some(best)) => Some(steps(best)),
        _ => None,
    };
    let Some(least) = tiers.iter().filter_map(cost).min() else {
        tiers.sort_by_key(|t| (matches!(t.verdict, PlaceVerdict::Refused { .. }), t.tier));
        return (tiers, None);
    };
    let within = (tolerance * 1e9) as i64;
    tiers.sort_by_key(|t| {
        let lowest_first = u64::MAX - u64::from(t.tier.0);
        match (cost(t), &t.verdict) {
            (Some(cost), _) if cost - least <= within => (0, 0, lowest_first),
            (Some(cost), _) => (1, cost, lowest_first),
            (None, PlaceVerdict::Refused { .. }) => (3, 0, u64::from(t.tier.0)),
            (None, _) => (2, 0, u64::from(t.tier.0)),
        }
    });
    tiers[0].verdict = PlaceVerdict::Best;
    let reason = reason(facts, &tiers, within);
    (tiers, Some(reason))
}

/// Returns the reason why the first tier is the best.
fn reason(facts: &Facts, tiers: &[TierAdvice], within: i64) -> Reason {
    let name = |t: &TierAdvice| facts.topology.tier(t.tier).name.clone();
    let cost = |t: &TierAdvice| t.best.as_ref().map_or(0, steps);
    let mut others = tiers[1..]
        .iter()
        .filter(|t| t.verdict == PlaceVerdict::Possible)
        .peekable();
    let Some(next) = others.peek() else {
        return Reason::new("only-one", "no other tier accepts the volume");
    };
    let seconds = |steps: i64| steps as f64 / 1e9;
    let more = seconds(cost(next) - cost(&tiers[0]));
    if cost(next) - cost(&tiers[0]) > within {
        let text = format!(
            "avoids {more:.3} s of SLO violation (class-weighted) per second compared with {}",
            name(next)
        );
        let reason = Reason::new("misses-less", text);
        return reason
            .with("less_per_s", more)
            .with("than", name(next).as_str());
    }
    let as_good = others.take_while(|t| (cost(t) - cost(&tiers[0])).abs() <= within);
    let higher: Vec<String> = as_good.map(name).collect();
    let text = format!(
        "as good as {}, whose space is reserved for volumes that need it",
        higher.join(" and ")
    );
    Reason::new("as-good", text).with("as", higher.join(",").as_str())
}

/// Volume with a known load, from which loads of other volumes are estimated.
#[derive(Debug, Clone, Copy)]
pub struct KnownLoad<'a> {
    /// Name of the volume.
    pub name: &'a str,
    /// Service class of the volume.
    pub class: ClassId,
    /// Virtual size of the volume.
    pub size: Bytes,
    /// Load of the volume.
    pub load: &'a MeasuredLoad,
}

/// Estimated load of a volume without measurements.
#[derive(Debug, Clone, PartialEq)]
pub struct GuessedLoad {
    /// Estimated load.
    pub load: MeasuredLoad,
    /// Name of the volume whose load was scaled by size.
    pub like: String,
    /// Number of volumes from which the median was taken.
    pub volumes: usize,
    /// Group from which the median was taken.
    pub of: GuessedOf,
}

/// Group of volumes whose median load is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuessedOf {
    /// Volumes of the same class.
    Class,
    /// All volumes: no volume of that class has a known load.
    All,
}

/// Estimates the load of a volume of this size: scales the load of the volume with the median number of requests per second
/// and GiB. The median is taken over volumes of the class, or over all if the class has none. Returns `None` without known
/// loads.
pub fn guess_load(known: &[KnownLoad<'_>], class: ClassId, size: Bytes) -> Option<GuessedLoad> {
    let of_class = known.iter().any(|k| k.class == class);
    let counts = |k: &&KnownLoad<'_>| (!of_class || k.class == class) && k.size > Bytes::ZERO;
    let mut by_rate: Vec<&KnownLoad<'_>> = known.iter().filter(counts).collect();
    // Quantized: the same volumes give the same median, in any order.
    let per_gib = |k: &KnownLoad<'_>| (k.load.iops() / k.size.as_f64() * 1e18) as u128;
    by_rate.sort_by_key(|k| (per_gib(k), k.name));
    let median = by_rate.get(by_rate.len().checked_sub(1)? / 2)?;
    Some(GuessedLoad {
        load: scaled(median.load, size.as_f64() / median.size.as_f64()),
        like: median.name.into(),
        volumes: by_rate.len(),
        of: match of_class {
            true => GuessedOf::Class,
            false => GuessedOf::All,
        },
    })
}

/// Returns the load multiplied by `by`, with the same mix.
fn scaled(load: &MeasuredLoad, by: f64) -> MeasuredLoad {
    let times = |n: u64| (n as f64 * by).round() as u64;
    let mut scaled = *load;
    for flow in [&mut scaled.reads, &mut scaled.writes] {
        (flow.ios, flow.bytes) = (times(flow.ios), times(flow.bytes));
    }
    scaled.outstanding *= by;
    scaled
}
