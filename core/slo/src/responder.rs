//! State machine of the whole workflow, sans I/O. Its inputs are samples every ten seconds and events of appliances. Its
//! outputs are orders, and each decision keeps its evidence.
//!
//! ```text
//!  samples ─▶ detect ─▶ interference ─▶ cacheable ─▶ sizes, solutions ─▶ ladder ─▶ order
//!                                                                          │ host, way, warm-up
//!  appliance:  ordered ─▶ creating ─▶ serving ─▶ leaving ─▶ (none)         ▼
//!                 │ failed: the host is avoided, another remedy is chosen
//!                 │ the violation ended during creation: cancelled
//!  forecast ───────────▶ the same from "sizes" on, before a violation
//!  throttle, memory, flash, mirrors:  in force ─(predicted to be no longer needed)─▶ released
//!  move:  copying ─▶ moved, or failed
//! ```
//!
//! One remedy is in progress at a time: its effect must be measured before the next one is chosen. The responder executes
//! nothing. `executor::Appliances` has the life cycle of an appliance with its deadlines; the driver does the rest.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, Nanos};

use crate::ahead::{KnownPeak, WorkloadSeasons};
use crate::cacheable::{Rule, write_through_rules};
use crate::copies::CopiesConfig;
use crate::decision::Decision;
use crate::detect::{DetectConfig, DetectEvidence, Detector};
use crate::in_force::{ActiveRemedy, Cooldown, ReleaseConfig};
use crate::interference::{InterferenceConfig, Series};
use crate::ladder::{Choice, PriceWeights, Remedy, RemedyKind};
use crate::measured::KnownCost;
use crate::placed::{Appliance, Rest, StrandedAppliance};
use crate::removal::RemovalConfig;
use crate::sample::{HostId, ObjectiveRelation, ResourceId, ResourceUse, Sample, WorkloadId};
use crate::site::{Forecast, Knowledge, ResponseOrder, Site, Workload};
use crate::sizing::SizingConfig;
use crate::warm::WarmConfig;

/// Parameters of the workflow that finds, applies and releases remedies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ResponderConfig {
    /// Step 1: detection of a violation.
    pub detect: DetectConfig,
    /// Step 2: search for interfering workloads.
    pub interference: InterferenceConfig,
    /// Step 3: rules for cacheable workloads. A workload that exceeds a maximum gets no cache.
    pub rules: Vec<Rule>,
    /// Step 4: cache sizes to evaluate.
    pub sizing: SizingConfig,
    /// Step 9: warm-up of an appliance.
    pub warm: WarmConfig,
    /// Limits of mirrors as a remedy.
    pub copies: CopiesConfig,
    /// Removal of a caching appliance.
    pub removal: RemovalConfig,
    /// Release of other remedies.
    pub release: ReleaseConfig,
    /// Remedies that may be used. Configuration files must leave it out: use `response.remedies`, or live
    /// `response.modes`.
    pub allowed: Vec<RemedyKind>,
    /// Choice among several sufficient remedies. Default: price.
    pub choice: Choice,
    /// Weights of the parts of a price.
    pub price: PriceWeights,
    /// Expected time from the order of an appliance until requests go through it. Default: 1 minute.
    pub boot: Nanos,
    /// Waiting time after a remedy before the next one, as a multiple of its time to effect, 0 to 100. Default: 2.
    pub patience: f64,
    /// Number of samples without a violation after which an appliance in creation is cancelled. Default: 6.
    pub vanished_samples: usize,
    /// Time in which a host is avoided after a failed appliance, a workload gets no mirror after a failed one, and
    /// its data stays after a move. Default: 30 minutes.
    pub avoid_host: Nanos,
    /// Shortest time after a remedy before the next one is chosen, and before it is released. Default: 2 minutes.
    pub settle: Nanos,
    /// Interval between decisions for a violation without a remedy. Default: 5 minutes.
    pub look_again: Nanos,
}

impl Default for ResponderConfig {
    fn default() -> Self {
        Self {
            detect: DetectConfig::default(),
            interference: InterferenceConfig::default(),
            rules: write_through_rules(),
            sizing: SizingConfig::default(),
            warm: WarmConfig::default(),
            copies: CopiesConfig::default(),
            removal: RemovalConfig::default(),
            release: ReleaseConfig::default(),
            allowed: RemedyKind::ALL.into(),
            choice: Choice::default(),
            price: PriceWeights::default(),
            boot: Nanos::from_secs(60),
            patience: 2.0,
            vanished_samples: 6,
            avoid_host: Nanos::from_secs(1800),
            settle: Nanos::from_secs(120),
            look_again: Nanos::from_secs(300),
        }
    }
}

impl ResponderConfig {
    /// Returns the parameters of the paper: only correlations show interference, and prices are not compared.
    pub fn as_published() -> Self {
        let mut config = Self {
            choice: Choice::Order,
            ..Self::default()
        };
        config.interference.taken_min = None;
        config
    }
}

/// Time of the last decision for a workload in violation, and the end of its wait if no remedy was found.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Turn {
    looked_at: Option<Nanos>,
    pub(crate) unanswered_until: Nanos,
}

