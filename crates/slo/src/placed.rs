//! Appliances that the responder asked for: what became of them, and when they go.
//!
//! ```text
//!  creating ──serving──▶ serving ──(not worth it)──▶ leaving ──removed, failed──▶ (none)      left behind: none, but its
//!     │                                                 │  ▲                              memory stays taken until freed
//!     └──────────────(returning: it came to nothing)──▶ │  ▲
//!                                              stranded ▼  │ returning: tried again
//!                                                   stranded
//! ```
//!
//! Only one that is being created keeps other answers waiting.

use serde::{Deserialize, Serialize};
use units::{Bytes, Nanos};

use crate::host::APPLIANCE_CPUS;
use crate::removal::{RemovalReason, RemovalWatch};
use crate::responder::Responder;
use crate::sample::{HostId, WorkloadId};
use crate::site::{ApplianceEvent, Knowledge, ResponseOrder};

/// Within this, one that came to nothing is mostly gone.
const END_NEAR: Nanos = Nanos::from_secs(120);

/// A workload's appliance, as far as the responder knows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Appliance {
    pub(crate) state: ApplianceState,
    pub(crate) host: HostId,
    pub(crate) memory: Bytes,
    pub(crate) hits_predicted: f64,
    pub(crate) cause: CreatedFor,
    pub(crate) watch: RemovalWatch,
    /// From when on it was predicted to hold what it is to hold: a cache that is still filling hits seldom.
    pub(crate) effect_at: Nanos,
    /// Until when its order made other answers wait.
    pub(crate) quiet_until: Nanos,
}

/// Of a workload whose appliance was of no use: until when it gets no other, and how long that was.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Rest {
    pub(crate) until: Nanos,
    length: Nanos,
}

/// A virtual machine that serves nobody any more and could not be destroyed: its host has less to give.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LeftBehind {
    workload: WorkloadId,
    host: HostId,
    memory: Bytes,
}

/// Why there is an appliance: one for a forecast is not taken back because nothing is broken yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum CreatedFor {
    Violation(WorkloadId),
    Forecast(Nanos),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ApplianceState {
    Creating,
    Serving,
    Leaving,
    /// It cannot be left: it serves on until an operator has looked.
    Stranded,
}

impl Responder {
    /// What became of a workload's appliance.
    pub fn appliance(&mut self, now: Nanos, workload: WorkloadId, event: &ApplianceEvent) {
        let Some(appliance) = &mut self.appliances[workload.index()] else {
            return;
        };
        match event {
            ApplianceEvent::Serving => {
                if appliance.state == ApplianceState::Creating {
                    appliance.state = ApplianceState::Serving;
                    // It is there for the peak that was foreseen.
                    self.foreseen.retain(|f| f.workload != workload);
                }
            }
            // Nothing is waited for any more; requests will be the backend's, or are.
            ApplianceEvent::Returning => {
                if appliance.state == ApplianceState::Creating {
                    // This answer has no effect to wait for; mostly its end is near, and then the same is tried elsewhere.
                    self.quiet_until = self.quiet_until.min(now + END_NEAR);
                }
                appliance.state = ApplianceState::Leaving;
            }
            ApplianceEvent::Stranded => {
                appliance.state = ApplianceState::Stranded;
                // It may stay so for hours: another answer may be looked for at once.
                self.quiet_until = now;
            }
            ApplianceEvent::Failed { .. } => {
                let until = now + self.config.avoid_host;
                self.failed_hosts.push((appliance.host, until));
                self.give_back(workload);
                // Another answer may be looked for at once.
                self.quiet_until = now;
                self.turns.iter_mut().for_each(|t| t.unanswered_until = now);
            }
            ApplianceEvent::LeftBehind { .. } => {
                let (host, memory) = (appliance.host, appliance.memory);
                self.failed_hosts.push((host, now + self.config.avoid_host));
                // Its workload can have another one; its memory is not free for it.
                self.appliances[workload.index()] = None;
                self.left_behind.push(LeftBehind {
                    workload,
                    host,
                    memory,
                });
                self.quiet_until = now;
            }
            ApplianceEvent::Removed => {
                // Nobody waits for the effect of one that is gone; what a later answer made wait still waits.
                if self.quiet_until == appliance.quiet_until {
                    self.quiet_until = self.quiet_until.min(now);
                }
                self.give_back(workload);
            }
        }
    }

    /// The oldest virtual machine of a workload that was left behind is gone after all.
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

    /// Takes appliances back that are still being created for something that has vanished.
    pub(crate) fn take_back(&mut self, orders: &mut Vec<ResponseOrder>) {
        for w in 0..self.appliances.len() {
            let Some(appliance) = &self.appliances[w] else {
                continue;
            };
            let CreatedFor::Violation(affected) = appliance.cause else {
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
            // One that was created ahead waits for its peak.
            let waits = matches!(appliance.cause, CreatedFor::Forecast(at) if now < at);
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

    /// One that was of no use is not tried again soon, and after the same again not for twice as long.
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
