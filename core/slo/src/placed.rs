//! States of the appliances that the responder ordered, and their removal.
//!
//! ```text
//!  creating ──serving──▶ serving ──not needed──▶ leaving ──removed, failed──▶ (none)
//!     │                                          ▲ │  ▲      left behind: (none), but the memory is in use until it is freed
//!     └─────── returning: creation failed ───────┘ │  │
//!                                         stranded ▼  │ returning: another attempt
//!                                                 stranded
//! ```
//!
//! Only an appliance in creation delays other remedies.

use serde::{Deserialize, Serialize};
use units::{Bytes, Nanos};

use crate::host::APPLIANCE_CPUS;
use crate::removal::{RemovalReason, RemovalWatch};
use crate::responder::Responder;
use crate::sample::{HostId, WorkloadId};
use crate::site::{ApplianceEvent, Knowledge, ResponseOrder};

/// Time within which a failed appliance is usually removed.
const END_NEAR: Nanos = Nanos::from_secs(120);

/// Appliance of a workload in the responder's view.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Appliance {
    pub(crate) state: ApplianceState,
    pub(crate) host: HostId,
    pub(crate) memory: Bytes,
    pub(crate) hits_predicted: f64,
    pub(crate) cause: ApplianceReason,
    pub(crate) watch: RemovalWatch,
    /// Predicted time at which the cache is full: before it the hit ratio is low.
    pub(crate) effect_at: Nanos,
    /// End of the time in which its order delays other remedies.
    pub(crate) quiet_until: Nanos,
}

/// Rest of a workload after an ineffective appliance: the end, and the length of this rest. It gets no appliance before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Rest {
    pub(crate) until: Nanos,
    length: Nanos,
}

/// Virtual machine that serves no requests any more and could not be destroyed. It still uses capacity of its host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StrandedAppliance {
    workload: WorkloadId,
    host: HostId,
    memory: Bytes,
}

/// Reason for an appliance. One for a forecast is not cancelled while there is no violation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ApplianceReason {
    Violation(WorkloadId),
    Forecast(Nanos),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ApplianceState {
    Creating,
    Serving,
    Leaving,
    /// Requests could not be routed away from it: it serves until an operator acts.
    Stranded,
}

impl Responder {
    /// Processes an event of a workload's appliance.
    pub fn appliance(&mut self, now: Nanos, workload: WorkloadId, event: &ApplianceEvent) {
        let Some(appliance) = &mut self.appliances[workload.index()] else {
            return;
        };
        match event {
            ApplianceEvent::Serving => {
                if appliance.state == ApplianceState::Creating {
                    appliance.state = ApplianceState::Serving;
                    // The appliance is ready for the forecast peak.
                    self.foreseen.retain(|f| f.workload != workload);
                }
            }
            // The wait ends: requests go to the backend already or will soon.
            ApplianceEvent::Returning => {
                if appliance.state == ApplianceState::Creating {
                    // This remedy has no effect to wait for. Usually the appliance is removed soon, and another host is
                    // tried.
                    self.quiet_until = self.quiet_until.min(now + END_NEAR);
                }
                appliance.state = ApplianceState::Leaving;
            }
            ApplianceEvent::Stranded => {
                appliance.state = ApplianceState::Stranded;
                // It may stay in this state for hours: the next remedy may be chosen at once.
                self.quiet_until = now;
            }
            ApplianceEvent::Failed { .. } => {
                let until = now + self.config.avoid_host;
                self.failed_hosts.push((appliance.host, until));
                self.give_back(workload);
                // The next remedy may be chosen at once.
                self.quiet_until = now;
                self.turns.iter_mut().for_each(|t| t.unanswered_until = now);
            }
            ApplianceEvent::LeftBehind { .. } => {
                let (host, memory) = (appliance.host, appliance.memory);
                self.failed_hosts.push((host, now + self.config.avoid_host));
                // Its workload can get another appliance, but the memory stays in use.
                self.appliances[workload.index()] = None;
                self.left_behind.push(StrandedAppliance {
                    workload,
                    host,
                    memory,
                });
                self.quiet_until = now;
            }
            ApplianceEvent::Removed => {
                // The wait for this appliance's effect ends; a wait for a later remedy continues.
                if self.quiet_until == appliance.quiet_until {
                    self.quiet_until = self.quiet_until.min(now);
                }
                self.give_back(workload);
            }
        }
    }

