//! What moves are predicted to gain, and between what bounds.
//!
//! ```text
//!  after      the strategy's prediction for the load of the last epoch, with the bounds that all its predictions come with
//!  gain       1 - after / before, both of that epoch
//!  its bounds the prediction's, and how much the disk's epochs differed, as independent factors: their logarithms' squares add up
//!  together   disks by their requests; all predictions off the same way, since they share a device; disks that stay as they are
//! ```
//!
//! No number is made up here: without bounds from the strategy there are none.

use std::collections::BTreeMap;

use manager::view::PlanView;
use serde::Serialize;

use super::DiskSeen;
use super::document::micros;

/// Normal quantile of an interval that holds nine of ten.
const NINE_OF_TEN: f64 = 1.645;

/// What a plan is predicted to gain.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Gain {
    /// Mean latency over all requests of all disks in the last epoch, microseconds.
    pub before_us: f64,
    /// The same with the moves made.
    pub after_us: f64,
    /// Between what bounds that is, as far as the predictions' errors go.
    pub after_range_us: Option<(f64, f64)>,
    /// Share by which it falls; below nothing where it rises.
    pub gain: f64,
    /// Between what bounds that is.
    pub gain_range: Option<(f64, f64)>,
    /// Disks with requests in the last epoch.
    pub disks: u32,
    /// Those of them whose mean was above the objective.
    pub above_now: u32,
    /// Those that would be.
    pub above_after: u32,
    /// The fewest and the most of them by the bounds of the predictions.
    pub above_after_range: Option<(u32, u32)>,
    /// Move by move, in the plan's order.
    pub moves: Vec<MoveGain>,
    /// Planned moves of which nothing is predicted.
    pub not_predicted: u32,
    /// What was measured and speaks against the predictions.
    pub doubts: Vec<Doubt>,
}

/// A disk that is on a move's target already, and is slower there than the upper bound of what is predicted.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Doubt {
    pub tier: String,
    /// The fastest disk that is there and had requests.
    pub volume: String,
    /// Its mean latency over the time looked at, microseconds.
    pub measured_us: f64,
    /// The highest upper bound of what is predicted for disks that would come there.
    pub predicted_high_us: f64,
}

fn doubts(moves: &[MoveGain], disks: &[DiskSeen]) -> Vec<Doubt> {
    let mut highs: BTreeMap<&str, f64> = BTreeMap::new();
    for m in moves {
        let high = m.after_range_us.map_or(m.after_us, |r| r.1);
        let of = highs.entry(&m.to_tier).or_default();
        *of = of.max(high);
    }
    let doubt = |(tier, predicted_high_us): (&str, f64)| {
        let there = disks.iter().filter(|d| d.tier == tier);
        let there = there.filter_map(|d| Some((d, d.mean_us?)));
        let (fastest, measured_us) = there.min_by(|a, b| a.1.total_cmp(&b.1))?;
        (measured_us > predicted_high_us).then(|| Doubt {
            tier: tier.into(),
            volume: fastest.volume.clone(),
            measured_us,
            predicted_high_us,
        })
    };
    highs.into_iter().filter_map(doubt).collect()
}

impl Doubt {
    /// In words.
    pub fn why(&self) -> String {
        format!(
            "{} is already on {} and has {} there, above the predicted maximum of {}",
            self.volume,
            self.tier,
            micros(self.measured_us),
            micros(self.predicted_high_us)
        )
    }
}

/// Takes the commands of moves away whose prediction is doubtful: nobody should type one that may
/// gain nothing.
pub fn withhold(plan: &mut PlanView, gain: &Gain) {
    for m in &mut plan.moves {
        let doubt = gain.doubts.iter().find(|d| d.tier == m.to_tier);
        if let Some(doubt) = doubt
            && m.command.take().is_some()
        {
            m.no_command = Some(format!("its prediction is doubtful: {}", doubt.why()));
        }
    }
}

/// What a move is predicted to gain for its disk.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MoveGain {
    /// The disk.
    pub volume: String,
    pub from_tier: String,
    /// Where it would be.
    pub to_tier: String,
    /// Mean latency in the last epoch, microseconds.
    pub before_us: f64,
    /// What is predicted.
    pub after_us: f64,
    /// Between what bounds that is, as far as the prediction's error goes.
    pub after_range_us: Option<(f64, f64)>,
    /// Share by which it falls; below nothing where it rises.
    pub gain: f64,
    /// Between what bounds that is.
    pub gain_range: Option<(f64, f64)>,
    /// Factor of the prediction's bounds and of the gain's, either way.
    #[serde(skip)]
    factors: Option<(f64, Option<f64>)>,
}

