//! List of problems; the page, the commands, the metrics and the audit log use it.
//!
//! ```text
//!   reports: problems of arrays, errors and usage of devices ─┐
//!   objectives of the last window                             ├─▶ find ─▶ compare with known ─▶ begin / end (events)
//!   hosts, jobs, predictions, classes, tiers                 ─┘               │
//!                                                                            └─▶ since when; stored over restarts
//! ```
//!
//! A problem of single windows ends after some windows without it, and one with a threshold ends some way below it: otherwise the
//! audit log would fill with begins and ends. Until then its text is in the past tense. Problems of a host that has not reported
//! since the start of the controller are kept.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use units::{Bytes, Nanos, counted};

use super::failures::{ATTEMPTS_TOLD, Failure, RetryCondition};
use super::host::Host;
use super::{Controller, LEASE_WINDOWS};
use crate::problem::{ProblemKind, ProblemView};
use crate::service::TokenTerm;
use crate::view::{EventKind, HostState};
use crate::wire::{DeviceWindow, VolumeWindow, WindowReport};

/// Share of a tier's space above which it is nearly full, if the policy has no `space_high`.
const NEARLY_FULL: f64 = 0.9;

/// Share of a tier's space above which it is full: the rest has no room for a volume.
const FULL: f64 = 0.99;

/// Distance below a threshold at which the problem ends.
const FULL_HYSTERESIS: f64 = 0.02;

/// Windows without an intermittent problem after which it ends.
const LINGERS_WINDOWS: u64 = 6;

/// Most volumes of a host with a problem of their own; the others are counted. Protects the audit log from a device that hangs.
const VOLUMES_NAMED: usize = 16;

/// Time before the expiry of a token at which it becomes a problem.
const TOKEN_WARNING: Nanos = Nanos::from_secs(14 * 86_400);

/// Kind, host and subject.
type Key = (ProblemKind, Option<String>, String);

fn key(t: &ProblemView) -> Key {
    (t.kind, t.host.clone(), t.subject.clone())
}

/// Known problems.
#[derive(Debug, Default)]
pub(super) struct Problems {
    known: BTreeMap<Key, ActiveProblem>,
    dirty: bool,
}

#[derive(Debug)]
struct ActiveProblem {
    view: ProblemView,
    was: Option<String>,
    seen: Nanos,
}

impl ActiveProblem {
    /// Changes the text to the past tense: the problem has not been seen since.
    fn speak_in_the_past(&mut self, now: Nanos) {
        if let Some(was) = &self.was {
            let quiet = now.saturating_sub(self.seen).words();
            self.view.what = format!("{was}; not seen for {quiet}");
        }
    }
}

/// Stored form of a problem.
#[derive(Debug, Serialize, Deserialize)]
struct StoredProblem {
    #[serde(flatten)]
    view: ProblemView,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    was: Option<String>,
}

impl Problems {
    /// Restores the stored problems; kinds that this version does not know are dropped. [`Self::seen_at`] follows.
    pub(super) fn restore(value: &str) -> Result<Self, serde_json::Error> {
        let rows: Vec<serde_json::Value> = serde_json::from_str(value)?;
        let kept = rows
            .into_iter()
            .filter_map(|r| serde_json::from_value::<StoredProblem>(r).ok());
        let known = |StoredProblem { view, was }: StoredProblem| {
            let seen = Nanos(0);
            (key(&view), ActiveProblem { view, was, seen })
        };
        Ok(Self {
            known: kept.map(known).collect(),
            dirty: false,
        })
    }

    /// Counts all problems as seen at this time: the end of the controller before.
    pub(super) fn seen_at(&mut self, at: Nanos) {
        self.known.values_mut().for_each(|known| known.seen = at);
    }

