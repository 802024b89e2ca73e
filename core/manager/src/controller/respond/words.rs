//! Texts and views of remedies for violated objectives: events, and the entries that the interface shows.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use config::RemedyMode;
use slo::ladder::{Remedy, RemedyAction, RemedyKind, taken};
use slo::load::{Change, predict};
use slo::{Cause, Decision, MoveEvent, Promise, Responder, ResponseOrder, WorkloadId};
use units::{Nanos, counted};

use super::live::{LiveState, OpenViolation};
use super::{EventText, HostResponder, peaks};
use crate::view::{
    CopiesView, OtherView, PeakOutcome, RefusedView, ResponseCounter, ResponseState, ResponseView,
};

/// Most remedies of all hosts that are kept for the interface; the store has their events.
const VIEWS_MAX: usize = 200;

/// A change to the remedies that the interface shows.
pub(super) enum ViewChange {
    New(Box<ResponseView>),
    /// An objective is met again.
    Recovered {
        volume: String,
        at: Nanos,
        /// End of the last window that violated it.
        violated: Nanos,
    },
    /// A peak for which a decision was shown has ended.
    PeakOver {
        volume: String,
        /// Forecast begin of the peak.
        peak: Nanos,
        outcome: PeakOutcome,
    },
    /// A remedy that acted on a volume has ended.
    TakenBack {
        /// Kind of the remedy; none means all kinds.
        remedy: Option<RemedyKind>,
        to: String,
        at: Nanos,
    },
    /// A move has brought a volume to its target.
    Moved {
        to: String,
        at: Nanos,
    },
}

/// Remedies that the interface shows, oldest first, with counters.
#[derive(Debug, Default)]
pub(in crate::controller) struct ShownResponses {
    views: VecDeque<ResponseView>,
    next: u64,
    counts: BTreeMap<(String, &'static str), u64>,
    /// Time from which hosts get nodes; until then an earlier user may still use its node.
    pub(super) nodes_from: Option<Nanos>,
    /// Highest number that was ordered for a node of a donor host.
    pub(super) last_node: u64,
    /// Hosts for which an event has reported too many volumes.
    pub(super) too_many: BTreeSet<String>,
}

impl ShownResponses {
    /// Returns the remedies, oldest first.
    pub(in crate::controller) fn views(&self) -> impl DoubleEndedIterator<Item = &ResponseView> {
        self.views.iter()
    }

    pub(in crate::controller) fn counters(&self) -> Vec<ResponseCounter> {
        let all = self.counts.iter();
        all.map(|((remedy, what), count)| ResponseCounter {
            remedy: remedy.clone(),
            what: (*what).into(),
            count: *count,
        })
        .collect()
    }

    fn count(&mut self, remedy: Option<RemedyKind>, what: &'static str) {
        let remedy = remedy.map_or("none", |r| r.name()).to_string();
        *self.counts.entry((remedy, what)).or_default() += 1;
    }

