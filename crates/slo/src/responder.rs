//! The whole workflow in one state machine, sans I/O: told samples every ten seconds and what became of appliances, it answers
//! with orders, and keeps the evidence of every decision.
//!
//! ```text
//!  samples ─▶ detect ─▶ interference ─▶ cacheable ─▶ sizes, solutions ─▶ ladder ─▶ order
//!                                                                          │ host, way, warm-up
//!  appliance:  ordered ─▶ creating ─▶ serving ─▶ leaving ─▶ (none)         ▼
//!                 │ failed: the host is avoided, another answer is looked for
//!                 │ the violation vanished while it was creating: taken back
//!  forecast ───────────▶ the same from "sizes" on, before anything is broken
//! ```
//!
//! One answer is under way at a time: an effect must be seen before the next is chosen. It carries nothing out;
//! `executor::Appliances` has the life cycle with its deadlines, the driver does the rest.

use std::collections::VecDeque;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::Nanos;

use crate::cacheable::{Rule, write_through_rules};
use crate::decision::{Cause, Decision};
use crate::detect::{Change, DetectConfig, Detector};
use crate::host::APPLIANCE_CPUS;
use crate::interference::{InterferenceConfig, Series};
use crate::ladder::{Deed, RungKind};
use crate::measured::KnownCost;
use crate::placed::{Appliance, ApplianceState, CreatedFor};
use crate::removal::{RemovalConfig, RemovalWatch};
use crate::sample::{HostId, Sample, WorkloadId};
use crate::site::{Forecast, Knowledge, Order, Site, Workload};
use crate::sizing::SizingConfig;
use crate::warm::{Warm, WarmConfig};

/// Everything that can be set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ResponderConfig {
    /// Step 1.
    pub detect: DetectConfig,
    /// Step 2.
    pub interference: InterferenceConfig,
    /// Step 3.
    pub rules: Vec<Rule>,
    /// Step 4.
    pub sizing: SizingConfig,
    /// Step 9.
    pub warm: WarmConfig,
    /// The end of an appliance.
    pub removal: RemovalConfig,
    /// Rungs that may be taken.
    pub allowed: Vec<RungKind>,
    /// From order to re-routed, as expected.
    pub boot: Nanos,
    /// After an answer, how many times its time to effect pass before the next is looked for.
    pub patience: f64,
    /// Samples without any violation after which an appliance that is still being created is taken back.
    pub vanished_samples: usize,
    /// How long a host where an appliance failed is avoided.
    pub avoid_host: Nanos,
}

impl Default for ResponderConfig {
    fn default() -> Self {
        Self {
            detect: DetectConfig::default(),
            interference: InterferenceConfig::default(),
            rules: write_through_rules(),
            sizing: SizingConfig::default(),
            warm: WarmConfig::default(),
            removal: RemovalConfig::default(),
            allowed: RungKind::ALL.into(),
            boot: Nanos::from_secs(60),
            patience: 2.0,
            vanished_samples: 6,
            avoid_host: Nanos::from_secs(1800),
        }
    }
}

/// When a broken workload was looked at last, and until when it is not looked at again as there was no answer.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Turn {
    looked_at: Option<Nanos>,
    pub(crate) unanswered_until: Nanos,
}

/// Samples that are kept for averages and correlations: an hour.
pub(crate) const HISTORY: usize = 360;

/// The responder.
#[derive(Debug, Clone)]
pub struct Responder {
    pub(crate) config: ResponderConfig,
    pub(crate) site: Site,
    pub(crate) history: Vec<VecDeque<Sample>>,
    /// By workload and resource.
    pub(crate) costs: Vec<Vec<KnownCost>>,
    pub(crate) detectors: Vec<Detector>,
    pub(crate) appliances: Vec<Option<Appliance>>,
    pub(crate) throttled: Vec<Option<f64>>,
    pub(crate) failed_hosts: Vec<(HostId, Nanos)>,
    pub(crate) quiet_until: Nanos,
    pub(crate) turns: Vec<Turn>,
    decisions: Vec<Decision>,
}

impl Responder {
    /// For a site; knows nothing yet.
    pub fn new(config: ResponderConfig, site: Site) -> Self {
        let n = site.workloads.len();
        let detector = |w: &Workload| Detector::new(config.detect, w.objective);
        Self {
            detectors: site.workloads.iter().map(detector).collect(),
            history: vec![VecDeque::with_capacity(HISTORY); n],
            costs: vec![vec![KnownCost::default(); site.backend.resources.len()]; n],
            appliances: vec![None; n],
            throttled: vec![None; n],
            failed_hosts: Vec::new(),
            quiet_until: Nanos::ZERO,
            turns: vec![Turn::default(); n],
            decisions: Vec::new(),
            config,
            site,
        }
    }

    /// All decisions, oldest first.
    pub fn decisions(&self) -> &[Decision] {
        &self.decisions
    }

    /// Whether a workload's promise is broken now.
    pub fn is_broken(&self, workload: WorkloadId) -> bool {
        self.detectors[workload.index()].is_broken()
    }