    /// Returns the value to store, if it has changed.
    pub(super) fn take_changed(&mut self) -> Option<String> {
        let kept = |k: &ActiveProblem| StoredProblem {
            view: k.view.clone(),
            was: k.was.clone(),
        };
        std::mem::take(&mut self.dirty).then(|| {
            let all: Vec<StoredProblem> = self.known.values().map(kept).collect();
            serde_json::to_string(&all).expect("plain data can be serialized")
        })
    }

    fn is_known(&self, kind: ProblemKind, host: &str, subject: &str) -> bool {
        let key = (kind, Some(host.to_string()), subject.to_string());
        self.known.contains_key(&key)
    }

    /// Returns all problems, most urgent first.
    pub(super) fn list(&self) -> Vec<ProblemView> {
        self.known.values().map(|k| k.view.clone()).collect()
    }
}

/// Found problems, without their begin; intermittent ones with their text in the past tense.
#[derive(Default)]
struct ProblemList(Vec<(ProblemView, Option<String>)>);

impl ProblemList {
    /// Adds a problem of one window; `was` is its text in the past tense.
    fn add(&mut self, kind: ProblemKind, host: &str, subject: &str, what: String, was: String) {
        self.with(kind, Some(host), subject, what, None);
        self.0.last_mut().expect("the problem was just added").1 = Some(was);
    }

    fn with(
        &mut self,
        kind: ProblemKind,
        host: Option<&str>,
        subject: &str,
        what: String,
        undecided: Option<String>,
    ) {
        let view = ProblemView {
            kind,
            host: host.map(Into::into),
            subject: subject.into(),
            what,
            undecided,
            since_ns: 0,
        };
        self.0.push((view, None));
    }
}

impl Controller {
    /// Checks again if no report arrived for a window: silence is a problem too.
    pub(super) fn look_now_and_then(&mut self) {
        if self.now.at.saturating_sub(self.looked) >= self.settings.words.window {
            self.watch();
            self.look_for_problem();
        }
    }

    /// Finds all problems, and writes events for those that begin and end.
    pub(super) fn look_for_problem(&mut self) {
        let now = self.now.at;
        self.looked = now;
        let lingers = Nanos(self.settings.words.window.0 * LINGERS_WINDOWS);
        let mut found: BTreeMap<Key, (ProblemView, Option<String>)> = BTreeMap::new();
        for one in self.find_problem() {
            found.entry(key(&one.0)).or_insert(one);
        }
        let mut over = Vec::new();
        let silent: Vec<&String> = self
            .hosts
            .iter()
            .filter(|(_, h)| h.last.is_none())
            .map(|(name, _)| name)
            .collect();
        self.problems.known.retain(|key, known| {
            let host = key.1.as_ref();
            let unknown = host.is_some_and(|h| silent.contains(&h)) && !about_silence(key.0);
            let lingering = key.0.comes_and_goes() && now.saturating_sub(known.seen) < lingers;
            let is_found = found.contains_key(key);
            let stays = is_found || unknown || lingering;
            if !stays {
                over.push(known.view.clone());
            } else if !is_found {
                known.speak_in_the_past(now);
            }
            stays
        });
        let mut began = Vec::new();
        for (key, (mut view, was)) in found {
            let before = self.problems.known.get(&key);
            view.since_ns = before.map_or(now.0, |known| known.view.since_ns);
            if before.is_none() {
                began.push(view.clone());
            }
            let seen = now;
            self.problems
                .known
                .insert(key, ActiveProblem { view, was, seen });
        }
        self.problems.dirty |= !began.is_empty() || !over.is_empty();
        for t in over.iter().filter(|t| !t.kind.has_events_of_its_own()) {
            let lasted = Nanos(now.0.saturating_sub(t.since_ns)).words();
            let text = format!("ended after {lasted}: {} of {}", t.kind, t.subject);
            self.problem_event(t, text);
        }
        for t in began.iter().filter(|t| !t.kind.has_events_of_its_own()) {
            let undecided = t.undecided.as_ref().map(|u| format!(" Not decided: {u}."));
            let text = format!(
                "{}: {}.{}",
                t.kind,
                t.what.trim_end_matches('.'),
                undecided.unwrap_or_default()
            );
            self.problem_event(t, text);
        }
    }

