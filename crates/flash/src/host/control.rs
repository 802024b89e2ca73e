//! Objectives, and spare space that follows them.
//!
//! Every interval the controller takes spare blocks from the tenant that is best off relative to its objective and gives them to the
//! one that is worst off (a reconstruction: paper 4 says "dynamically adjust OPS" and not how). The donor collects until it has the
//! blocks free; that time is its own.
//!
//! Who has all that was asked for is never worst off, however little that is. And what does not help is undone: some looks after the first
//! hand-over to a tenant its rate must have risen, or the blocks go back and nothing is tried for it for a while, longer each time.

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
    /// How long it was there for that.
    pub seconds: f64,
    /// Whether it asks for more than it got.
    pub wanting: bool,
}

/// A hand-over that is to be made.
#[derive(Debug, Clone, Copy)]
pub(super) struct HandOver {
    pub from: TenantId,
    pub to: TenantId,
    /// Of each lane.
    pub blocks: u32,
}

/// Looks until hand-overs to a tenant are judged: longer than the smoothing of rates remembers.
const TRIAL_LOOKS: u32 = 6;
/// Rise of its rate that shows that they help.
const HELPS: f64 = 1.01;
/// Looks for which nothing is tried after the first trial that did not help; twice as many after each further one.
const PAUSE_LOOKS: u32 = 12;
/// Most of them.
const PAUSE_LOOKS_MAX: u32 = 12 << 10;

/// Hand-overs to one tenant that are not judged yet.
#[derive(Debug, Clone)]
struct Trial {
    to: usize,
    /// Rate before the first one.
    rate: f64,
    looks: u32,
    /// From whom how many blocks came.
    from: Vec<(usize, u32)>,
}

/// When a tenant may be tried again.
#[derive(Debug, Clone, Copy, Default)]
struct Pause {
    looks_left: u32,
    next: u32,
}

/// Memory of the controller.
#[derive(Debug, Clone)]
pub(super) struct Controller {
    pub control: Control,
    /// How well off each tenant was of late.
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

    /// What to move now.
    pub(super) fn decide(&mut self, drive: &Drive, tenants: &[Controlled]) -> Vec<HandOver> {
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

    /// At the end of a trial that did not help: what goes back.
    fn judge(&mut self, drive: &Drive, tenants: &[Controlled]) -> Option<Vec<HandOver>> {
        let trial = self.trial.as_mut()?;
        trial.looks += 1;
        if trial.looks < TRIAL_LOOKS {
            return None;
        }
        let trial = self.trial.take()?;
        let find = |place: usize| tenants.iter().find(|t| t.place == place);
        // Of one that left or wants no more, nothing can be said.
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

    /// From the one that is best off to the one that is worst off.
    fn next(&mut self, drive: &Drive, tenants: &[Controlled]) -> Option<HandOver> {
        // Those with weights are compared with one another, those with numbers with what they want: both are around 1.
        let by_weight = tenants.iter().filter(|t| t.slo == Slo::Weight && t.wanting);
        let rates: Vec<f64> = by_weight.filter_map(|t| self.rates[t.place]).collect();
        let mean = rates.iter().sum::<f64>() / rates.len().max(1) as f64;
        let well = |t: &Controlled| {
            let rate = self.rates[t.place].unwrap_or(1.0);
            let well = match t.slo {
                Slo::Weight if mean > 0.0 => rate / mean,
                _ => rate,
            };
            // Who wants no more has enough, and spare space of no use to it.
            if t.wanting { well } else { well.max(1.0) }
        };
        let may_get = |t: &&Controlled| {
            let tried = self.trial.as_ref().is_none_or(|trial| trial.to == t.place);
            t.wanting && tried && self.pauses[t.place].looks_left == 0
        };
        let worst = tenants
            .iter()
            .filter(may_get)
            .min_by(|a, b| well(a).total_cmp(&well(b)))?;
        // Who has all that was promised needs nothing, however much others have.
        if worst.slo != Slo::Weight && well(worst) >= 1.0 {
            return None;
        }
        let to_give = |t: &Controlled| drive.ftl().spare_blocks_to_give(t.tenant).unwrap_or(0);
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