impl MoveGain {
    fn new(m: &manager::view::PlannedMove, disk: Option<&DiskSeen>) -> Option<Self> {
        let before_us = m.before_us.filter(|us| *us > 0.0)?;
        let after_us = m.after_us.filter(|us| *us > 0.0)?;
        let factors = m.after_range_us.map(|(_, high)| {
            let model = libm::log(high / after_us);
            // Of a disk that was hardly seen nobody knows how much it differs.
            let epochs = disk.and_then(|d| d.epochs_sigma).map(|s| NINE_OF_TEN * s);
            let both = epochs.map(|epochs| libm::exp((model * model + epochs * epochs).sqrt()));
            (libm::exp(model), both)
        });
        let left = after_us / before_us;
        Some(Self {
            volume: m.volume.clone(),
            from_tier: m.from_tier.clone(),
            to_tier: m.to_tier.clone(),
            before_us,
            after_us,
            after_range_us: m.after_range_us,
            gain: 1.0 - left,
            gain_range: factors.and_then(|(_, f)| Some((1.0 - left * f?, 1.0 - left / f?))),
            factors,
        })
    }
}

/// How latencies after the moves are taken.
#[derive(Clone, Copy)]
enum Off {
    /// As predicted.
    Nowhere,
    /// At the lower or the upper bounds of the predictions, or of the gains.
    Model(f64),
    Both(f64),
}

/// What a plan is predicted to gain; none where no disk had a request in the last epoch.
pub fn gain(plan: &PlanView, disks: &[DiskSeen], latency_us: f64) -> Option<Gain> {
    let of = |name: &str| disks.iter().find(|d| d.volume == name);
    let made = plan.moves.iter().map(|m| MoveGain::new(m, of(&m.volume)));
    let moves: Vec<MoveGain> = made.flatten().collect();
    let busy = || disks.iter().filter_map(|d| Some((d, d.last_us?)));
    let requests: f64 = busy().map(|(d, _)| d.last_per_s).sum();
    if requests <= 0.0 {
        return None;
    }
    // Before, in the plan's words where it has some: they are of the same time, but for a window that ended meanwhile.
    let move_of = |d: &DiskSeen| moves.iter().find(|m| m.volume == d.volume);
    let before = |d: &DiskSeen, us: f64| move_of(d).map_or(us, |m| m.before_us);
    let after = |d: &DiskSeen, us: f64, off: Off| {
        let Some(m) = move_of(d) else { return us };
        let (model, both) = m.factors.unwrap_or((1.0, None));
        let both = both.unwrap_or(model);
        match off {
            Off::Nowhere => m.after_us,
            Off::Model(way) => m.after_us * libm::pow(model, way),
            Off::Both(way) => m.after_us * libm::pow(both, way),
        }
    };
    let mean = |us: &dyn Fn(&DiskSeen, f64) -> f64| {
        let sum: f64 = busy().map(|(d, last)| d.last_per_s * us(d, last)).sum();
        sum / requests
    };
    let above = |us: &dyn Fn(&DiskSeen, f64) -> f64| {
        busy().filter(|(d, last)| us(d, *last) > latency_us).count() as u32
    };
    let bounded = !moves.is_empty() && moves.iter().all(|m| m.factors.is_some());
    let seen = bounded && moves.iter().all(|m| m.gain_range.is_some());
    let either = |known: bool, off: fn(f64) -> Off| {
        known.then(|| {
            (
                mean(&|d, us| after(d, us, off(-1.0))),
                mean(&|d, us| after(d, us, off(1.0))),
            )
        })
    };
    let before_us = mean(&before);
    let after_us = mean(&|d, us| after(d, us, Off::Nowhere));
    Some(Gain {
        before_us,
        after_us,
        after_range_us: either(bounded, Off::Model),
        gain: 1.0 - after_us / before_us,
        gain_range: either(seen, Off::Both)
            .map(|(low, high)| (1.0 - high / before_us, 1.0 - low / before_us)),
        disks: busy().count() as u32,
        above_now: above(&before),
        above_after: above(&|d, us| after(d, us, Off::Nowhere)),
        above_after_range: bounded.then(|| {
            let at = |way| above(&|d, us| after(d, us, Off::Model(way)));
            (at(-1.0), at(1.0))
        }),
        doubts: doubts(&moves, disks),
        not_predicted: (plan.moves.len() - moves.len()) as u32,
        moves,
    })
}

impl Gain {
    /// The factor of the predictions' bounds, either way, where they have one: the widest.
    pub(super) fn factor(&self) -> Option<f64> {
        let factors = self.moves.iter().filter_map(|m| m.factors);
        factors.map(|f| f.0).reduce(f64::max)
    }
}