    fn problem_event(&mut self, problem: &ProblemView, text: String) {
        let of_volume = matches!(
            problem.kind,
            ProblemKind::VolumeIncomplete
                | ProblemKind::VolumeDamaged
                | ProblemKind::RequestsFail
                | ProblemKind::ObjectiveViolated
        );
        let volume = of_volume.then_some(problem.subject.as_str());
        self.event(EventKind::Problem, problem.host.as_deref(), volume, text);
    }

    fn find_problem(&self) -> Vec<(ProblemView, Option<String>)> {
        let mut found = ProblemList::default();
        if let Some(why) = self.trust.broken() {
            let undecided = "moves for latency, which need the approval of an operator".to_string();
            let kind = ProblemKind::PredictionsFail;
            found.with(kind, None, "predictions", why, Some(undecided));
        }
        self.problem_of_tokens(&mut found);
        for host in self.hosts.values() {
            self.problem_of_host(host, &mut found);
            self.problem_of_lease(host, &mut found);
            self.problem_of_failures(host, &mut found);
            let Some(report) = host.report() else {
                continue;
            };
            self.problem_of_array(host, report, &mut found);
            self.problem_of_devices(host, report, &mut found);
            self.problem_of_tiers(host, report, &mut found);
            self.problem_of_classes(host, report, &mut found);
            if self.state_of(host) == HostState::Live {
                self.problem_of_volumes(host, report, &mut found);
            }
        }
        found.0
    }

    /// Finds tokens that expire soon or have expired.
    fn problem_of_tokens(&self, found: &mut ProblemList) {
        let soon = self.now.unix_ms.saturating_add(TOKEN_WARNING.0 / 1_000_000);
        for TokenTerm {
            name,
            role,
            expires_ms,
        } in &self.tokens
        {
            let Some(expires_ms) = expires_ms.filter(|at| *at <= soon) else {
                continue;
            };
            let left = Nanos(expires_ms.saturating_sub(self.now.unix_ms) * 1_000_000);
            let when = match left {
                Nanos(0) => "has expired".to_string(),
                left => format!("expires in {}", left.words()),
            };
            let what = format!(
                "the token of {name} (role {role}) {when}: add a line with a new secret to the token file, \
                 run `terrace reload`, and give the secret to its user"
            );
            let kind = ProblemKind::TokenExpires;
            found.with(kind, None, &format!("token {name}"), what, None);
        }
    }

    /// Finds silent hosts, hosts without a decision, and stuck jobs.
    fn problem_of_host(&self, host: &Host, found: &mut ProblemList) {
        let name = host.name.as_str();
        let nothing = Some(format!("moves and remedies of {name}"));
        let mut say = |kind, what| found.with(kind, Some(name), name, what, nothing.clone());
        match self.state_of(host) {
            HostState::Live => {}
            HostState::Late => say(
                ProblemKind::HostLate,
                format!("host {name} is late: its last report is old; check its agent"),
            ),
            HostState::Lost if host.last.is_none() => say(
                ProblemKind::HostLost,
                format!("host {name} has not reported yet; check its agent"),
            ),
            HostState::Lost => say(
                ProblemKind::HostLost,
                format!(
                    "host {name} is lost: it does not report, and its load is unknown; check its agent"
                ),
            ),
        }
        if let Some(problem) = &host.problem {
            match host.strategy_failed {
                false => say(ProblemKind::NoDecision, format!("host {name}: {problem}")),
                true => found.with(
                    ProblemKind::NoDecision,
                    Some(name),
                    name,
                    format!(
                        "host {name}: {problem}; drains, rules and space are planned without the strategy, which is started again: \
                         correct its file, or choose another strategy"
                    ),
                    Some(format!("moves of {name} for latency")),
                ),
            }
        }
        for (id, progress) in host.progress.iter().filter(|p| p.1.called_stuck) {
            let Some(job) = host.executor.get(*id).filter(|j| j.state.active()) else {
                continue;
            };
            let volume = host.kept.names.of_volume(job.order.volume);
            let idle = self.now.at.saturating_sub(progress.moved_at).words();
            found.with(
                ProblemKind::JobStuck,
                Some(name),
                &format!("job {}", id.0),
                format!(
                    "job {} of {volume} is stuck: no data copied for {idle}; check its devices, or run `terrace job cancel`",
                    id.0
                ),
                Some(format!("further moves of {volume}")),
            );
        }
    }