    /// Frees the resources of a workload's oldest leftover virtual machine, after its removal.
    pub fn freed(&mut self, workload: WorkloadId) {
        let mut all = self.left_behind.iter();
        if let Some(i) = all.position(|l| l.workload == workload) {
            let left = self.left_behind.remove(i);
            self.free(left.host, left.memory);
        }
    }

    fn give_back(&mut self, workload: WorkloadId) {
        if let Some(appliance) = self.appliances[workload.index()].take() {
            self.free(appliance.host, appliance.memory);
        }
    }

    fn free(&mut self, host: HostId, memory: Bytes) {
        let hosts = &mut self.site.hosts;
        if let Some(host) = hosts.iter_mut().find(|h| h.id == host) {
            host.cpus_free += APPLIANCE_CPUS;
            host.memory_free += memory;
        }
    }

    pub(crate) fn creating(&self) -> bool {
        let mut all = self.appliances.iter().flatten();
        all.any(|a| a.state == ApplianceState::Creating)
    }

    /// Cancels appliances in creation whose violation has ended.
    pub(crate) fn take_back(&mut self, orders: &mut Vec<ResponseOrder>) {
        for w in 0..self.appliances.len() {
            let Some(appliance) = &self.appliances[w] else {
                continue;
            };
            let ApplianceReason::Violation(affected) = appliance.cause else {
                continue;
            };
            let detector = &self.detectors[affected.index()];
            if appliance.state == ApplianceState::Creating
                && detector.violating_of_last(self.config.vanished_samples) == 0
            {
                self.leave(w, "the violation ended during its creation", orders);
            }
        }
    }

    fn leave(&mut self, w: usize, why: &str, orders: &mut Vec<ResponseOrder>) {
        if let Some(appliance) = &mut self.appliances[w] {
            appliance.state = ApplianceState::Leaving;
            orders.push(ResponseOrder::RemoveAppliance {
                workload: WorkloadId(w as u16),
                why: why.into(),
            });
        }
    }

    pub(crate) fn remove_unneeded(
        &mut self,
        now: Nanos,
        known: &dyn Knowledge,
        orders: &mut Vec<ResponseOrder>,
    ) {
        for w in 0..self.appliances.len() {
            let serving = |a: &Appliance| a.state == ApplianceState::Serving;
            if !self.appliances[w].as_ref().is_some_and(serving) {
                continue;
            }
            let mut facts = self.removal_facts(WorkloadId(w as u16), known);
            let appliance = self.appliances[w].as_mut().expect("looked at above");
            if now < appliance.effect_at {
                facts.hits = None;
            }
            let reason = appliance.watch.tell(&self.config.removal, &facts);
            // An appliance that was created ahead waits for its peak.
            let waits = matches!(appliance.cause, ApplianceReason::Forecast(at) if now < at);
            if waits {
                appliance.watch = RemovalWatch::default();
                continue;
            }
            let why = match reason {
                None => continue,
                Some(RemovalReason::LowLoad) => "its workload has low load",
                Some(RemovalReason::NotNeeded) => "the array meets all objectives without it",
                Some(RemovalReason::Ineffective) => "its hit ratio is too low",
            };
            self.rest(now, w, reason);
            self.leave(w, why, orders);
        }
    }

    /// Sets the rest after a removal. An ineffective appliance is not repeated soon, and each repetition doubles the rest.
    fn rest(&mut self, now: Nanos, w: usize, reason: Option<RemovalReason>) {
        let config = self.config.release;
        let rest = &mut self.rests[w];
        rest.length = match reason {
            Some(RemovalReason::Ineffective) => {
                let longest = config.cooldown_max.max(config.cooldown);
                (rest.length + rest.length).clamp(config.cooldown, longest)
            }
            _ => Nanos::ZERO,
        };
        rest.until = now + rest.length;
    }
}