    pub(super) fn take_in(&mut self, host: &str, changes: Vec<ViewChange>) {
        for change in changes {
            match change {
                ViewChange::New(mut view) => {
                    self.next += 1;
                    (view.id, view.host) = (self.next, host.into());
                    let what = match view.state {
                        ResponseState::Recommended => "recommended",
                        ResponseState::InForce => "ordered",
                        ResponseState::TakenBack => "taken-back",
                        ResponseState::Done => "done",
                        ResponseState::NoRemedy => "no-remedy",
                    };
                    self.count(view.remedy, what);
                    // A stronger remedy replaces the one in force.
                    if view.state == ResponseState::InForce {
                        let same = |v: &&mut ResponseView| {
                            v.state == ResponseState::InForce
                                && v.host == view.host
                                && (v.remedy, &v.to) == (view.remedy, &view.to)
                        };
                        for before in self.views.iter_mut().filter(same) {
                            before.state = ResponseState::TakenBack;
                            before.ended_ns = Some(view.at_ns);
                        }
                    }
                    if self.views.len() == VIEWS_MAX {
                        // A remedy in force stays in the list.
                        let over = |v: &ResponseView| v.state != ResponseState::InForce;
                        let oldest = self.views.iter().position(over).unwrap_or(0);
                        self.views.remove(oldest);
                    }
                    self.views.push_back(*view);
                }
                ViewChange::Recovered {
                    volume,
                    at,
                    violated,
                } => {
                    let of = |v: &&mut ResponseView| {
                        let broken = v.peak.is_none() && v.recovered_ns.is_none();
                        broken && v.host == host && v.volume == volume
                    };
                    for view in self.views.iter_mut().filter(of) {
                        view.recovered_ns = Some(at.0);
                        view.violated_last_ns = Some(violated.0);
                    }
                }
                ViewChange::PeakOver {
                    volume,
                    peak,
                    outcome,
                } => {
                    let of = |v: &&mut ResponseView| v.host == host && v.volume == volume;
                    let shown = self.views.iter_mut().filter(of);
                    let peaks = shown.filter_map(|v| v.peak.as_mut());
                    for shown in peaks.filter(|p| p.at_ns == peak.0) {
                        shown.outcome = Some(outcome);
                    }
                }
                ViewChange::TakenBack { remedy, to, at } => {
                    let of = |v: &ResponseView| v.host == host && v.to.as_ref() == Some(&to);
                    let ended =
                        |v: &ResponseView| of(v) && (remedy.is_none() || v.remedy == remedy);
                    self.end(at, ResponseState::TakenBack, ended);
                }
                ViewChange::Moved { to, at } => {
                    let of = |v: &ResponseView| v.host == host && v.to.as_ref() == Some(&to);
                    let moved = |v: &ResponseView| of(v) && v.remedy == Some(RemedyKind::Move);
                    self.end(at, ResponseState::Done, moved);
                }
            }
        }
    }

    /// Ends all remedies of a host.
    pub(super) fn let_go(&mut self, host: &str, at: Nanos) {
        self.end(at, ResponseState::TakenBack, |v| v.host == host);
    }

    fn end(&mut self, at: Nanos, state: ResponseState, which: impl Fn(&ResponseView) -> bool) {
        let in_force = |v: &&mut ResponseView| v.state == ResponseState::InForce && which(v);
        let mut ended = vec![];
        for view in self.views.iter_mut().filter(in_force) {
            view.state = state;
            view.ended_ns = Some(at.0);
            ended.push(view.remedy);
        }
        let what = match state {
            ResponseState::Done => "done",
            _ => "taken-back",
        };
        for remedy in ended {
            self.count(remedy, what);
        }
    }
}

impl HostResponder {
    /// Returns the view changes for moves that have ended.
    pub(super) fn moved(&self, at: Nanos, ended: &[(usize, MoveEvent)]) -> Vec<ViewChange> {
        if self.live.is_none() {
            return vec![];
        }
        let change = |(w, event): &(usize, MoveEvent)| {
            let to = self.name(*w).to_string();
            match event {
                MoveEvent::Done => ViewChange::Moved { to, at },
                MoveEvent::Failed { .. } => ViewChange::TakenBack {
                    remedy: Some(RemedyKind::Move),
                    to,
                    at,
                },
            }
        };
        ended.iter().map(change).collect()
    }

    /// Returns the view changes for appliances that have failed.
    pub(super) fn ended(&self, at: Nanos, failed: &[usize]) -> Vec<ViewChange> {
        let failed = failed.iter().filter(|_| self.live.is_some());
        let change = |w: &usize| ViewChange::TakenBack {
            remedy: Some(RemedyKind::Appliance),
            to: self.name(*w).into(),
            at,
        };
        failed.map(change).collect()
    }