    /// Finds moves that fail repeatedly, in the order in which they began to fail.
    fn problem_of_failures(&self, host: &Host, found: &mut ProblemList) {
        let failures = host.kept.failures.iter();
        let failures = failures.flat_map(|(v, of)| of.iter().map(move |(d, f)| (f.since, v, d, f)));
        let told = |f: &Failure| {
            f.attempts >= ATTEMPTS_TOLD || matches!(f.next, RetryCondition::Unlike(_))
        };
        let mut failures: Vec<_> = failures.filter(|f| told(f.3)).collect();
        failures.sort_by_key(|f| (f.0, f.1, f.2));
        let kind = ProblemKind::MoveFailing;
        for (_, volume, device, failure) in failures.iter().take(VOLUMES_NAMED) {
            found.with(
                kind,
                Some(&host.name),
                &format!("{volume} to {device}"),
                failure.words(volume, device, self.now.at),
                Some(format!("moves of {volume} to {device}")),
            );
        }
        if let Some(others) = failures.len().checked_sub(VOLUMES_NAMED).filter(|n| *n > 0) {
            let what = format!(
                "{others} more moves fail repeatedly: `terrace why VOLUME` shows the causes"
            );
            found.with(kind, Some(&host.name), OTHERS, what, None);
        }
    }

    /// Finds a second controller of the host's array.
    fn problem_of_lease(&self, host: &Host, found: &mut ProblemList) {
        let Some(lease) = host.report().and_then(|r| r.lease.as_ref()) else {
            return;
        };
        let name = host.name.as_str();
        let (what, undecided) = match &lease.refused {
            _ if self.holder_beside(host).is_some() => (
                format!(
                    "the array of host {name} obeys another {} and rejects the orders of this controller ({}): \
                     stop one of the two; the lease ends {} after its last renewal",
                    lease.holder,
                    self.id,
                    Nanos(self.settings.words.window.0 * LEASE_WINDOWS).words()
                ),
                Some(format!("moves and remedies of {name}")),
            ),
            Some(other) => (
                format!(
                    "another {other} tries to give orders to the array of host {name} and is rejected: \
                     stop it, or remove host {name} from its configuration"
                ),
                None,
            ),
            None => return,
        };
        found.with(
            ProblemKind::TwoControllers,
            Some(name),
            name,
            what,
            undecided,
        );
    }

