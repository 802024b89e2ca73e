//! Limits of harm: the largest disadvantage that a plan may cause to a volume for the sake of others.
//!
//! - The latency of a volume without an objective is at most `max_slowdown` times that with every volume at its original
//!   place. One model predicts both latencies for the same load, so common errors cancel.
//! - A volume that meets its objective, at the upper bound of its prediction, is not pushed above it for volumes of the same or a lower
//!   weight.
//! - A limit that is exceeded already is not exceeded further.
//!
//! Limits are constraints of plans, never prices: no gain of another volume pays for them. The original place is the last one that an operator,
//! a pin or the initial placement chose, so several small slowdowns do not add up.

use super::exposed::PatternLoads;
use super::latency::DeviceLoad;
use super::placement::Placement;
use super::rates::Part;
use super::search::{Search, UnitMove};

/// Requests per second below which a volume without an objective has no limit: it has too few requests for a mean.
const IOPS_MIN: f64 = 0.5;
/// Chance of a violation up to which a volume meets its objective at the upper bound of its prediction ...
const MEETS: f64 = 0.1;
/// ... and from which it violates it, by the prediction itself.
pub(super) const VIOLATES: f64 = 0.5;
/// Tolerance for rounding.
pub(super) const SLACK: f64 = 1.0 + 1e-6;

/// Volume that a plan would harm.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Harm {
    pub volume: usize,
    /// Slowdown of a volume without an objective, or chance of a violation, after the moves.
    pub after: f64,
    pub limit: f64,
}

/// Harm of each volume before the plan, in the unit of its limit; `None` for volumes without a limit.
pub(super) type BaselineHarm = Vec<Option<f64>>;

impl Search<'_> {
    /// Returns the harm of each volume where it is now.
    pub(super) fn harm_before(&self) -> BaselineHarm {
        let mut before = vec![None; self.at.of.len()];
        if !self.config.has(Part::Harm) {
            return before;
        }
        for (d, crowd) in self.at.on.iter().enumerate() {
            if crowd.volumes.is_empty() {
                continue;
            }
            let busy = self.busy_after(&self.at, d, [&[], &[]]);
            for v in &crowd.volumes {
                before[*v] = self.harm_of(*v, d, &busy);
            }
        }
        before
    }

    /// Returns a volume that these moves would harm more than its limit permits; `None` if there is none. Volumes that make room move first:
    /// volumes without an objective must not be harmed in the meantime either.
    pub(super) fn harms(&self, at: &Placement, moves: &[UnitMove]) -> Option<Harm> {
        if !self.config.has(Part::Harm) {
            return None;
        }
        let meanwhile = match moves {
            [_, room @ ..] if !room.is_empty() => self.harms_by(at, room, true),
            _ => None,
        };
        meanwhile.or_else(|| self.harms_by(at, moves, false))
    }

    /// Returns a volume that these moves would harm; only volumes without an objective, if `free` is true.
    fn harms_by(&self, at: &Placement, moves: &[UnitMove], free: bool) -> Option<Harm> {
        let touched = at.touched(moves);
        let most = self.heaviest_violated(at, &touched);
        touched.into_iter().find_map(|d| {
            let [leave, come] = at.exchanged(d, moves);
            // Volumes that leave a device harm no volume there.
            if come.is_empty() {
                return None;
            }
            let busy = self.busy_after(at, d, [&leave, &come]);
            let exposed = self.exposed(at, d, &busy);
            let stay = exposed.iter().filter(|v| !leave.contains(v));
            let mut limited = stay.chain(&come).filter(|v| self.before[**v].is_some());
            limited.find_map(|v| {
                let class = self.forecast.class(*v);
                if class.target.is_some() && (free || class.weight < most) {
                    return None;
                }
                let (limit, after) = (self.limit(*v)?, self.harm_of(*v, d, &busy)?);
                let harm = Harm {
                    volume: *v,
                    after,
                    limit,
                };
                (after > limit * SLACK).then_some(harm)
            })
        })
    }

    /// Returns the largest permitted harm of a volume.
    pub(super) fn limit(&self, v: usize) -> Option<f64> {
        let class = self.forecast.class(v);
        let before = self.before[v]?;
        match (class.target, class.max_slowdown) {
            (Some(_), _) => (before <= MEETS).then_some(VIOLATES),
            (None, Some(most)) => Some(
                (most / self.config.rates.slowdown_margin)
                    .max(before)
                    .max(1.0),
            ),
            (None, None) => None,
        }
    }

    /// Returns how busy a device is in each pattern when some volumes leave and others come: as predicted, and at loads that have grown.
    pub(super) fn busy_after(
        &self,
        at: &Placement,
        d: usize,
        moves: [&[usize]; 2],
    ) -> PatternLoads {
        let forecast = &self.forecast;
        let patterns = 0..forecast.patterns.len();
        let margins = [0.0, self.config.rates.load_margin];
        let busy = |p: usize, more: f64| at.on[d].busy_after(forecast, (d, p), moves, more);
        patterns
            .map(|p| margins.map(|more| busy(p, more)))
            .collect()
    }

    /// Returns the slowdown of a volume without an objective, or the chance that a volume with one violates it, on a device that is so busy.
    pub(super) fn harm_of(&self, v: usize, d: usize, busy: &[[DeviceLoad; 2]]) -> Option<f64> {
        let forecast = &self.forecast;
        let class = forecast.class(v);
        let shares = &forecast.patterns.share;
        let each = busy.iter().zip(shares).enumerate();
        // Violations of objectives are judged at predicted loads, slowdowns at increased loads.
        let grown = usize::from(class.target.is_none());
        let beside = each.filter_map(|(p, (busy, share))| {
            Some((p, *share, forecast.beside(v, d, p, &busy[grown])?))
        });
        if class.target.is_some() {
            return Some(beside.map(|(_, share, b)| share * b.cost.violated).sum());
        }
        class.max_slowdown?;
        let (mut requests, mut after, mut reference) = (0.0, 0.0, 0.0);
        for (p, share, b) in beside {
            let iops = share * forecast.iops(v, p);
            requests += iops;
            after += iops * b.latency.mean_us;
            reference += iops * forecast.reference_us(v, p);
        }
        (requests >= IOPS_MIN && reference > 0.0).then(|| after / reference)
    }
}

#[cfg(test)]
mod tests;
