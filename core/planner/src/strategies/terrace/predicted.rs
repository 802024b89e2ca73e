//! Predictions for single volumes during a search: for explanations, and the cells of intervals.

use model::ViolatedParts;
use units::TierId;

use super::forecast::DevicePrediction;
use super::rates::Cost;
use super::reasons::violated_parts;
use super::residuals::{Cell, Regime};
use super::search::Search;

/// Devices of a tier for which a volume's prediction is computed.
const TOLD_MAX: usize = 2;

impl Search<'_> {
    /// Returns the predicted violation of a volume, and of others because of it, on its present device or on the best device
    /// of another tier. All other volumes are on the devices that this plan gives them.
    pub(super) fn predicted(&self, v: usize, tier: TierId) -> Option<ViolatedParts> {
        let facts = self.context.facts;
        let now = &facts.volumes[v];
        now.measured?;
        let here = [self.at.of[v], now.device.index()];
        let here = here
            .into_iter()
            .find(|d| facts.topology.devices[*d].tier == tier);
        if let Some(d) = here {
            return Some(self.violated_parts(v, d, self.beside(v, d)));
        }
        // Only the least used devices of many equal ones are candidates.
        let few = self.least_used[tier.index()].iter();
        let all = few.map(|d| (*d, self.beside(v, *d)));
        let sum = |(_, (own, others)): &(usize, (Option<DevicePrediction>, f64))| {
            own.map_or(0.0, |own| own.cost.sum()) + others
        };
        let (d, best) = all.min_by(|a, b| sum(a).total_cmp(&sum(b)))?;
        Some(self.violated_parts(v, d, best))
    }

    fn violated_parts(
        &self,
        v: usize,
        d: usize,
        (beside, others): (Option<DevicePrediction>, f64),
    ) -> ViolatedParts {
        let here = self.context.facts.volumes[v].device.index() == d;
        let factors = match beside {
            Some(b) if !here => self
                .learned
                .factors(&self.cell(v, d, b.latency.mean_us, b.rho)),
            Some(b) => self.config.rates.factors(b.sigma),
            None => (1.0, 1.0),
        };
        violated_parts(self.forecast.class(v), beside.as_ref(), factors, others)
    }

    /// Returns the cell of a prediction for a volume on another device, `rho` being that device's use with the volume. The demand of a
    /// volume that leaves a full device is unknown, so it may fill a target where requests queue.
    pub(super) fn cell(&self, v: usize, d: usize, mean_us: f64, rho: f64) -> Cell {
        let topology = &self.context.facts.topology;
        let now = self.context.facts.volumes[v].measured;
        let now_us = now.and_then(|m| m.latency_mean_us());
        Cell {
            tier: topology.tier(topology.devices[d].tier).name.clone(),
            regime: Regime::of(rho, self.used_here(v)),
            faster: now_us.is_none_or(|us| mean_us < us),
        }
    }

    /// Returns the largest use of a volume's present device in any pattern.
    fn used_here(&self, v: usize) -> f64 {
        let (forecast, d) = (&self.forecast, self.at.of[v]);
        let crowd = &self.at.on[d];
        let used = |p| crowd.busy_after(forecast, (d, p), [&[], &[]], 0.0).rho;
        (0..forecast.patterns.len()).map(used).fold(0.0, f64::max)
    }

    /// Returns the prediction for a volume on a device, and the cost that it adds to the other volumes there.
    fn beside(&self, v: usize, d: usize) -> (Option<DevicePrediction>, f64) {
        let (forecast, p) = (&self.forecast, self.forecast.newest());
        let crowd = &self.at.on[d];
        let busy = crowd.busy_with(forecast, d, p, v);
        match forecast.beside(v, d, p, &busy) {
            Some(own) => (Some(own), crowd.more_for_others(forecast, d, p, v)),
            None => (None, 0.0),
        }
    }

    /// Returns the cost of a volume itself on a device.
    pub(super) fn own_cost(&self, v: usize, d: usize) -> Cost {
        let (forecast, p) = (&self.forecast, self.forecast.newest());
        let busy = self.at.on[d].busy_with(forecast, d, p, v);
        let beside = forecast.beside(v, d, p, &busy);
        beside.map(|b| b.cost).unwrap_or_default()
    }

    /// Returns the least used devices of a tier.
    pub(super) fn least_used(&self, tier: TierId) -> &[usize] {
        &self.least_used[tier.index()]
    }

    /// Finds the least used devices of each tier, after the moves of this plan so far.
    pub(super) fn look_for_least_used(&mut self) {
        let tiers = &self.context.facts.topology.tiers;
        let used = |d: &usize| self.at.on[*d].mean.share;
        let least = |tier: &model::Tier| {
            let mut devices: Vec<usize> = tier.devices.iter().map(|d| d.index()).collect();
            devices.sort_by(|a, b| used(a).total_cmp(&used(b)).then(a.cmp(b)));
            devices.truncate(TOLD_MAX);
            devices
        };
        self.least_used = tiers.iter().map(least).collect();
    }
}
