//! Remedies in force that can be released (throttles, cache shares, unused flash, mirrors), and the conditions for their
//! release.
//!
//! ```text
//!           no violation, and for two minutes all objectives are predicted to be met without it
//!  in force ────────────────────────────────────────────────────────────────────────────────────────▶ (none)
//!     ▲                  no data for a prediction: after its cooldown                                   │
//!     └───────── the same remedy soon after: a relapse. Its cooldown doubles and must always pass ──────┘
//! ```
//!
//! A kept objective under a throttle does not show that the throttle is unneeded. Released then, it would return after
//! minutes, again and again. So the release depends on a prediction without the remedy, with the demand of its workload
//! instead of its present rate. One remedy is released at a time, so that each prediction includes the remaining ones.
//!
//! A throttled workload with a backlog would take all capacity until the backlog is gone. It is released in two steps: first
//! to a rate above its demand, as far as that is predicted to be safe, and completely once its queue is short.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, Nanos};

use crate::detect::Detector;
use crate::ladder::{
    MEMORY_EFFECT, OPS_EFFECT, RemedyAction, RemedyKind, SecondCopies, ThrottledWorkload,
};
use crate::load::{Backend, Change, Cost, Stream, predict};
use crate::measured::Habit;
use crate::responder::Responder;
use crate::sample::{ResourceId, WorkloadId};
use crate::site::{Knowledge, ResponseOrder};

/// Conditions for the release of a remedy other than an appliance.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ReleaseConfig {
    /// Number of consecutive samples in which all objectives are predicted to be met without the remedy, at least
    /// 1. Default: 12.
    pub samples: u32,
    /// Share of each resource's usable capacity that the prediction must leave unused, 0 to 1. Default: 0.1.
    pub margin: f64,
    /// Shortest time in force of a remedy without a prediction, or after a relapse. Default: 10 minutes.
    pub cooldown: Nanos,
    /// Upper limit of the cooldown, which doubles with each relapse. Default: 2 hours.
    pub cooldown_max: Nanos,
}

impl Default for ReleaseConfig {
    fn default() -> Self {
        Self {
            samples: 12,
            margin: 0.1,
            cooldown: Nanos::from_secs(600),
            cooldown_max: Nanos::from_secs(7200),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Answer {
    Throttle {
        rate_per_s: f64,
        /// Demand when the throttle began, requests per second.
        asked_per_s: f64,
    },
    Memory {
        size: Bytes,
    },
    Ops {
        /// Write amplification factor before the remedy.
        waf: f64,
        /// Predicted write amplification factor with it.
        waf_with_spare: f64,
    },
    Mirror {
        copies: SecondCopies,
        /// Costs of a request on the devices of the data and of the mirror, before the mirror existed.
        costs: [Cost; 2],
    },
}

/// Costs of requests on both devices of a mirror, from before it existed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct BeforeCopies {
    ends: [ResourceId; 2],
    costs: [Cost; 2],
}

impl BeforeCopies {
    /// Returns true if the resource is one of the two devices.
    pub(crate) fn has(&self, resource: usize) -> bool {
        self.ends.iter().any(|end| end.index() == resource)
    }

    /// Restores the costs without the mirror: costs that were measured while reads were divided do not apply to a peak
    /// without it.
    pub(crate) fn put_back(&self, habit: &mut Habit) {
        for (end, cost) in self.ends.iter().zip(self.costs) {
            if let Some(of) = habit.costs.get_mut(end.index()) {
                *of = cost;
            }
        }
    }
}

/// Remedy in force.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ActiveRemedy {
    workload: WorkloadId,
    answer: Answer,
    /// Time from which the remedy has its effect; for a forecast, the time of the peak.
    since: Nanos,
    /// Consecutive samples in which the remedy was predicted to be unneeded.
    good: u32,
}

impl ActiveRemedy {
    pub(crate) fn is_on(&self, workload: WorkloadId) -> bool {
        self.workload == workload
    }

    fn kind(&self) -> RemedyKind {
        match self.answer {
            Answer::Throttle { .. } => RemedyKind::Throttle,
            Answer::Memory { .. } => RemedyKind::MemoryShare,
            Answer::Ops { .. } => RemedyKind::OpsShare,
            Answer::Mirror { .. } => RemedyKind::Mirror,
        }
    }
}

/// Shortest time in force of a remedy, derived from earlier releases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cooldown {
    length: Nanos,
    ended: Option<Nanos>,
    relapses: u32,
}

/// Prediction without a remedy.
enum BaselinePrediction {
    Kept,
    /// All objectives would be met with a limit at this rate.
    KeptAt(f64),
    Broken,
    Unknown,
}