/// Number of samples kept per workload for averages and correlations: one hour.
pub(crate) const HISTORY: usize = 360;

/// Largest number of decisions kept with their evidence: some days at one decision every five minutes.
pub const DECISIONS_MAX: usize = 1000;

#[derive(Debug, Clone)]
pub struct Responder {
    pub(crate) config: ResponderConfig,
    pub(crate) site: Site,
    pub(crate) history: Vec<VecDeque<Sample>>,
    /// Costs of requests, by workload and resource.
    pub(crate) costs: Vec<Vec<KnownCost>>,
    pub(crate) detectors: Vec<Detector>,
    pub(crate) appliances: Vec<Option<Appliance>>,
    /// Remedies that rest after use, by workload.
    pub(crate) rests: Vec<Rest>,
    /// Remedies in force, at most one per kind and workload.
    pub(crate) in_force: Vec<ActiveRemedy>,
    /// Cache shares that workloads have without a remedy.
    pub(crate) given: BTreeMap<WorkloadId, Bytes>,
    pub(crate) cooldowns: BTreeMap<(RemedyKind, WorkloadId), Cooldown>,
    /// End of the time in which a remedy is not repeated, after a failed mirror or a finished move.
    pub(crate) rests_until: BTreeMap<(RemedyKind, WorkloadId), Nanos>,
    /// Workloads with a running move.
    pub(crate) moving: BTreeSet<WorkloadId>,
    pub(crate) left_behind: Vec<StrandedAppliance>,
    /// Forecasts, at most one per workload.
    pub(crate) foreseen: Vec<Forecast>,
    /// Recognition of seasonal peaks; `None` if it is off.
    pub(crate) ahead: Option<WorkloadSeasons>,
    /// Peaks from the driver that no decision has used yet.
    pub(crate) peaks: Vec<KnownPeak>,
    pub(crate) failed_hosts: Vec<(HostId, Nanos)>,
    pub(crate) quiet_until: Nanos,
    pub(crate) turns: Vec<Turn>,
    pub(crate) decisions: Vec<Decision>,
    /// Remedies that are decided but not ordered.
    only_said: Vec<RemedyKind>,
    /// Free numbers of workloads that have left.
    pub(crate) left: BTreeSet<u16>,
}

impl Responder {
    /// Creates a responder for a site, without any history.
    pub fn new(config: ResponderConfig, site: Site) -> Self {
        let n = site.workloads.len();
        let detector = |w: &Workload| Detector::new(config.detect, w.objective);
        Self {
            detectors: site.workloads.iter().map(detector).collect(),
            history: vec![VecDeque::with_capacity(HISTORY); n],
            costs: vec![vec![KnownCost::default(); site.backend.resources.len()]; n],
            appliances: vec![None; n],
            rests: vec![Rest::default(); n],
            in_force: Vec::new(),
            given: BTreeMap::new(),
            cooldowns: BTreeMap::new(),
            rests_until: BTreeMap::new(),
            moving: BTreeSet::new(),
            left_behind: Vec::new(),
            foreseen: Vec::new(),
            ahead: None,
            peaks: Vec::new(),
            failed_hosts: Vec::new(),
            quiet_until: Nanos::ZERO,
            turns: vec![Turn::default(); n],
            decisions: Vec::new(),
            only_said: Vec::new(),
            left: BTreeSet::new(),
            config,
            site,
        }
    }

    /// Returns the latest decisions, oldest first, at most [`DECISIONS_MAX`].
    pub fn decisions(&self) -> &[Decision] {
        &self.decisions
    }

    /// Returns true while a workload's objective is violated.
    pub fn is_broken(&self, workload: WorkloadId) -> bool {
        self.detectors[workload.index()].is_broken()
    }

    /// Returns the standing of a workload's last known sample.
    pub fn standing(&self, workload: WorkloadId) -> ObjectiveRelation {
        self.detectors[workload.index()].last()
    }

    /// Returns the last sample of a workload: the last known one if newer ones are missing.
    pub fn last_sample(&self, workload: WorkloadId) -> Option<&Sample> {
        self.history[workload.index()].back()
    }

    /// Returns the number of violating samples among a workload's recent samples.
    pub fn evidence(&self, workload: WorkloadId) -> DetectEvidence {
        self.detectors[workload.index()].evidence()
    }

    /// Returns the limits of mirrors.
    pub fn copies(&self) -> &CopiesConfig {
        &self.config.copies
    }

    /// Returns true if a kind of remedy is considered.
    pub fn allows(&self, kind: RemedyKind) -> bool {
        self.config.allowed.contains(&kind)
    }

    /// Sets the kinds of remedies to consider. Remedies in force stay until they are released.
    pub fn allow(&mut self, kinds: Vec<RemedyKind>) {
        self.config.allowed = kinds;
    }

    /// Returns true if the last sample has no measured use of any of the workload's resources.
    pub fn is_unmeasured(&self, workload: WorkloadId) -> bool {
        let w = workload.index();
        let last = self.history[w].back();
        let busy = |r: &ResourceId| last.and_then(|s| s.busy.get(r.index()).copied().flatten());
        let own = &self.site.workloads[w].resources;
        !own.iter().any(|r| busy(r).is_some())
    }