    /// Takes one sample per workload in.
    pub fn tell(&mut self, now: Nanos, samples: &[Sample], known: &dyn Knowledge) -> Vec<Order> {
        let mut orders = Vec::new();
        for (w, sample) in samples.iter().enumerate() {
            let history = &mut self.history[w];
            if history.len() == HISTORY {
                history.pop_front();
            }
            history.push_back(sample.clone());
            self.remember_costs(w);
            if self.detectors[w].tell(sample) == Some(Change::Cleared) {
                self.release(&mut orders);
            }
        }
        self.take_back(&mut orders);
        self.remove_unneeded(now, known, &mut orders);
        if now >= self.quiet_until && !self.creating() {
            // One that is mending clears late; it needs no second answer.
            let lasts = |d: &Detector| {
                d.is_broken() && d.violating_of_last(self.config.vanished_samples) > 0
            };
            // In turn: one whose answers do not help keeps nobody else from being answered.
            let broken = (0..samples.len())
                .filter(|w| lasts(&self.detectors[*w]) && now >= self.turns[*w].unanswered_until)
                .min_by_key(|w| self.turns[*w].looked_at);
            if let Some(w) = broken {
                self.turns[w].looked_at = Some(now);
                self.answer(now, WorkloadId(w as u16), known, &mut orders);
            }
        }
        orders
    }

    /// A peak is coming; `lead` before it is the caller's affair ([`crate::seasonal`]).
    pub fn foresee(&mut self, now: Nanos, forecast: &Forecast) -> Vec<Order> {
        let mut orders = Vec::new();
        if self.appliances[forecast.workload.index()].is_none() && !self.creating() {
            let decision = self.decide_ahead(now, forecast);
            self.carry(now, decision, &mut orders);
        }
        orders
    }

    /// Ends throttles once nothing is broken any more.
    fn release(&mut self, orders: &mut Vec<Order>) {
        if self.detectors.iter().any(Detector::is_broken) {
            return;
        }
        for (w, throttle) in self.throttled.iter_mut().enumerate() {
            if throttle.take().is_some() {
                let workload = WorkloadId(w as u16);
                orders.push(Order::Unthrottle { workload });
            }
        }
    }

    fn answer(
        &mut self,
        now: Nanos,
        affected: WorkloadId,
        known: &dyn Knowledge,
        orders: &mut Vec<Order>,
    ) {
        self.failed_hosts.retain(|(_, until)| *until > now);
        let evidence = self.detectors[affected.index()].evidence();
        let decision = self.decide(now, affected, evidence, known);
        self.carry(now, decision, orders);
    }

    /// Turns what was decided into orders.
    fn carry(&mut self, now: Nanos, decision: Decision, orders: &mut Vec<Order>) {
        // Without an answer the next look at the same workload is some minutes off, not ten seconds.
        const NOTHING: Nanos = Nanos::from_secs(300);
        let rung = crate::ladder::taken(&decision.rungs);
        match rung {
            Some(rung) => {
                let wait = Nanos((rung.price.effect_after.0 as f64 * self.config.patience) as u64);
                self.quiet_until = now + wait.max(Nanos::from_secs(120));
            }
            // Nothing is under way: others need not wait.
            None => {
                let (Cause::Violation { affected: w, .. } | Cause::Forecast { workload: w, .. }) =
                    &decision.cause;
                self.turns[w.index()].unanswered_until = now + NOTHING;
            }
        }
        match rung.and_then(|r| r.deed.clone()) {
            None => {}
            Some(Deed::Appliance {
                workload,
                host,
                cache,
                hits,
            }) => {
                let memory = cache + self.config.sizing.own_memory;
                if let Some(host) = self.site.hosts.iter_mut().find(|h| h.id == host) {
                    host.cpus_free -= APPLIANCE_CPUS;
                    host.memory_free -= memory;
                }
                let cause = match decision.cause {
                    Cause::Violation { affected, .. } => CreatedFor::Violation(affected),
                    Cause::Forecast { at, .. } => CreatedFor::Forecast(at),
                };
                self.appliances[workload.index()] = Some(Appliance {
                    state: ApplianceState::Creating,
                    host,
                    memory,
                    hits_predicted: hits,
                    cause,
                    watch: RemovalWatch::default(),
                });
                orders.push(Order::CreateAppliance {
                    workload,
                    host,
                    cpus: APPLIANCE_CPUS,
                    memory,
                    cache,
                    way: decision.way.clone().unwrap_or_default(),
                    warm: decision.warm.clone().unwrap_or(Warm::Cold {
                        why: "nothing was planned".into(),
                    }),
                });
            }
            Some(deed) => {
                if let Deed::Throttle {
                    workload,
                    rate_per_s,
                } = deed
                {
                    self.throttled[workload.index()] = Some(rate_per_s);
                }
                orders.push(Order::Carry { deed });
            }
        }
        self.decisions.push(decision);
    }

    /// Rates and latencies of all workloads, for correlations; a sample without completions repeats the latency before it.
    pub(crate) fn series(&self) -> Vec<Series> {
        let one = |history: &VecDeque<Sample>| {
            let mut latency = 0.0;
            let mut series = Series::default();
            for sample in history {
                latency = sample.latency_us.unwrap_or(latency);
                series.rate.push(sample.rate_per_s());
                series.latency_us.push(latency);
            }
            series
        };
        self.history.iter().map(one).collect()
    }
}