impl Responder {
    /// Records an action that starts now. Its release is not considered before `until`.
    pub(crate) fn put_in_force(&mut self, now: Nanos, until: Nanos, action: &RemedyAction) {
        let (workload, answer, effect) = match action {
            RemedyAction::Throttle {
                workload,
                rate_per_s,
            } => {
                let answer = Answer::Throttle {
                    rate_per_s: *rate_per_s,
                    asked_per_s: self.asked(*workload),
                };
                (*workload, answer, Nanos::ZERO)
            }
            RemedyAction::GiveMemory { workload, size } => {
                (*workload, Answer::Memory { size: *size }, MEMORY_EFFECT)
            }
            RemedyAction::GiveOps {
                workload,
                waf,
                waf_with_spare,
            } => {
                let answer = Answer::Ops {
                    waf: *waf,
                    waf_with_spare: *waf_with_spare,
                };
                (*workload, answer, OPS_EFFECT)
            }
            RemedyAction::Mirror(copies) => {
                let stream = &self.streams(|_| None)[copies.workload.index()];
                let answer = Answer::Mirror {
                    copies: copies.clone(),
                    costs: [copies.from, copies.to].map(|r| stream.costs[r.index()]),
                };
                let effect = copies.copy_rate.time_for(copies.bytes);
                (copies.workload, answer, effect)
            }
            RemedyAction::Appliance { .. } | RemedyAction::Move(_) => {
                return;
            }
        };
        let new = ActiveRemedy {
            workload,
            answer,
            since: until.max(now + effect),
            good: 0,
        };
        let key = (new.kind(), workload);
        self.in_force.retain(|a| (a.kind(), a.workload) != key);
        self.in_force.push(new);
        let config = self.config.release;
        let cooldown = self.cooldowns.entry(key).or_insert(Cooldown {
            length: config.cooldown,
            ended: None,
            relapses: 0,
        });
        // The remedy was in force all the time: the action only strengthens it.
        let Some(ended) = cooldown.ended.take() else {
            return;
        };
        if now < ended + cooldown.length + cooldown.length {
            // A release not long ago was too early.
            cooldown.relapses += 1;
            let doubled = cooldown.length + cooldown.length;
            cooldown.length = doubled.min(config.cooldown_max.max(config.cooldown));
        } else {
            (cooldown.relapses, cooldown.length) = (0, config.cooldown);
        }
    }

    /// Returns a workload's demand, for a throttled one that of before the throttle. Its present rate does not show the
    /// demand, neither under the throttle nor while it works off its backlog.
    fn asked(&self, workload: WorkloadId) -> f64 {
        let held = self.held();
        if let Some(held) = held.iter().find(|h| h.workload == workload) {
            return held.asked_per_s;
        }
        let stream = &self.streams(|_| None)[workload.index()];
        let rate = stream.reads_per_s + stream.writes_per_s;
        // The stream of a stalled workload has the earlier demand; only its backlog shows a growing one.
        self.demand(workload.index()).0.max(rate)
    }

    /// Returns all throttled workloads, at their present limits.
    pub(crate) fn held(&self) -> Vec<ThrottledWorkload> {
        let held = |a: &ActiveRemedy| match a.answer {
            Answer::Throttle {
                rate_per_s,
                asked_per_s,
            } => Some(ThrottledWorkload {
                workload: a.workload,
                rate_per_s,
                asked_per_s,
            }),
            _ => None,
        };
        self.in_force.iter().filter_map(held).collect()
    }

    /// Returns a workload's reserved cache share, from a remedy or from its configuration.
    pub(crate) fn part_of(&self, workload: WorkloadId) -> Option<Bytes> {
        let mut own = self.in_force.iter().filter(|a| a.workload == workload);
        let answered = own.find_map(|a| match a.answer {
            Answer::Memory { size } => Some(size),
            _ => None,
        });
        answered.or(self.given.get(&workload).copied())
    }

    /// Returns the costs of a workload's requests from before its mirror, if a mirror is in force.
    pub(crate) fn before_copies(&self, workload: WorkloadId) -> Option<BeforeCopies> {
        match &self.in_force[self.find(RemedyKind::Mirror, workload)?].answer {
            Answer::Mirror { copies, costs } => Some(BeforeCopies {
                ends: [copies.from, copies.to],
                costs: *costs,
            }),
            _ => None,
        }
    }