    /// Adds the problems that an array reports.
    fn problem_of_array(&self, host: &Host, report: &WindowReport, found: &mut ProblemList) {
        for t in &report.problems {
            let kind = ProblemKind::of_array(&t.kind);
            if kind == ProblemKind::ControllerDegraded {
                continue; // the controller lists its own problems itself
            }
            // Several problems of one subject, such as two left files, become one entry that names each.
            let same = |v: &ProblemView| {
                v.kind == kind && v.host.as_ref() == Some(&host.name) && v.subject == t.about
            };
            if let Some((known, _)) = found.0.iter_mut().find(|(v, _)| same(v)) {
                known.what = format!("{}; {}", known.what, t.what);
                continue;
            }
            let undecided = match kind {
                ProblemKind::WorkerStalled => {
                    Some("moves of its volumes: their load is unknown".to_string())
                }
                ProblemKind::MapFailing => {
                    Some("all moves: the map cannot record a new place of data".to_string())
                }
                // The subject can also be the disk of a map copy, which is no target of moves.
                ProblemKind::NoSpace => {
                    let device = report.devices.iter().any(|d| d.name == t.about);
                    device.then(|| format!("moves to {}", t.about))
                }
                ProblemKind::DeviceLost
                | ProblemKind::DeviceOverwritten
                | ProblemKind::RemoteNotOwned => Some(format!("moves from and to {}", t.about)),
                ProblemKind::DeviceUnreachable => {
                    let device = report.devices.iter().find(|d| d.name == t.about);
                    let tier = device.map(|d| &d.tier);
                    let tier = tier.filter(|t| self.unreachable(report, t));
                    tier.map(|t| format!("moves to tier {t}"))
                }
                ProblemKind::VolumeDamaged | ProblemKind::VolumeIncomplete => {
                    Some(format!("the placement of {}", t.about))
                }
                _ => None,
            };
            found.with(kind, Some(&host.name), &t.about, t.what.clone(), undecided);
        }
    }

    /// Finds devices that are unreachable or fail.
    fn problem_of_devices(&self, host: &Host, report: &WindowReport, found: &mut ProblemList) {
        let live = self.state_of(host) == HostState::Live;
        for d in &report.devices {
            let reported = |kind: ProblemKind| {
                let of_it = report.problems.iter().filter(|t| t.about == d.name);
                of_it
                    .into_iter()
                    .any(|t| ProblemKind::of_array(&t.kind) == kind)
            };
            // The array's own problem has more details.
            let named = reported(ProblemKind::DeviceLost)
                || reported(ProblemKind::DeviceOverwritten)
                || reported(ProblemKind::DeviceUnreachable)
                || reported(ProblemKind::RemoteNotOwned);
            if !d.connected && !named {
                let undecided = self
                    .unreachable(report, &d.tier)
                    .then(|| format!("moves to tier {}", d.tier));
                found.with(
                    ProblemKind::DeviceUnreachable,
                    Some(&host.name),
                    &d.name,
                    format!("device {} is unreachable: requests to its data wait; check the device and its connection", d.name),
                    undecided,
                );
            }
            if live && !d.errors.is_empty() && !reported(ProblemKind::DeviceErrors) {
                let kinds = d.errors.iter();
                let kinds = kinds.map(|e| format!("{} × {} on {}", e.count, e.errno, e.op));
                let kinds = kinds.collect::<Vec<_>>().join(", ");
                let of_it = format!("I/O on device {} failed", d.name);
                let what = format!("{of_it} in the last window: {kinds}");
                let was = format!("{of_it}: {kinds}");
                found.add(ProblemKind::DeviceErrors, &host.name, &d.name, what, was);
            }
        }
    }

    /// Returns true if no device of a tier is reachable.
    pub(super) fn unreachable(&self, report: &WindowReport, tier: &str) -> bool {
        let mut devices = report.devices.iter().filter(|d| d.tier == tier).peekable();
        devices.peek().is_some() && devices.all(|d| !d.connected)
    }

