//! On which tier a volume that does not exist yet would do best: advice, no plan.
//!
//! A strategy with a model says what the volume would be on each device ([`Strategy::place`](crate::Strategy::place)). What holds for
//! every strategy is done here: which tiers take it (rules and space, by the [`Ledger`]), the best device of each tier, the order of tiers.

use model::{Facts, Measured, Policy, Reason, Rejection};
use units::{Bytes, ClassId, DeviceId, TierId};

use crate::{AnyStrategy, Context, Ledger, StrategyState};

/// Tiers whose costs differ by less than this, for a class of weight 1, are as good as one another: then the volume goes to the lowest of
/// them, and leaves the others to those who need them. Weighted seconds of missed objective per second.
const AS_GOOD: f64 = 0.02;

/// A volume that does not exist yet.
#[derive(Debug, Clone, PartialEq)]
pub struct PlaceRequest {
    /// The space that it will take.
    pub size: Bytes,
    /// Its service class.
    pub class: ClassId,
    /// What it is expected to do. Latencies are those of wherever this was measured.
    pub load: Measured,
}

/// What a placement would miss: seconds in which an objective is missed, times the weight of its class, per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PlaceCost {
    /// Of the volume itself.
    pub own: f64,
    /// What others would miss more than now; none where the strategy does not say.
    pub others: Option<f64>,
}

impl PlaceCost {
    /// Both.
    pub fn total(&self) -> f64 {
        self.own + self.others.unwrap_or(0.0)
    }
}

/// What a volume would be on a device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DeviceOption {
    /// The device.
    pub device: DeviceId,
    /// What would be missed with it there.
    pub cost: PlaceCost,
    /// Its mean latency, microseconds; none for a volume without requests.
    pub latency_us: Option<f64>,
    /// Between what bounds that is with 90 % confidence, microseconds.
    pub range_us: Option<(f64, f64)>,
    /// Share of the device's time in use with it there; above 1 more is asked for than there is.
    pub use_after: f64,
}

/// Whether a tier is a place for a volume.
#[derive(Debug, Clone, PartialEq)]
pub enum PlaceVerdict {
    /// The best one.
    Best,
    /// It would do.
    Possible,
    /// The strategy says nothing about it.
    NotJudged,
    /// It does not take the volume.
    Refused {
        /// By which filter, with its numbers.
        by: Rejection,
    },
}

/// A tier as a place for a volume.
#[derive(Debug, Clone, PartialEq)]
pub struct TierAdvice {
    /// The tier.
    pub tier: TierId,
    /// Its best device, of those with room if there are any; none where the strategy says nothing.
    pub best: Option<DeviceOption>,
    /// Space of the tier that would be left; none where it does not take the volume.
    pub free_after: Option<Bytes>,
    /// Whether it is a place.
    pub verdict: PlaceVerdict,
}

/// Where a volume would do best.
#[derive(Debug, Clone, PartialEq)]
pub struct PlaceAdvice {
    /// Who says so.
    pub strategy: String,
    /// Every tier, best first.
    pub tiers: Vec<TierAdvice>,
    /// Why the first is the best; none where none is.
    pub reason: Option<Reason>,
    /// Why nothing is advised; none where something is.
    pub why_not: Option<String>,
}

impl PlaceAdvice {
    /// The best tier, if there is one.
    pub fn best(&self) -> Option<&TierAdvice> {
        let first = self.tiers.first();
        first.filter(|t| t.verdict == PlaceVerdict::Best)
    }
}

/// Says where a volume would do best. A pure function: the same arguments give the same result. The state must be the strategy's own.
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

/// A tier by itself.
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

/// A cost in steps, so that rounding in the last bit decides nothing.
fn steps(option: &DeviceOption) -> i64 {
    (option.cost.total().clamp(-1e6, 1e6) * 1e9).round() as i64
}

/// Best first, and why the first is the best: of those that are as good as the cheapest the lowest one, then by cost, then those of which
/// the strategy says nothing, then those that refuse.
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

/// Why the first of them is the best.
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

/// A volume whose load is known, to guess the load of others by.
#[derive(Debug, Clone, Copy)]
pub struct KnownLoad<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its service class.
    pub class: ClassId,
    /// What its guest was promised.
    pub size: Bytes,
    /// Its load.
    pub load: &'a Measured,
}

/// A guess at the load of a volume of which nothing is known.
#[derive(Debug, Clone, PartialEq)]
pub struct GuessedLoad {
    /// The load.
    pub load: Measured,
    /// The volume that it is the load of, by size.
    pub like: String,
    /// How many it is the median of.
    pub volumes: usize,
    /// Whether those are of the class that was asked for, or of all.
    pub of: GuessedOf,
}

/// Of which volumes a load is the median.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuessedOf {
    /// Those of the same class.
    Class,
    /// All: there is none of that class.
    All,
}

/// The load of the volume with the median number of requests per second and GiB, of those of the class or else of all, for another
/// size; none where no load is known.
pub fn guess_load(known: &[KnownLoad<'_>], class: ClassId, size: Bytes) -> Option<GuessedLoad> {
    let of_class = known.iter().any(|k| k.class == class);
    let counts = |k: &&KnownLoad<'_>| (!of_class || k.class == class) && k.size > Bytes::ZERO;
    let mut by_rate: Vec<&KnownLoad<'_>> = known.iter().filter(counts).collect();
    // Quantized: the same volumes give the same median, in whatever order they come.
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

/// So many times the load, of the same mix.
fn scaled(load: &Measured, by: f64) -> Measured {
    let times = |n: u64| (n as f64 * by).round() as u64;
    let mut scaled = *load;
    for flow in [&mut scaled.reads, &mut scaled.writes] {
        (flow.ios, flow.bytes) = (times(flow.ios), times(flow.bytes));
    }
    scaled.outstanding *= by;
    scaled
}