    /// Keeps the remedies of a workload until its peak. Throttles are not kept, as they protect other workloads.
    pub(crate) fn keep_for(&mut self, workload: WorkloadId, peak_by: Nanos) {
        for answer in self
            .in_force
            .iter_mut()
            .filter(|a| a.workload == workload && a.kind() != RemedyKind::Throttle)
        {
            answer.since = answer.since.max(peak_by);
        }
    }

    /// Returns true if a remedy of this kind is in force for the workload.
    pub(crate) fn has(&self, kind: RemedyKind, workload: WorkloadId) -> bool {
        self.find(kind, workload).is_some()
    }

    /// Returns the index of a remedy in force.
    fn find(&self, kind: RemedyKind, workload: WorkloadId) -> Option<usize> {
        let mut all = self.in_force.iter();
        all.position(|a| a.workload == workload && a.kind() == kind)
    }

    /// Ends a workload's mirror after its creation failed. The workload gets no other mirror for a while.
    pub fn copies_failed(&mut self, now: Nanos, workload: WorkloadId) -> Vec<ResponseOrder> {
        let mut orders = vec![];
        if let Some(i) = self.find(RemedyKind::Mirror, workload) {
            self.end(now, i, &mut orders);
            let until = now + self.config.avoid_host;
            self.rests_until
                .insert((RemedyKind::Mirror, workload), until);
            // The next remedy may be chosen at once.
            self.quiet_until = now;
        }
        orders
    }

    /// Ends mirrors whose data has moved to another device: they have no use any more.
    fn end_void_mirrors(&mut self, now: Nanos, orders: &mut Vec<ResponseOrder>) {
        for i in (0..self.in_force.len()).rev() {
            let ActiveRemedy {
                workload, answer, ..
            } = &self.in_force[i];
            let on = &self.site.workloads[workload.index()].resources;
            if matches!(answer, Answer::Mirror { copies, .. } if !on.contains(&copies.from)) {
                self.end(now, i, orders);
            }
        }
    }

    /// Releases at most one remedy whose conditions are met.
    pub(crate) fn let_go(
        &mut self,
        now: Nanos,
        known: &dyn Knowledge,
        orders: &mut Vec<ResponseOrder>,
    ) {
        self.end_void_mirrors(now, orders);
        if self.in_force.is_empty() {
            return;
        }
        let unsettled = now < self.quiet_until || self.creating();
        if unsettled || self.detectors.iter().any(Detector::is_broken) {
            self.in_force.iter_mut().for_each(|a| a.good = 0);
            return;
        }
        let streams = self.streams(|w| known.curve(w));
        let found: Vec<BaselinePrediction> = self
            .in_force
            .iter()
            .map(|a| self.without(a, &streams))
            .collect();
        for (answer, without) in self.in_force.iter_mut().zip(&found) {
            let holds = matches!(
                without,
                BaselinePrediction::Kept | BaselinePrediction::KeptAt(_)
            );
            // Before its peak a remedy's effect cannot be judged.
            let tells = holds && now >= answer.since;
            answer.good = if tells { answer.good + 1 } else { 0 };
        }
        let due = (0..found.len()).find(|i| self.is_due(now, *i, &found[*i]));
        let Some(i) = due else {
            return;
        };
        self.in_force.iter_mut().for_each(|a| a.good = 0);
        match found[i] {
            BaselinePrediction::KeptAt(rate) => self.ease(now, i, rate, orders),
            _ => self.end(now, i, orders),
        }
    }

    fn is_due(&self, now: Nanos, i: usize, without: &BaselinePrediction) -> bool {
        let answer = &self.in_force[i];
        let cooldown = &self.cooldowns[&(answer.kind(), answer.workload)];
        let cooled = now >= answer.since + cooldown.length;
        match without {
            BaselinePrediction::Kept | BaselinePrediction::KeptAt(_) => {
                answer.good >= self.config.release.samples
                    && now >= answer.since
                    && (cooldown.relapses == 0 || cooled)
            }
            BaselinePrediction::Unknown => cooled,
            BaselinePrediction::Broken => false,
        }
    }

