//! Objectives, and spare space that follows them.
//!
//! Every interval the controller takes spare blocks from the tenant that is best off relative to its objective and gives them to the
//! one that is worst off (a reconstruction: paper 4 says "dynamically adjust OPS" and not how). The donor collects until it has the
//! blocks free; that time is its own.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::Nanos;

use crate::drive::Drive;
use crate::ftl::TenantId;
use crate::model::cost::PageCost;
use crate::model::sizing::{Weighted, proportional};

/// What a tenant is to get.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Slo {
    /// In proportion to its weight.
    Weight,
    /// So many requests each second.
    Iops(f64),
    /// So many bytes each second.
    BytesPerSecond(f64),
}

/// How spare space follows objectives.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Control {
    /// Between looks.
    pub interval: Nanos,
    /// Ratio between best and worst off below which nothing is moved.
    pub tolerance: f64,
    /// Share of the donor's spare blocks that is moved at once; one block at least.
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

/// What a tenant got in an interval.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Got {
    pub requests: u64,
    pub bytes: u64,
}

/// One tenant as the controller sees it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Controlled {
    pub tenant: TenantId,
    pub place: usize,
    pub weight: f64,
    pub slo: Slo,
    pub got: Got,
}

/// Memory of the controller.
#[derive(Debug, Clone)]
pub(super) struct Controller {
    pub control: Control,
    /// How well off each tenant was of late.
    rates: Vec<Option<f64>>,
}

impl Controller {
    pub(super) fn new(control: Control, tenants: usize) -> Self {
        Self {
            control,
            rates: vec![None; tenants],
        }
    }

    /// Donor, recipient and how many blocks of each lane.
    pub(super) fn decide(
        &mut self,
        drive: &Drive,
        tenants: &[Controlled],
        seconds: f64,
    ) -> Option<(Controlled, Controlled, u32)> {
        for t in tenants {
            let rate = match t.slo {
                Slo::Weight => t.got.bytes as f64 / seconds / t.weight,
                Slo::Iops(want) => t.got.requests as f64 / seconds / want,
                Slo::BytesPerSecond(want) => t.got.bytes as f64 / seconds / want,
            };
            let old = self.rates[t.place].unwrap_or(rate);
            self.rates[t.place] = Some(old + NEWEST * (rate - old));
        }
        // Those with weights are compared with one another, those with numbers with what they want: both are around 1.
        let by_weight = tenants.iter().filter(|t| t.slo == Slo::Weight);
        let rates: Vec<f64> = by_weight.filter_map(|t| self.rates[t.place]).collect();
        let mean = rates.iter().sum::<f64>() / rates.len().max(1) as f64;
        let well = |t: &Controlled| {
            let rate = self.rates[t.place].unwrap_or(1.0);
            match t.slo {
                Slo::Weight if mean > 0.0 => rate / mean,
                _ => rate,
            }
        };
        let worst = tenants.iter().min_by(|a, b| well(a).total_cmp(&well(b)))?;
        // Who has all that was asked for needs nothing, however much others have.
        if worst.slo != Slo::Weight && well(worst) >= 1.0 {
            return None;
        }
        let can_give = |t: &&Controlled| {
            drive
                .ftl()
                .spare_blocks_to_give(t.tenant)
                .is_ok_and(|n| n > 0)
        };
        let others = tenants
            .iter()
            .filter(|t| t.tenant != worst.tenant)
            .filter(can_give);
        let best = others.max_by(|a, b| well(a).total_cmp(&well(b)))?;
        if well(best) <= self.control.tolerance * well(worst) {
            return None;
        }
        let spare = drive.ftl().spare_blocks(best.tenant).ok()?;
        let most = drive.ftl().spare_blocks_to_give(best.tenant).ok()?;
        let blocks = ((self.control.step * f64::from(spare)) as u32).clamp(1, most);
        Some((*best, *worst, blocks))
    }
}

/// Splits a share of spare space by weights with the cost model: tenants' data in any unit, and the shares that they get.
pub fn spare_split(cost: &PageCost, data: &[f64], weights: &[f64], spare: f64) -> Vec<f64> {
    let tenants: Vec<Weighted> = data
        .iter()
        .zip(weights)
        .map(|(data, weight)| Weighted {
            data: *data,
            weight: *weight,
        })
        .collect();
    proportional(cost, &tenants, spare)
        .iter()
        .map(|p| p.spare)
        .collect()
}
