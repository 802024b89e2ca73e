//! Objectives, and adjustment of spare space to them.
//!
//! Every interval the controller moves spare blocks from the tenant that is best off, relative to its objective, to the
//! tenant that is worst off. This is a reconstruction: paper 4 says "dynamically adjust OPS" without details. The donor
//! collects until the blocks are free, and its own device time pays for that.
//!
//! A tenant that gets its full demand is never worst off, however low its rate is. Ineffective transfers are undone:
//! some intervals after the first transfer to a tenant, its rate must have risen. Otherwise the blocks are returned,
//! and transfers to that tenant pause, longer each time.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::Nanos;

use crate::drive::Drive;
use crate::ftl::TenantId;
use crate::model::cost::PageCost;
use crate::model::sizing::{WeightedTenant, proportional};

/// Objective of a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Slo {
    /// Rate in proportion to its weight.
    Weight,
    /// Requests per second.
    Iops(f64),
    /// Bytes per second.
    BytesPerSecond(f64),
}

/// Adjustment of spare space to objectives.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Control {
    /// Length of an interval.
    pub interval: Nanos,
    /// Ratio between the best and the worst tenant below which no block is moved.
    pub tolerance: f64,
    /// Share of the donor's spare blocks that is moved at once, at least one block.
    pub step: f64,
}

impl Default for Control {
    fn default() -> Self {
        Self {
            interval: Nanos(10_000_000_000),
            tolerance: 1.05,
            step: 0.01,
        }
    }
}

/// Weight of the newest interval.
const NEWEST: f64 = 0.5;

/// Work done for a tenant in an interval.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct IntervalWork {
    pub requests: u64,
    pub bytes: u64,
}

/// Tenant as the controller sees it.
#[derive(Debug, Clone, Copy)]
pub(super) struct TenantView {
    pub tenant: TenantId,
    pub place: usize,
    pub weight: f64,
    pub slo: Slo,
    pub got: IntervalWork,
    /// Time that the tenant was present in the interval.
    pub seconds: f64,
    /// True if the tenant demands more than it got.
    pub wanting: bool,
}

/// Transfer of blocks to be made.
#[derive(Debug, Clone, Copy)]
pub(super) struct HandOver {
    pub from: TenantId,
    pub to: TenantId,
    /// Number of blocks per lane.
    pub blocks: u32,
}

/// Number of intervals until transfers to a tenant are judged. Longer than the memory of the smoothed rates.
const TRIAL_LOOKS: u32 = 6;
/// Factor by which its rate must rise for the transfers to count as effective.
const HELPS: f64 = 1.01;
/// Number of intervals without transfers after the first ineffective trial; doubles after each further one.
const PAUSE_LOOKS: u32 = 12;
/// Maximum number of these intervals.
const PAUSE_LOOKS_MAX: u32 = 12 << 10;

/// Transfers to one tenant that are not judged yet.
#[derive(Debug, Clone)]
struct Trial {
    to: usize,
    /// Rate before the first transfer.
    rate: f64,
    looks: u32,
    /// Donors and numbers of blocks.
    from: Vec<(usize, u32)>,
}

/// Pause before the next trial of a tenant.
#[derive(Debug, Clone, Copy, Default)]
struct Pause {
    looks_left: u32,
    next: u32,
}

/// Memory of the controller.
#[derive(Debug, Clone)]
pub(super) struct Controller {
    pub control: Control,
    /// Smoothed rate of each tenant, relative to its weight or objective.
    rates: Vec<Option<f64>>,
    trial: Option<Trial>,
    pauses: Vec<Pause>,
}

impl Controller {
    pub(super) fn new(control: Control, tenants: usize) -> Self {
        Self {
            control,
            rates: vec![None; tenants],
            trial: None,
            pauses: vec![Pause::default(); tenants],
        }
    }

    /// Returns the transfers to make now.
    pub(super) fn decide(&mut self, drive: &Drive, tenants: &[TenantView]) -> Vec<HandOver> {
        for t in tenants {
            let rate = match t.slo {
                Slo::Weight => t.got.bytes as f64 / t.seconds / t.weight,
                Slo::Iops(want) => t.got.requests as f64 / t.seconds / want,
                Slo::BytesPerSecond(want) => t.got.bytes as f64 / t.seconds / want,
            };
            let old = self.rates[t.place].unwrap_or(rate);
            self.rates[t.place] = Some(old + NEWEST * (rate - old));
        }
        for pause in &mut self.pauses {
            pause.looks_left = pause.looks_left.saturating_sub(1);
        }
        if let Some(back) = self.judge(drive, tenants) {
            return back;
        }
        self.next(drive, tenants).into_iter().collect()
    }