    /// Predicts the state without a remedy and with all else unchanged.
    fn without(&self, of: &ActiveRemedy, streams: &[Stream]) -> BaselinePrediction {
        let backend = Backend {
            use_max: self.site.backend.use_max * (1.0 - self.config.release.margin),
            ..self.site.backend.clone()
        };
        let kept = |streams: &[Stream], change: &Change| {
            predict(&backend, streams, change).fails.is_none()
        };
        let (w, workload) = (of.workload.index(), of.workload);
        let judged = |kept: bool| {
            if kept {
                BaselinePrediction::Kept
            } else {
                BaselinePrediction::Broken
            }
        };
        match &of.answer {
            Answer::Memory { .. } if streams[w].curve.is_none() => BaselinePrediction::Unknown,
            Answer::Memory { .. } => {
                let before = match self.given.get(&workload) {
                    Some(size) => Change::MemoryFor {
                        workload,
                        size: *size,
                    },
                    None => Change::MemoryShared { workload },
                };
                judged(kept(streams, &before))
            }
            Answer::Ops {
                waf,
                waf_with_spare,
            } => {
                if self.costs[w].iter().all(|c| c.write_s.is_none()) {
                    return BaselinePrediction::Unknown;
                }
                let times = waf.max(1.0) / waf_with_spare.max(1.0);
                judged(kept(streams, &Change::WritesCost { workload, times }))
            }
            Answer::Mirror { copies, costs } => {
                let ends = [copies.from.index(), copies.to.index()];
                if costs[0].read_s <= 0.0 {
                    return BaselinePrediction::Unknown;
                }
                let mut before = streams.to_vec();
                for (end, cost) in ends.into_iter().zip(costs) {
                    before[w].costs[end] = *cost;
                }
                judged(kept(&before, &Change::None))
            }
            Answer::Throttle {
                rate_per_s,
                asked_per_s,
            } => {
                let seen = |c: &crate::measured::KnownCost| c.read_s.or(c.write_s).is_some();
                if !self.costs[w].iter().any(seen) {
                    return BaselinePrediction::Unknown;
                }
                let (mut asks, waiting) = self.demand(w);
                let waits = self.history[w].back().is_some_and(|s| s.backlogged());
                if waits {
                    // A load generator that drops requests it cannot issue shows no growing backlog.
                    asks = asks.max(*asked_per_s);
                }
                let kept_at = |rate: f64| kept(&at_rate(streams, w, rate), &Change::None);
                if !kept_at(asks) {
                    return BaselinePrediction::Broken;
                }
                const LITTLE_S: f64 = 10.0;
                if waiting as f64 <= LITTLE_S * asks {
                    return BaselinePrediction::Kept;
                }
                const FASTER: [f64; 4] = [2.0, 1.5, 1.25, 1.1];
                let rates = FASTER.map(|times| times * asks);
                match rates.into_iter().find(|rate| kept_at(*rate)) {
                    Some(rate) if rate > 1.05 * rate_per_s => BaselinePrediction::KeptAt(rate),
                    _ => BaselinePrediction::Broken,
                }
            }
        }
    }

    fn ease(&mut self, now: Nanos, i: usize, rate: f64, orders: &mut Vec<ResponseOrder>) {
        let eased = &mut self.in_force[i];
        if let Answer::Throttle { rate_per_s, .. } = &mut eased.answer {
            *rate_per_s = rate;
        }
        let (kind, workload) = (eased.kind(), eased.workload);
        orders.push(ResponseOrder::Carry {
            action: RemedyAction::Throttle {
                workload,
                rate_per_s: rate,
            },
        });
        self.note_end(now, kind, workload);
    }

    fn end(&mut self, now: Nanos, i: usize, orders: &mut Vec<ResponseOrder>) {
        let ended = self.in_force.remove(i);
        let (workload, kind) = (ended.workload, ended.kind());
        orders.push(match ended.answer {
            Answer::Throttle { .. } => ResponseOrder::Unthrottle { workload },
            Answer::Mirror { copies, .. } => ResponseOrder::TakeBack {
                action: RemedyAction::Mirror(copies),
            },
            Answer::Memory { size } => ResponseOrder::TakeBack {
                action: RemedyAction::GiveMemory { workload, size },
            },
            Answer::Ops {
                waf,
                waf_with_spare,
            } => ResponseOrder::TakeBack {
                action: RemedyAction::GiveOps {
                    workload,
                    waf,
                    waf_with_spare,
                },
            },
        });
        self.note_end(now, kind, workload);
    }

    fn note_end(&mut self, now: Nanos, kind: RemedyKind, workload: WorkloadId) {
        if let Some(cooldown) = self.cooldowns.get_mut(&(kind, workload)) {
            cooldown.ended = Some(now);
        }
    }
}

/// Returns the streams with one workload at another rate and the same mix.
fn at_rate(streams: &[Stream], w: usize, rate: f64) -> Vec<Stream> {
    let mut all = streams.to_vec();
    let present = all[w].reads_per_s + all[w].writes_per_s;
    let times = rate / present.max(1e-9);
    all[w].reads_per_s *= times;
    all[w].writes_per_s *= times;
    all
}
