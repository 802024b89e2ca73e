//! From decisions to orders, and forecasts that have to wait for their turn.

use units::Nanos;

use crate::decision::{Cause, Decision};
use crate::host::APPLIANCE_CPUS;
use crate::ladder::{RemedyAction, RemedyKind};
use crate::placed::{Appliance, ApplianceState, CreatedFor};
use crate::removal::RemovalWatch;
use crate::responder::{DECISIONS_MAX, Responder};
use crate::site::{Forecast, Knowledge, ResponseOrder};
use crate::warm::Warm;

impl Responder {
    /// A peak is coming; `lead` before it is the caller's affair ([`crate::seasonal`]). One that cannot be acted on yet, as
    /// another answer is being carried out, is kept; of each workload the latest.
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

    /// Acts on forecasts that were kept.
    pub(crate) fn act_ahead(
        &mut self,
        now: Nanos,
        known: &dyn Knowledge,
        orders: &mut Vec<ResponseOrder>,
    ) {
        // So long after its peak began it is a violation or nothing.
        const LATE: Nanos = Nanos::from_secs(600);
        self.foreseen.retain(|f| now < f.at + LATE);
        for forecast in std::mem::take(&mut self.foreseen) {
            let busy = self.creating() || self.copying();
            // What it has by another answer may not go before the peak either.
            self.keep_for(forecast.workload, forecast.by);
            match &mut self.appliances[forecast.workload.index()] {
                // It has one, which may not go before the peak.
                Some(own) if own.state != ApplianceState::Leaving => {
                    own.cause = CreatedFor::Forecast(forecast.by);
                    // Until it serves it may still come to nothing; then another is tried.
                    if own.state == ApplianceState::Creating {
                        self.foreseen.push(forecast);
                    }
                }
                None if !busy => {
                    let decision = self.decide_ahead(now, &forecast, known);
                    self.carry(now, decision, orders);
                    self.keep_for(forecast.workload, forecast.by);
                    if let Some(own) = &mut self.appliances[forecast.workload.index()] {
                        own.cause = CreatedFor::Forecast(forecast.by);
                        self.foreseen.push(forecast);
                    }
                }
                _ => self.foreseen.push(forecast),
            }
        }
    }

    /// Turns what was decided into orders.
    pub(crate) fn carry(
        &mut self,
        now: Nanos,
        decision: Decision,
        orders: &mut Vec<ResponseOrder>,
    ) {
        let remedy = self.carried(&decision.remedies).cloned();
        let remedy = remedy.as_ref();
        match (remedy, &decision.cause) {
            // A copy may take hours, in which others may break: only who is answered waits for it.
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
            // Nothing is under way: others need not wait. The next look at the same workload is some minutes off, not ten seconds.
            (None, Cause::Violation { affected: w, .. }) => {
                self.turns[w.index()].unanswered_until = now + self.config.look_again;
            }
            // And a peak that needs no answer does not keep its workload from getting one.
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
            Cause::Violation { affected, .. } => CreatedFor::Violation(affected),
            Cause::Forecast { at, .. } => CreatedFor::Forecast(at),
        };
        // One that is there before its peak fills as the peak begins.
        let from = match cause {
            CreatedFor::Violation(_) => now,
            CreatedFor::Forecast(at) => at.max(now),
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