    /// Judges a trial at its end; returns the blocks to return if it was ineffective.
    fn judge(&mut self, drive: &Drive, tenants: &[TenantView]) -> Option<Vec<HandOver>> {
        let trial = self.trial.as_mut()?;
        trial.looks += 1;
        if trial.looks < TRIAL_LOOKS {
            return None;
        }
        let trial = self.trial.take()?;
        let find = |place: usize| tenants.iter().find(|t| t.place == place);
        // A tenant that left or has no more demand is not judged.
        let to = find(trial.to).filter(|t| t.wanting)?;
        let pause = &mut self.pauses[trial.to];
        if self.rates[trial.to]? > HELPS * trial.rate {
            *pause = Pause::default();
            return None;
        }
        let looks = pause.next.max(PAUSE_LOOKS);
        *pause = Pause {
            looks_left: looks,
            next: (2 * looks).min(PAUSE_LOOKS_MAX),
        };
        let mut most = drive.ftl().spare_blocks_to_give(to.tenant).ok()?;
        let mut back = Vec::new();
        for (donor, blocks) in trial.from {
            let blocks = blocks.min(most);
            if let Some(donor) = find(donor).filter(|_| blocks > 0) {
                most -= blocks;
                back.push(HandOver {
                    from: to.tenant,
                    to: donor.tenant,
                    blocks,
                });
            }
        }
        Some(back)
    }

    /// Returns a transfer from the tenant that is best off to the one that is worst off.
    fn next(&mut self, drive: &Drive, tenants: &[TenantView]) -> Option<HandOver> {
        // Tenants with weights are compared with one another, and those with numbers with their objective. Both ratios
        // are near 1.
        let by_weight = tenants.iter().filter(|t| t.slo == Slo::Weight && t.wanting);
        let rates: Vec<f64> = by_weight.filter_map(|t| self.rates[t.place]).collect();
        let mean = rates.iter().sum::<f64>() / rates.len().max(1) as f64;
        let well = |t: &TenantView| {
            let rate = self.rates[t.place].unwrap_or(1.0);
            let well = match t.slo {
                Slo::Weight if mean > 0.0 => rate / mean,
                _ => rate,
            };
            // A tenant without more demand has enough, and no use for more spare space.
            if t.wanting { well } else { well.max(1.0) }
        };
        let may_get = |t: &&TenantView| {
            let tried = self.trial.as_ref().is_none_or(|trial| trial.to == t.place);
            t.wanting && tried && self.pauses[t.place].looks_left == 0
        };
        let worst = tenants
            .iter()
            .filter(may_get)
            .min_by(|a, b| well(a).total_cmp(&well(b)))?;
        // A tenant that meets its objective needs nothing, however much others have.
        if worst.slo != Slo::Weight && well(worst) >= 1.0 {
            return None;
        }
        let to_give = |t: &TenantView| drive.ftl().spare_blocks_to_give(t.tenant).unwrap_or(0);
        let best = tenants
            .iter()
            .filter(|t| t.tenant != worst.tenant && to_give(t) > 0)
            .max_by(|a, b| well(a).total_cmp(&well(b)))?;
        if well(best) <= self.control.tolerance * well(worst) {
            return None;
        }
        let spare = drive.ftl().spare_blocks(best.tenant).ok()?;
        let blocks = ((self.control.step * f64::from(spare)) as u32).clamp(1, to_give(best));
        let (from, to) = (best.tenant, worst.tenant);
        let (donor, place) = (best.place, worst.place);
        let rate = self.rates[place].unwrap_or(0.0);
        let trial = self.trial.get_or_insert(Trial {
            to: place,
            rate,
            looks: 0,
            from: Vec::new(),
        });
        match trial.from.iter_mut().find(|(place, _)| *place == donor) {
            Some((_, sum)) => *sum += blocks,
            None => trial.from.push((donor, blocks)),
        }
        Some(HandOver { from, to, blocks })
    }
}

/// Splits an amount of spare space by weights with the cost model. The tenants' data may be in any unit; the result is
/// in the same unit.
pub fn spare_split(cost: &PageCost, data: &[f64], weights: &[f64], spare: f64) -> Vec<f64> {
    let tenants: Vec<WeightedTenant> = data
        .iter()
        .zip(weights)
        .map(|(data, weight)| WeightedTenant {
            data: *data,
            weight: *weight,
        })
        .collect();
    proportional(cost, &tenants, spare)
        .iter()
        .map(|p| p.spare)
        .collect()
}