    /// Sets the kinds of remedies that are decided but not ordered: an operator only sees them. Remedies in force stay until
    /// they are released.
    pub fn only_say(&mut self, kinds: Vec<RemedyKind>) {
        self.only_said = kinds;
    }

    /// Returns the remedy to carry out: the first sufficient one that is not only shown. `None` if there is none.
    pub fn carried<'a>(&self, remedies: &'a [Remedy]) -> Option<&'a Remedy> {
        let may = |r: &&Remedy| !self.only_said.contains(&r.kind);
        remedies.iter().filter(|r| r.would_do()).find(may)
    }

    /// Sets the resources that a workload's requests use now. Measured costs on resources that it has left are discarded,
    /// because they are no longer valid.
    pub fn placed(&mut self, workload: WorkloadId, resources: Vec<ResourceId>) {
        let w = workload.index();
        let before = std::mem::replace(&mut self.site.workloads[w].resources, resources);
        let after = &self.site.workloads[w].resources;
        for left in before.iter().filter(|r| !after.contains(r)) {
            if let Some(cost) = self.costs[w].get_mut(left.index()) {
                *cost = KnownCost::default();
            }
            let busy = self.history[w].iter_mut();
            for busy in busy.filter_map(|s| s.busy.get_mut(left.index())) {
                *busy = Some(ResourceUse::default());
            }
        }
    }

    /// Returns the site in its present state.
    pub fn site(&self) -> &Site {
        &self.site
    }

    /// Processes one sample per workload and returns the orders.
    pub fn tell(
        &mut self,
        now: Nanos,
        samples: &[Sample],
        known: &dyn Knowledge,
    ) -> Vec<ResponseOrder> {
        let samples: Vec<_> = samples.iter().cloned().map(Some).collect();
        self.tell_known(now, samples, known)
    }

    /// Processes the known samples and returns the orders. For a workload without a sample, its last sample is repeated, but
    /// it does not count for or against the objective.
    pub fn tell_known(
        &mut self,
        now: Nanos,
        samples: Vec<Option<Sample>>,
        known: &dyn Knowledge,
    ) -> Vec<ResponseOrder> {
        let mut orders = Vec::new();
        self.failed_hosts.retain(|(_, until)| *until > now);
        let told = samples.len();
        for (w, sample) in samples.into_iter().enumerate() {
            let history = &mut self.history[w];
            let Some(next) = sample.as_ref().or(history.back()).cloned() else {
                continue;
            };
            if history.len() == HISTORY {
                history.pop_front();
            }
            history.push_back(next);
            if let Some(sample) = sample {
                self.remember_costs(w);
                self.detectors[w].tell(&sample);
                let before = self.before_copies(WorkloadId(w as u16));
                if let Some(ahead) = &mut self.ahead {
                    ahead.note(now, w, &sample, before);
                }
            }
        }
        self.take_back(&mut orders);
        self.remove_unneeded(now, known, &mut orders);
        self.let_go(now, known, &mut orders);
        self.act_ahead(now, known, &mut orders);
        self.foresee_seasons(now, known, &mut orders);
        self.act_on_known(now, known, &mut orders);
        if now >= self.quiet_until && !self.creating() {
            // A violation that is ending clears late; it needs no further remedy.
            let lasts = |d: &Detector| {
                d.is_broken() && d.violating_of_last(self.config.vanished_samples) > 0
            };
            // Round robin: a workload whose remedies do not help does not block the others.
            let broken = (0..told)
                .filter(|w| lasts(&self.detectors[*w]))
                .filter(|w| now >= self.turns[*w].unanswered_until)
                .min_by_key(|w| self.turns[*w].looked_at);
            if let Some(w) = broken {
                self.turns[w].looked_at = Some(now);
                self.answer(now, WorkloadId(w as u16), known, &mut orders);
            }
        }
        orders
    }

    fn answer(
        &mut self,
        now: Nanos,
        affected: WorkloadId,
        known: &dyn Knowledge,
        orders: &mut Vec<ResponseOrder>,
    ) {
        let evidence = self.detectors[affected.index()].evidence();
        let decision = self.decide(now, affected, evidence, known);
        self.carry(now, decision, orders);
    }

    /// Returns rates and latencies of all workloads, for correlations. A sample without completions repeats the previous
    /// latency. If a workload has enough samples but fewer than others, its first sample is repeated for the missing ones.
    pub(crate) fn series(&self) -> Vec<Series> {
        let longest = self.history.iter().map(VecDeque::len).max().unwrap_or(0);
        let one = |history: &VecDeque<Sample>| {
            let mut latency = 0.0;
            let mut series = Series::default();
            let lacks = match history.len() > self.config.interference.samples_min {
                true => longest - history.len(),
                false => 0,
            };
            let before = history.front().into_iter().cycle().take(lacks);
            for sample in before.chain(history) {
                latency = sample.latency_us.unwrap_or(latency);
                series.rate.push(sample.rate_per_s());
                series.latency_us.push(latency);
            }
            series
        };
        self.history.iter().map(one).collect()
    }
}
