//! Orders from decisions, and forecasts that wait until another remedy is complete.

use units::Nanos;

use crate::decision::{Cause, Decision};
use crate::host::APPLIANCE_CPUS;
use crate::ladder::{RemedyAction, RemedyKind};
use crate::placed::{Appliance, ApplianceReason, ApplianceState};
use crate::removal::RemovalWatch;
use crate::responder::{DECISIONS_MAX, Responder};
use crate::site::{Forecast, Knowledge, ResponseOrder};
use crate::warm::Warm;

impl Responder {
    /// Adds a forecast of a peak and acts on it if possible. The caller chooses the lead time ([`crate::seasonal`]). While
    /// another remedy is in progress, the forecast is kept; only the latest one per workload is.
    pub fn foresee(
        &mut self,
        now: Nanos,
        forecast: &Forecast,
        known: &dyn Knowledge,
    ) -> Vec<ResponseOrder> {
        self.foreseen.retain(|f| f.workload != forecast.workload);
        self.foreseen.push(forecast.clone());
        let mut orders = Vec::new();
        self.act_ahead(now, known, &mut orders);
        orders
    }

    /// Acts on the forecasts that were kept.
    pub(crate) fn act_ahead(
        &mut self,
        now: Nanos,
        known: &dyn Knowledge,
        orders: &mut Vec<ResponseOrder>,
    ) {
        // Time after the start of a peak at which its forecast expires: from then on only a violation matters.
        const LATE: Nanos = Nanos::from_secs(600);
        self.foreseen.retain(|f| now < f.at + LATE);
        for forecast in std::mem::take(&mut self.foreseen) {
            let busy = self.creating() || self.copying();
            // Other remedies of the workload must not be released before the peak either.
            self.keep_for(forecast.workload, forecast.by);
            match &mut self.appliances[forecast.workload.index()] {
                // The workload has an appliance, which must not be removed before the peak.
                Some(own) if own.state != ApplianceState::Leaving => {
                    own.cause = ApplianceReason::Forecast(forecast.by);
                    // Its creation may still fail; the forecast is kept for another attempt.
                    if own.state == ApplianceState::Creating {
                        self.foreseen.push(forecast);
                    }
                }
                None if !busy => {
                    let decision = self.decide_ahead(now, &forecast, known);
                    self.carry(now, decision, orders);
                    self.keep_for(forecast.workload, forecast.by);
                    if let Some(own) = &mut self.appliances[forecast.workload.index()] {
                        own.cause = ApplianceReason::Forecast(forecast.by);
                        self.foreseen.push(forecast);
                    }
                }
                _ => self.foreseen.push(forecast),
            }
        }
    }

    /// Stores a decision and appends its order.
    pub(crate) fn carry(
        &mut self,
        now: Nanos,
        decision: Decision,
        orders: &mut Vec<ResponseOrder>,
    ) {
        let remedy = self.carried(&decision.remedies).cloned();
        let remedy = remedy.as_ref();
        match (remedy, &decision.cause) {
            // A copy may take hours, and other violations may start in this time: only the affected workload waits for it.
            (Some(remedy), cause) if remedy.kind == RemedyKind::Move => {
                self.quiet_until = now + self.config.settle;
                if let Cause::Violation { affected, .. } = cause {
                    let wait =
                        Nanos((remedy.price.effect_after.0 as f64 * self.config.patience) as u64);
                    let until = now + wait.max(self.config.settle);
                    self.turns[affected.index()].unanswered_until = until;
                }
            }
            (Some(remedy), _) => {
                let wait =
                    Nanos((remedy.price.effect_after.0 as f64 * self.config.patience) as u64);
                self.quiet_until = now + wait.max(self.config.settle);
            }
            // No remedy is in progress, so other workloads need not wait. The next decision for this one is minutes later,
            // not ten seconds.
            (None, Cause::Violation { affected: w, .. }) => {
                self.turns[w.index()].unanswered_until = now + self.config.look_again;
            }
            // A peak that needs no remedy must not delay remedies for its workload.
            (None, Cause::Forecast { .. }) => {}
        }
        match remedy.and_then(|r| r.action.clone()) {
            None => {}
            Some(action @ RemedyAction::Appliance { .. }) => {
                let effect_after = remedy.map_or(Nanos::ZERO, |r| r.price.effect_after);
                self.create(now, &decision, &action, effect_after, orders);
            }
            Some(action) => {
                if let RemedyAction::Move(other) = &action {
                    self.moving.insert(other.workload);
                }
                let until = match decision.cause {
                    Cause::Violation { .. } => now,
                    Cause::Forecast { at, .. } => at,
                };
                self.put_in_force(now, until, &action);
                orders.push(ResponseOrder::Carry { action });
            }
        }
        if self.decisions.len() == DECISIONS_MAX {
            self.decisions.remove(0);
        }
        self.decisions.push(decision);
    }

    fn create(
        &mut self,
        now: Nanos,
        decision: &Decision,
        action: &RemedyAction,
        effect_after: Nanos,
        orders: &mut Vec<ResponseOrder>,
    ) {
        let RemedyAction::Appliance {
            workload,
            host,
            cache,
            hits,
        } = *action
        else {
            return;
        };
        let memory = cache + self.config.sizing.own_memory;
        if let Some(host) = self.site.hosts.iter_mut().find(|h| h.id == host) {
            host.cpus_free -= APPLIANCE_CPUS;
            host.memory_free -= memory;
        }
        let cause = match decision.cause {
            Cause::Violation { affected, .. } => ApplianceReason::Violation(affected),
            Cause::Forecast { at, .. } => ApplianceReason::Forecast(at),
        };
        // An appliance that is ready before its peak fills when the peak begins.
        let from = match cause {
            ApplianceReason::Violation(_) => now,
            ApplianceReason::Forecast(at) => at.max(now),
        };
        self.appliances[workload.index()] = Some(Appliance {
            state: ApplianceState::Creating,
            host,
            memory,
            hits_predicted: hits,
            cause,
            watch: RemovalWatch::default(),
            effect_at: from + effect_after,
            quiet_until: self.quiet_until,
        });
        orders.push(ResponseOrder::CreateAppliance {
            workload,
            host,
            cpus: APPLIANCE_CPUS,
            memory,
            cache,
            way: decision.way.clone().unwrap_or_default(),
            warm: decision.warm.clone().unwrap_or(Warm::Cold {
                why: "no warm-up was planned".into(),
            }),
        });
    }
}