    /// Finds full and undescribed tiers, and overcommitted hosts.
    fn problem_of_tiers(&self, host: &Host, report: &WindowReport, found: &mut ProblemList) {
        let name = host.name.as_str();
        let space_high = self.settings.words.policy.space_high;
        for tier in &report.tiers {
            let devices = || report.devices.iter().filter(|d| d.tier == *tier);
            if devices().next().is_none() {
                continue;
            }
            if !self.settings.describes(tier, devices()) {
                found.with(
                    ProblemKind::UndescribedTier,
                    Some(name),
                    tier,
                    format!(
                        "the performance of tier {tier} is unknown: add [[tiers]] name = {tier:?} with a preset or fitted values \
                         to the configuration, then run `terrace reload`"
                    ),
                    Some(format!(
                        "placement on {tier}: no data moves to it, and its data moves only for a drain or a rule"
                    )),
                );
            }
            self.problem_of_space(host, report, tier, space_high, found);
        }
        let size: u64 = report.devices.iter().map(|d| d.size_bytes).sum();
        let promised: u64 = report.volumes.iter().map(|v| v.size_bytes).sum();
        let max = self.settings.overcommit_max();
        let ratio = promised as f64 / size.max(1) as f64;
        if size > 0 && ratio > max {
            found.with(
                ProblemKind::Overcommitted,
                Some(name),
                name,
                format!(
                    "volumes of {name} have a total size of {}, {ratio:.2} times the capacity of {}; \
                     policy.overcommit_max is {max}: add capacity, or raise the limit",
                    Bytes(promised).words(),
                    Bytes(size).words()
                ),
                Some("new volumes: they are rejected".into()),
            );
        }
    }

    fn problem_of_space(
        &self,
        host: &Host,
        report: &WindowReport,
        tier: &str,
        space_high: Option<f64>,
        found: &mut ProblemList,
    ) {
        let name = host.name.as_str();
        let devices: Vec<&DeviceWindow> =
            report.devices.iter().filter(|d| d.tier == tier).collect();
        // The array knows the space of its devices more exactly.
        let reported = report.problems.iter().any(|t| {
            let kind = ProblemKind::of_array(&t.kind);
            matches!(kind, ProblemKind::NoSpace | ProblemKind::NearlyFull)
                && devices.iter().any(|d| d.name == t.about)
        });
        if reported {
            return;
        }
        let size: u64 = devices.iter().map(|d| d.size_bytes).sum();
        let used: u64 = devices.iter().map(|d| d.used_bytes).sum();
        let share = used as f64 / size.max(1) as f64;
        let above = |kind, threshold: f64| {
            let known = self.problems.is_known(kind, name, tier);
            share >= threshold - if known { FULL_HYSTERESIS } else { 0.0 }
        };
        let left = Bytes(size.saturating_sub(used)).words();
        let percent = (share * 1000.0).floor() / 10.0;
        if above(ProblemKind::NoSpace, FULL) {
            found.with(
                ProblemKind::NoSpace,
                Some(name),
                tier,
                format!("tier {tier} is full: {percent} % used, {left} free; new data goes to other tiers while they have space"),
                Some(format!("moves to {tier}")),
            );
        } else if above(ProblemKind::NearlyFull, space_high.unwrap_or(NEARLY_FULL)) {
            found.with(
                ProblemKind::NearlyFull,
                Some(name),
                tier,
                format!("tier {tier} is nearly full: {percent} % used, {left} free"),
                Some(format!("moves to {tier} that would exceed its space limit")),
            );
        }
    }

    /// Finds volumes of classes that the configuration does not define.
    fn problem_of_classes(&self, host: &Host, report: &WindowReport, found: &mut ProblemList) {
        let mut of: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for v in &report.volumes {
            if !v.class.is_empty() && self.settings.class(&v.class).is_none() {
                of.entry(&v.class).or_default().push(&v.name);
            }
        }
        for (class, volumes) in of {
            let (verb, names) = (
                if volumes.len() == 1 { "is" } else { "are" },
                some_of(&volumes),
            );
            found.with(
                ProblemKind::UnknownClass,
                Some(&host.name),
                class,
                format!("{names} {verb} of class {class:?}, which the configuration does not define: define it, or change the class"),
                Some("their objective: they are treated as volumes without a class".into()),
            );
        }
    }

