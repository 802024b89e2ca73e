//! Predicted gain of moves, with its bounds.
//!
//! ```text
//!  after      the strategy's prediction for the load of the last epoch, with its bounds
//!  gain       1 - after / before, both of that epoch
//!  bounds     of the prediction and of the differences between the disk's epochs, as independent factors: squares of logarithms add up
//!  total      disks weighted by their requests; all predictions err in the same direction, since they share a device; disks that stay
//!             keep their latency
//! ```
//!
//! Without bounds from the strategy a gain has no bounds.

use manager::view::PlanView;
use serde::Serialize;

use super::DiskSeen;

/// Normal quantile of a two-sided 90 % interval.
const NINE_OF_TEN: f64 = 1.645;

/// Predicted gain of a plan.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Gain {
    /// Mean latency over all requests of all disks in the last epoch, microseconds.
    pub before_us: f64,
    /// Predicted mean latency after the moves, microseconds.
    pub after_us: f64,
    /// Bounds of `after_us` by the error of predictions, microseconds.
    pub after_range_us: Option<(f64, f64)>,
    /// Relative decrease of the mean latency; negative for an increase.
    pub gain: f64,
    /// Bounds of `gain`.
    pub gain_range: Option<(f64, f64)>,
    /// Number of disks with requests in the last epoch.
    pub disks: u32,
    /// Number of these disks with a mean above the objective.
    pub above_now: u32,
    /// Predicted number of these disks after the moves.
    pub above_after: u32,
    /// Bounds of `above_after` by the bounds of the predictions.
    pub above_after_range: Option<(u32, u32)>,
    /// Gain of each move, in the order of the plan.
    pub moves: Vec<MoveGain>,
    /// Number of planned moves without a prediction.
    pub not_predicted: u32,
}

/// Predicted gain of a move for its disk.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MoveGain {
    /// Disk that moves.
    pub volume: String,
    pub from_tier: String,
    /// Target tier.
    pub to_tier: String,
    /// Mean latency in the last epoch, microseconds.
    pub before_us: f64,
    /// Predicted mean latency, microseconds.
    pub after_us: f64,
    /// Bounds of `after_us` by the error of the prediction, microseconds.
    pub after_range_us: Option<(f64, f64)>,
    /// Relative decrease of the mean latency; negative for an increase.
    pub gain: f64,
    /// Bounds of `gain`.
    pub gain_range: Option<(f64, f64)>,
    /// Factors of the bounds of the prediction and of the gain.
    #[serde(skip)]
    factors: Option<(f64, Option<f64>)>,
}

impl MoveGain {
    fn new(m: &manager::view::PlannedMove, disk: Option<&DiskSeen>) -> Option<Self> {
        let before_us = m.before_us.filter(|us| *us > 0.0)?;
        let after_us = m.after_us.filter(|us| *us > 0.0)?;
        let factors = m.after_range_us.map(|(_, high)| {
            let model = libm::log(high / after_us);
            // A disk with few windows has no known spread between epochs.
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

/// Assumed error of the predicted latencies.
#[derive(Clone, Copy)]
enum LatencyError {
    /// No error.
    Nowhere,
    /// Lower or upper bound of the predictions, or of the gains.
    Model(f64),
    Both(f64),
}

/// Computes the predicted gain of a plan; `None` if no disk had requests in the last epoch.
pub fn gain(plan: &PlanView, disks: &[DiskSeen], latency_us: f64) -> Option<Gain> {
    let of = |name: &str| disks.iter().find(|d| d.volume == name);
    let made = plan.moves.iter().map(|m| MoveGain::new(m, of(&m.volume)));
    let moves: Vec<MoveGain> = made.flatten().collect();
    let busy = || disks.iter().filter_map(|d| Some((d, d.last_us?)));
    let requests: f64 = busy().map(|(d, _)| d.last_per_s).sum();
    if requests <= 0.0 {
        return None;
    }
    // The plan's latency before a move is preferred. It covers the same time, except a window that has ended meanwhile.
    let move_of = |d: &DiskSeen| moves.iter().find(|m| m.volume == d.volume);
    let before = |d: &DiskSeen, us: f64| move_of(d).map_or(us, |m| m.before_us);
    let after = |d: &DiskSeen, us: f64, off: LatencyError| {
        let Some(m) = move_of(d) else { return us };
        let (model, both) = m.factors.unwrap_or((1.0, None));
        let both = both.unwrap_or(model);
        match off {
            LatencyError::Nowhere => m.after_us,
            LatencyError::Model(way) => m.after_us * libm::pow(model, way),
            LatencyError::Both(way) => m.after_us * libm::pow(both, way),
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
    let either = |known: bool, off: fn(f64) -> LatencyError| {
        known.then(|| {
            (
                mean(&|d, us| after(d, us, off(-1.0))),
                mean(&|d, us| after(d, us, off(1.0))),
            )
        })
    };
    let before_us = mean(&before);
    let after_us = mean(&|d, us| after(d, us, LatencyError::Nowhere));
    Some(Gain {
        before_us,
        after_us,
        after_range_us: either(bounded, LatencyError::Model),
        gain: 1.0 - after_us / before_us,
        gain_range: either(seen, LatencyError::Both)
            .map(|(low, high)| (1.0 - high / before_us, 1.0 - low / before_us)),
        disks: busy().count() as u32,
        above_now: above(&before),
        above_after: above(&|d, us| after(d, us, LatencyError::Nowhere)),
        above_after_range: bounded.then(|| {
            let at = |way| above(&|d, us| after(d, us, LatencyError::Model(way)));
            (at(-1.0), at(1.0))
        }),
        not_predicted: (plan.moves.len() - moves.len()) as u32,
        moves,
    })
}

impl Gain {
    /// Returns the largest factor of the bounds of predictions.
    pub(super) fn factor(&self) -> Option<f64> {
        let factors = self.moves.iter().filter_map(|m| m.factors);
        factors.map(|f| f.0).reduce(f64::max)
    }
}
