//! Results of a run.

use super::Host;
use crate::drive::Drive;
use crate::ftl::{Moves, TenantId};
use crate::host::control::Slo;
use crate::host::outcome::{Latency, Outcome, TenantOutcome, proportionality};
use crate::host::plan::Target;

/// Flash counts of a tenant.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct FlashCounts {
    waf: Option<f64>,
    victim_utilization: Option<f64>,
    moves: Moves,
    spare_share: Option<f64>,
}

impl FlashCounts {
    pub(super) fn of(drive: &Drive, id: TenantId) -> Self {
        let report = drive.tenant_report(id);
        let all = drive.blocks() as f64;
        Self {
            waf: report.waf,
            victim_utilization: report.victim_utilization,
            moves: report.moves,
            spare_share: report.spare_blocks.map(|blocks| blocks as f64 / all),
        }
    }
}

impl<T: Target> Host<'_, T> {
    pub(super) fn outcome(self) -> Outcome {
        let seconds = self.config.duration.0 as f64 / 1e9;
        let window_s = self.window_ns as f64 / 1e9;
        let places = self.target.units() as f64;
        let now = self.now;
        let mut tenants = Vec::with_capacity(self.states.len());
        for (state, plan) in self.states.iter().zip(self.plans) {
            let until = if state.gone { state.until_ns } else { now };
            let there = until.saturating_sub(state.from_ns) as f64 / 1e9;
            let rate = |n: u64| if there > 0.0 { n as f64 / there } else { 0.0 };
            let (iops, bytes_per_s) = (rate(state.requests), rate(state.bytes));
            let flash = state.id.zip(self.target.drive());
            let flash = flash.map(|(id, drive)| FlashCounts::of(drive, id));
            // For departed tenants: the counts at their departure.
            let FlashCounts {
                waf,
                victim_utilization,
                moves,
                spare_share,
            } = flash.or(state.left).unwrap_or_default();
            tenants.push(TenantOutcome {
                name: plan.name.clone(),
                weight: plan.weight,
                load: plan.load.to_string(),
                seconds: there,
                iops,
                bytes_per_s,
                reads: state.reads as f64 / state.requests.max(1) as f64,
                latency: Latency::from(&state.latency),
                device_share: state.device_ns as f64 / 1e9 / (seconds * places),
                waf,
                victim_utilization,
                moved_own: moves.own,
                moved_foreign: moves.foreign,
                moved_by_others: moves.by_others,
                spare_share,
                met: match plan.slo {
                    Slo::Weight => None,
                    Slo::Iops(want) => Some(iops / want),
                    Slo::BytesPerSecond(want) => Some(bytes_per_s / want),
                },
                series: state.series.iter().map(|b| *b as f64 / window_s).collect(),
            });
        }
        let weights: Vec<f64> = self.plans.iter().map(|p| p.weight).collect();
        let rates: Vec<f64> = tenants
            .iter()
            .map(|t: &TenantOutcome| t.bytes_per_s)
            .collect();
        let (relative, error) = proportionality(&weights, &rates);
        Outcome {
            seconds,
            window_s,
            tenants,
            handed_over: self.handed_over,
            hand_over_s: self.hand_over_ns as f64 / 1e9,
            proportionality: relative,
            proportionality_error: error,
        }
    }
}