    /// Finds violated objectives and failed requests.
    fn problem_of_volumes(&self, host: &Host, report: &WindowReport, found: &mut ProblemList) {
        let failing = report.volumes.iter().filter_map(|v| {
            let errors = v.load.as_ref()?.errors;
            (errors > 0).then_some((errors as f64, v))
        });
        let kind = ProblemKind::RequestsFail;
        let (named, others) = self.named(host, kind, failing.collect());
        for (_, v) in &named {
            let errors = v.load.as_ref().map_or(0, |l| l.errors);
            let was = format!("{} of {} failed", counted(errors, "request"), v.name);
            let what = format!("{was} in the last window");
            found.add(kind, &host.name, &v.name, what, was);
        }
        if others > 0 {
            let was = format!("requests of {others} more volumes failed");
            let what = format!("{was} in the last window");
            found.add(kind, &host.name, OTHERS, what, was);
        }
        let missing = report.volumes.iter().filter_map(|v| {
            let target = self.settings.class_of(&v.class).target?;
            let judged = v.load.as_ref()?.against(target);
            let measured = judged.statistic_ns? as f64;
            judged
                .violated
                .then_some((measured / (target.latency.0 as f64).max(1.0), v))
        });
        let kind = ProblemKind::ObjectiveViolated;
        let (named, others) = self.named(host, kind, missing.collect());
        for (_, v) in &named {
            let (what, was) = self.violated_words(v);
            found.add(kind, &host.name, &v.name, what, was);
        }
        if others > 0 {
            let was = format!("{others} more volumes violated their objective");
            let what = format!("{was} in the last window");
            found.add(kind, &host.name, OTHERS, what, was);
        }
    }

    /// Texts of a violation, in the present and in the past tense.
    fn violated_words(&self, v: &VolumeWindow) -> (String, String) {
        let class = self.settings.class_of(&v.class);
        let (Some(target), Some(load)) = (class.target, &v.load) else {
            return Default::default();
        };
        let judged = load.against(target);
        let at_least = if judged.waiting_late > 0 {
            "at least "
        } else {
            ""
        };
        let waiting = match (judged.waiting_late, load.oldest_waiting_ns()) {
            (n, Some(oldest)) if n > 0 => {
                format!(
                    ", {}, the oldest for {}",
                    counted(n, "queued request"),
                    Nanos(oldest).words()
                )
            }
            _ => String::new(),
        };
        let numbers = format!(
            "{0} {at_least}{1}, objective {0} at most {2}",
            target.statistic.name(),
            Nanos(judged.statistic_ns.unwrap_or(0)).words(),
            target.latency.words()
        );
        let of_class = format!("the objective of class {}", v.class);
        (
            format!("{} violates {of_class}: {numbers}{waiting}", v.name),
            format!("{} violated {of_class}: {numbers}", v.name),
        )
    }

    /// Returns the worst volumes, known ones first, and the number of the others.
    fn named<'a>(
        &self,
        host: &Host,
        kind: ProblemKind,
        mut volumes: Vec<(f64, &'a VolumeWindow)>,
    ) -> (Vec<(f64, &'a VolumeWindow)>, usize) {
        let known = |v: &VolumeWindow| self.problems.is_known(kind, &host.name, &v.name);
        volumes.sort_by(|a, b| {
            let first = known(b.1).cmp(&known(a.1));
            first
                .then(b.0.total_cmp(&a.0))
                .then(a.1.name.cmp(&b.1.name))
        });
        let others = volumes.len().saturating_sub(VOLUMES_NAMED);
        volumes.truncate(VOLUMES_NAMED);
        (volumes, others)
    }
}

/// Subject of the problem of volumes that are not named.
const OTHERS: &str = "others";

/// Returns true for problems that a silent host causes; they are known without a report.
fn about_silence(kind: ProblemKind) -> bool {
    matches!(kind, ProblemKind::HostLate | ProblemKind::HostLost)
}

/// Some names, and the number of the others.
fn some_of(names: &[&str]) -> String {
    const SHOWN: usize = 3;
    let shown = names[..names.len().min(SHOWN)].join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
