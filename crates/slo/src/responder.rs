//! The whole workflow in one state machine, sans I/O: given samples every ten seconds and what became of appliances, it answers
//! with orders, and keeps the evidence of every decision.
//!
//! ```text
//!  samples ─▶ detect ─▶ interference ─▶ cacheable ─▶ sizes, solutions ─▶ ladder ─▶ order
//!                                                                          │ host, way, warm-up
//!  appliance:  ordered ─▶ creating ─▶ serving ─▶ leaving ─▶ (none)         ▼
//!                 │ failed: the host is avoided, another answer is looked for
//!                 │ the violation vanished while it was creating: taken back
//!  forecast ───────────▶ the same from "sizes" on, before anything is broken
//!  throttle, memory, flash, second copies:  in force ─(predicted to be needed no more)─▶ taken back
//!  move:  copying ─▶ there, or not
//! ```
//!
//! One answer is under way at a time: an effect must be seen before the next is chosen. It carries nothing out;
//! `executor::Appliances` has the life cycle with its deadlines, the driver does the rest.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, Nanos};

use crate::ahead::{Ahead, KnownPeak};
use crate::cacheable::{Rule, write_through_rules};
use crate::copies::CopiesConfig;
use crate::decision::Decision;
use crate::detect::{DetectConfig, DetectEvidence, Detector};
use crate::in_force::{Cooldown, InForce, ReleaseConfig};
use crate::interference::{InterferenceConfig, Series};
use crate::ladder::{Choice, PriceWeights, Remedy, RemedyKind};
use crate::measured::KnownCost;
use crate::placed::{Appliance, LeftBehind, Rest};
use crate::removal::RemovalConfig;
use crate::sample::{Busy, HostId, ResourceId, Sample, Standing, WorkloadId};
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
    /// What the paper knows of: interference is told by correlations alone, and no prices are compared.
    pub fn as_published() -> Self {
        let mut config = Self {
            choice: Choice::Order,
            ..Self::default()
        };
        config.interference.taken_min = None;
        config
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

/// Decisions that are kept with their evidence: some days of them, where one is made every five minutes.
pub const DECISIONS_MAX: usize = 1000;

#[derive(Debug, Clone)]
pub struct Responder {
    pub(crate) config: ResponderConfig,
    pub(crate) site: Site,
    pub(crate) history: Vec<VecDeque<Sample>>,
    /// By workload and resource.
    pub(crate) costs: Vec<Vec<KnownCost>>,
    pub(crate) detectors: Vec<Detector>,
    pub(crate) appliances: Vec<Option<Appliance>>,
    /// By workload.
    pub(crate) rests: Vec<Rest>,
    /// At most one of each kind and workload.
    pub(crate) in_force: Vec<InForce>,
    /// Parts of the memory that workloads have anyhow.
    pub(crate) given: BTreeMap<WorkloadId, Bytes>,
    pub(crate) cooldowns: BTreeMap<(RemedyKind, WorkloadId), Cooldown>,
    /// Those whose second copies failed lately or whose data has been moved, and until when that is not done again.
    pub(crate) rests_until: BTreeMap<(RemedyKind, WorkloadId), Nanos>,
    /// Workloads whose data is being moved.
    pub(crate) moving: BTreeSet<WorkloadId>,
    pub(crate) left_behind: Vec<LeftBehind>,
    /// At most one of each workload.
    pub(crate) foreseen: Vec<Forecast>,
    /// Where peaks of seasons are looked out for.
    pub(crate) ahead: Option<Ahead>,
    /// Peaks that are known of and were not acted on yet.
    pub(crate) peaks: Vec<KnownPeak>,
    pub(crate) failed_hosts: Vec<(HostId, Nanos)>,
    pub(crate) quiet_until: Nanos,
    pub(crate) turns: Vec<Turn>,
    pub(crate) decisions: Vec<Decision>,
    /// Rungs that are decided on and not ordered.
    only_said: Vec<RemedyKind>,
    /// Numbers of workloads that have left.
    pub(crate) left: BTreeSet<u16>,
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

    /// The latest decisions, at most [`DECISIONS_MAX`], oldest first.
    pub fn decisions(&self) -> &[Decision] {
        &self.decisions
    }

    /// Whether a workload's promise is broken now.
    pub fn is_broken(&self, workload: WorkloadId) -> bool {
        self.detectors[workload.index()].is_broken()
    }

    /// How a workload's last known sample stands to its promise.
    pub fn standing(&self, workload: WorkloadId) -> Standing {
        self.detectors[workload.index()].last()
    }

    /// A workload's last sample that is known, or what stands for it.
    pub fn last_sample(&self, workload: WorkloadId) -> Option<&Sample> {
        self.history[workload.index()].back()
    }

    /// By how many of a workload's last samples its promise is missed.
    pub fn evidence(&self, workload: WorkloadId) -> DetectEvidence {
        self.detectors[workload.index()].evidence()
    }

    /// Bounds of second copies.
    pub fn copies(&self) -> &CopiesConfig {
        &self.config.copies
    }

    /// Whether a rung is looked at.
    pub fn allows(&self, kind: RemedyKind) -> bool {
        self.config.allowed.contains(&kind)
    }

    /// From now on these rungs are looked at, and no others. What is in force stays until it is taken back.
    pub fn allow(&mut self, kinds: Vec<RemedyKind>) {
        self.config.allowed = kinds;
    }

    /// Whether it is not measured how much a workload takes of any resource that it uses.
    pub fn is_unmeasured(&self, workload: WorkloadId) -> bool {
        let w = workload.index();
        let last = self.history[w].back();
        let busy = |r: &ResourceId| last.and_then(|s| s.busy.get(r.index()).copied().flatten());
        let own = &self.site.workloads[w].resources;
        !own.iter().any(|r| busy(r).is_some())
    }

    /// From now on these rungs are decided on and not ordered: somebody else is told of them. What is in force stays until it is taken back.
    pub fn only_say(&mut self, kinds: Vec<RemedyKind>) {
        self.only_said = kinds;
    }

    /// The rung that is carried out of those that were looked at, if one is: the first that would do, but for those that are only
    /// said.
    pub fn carried<'a>(&self, remedies: &'a [Remedy]) -> Option<&'a Remedy> {
        let may = |r: &&Remedy| !self.only_said.contains(&r.kind);
        remedies.iter().filter(|r| r.would_do()).find(may)
    }

    /// The resources that a workload's requests use now. Where it has left one, what it cost there says nothing any more.
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
                *busy = Some(Busy::default());
            }
        }
    }

    /// What it goes by.
    pub fn site(&self) -> &Site {
        &self.site
    }

    /// Takes one sample per workload in.
    pub fn tell(
        &mut self,
        now: Nanos,
        samples: &[Sample],
        known: &dyn Knowledge,
    ) -> Vec<ResponseOrder> {
        let samples: Vec<_> = samples.iter().cloned().map(Some).collect();
        self.tell_known(now, samples, known)
    }

    /// Takes in what is known of each workload. One of which nothing is known is taken to go on as it was, but nothing is made of that for or
    /// against its promise.
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
            // One that is mending clears late; it needs no second answer.
            let lasts = |d: &Detector| {
                d.is_broken() && d.violating_of_last(self.config.vanished_samples) > 0
            };
            // In turn: one whose answers do not help keeps nobody else from being answered.
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

    /// Rates and latencies of all workloads, for correlations; a sample without completions repeats the latency before it. Of one that is
    /// known for long enough, but not for as long as others, the first sample stands for those before it.
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