    /// Returns the view changes for remedies that these orders end.
    pub(super) fn taken_back(&self, at: Nanos, orders: &[ResponseOrder]) -> Vec<ViewChange> {
        let of = |order: &ResponseOrder| match order {
            ResponseOrder::Unthrottle { workload } => Some((RemedyKind::Throttle, *workload)),
            ResponseOrder::TakeBack { action } => Some((action.kind(), action.workload())),
            ResponseOrder::RemoveAppliance { workload, .. } => {
                Some((RemedyKind::Appliance, *workload))
            }
            _ => None,
        };
        let taken_back = orders.iter().filter_map(of);
        taken_back
            .map(|(remedy, w)| ViewChange::TakenBack {
                remedy: Some(remedy),
                to: self.name(w.index()).into(),
                at,
            })
            .collect()
    }
}

fn name(responder: &Responder, w: WorkloadId) -> &str {
    &responder.site().workloads[w.index()].name
}

fn objective(promise: &Promise) -> String {
    promise.objective().map_or_else(String::new, |o| {
        format!("{} at most {}", o.statistic.name(), o.latency.words())
    })
}

/// Text of the event that an objective is violated.
pub(super) fn found(responder: &Responder, w: WorkloadId) -> String {
    let evidence = responder.evidence(w);
    let promise = &responder.site().workloads[w.index()].objective;
    format!(
        "{} violates its objective, {}, in {} of the last {} windows",
        name(responder, w),
        objective(promise),
        evidence.violating,
        evidence.samples
    )
}

/// Text of the event that an objective is met again.
pub(super) fn recovered(name: &str, broken: &OpenViolation) -> String {
    let after = broken.violated.saturating_sub(broken.found);
    let done = match &broken.done {
        Some(done) => format!("; remedy: {done}"),
        None => "; no remedy was applied".into(),
    };
    match after {
        Nanos::ZERO => format!(
            "{name} meets its objective again: no window has violated it since the violation was found{done}"
        ),
        after => format!(
            "{name} meets its objective again: the last violation ended {} after it was found{done}",
            after.words()
        ),
    }
}

/// Evidence of a decision, as texts.
fn evidence(
    live: &LiveState,
    responder: &Responder,
    decision: &Decision,
    affected: WorkloadId,
) -> Vec<String> {
    let mut said = Vec::new();
    match decision.cause {
        Cause::Violation { evidence, .. } => said.push(format!(
            "objective violated in {} of the last {} windows",
            evidence.violating, evidence.samples
        )),
        Cause::Forecast { at, .. } => {
            return expected(responder, decision, affected, at);
        }
    }
    let resources = &responder.site().backend.resources;
    for taker in &decision.takers {
        let by = match live.rated.contains(&taker.resource) {
            true => " (estimated from its rating)",
            false => "",
        };
        said.push(format!(
            "{} uses {:.0} % of {}, which is saturated{by}",
            name(responder, taker.workload),
            100.0 * taker.taken,
            resources[taker.resource.index()].name
        ));
    }
    let found = decision.interference.as_ref();
    let pairs = found.iter().flat_map(|f| &f.pairs);
    for pair in pairs.filter(|p| p.edge == slo::interference::Edge::Joined) {
        let other = match affected.index() {
            a if a == pair.a => pair.b,
            b if b == pair.b => pair.a,
            _ => continue,
        };
        said.push(format!(
            "the load of {} correlates with it (strength {:.2})",
            name(responder, WorkloadId(other as u16)),
            pair.strength
        ));
    }
    if decision.set.len() < 2 {
        said.push("no volume is known to interfere with it".into());
    }
    let untested = found.map_or(0, |f| {
        let other = |p: &(usize, usize)| match affected.index() {
            a if a == p.0 => Some(p.1),
            a if a == p.1 => Some(p.0),
            _ => None,
        };
        let unknown = |w: &usize| decision.set.iter().all(|known| known.index() != *w);
        f.untested.iter().filter_map(other).filter(unknown).count()
    });
    if untested > 0 {
        said.push(format!(
            "too few samples to test for interference: {} on its devices",
            counted(untested, "volume")
        ));
    }
    if responder.is_unmeasured(affected) {
        said.push("the device time of each volume is not measured on this host".into());
    }
    said
}

/// Evidence of a decision ahead of a peak, as texts.
fn expected(
    responder: &Responder,
    decision: &Decision,
    affected: WorkloadId,
    at: Nanos,
) -> Vec<String> {
    let mut said = Vec::new();
    let begins = match at.saturating_sub(decision.at) {
        Nanos::ZERO => "now".into(),
        ahead => format!("in {}", ahead.words()),
    };
    if let Some(peak) = decision.peak {
        said.push(format!(
            "a peak of {:.0} requests/s is forecast to begin {begins}, from the last {}",
            peak.rate_per_s,
            counted(peak.seen, "season")
        ));
    }
    let caches = [RemedyKind::MemoryShare, RemedyKind::Appliance];
    let by_curve = caches.iter().any(|kind| responder.allows(*kind));
    if by_curve && decision.streams[affected.index()].curve.is_none() {
        said.push("no miss-ratio curve of an earlier peak is known".into());
    }
    if responder.is_unmeasured(affected) {
        said.push("the device time of each volume is not measured on this host".into());
    }
    said
}

fn answer(responder: &Responder, remedy: &Remedy) -> String {
    let lost = remedy.price.lost_per_s;
    match &remedy.action {
        Some(RemedyAction::Throttle {
            workload,
            rate_per_s,
        }) => format!(
            "throttle {} to {rate_per_s:.0} requests/s ({lost:.0} requests/s less)",
            name(responder, *workload)
        ),
        Some(RemedyAction::GiveMemory { workload, size }) => format!(
            "reserve {} of the cache for {} (other volumes: {lost:.0} more device reads/s)",
            size.words(),
            name(responder, *workload)
        ),
        Some(RemedyAction::Mirror(copies)) => format!(
            "mirror {} of {} on {} ({:.0} % of its reads)",
            copies.bytes.words(),
            name(responder, copies.workload),
            responder.site().backend.resources[copies.to.index()].name,
            100.0 * copies.reads
        ),
        Some(RemedyAction::Move(other)) => format!(
            "move {} to {} ({} to copy)",
            name(responder, other.workload),
            responder.site().backend.resources[other.to.index()].name,
            other.bytes.words()
        ),
        Some(RemedyAction::Appliance {
            workload,
            host,
            cache,
            hits,
        }) => {
            let site = responder.site();
            let on = site.hosts.iter().find(|h| h.id == *host);
            format!(
                "caching appliance for {}: {} on {} ({:.0} % of its reads expected to hit)",
                name(responder, *workload),
                cache.words(),
                on.map_or("a server", |h| h.name.as_str()),
                100.0 * hits
            )
        }
        Some(action) => format!(
            "{} for {}",
            remedy.kind.name(),
            name(responder, action.workload())
        ),
        None => remedy.kind.name().into(),
    }
}

fn other(responder: &Responder, remedy: &Remedy) -> OtherView {
    OtherView {
        remedy: remedy.kind,
        action: answer(responder, remedy),
        price_s: remedy.total.seconds(),
        price: remedy.total.to_string(),
    }
}

/// Price of a remedy, and the effective alternatives with their prices.
fn weighed(
    price: Option<&str>,
    others: &[OtherView],
    mode: impl Fn(RemedyKind) -> RemedyMode,
) -> String {
    let mut said = format!("price: {}", price.unwrap_or_default());
    for other in others {
        let OtherView { action, price, .. } = other;
        let mode = mode(other.remedy);
        said.push_str(&format!(
            "; alternative not taken (mode {mode}): {action}, price: {price}"
        ));
    }
    said
}

/// Predicted utilization of the devices that the affected volume uses, if anything was measured there.
fn prediction(
    responder: &Responder,
    decision: &Decision,
    remedy: &Remedy,
    affected: WorkloadId,
) -> Option<String> {
    let backend = &responder.site().backend;
    let now = predict(backend, &decision.streams, &Change::None);
    let after = remedy.prediction.as_ref()?;
    let own = &responder.site().workloads[affected.index()].resources;
    let known = own.iter().filter(|r| now.uses[r.index()] > 0.0);
    // For a move, also the utilization of the target.
    let target = match &remedy.action {
        Some(RemedyAction::Move(other)) => Some(&other.to),
        _ => None,
    };
    let known = known.chain(target.filter(|to| !own.contains(to)));
    let of = |r: &slo::ResourceId| {
        format!(
            "utilization of {} {:.0} % instead of {:.0} %",
            backend.resources[r.index()].name,
            100.0 * after.uses[r.index()],
            100.0 * now.uses[r.index()]
        )
    };
    let said: Vec<String> = known.map(of).collect();
    (!said.is_empty()).then(|| said.join(", "))
}

/// Adds the event text and the view of a decision. None if the same recommendation was shown before, or a peak needs no remedy.
pub(super) fn decided(
    live: &mut LiveState,
    responder: &Responder,
    decision: &Decision,
    said: &mut Vec<EventText>,
) -> Option<ViewChange> {
    let affected = match decision.cause {
        Cause::Violation { affected, .. } => affected,
        Cause::Forecast { workload, .. } => workload,
    };
    let peak = peaks::shown(decision);
    if decision.peak.is_some_and(|peak| !peak.breaks) {
        return None;
    }
    let carried = responder.carried(&decision.remedies);
    let would = carried.or_else(|| taken(&decision.remedies));
    let to = would
        .and_then(|r| r.action.as_ref())
        .map(RemedyAction::workload);
    let only_said = live.only_said;
    let mode = would.map(|r| live.mode(r.kind));
    let evidence = evidence(live, responder, decision, affected);
    let mut found = decision.at;
    if peak.is_none() {
        let broken = live.broken.get_mut(&affected.index())?;
        let key = would.zip(to).map(|(r, to)| (r.kind, to));
        if carried.is_none() && broken.said.replace(key) == Some(key) {
            return None;
        }
        found = broken.found;
    }
    let predicted = would.and_then(|r| prediction(responder, decision, r, affected));
    let refused = decision.remedies.iter().filter_map(|r| {
        // Kinds that are not allowed were not evaluated.
        let looked_at = responder.allows(r.kind);
        let why = r.refused.clone().filter(|_| looked_at)?;
        Some(RefusedView {
            remedy: r.kind,
            why,
        })
    });
    let refused: Vec<RefusedView> = refused.collect();
    let others = decision.remedies.iter().filter(|r| r.would_do());
    let others = others.filter(|r| would.is_some_and(|w| w.kind != r.kind));
    let others: Vec<OtherView> = others.map(|r| other(responder, r)).collect();
    let answer = would.map_or_else(|| "none".into(), |r| answer(responder, r));
    let state = match (carried, would) {
        (Some(_), _) => ResponseState::InForce,
        (None, Some(_)) => ResponseState::Recommended,
        (None, None) => ResponseState::NoRemedy,
    };
    let rests_on = evidence.join("; ");
    let volume = name(responder, affected);
    let expected = predicted.as_ref().map_or(
        "no prediction: the utilization of its devices is unknown".into(),
        |p| format!("predicted: {p}"),
    );
    let price = would.map(|r| r.total.to_string());
    let weighed = weighed(price.as_deref(), &others, |kind| live.config.mode(kind));
    let text = match state {
        ResponseState::InForce => {
            format!("{volume}: {rests_on}. Remedy: {answer}; {expected}; {weighed}")
        }
        ResponseState::Recommended => {
            let why = match (only_said, mode) {
                (Some(why), _) => why.to_string(),
                (None, mode) => {
                    let kind = would.map_or("", |r| r.kind.name());
                    format!(
                        "the mode of {kind} is {}",
                        mode.unwrap_or(RemedyMode::Recommend)
                    )
                }
            };
            format!(
                "{volume}: {rests_on}. Recommended remedy: {answer}; {expected}; {weighed}. Not applied: {why}"
            )
        }
        _ => {
            let whys: Vec<String> = refused
                .iter()
                .map(|r| format!("{}: {}", r.remedy.name(), r.why))
                .collect();
            format!("{volume}: {rests_on}. No remedy: {}", whys.join("; "))
        }
    };
    said.push((affected.index(), text));
    let done = carried.map(|_| answer.clone());
    if peak.is_some() {
        peaks::wait_for(live, decision, done);
    } else if let Some(broken) = live.broken.get_mut(&affected.index())
        && done.is_some()
    {
        (broken.done, broken.said) = (done, None);
    }
    Some(ViewChange::New(Box::new(ResponseView {
        id: 0,
        host: String::new(),
        volume: volume.into(),
        found_ns: found.0,
        peak,
        at_ns: decision.at.0,
        evidence,
        remedy: would.map(|r| r.kind),
        to: to.map(|w| name(responder, w).into()),
        rate_per_s: would.and_then(|r| match r.action {
            Some(RemedyAction::Throttle { rate_per_s, .. }) => Some(rate_per_s),
            _ => None,
        }),
        cache_bytes: would.and_then(|r| match r.action {
            Some(RemedyAction::GiveMemory { size, .. }) => Some(size.0),
            _ => None,
        }),
        copies: would.and_then(|r| match &r.action {
            Some(RemedyAction::Mirror(copies)) => Some(CopiesView {
                device: responder.site().backend.resources[copies.to.index()]
                    .name
                    .clone(),
                bytes: copies.bytes.0,
                reads: copies.reads,
            }),
            _ => None,
        }),
        lost_per_s: would.map(|r| r.price.lost_per_s),
        action: answer,
        price_s: would.map(|r| r.total.seconds()),
        price,
        others,
        prediction: predicted,
        refused,
        state,
        violated_last_ns: None,
        recovered_ns: None,
        ended_ns: None,
    })))
}
