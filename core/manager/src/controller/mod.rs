//! Core of the controller, without I/O: reports of agents become facts, plans, approvals and orders.
//!
//! ```text
//!  report ─▶ process ─▶ end of a monitor epoch? ─▶ facts ─▶ planner::decide ─▶ plan ─▶ executor: proposed
//!                                                                          approved by a mode or an operator
//!  orders ◀──────────────────────────────── active jobs ◀────────────────────── started within the limits
//! ```
//!
//! The caller passes the time; the controller reads no clock. Its state is in memory, and [`Controller::take_changes`] returns what
//! a store has to keep. [`crate::managed::ManagedController`] combines both: every decision is committed before it is acknowledged.
//!
//! Unknown is not zero: the controller decides nothing about a host whose agent is late. Running jobs of the host neither fail nor
//! restart, and its orders expire with their lease. Priorities are the planner's: drain, rules, space, latency.

mod approval;
mod bounds;
mod busy;
mod decide;
mod doubt;
mod events;
mod facts;
mod failures;
mod host;
mod intake;
mod jobs;
mod lease;
mod outcomes;
mod place;
mod problem;
mod reasons;
mod remedies;
mod respond;
mod seasons;
mod throttles;
mod views;
mod watch;

use std::collections::BTreeMap;

use model::{ClassObjective, ControllerId, Goal, IoFailure, Report, SloClass};
use planner::{AnyStrategy, AssignmentTaken, Granularity};
use serde::{Deserialize, Serialize};
use units::{Nanos, counted};

use crate::ManagerError;
use crate::limited::TimedThrottle;
use crate::question::Actor;
use crate::service::{Now, TokenTerm};
use crate::settings::Settings;
use crate::store::Change;
use crate::view::{EventKind, EventView};
use crate::wire::{
    Detail, JobsReport, MoveOrder, Orders, PROTOCOL, Register, Welcome, WindowReport, WireRefusal,
    host_name_fault,
};
use model::Mode;
use model::TierState;

use events::{Allowance, EVENT_BYTES_MAX, EVENTS_BURST, EventDecision};
use host::{CurrentPlan, Host, Link, PersistentState};

/// Lease of orders, in windows after the report to which they reply.
const LEASE_WINDOWS: u64 = 3;

/// Most hosts of a controller. Protects its memory from tokens that may register any host.
const HOSTS_MAX: usize = 4_096;

/// Most bytes of an agent's version that are shown.
const VERSION_BYTES_MAX: usize = 100;

/// Time for which the executor keeps ended jobs; later only the store has them.
const JOBS_KEPT: Nanos = Nanos::from_secs(24 * 3600);

/// Settings of operators at run time; they are stored and have precedence over the file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Operator {
    paused: bool,
    modes: BTreeMap<Goal, Mode>,
    /// States of tiers, by `host/tier`.
    tiers: BTreeMap<String, TierState>,
    /// Pins by `host/volume`; none means "not pinned", whatever the file contains.
    pins: BTreeMap<String, Option<String>>,
    /// Limits by `host/volume`.
    #[serde(default)]
    throttles: BTreeMap<String, TimedThrottle>,
}

/// Counters that continue over restarts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Tallies {
    next_event: u64,
    /// Controller time of the last write.
    at_ns: u64,
    /// Wall-clock time of the last write.
    #[serde(default)]
    unix_ms: u64,
}

/// Longest credible time since the last start; with more, the wall clock is considered wrong.
const AWAY_MAX_MS: u64 = 400 * 86_400_000;

/// Counters since the start of the controller.
#[derive(Debug, Clone, Default)]
struct Counters {
    moves: BTreeMap<(Goal, &'static str), u64>,
    moved_bytes: u64,
    plans: u64,
    reports: u64,
    reports_refused: u64,
    calibrations: u64,
}

/// All hosts, and the decisions about them.
pub struct Controller {
    settings: Settings,
    /// Identity of this start on this store; the default value for a controller without a store.
    id: ControllerId,
    strategy: Box<dyn AnyStrategy>,
    operator: Operator,
    tallies: Tallies,
    hosts: BTreeMap<String, Host>,
    trust: outcomes::Trust,
    problems: problem::Problems,
    /// Time of the last search for problems.
    looked: Nanos,
    counters: Counters,
    now: Now,
    /// Author of the current request, for the audit log.
    actor: String,
    operator_dirty: bool,
    /// Tokens of the interface, with their expiry.
    tokens: Vec<TokenTerm>,
    /// Events that each host may still cause.
    allowances: BTreeMap<String, Allowance>,
    changes: Vec<Change>,
    /// True if changes are stored; otherwise decisions are passed on as they are made.
    stores: bool,
    made: Vec<PlacementDecision>,
    /// Responders by host.
    responses: BTreeMap<String, respond::HostResponder>,
    answered: respond::ShownResponses,
    seasons: seasons::Seasons,
}

/// Placement decision ([`Controller::take_made`]).
#[derive(Debug)]
pub struct PlacementDecision {
    pub at: Nanos,
    /// Reasons of the decision.
    pub report: Report,
    /// Assignment problem of the decision, if the strategy solves one.
    pub assignment: Option<AssignmentTaken>,
}

/// Part of a host's stored state; the keys are `host/NAME/executor`, `…/kept` and `…/decision`.
#[derive(Serialize, Deserialize)]
struct Decision {
    strategy: String,
    state: serde_json::Value,
    current: Option<CurrentPlan>,
}

impl Controller {
    /// Creates a controller from stored values; there are none at the first start.
    ///
    /// # Errors
    /// [`ManagerError::Saved`], if a value cannot be read. The strategy cannot be built.
    pub fn new(settings: Settings, saved: Vec<(String, String)>) -> Result<Self, ManagerError> {
        let strategy = settings.build_strategy()?;
        let mut controller = Self::with_strategy(settings, strategy);
        controller.stores = true;
        for (key, value) in saved {
            controller
                .restore(&key, &value)
                .map_err(|why| ManagerError::Saved { key, why })?;
        }
        let at = Nanos(controller.tallies.at_ns);
        controller.now.at = at;
        controller.problems.seen_at(at);
        Ok(controller)
    }

    /// Creates a controller for simulated hosts: it stores nothing and passes its decisions on.
    pub fn in_process(settings: Settings, strategy: Box<dyn AnyStrategy>) -> Self {
        Self::with_strategy(settings, strategy)
    }

    fn with_strategy(settings: Settings, strategy: Box<dyn AnyStrategy>) -> Self {
        Self {
            strategy,
            id: ControllerId::default(),
            operator: Operator::default(),
            tallies: Tallies::default(),
            hosts: BTreeMap::new(),
            trust: outcomes::Trust::default(),
            problems: problem::Problems::default(),
            looked: Nanos::ZERO,
            counters: Counters::default(),
            now: Now {
                at: Nanos::ZERO,
                unix_ms: 0,
            },
            actor: "controller".into(),
            operator_dirty: false,
            tokens: Vec::new(),
            allowances: BTreeMap::new(),
            changes: Vec::new(),
            stores: false,
            made: Vec::new(),
            responses: BTreeMap::new(),
            answered: respond::ShownResponses::default(),
            seasons: seasons::Seasons::default(),
            settings,
        }
    }

    /// Returns events, jobs and outcomes since the last call, of a controller without a store.
    pub fn take_seen(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// Returns decisions since the last call, of a controller without a store.
    pub fn take_made(&mut self) -> Vec<PlacementDecision> {
        std::mem::take(&mut self.made)
    }

    /// Reason for which the last decision about a host failed.
    pub fn problem(&self, host: &str) -> Option<&str> {
        self.hosts.get(host)?.problem.as_deref()
    }

    fn restore(&mut self, key: &str, value: &str) -> Result<(), serde_json::Error> {
        if self.seasons.restore(key, value) {
            return Ok(());
        }
        match key.split('/').collect::<Vec<_>>()[..] {
            ["controller"] => self.id = serde_json::from_str(value)?,
            ["operator"] => self.operator = serde_json::from_str(value)?,
            ["tallies"] => self.tallies = serde_json::from_str(value)?,
            ["trust"] => self.trust = serde_json::from_str(value)?,
            ["problems"] => self.problems = problem::Problems::restore(value)?,
            ["host", name, part] => {
                let state = self.strategy.initial_state();
                let host = self.hosts.entry(name.into());
                let host = host.or_insert_with(|| Host::new(name, state));
                match part {
                    "executor" => host.executor = serde_json::from_str(value)?,
                    "kept" => host.kept = serde_json::from_str::<PersistentState>(value)?,
                    "decision" => {
                        let decision: Decision = serde_json::from_str(value)?;
                        // A different strategy starts without state.
                        if decision.strategy == self.strategy.name() {
                            host.state = self.strategy.state_from_json(decision.state)?;
                        }
                        host.current = decision.current;
                    }
                    _ => {} // ignored: from a newer version
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Controller time at a start: the last written time plus the wall-clock time since then.
    pub fn time_at(&self, unix_ms: u64) -> Nanos {
        let away_ms = unix_ms.saturating_sub(self.tallies.unix_ms);
        let believed = self.tallies.unix_ms > 0 && away_ms <= AWAY_MAX_MS;
        Nanos(self.tallies.at_ns + if believed { away_ms * 1_000_000 } else { 0 })
    }

    /// Updates the time, which never decreases.
    fn advance(&mut self, now: Now) {
        self.now = Now {
            at: self.now.at.max(now.at),
            unix_ms: now.unix_ms,
        };
    }

    /// Returns the changes since the last call that a store has to keep.
    pub fn take_changes(&mut self) -> Vec<Change> {
        if let Some((text, forgotten)) = self.seasons.take_refused() {
            self.changes.extend(forgotten);
            self.event(EventKind::Response, None, None, text);
        }
        let mut put = |key: String, value: Result<String, serde_json::Error>| {
            let value = value.expect("plain data can be serialized");
            self.changes.push(Change::Put { key, value });
        };
        for host in self.hosts.values_mut() {
            let dirty = std::mem::take(&mut host.dirty);
            let name = &host.name;
            if dirty.executor {
                let value = serde_json::to_string(&host.executor);
                put(format!("host/{name}/executor"), value);
            }
            if dirty.kept {
                put(
                    format!("host/{name}/kept"),
                    serde_json::to_string(&host.kept),
                );
            }
            if dirty.decision {
                let decision = Decision {
                    strategy: self.strategy.name().into(),
                    state: host.state.to_json(),
                    current: host.current.clone(),
                };
                put(
                    format!("host/{name}/decision"),
                    serde_json::to_string(&decision),
                );
            }
        }
        if std::mem::take(&mut self.operator_dirty) {
            put("operator".into(), serde_json::to_string(&self.operator));
        }
        if self.trust.take_dirty() {
            put("trust".into(), serde_json::to_string(&self.trust));
        }
        if let Some(value) = self.problems.take_changed() {
            put("problems".into(), Ok(value));
        }
        if !self.changes.is_empty() {
            self.tallies.at_ns = self.now.at.0;
            self.tallies.unix_ms = self.now.unix_ms;
            let value = serde_json::to_string(&self.tallies).expect("plain data can be serialized");
            self.changes.push(Change::Put {
                key: "tallies".into(),
                value,
            });
        }
        std::mem::take(&mut self.changes)
    }

    /// Records the start of the controller: a new identity and an audit entry.
    pub fn started(&mut self, now: Now, random: u64) {
        self.advance(now);
        self.identify(random);
        let text = format!(
            "started: strategy {}, {}",
            self.settings.words.strategy,
            counted(self.hosts.len(), "known host")
        );
        self.event(EventKind::Controller, None, None, text);
    }

    /// Records that the controller decides again after an interruption. The store may have been replaced,
    /// or may never have had this start's identity.
    pub fn resumed(&mut self, now: Now, random: u64, why: String) {
        self.advance(now);
        self.identify(random);
        self.event(EventKind::Controller, None, None, why);
    }

    /// Assigns the identity of a start, unless the store has it.
    fn identify(&mut self, random: u64) {
        if self.id.epoch > 0 && self.id.start == random {
            return;
        }
        if self.id.epoch == 0 {
            self.id.store = random; // a new store
        }
        self.id.epoch += 1;
        self.id.start = random;
        let value = serde_json::to_string(&self.id).expect("plain data can be serialized");
        self.changes.push(Change::Put {
            key: "controller".into(),
            value,
        });
    }

    /// Writes an audit entry.
    fn event(&mut self, kind: EventKind, host: Option<&str>, volume: Option<&str>, text: String) {
        self.event_with(kind, host, volume, text, None);
    }

    /// Writes an audit entry with the failed I/O that caused it. A host that causes too many entries is
    /// muted for a while.
    fn event_with(
        &mut self,
        kind: EventKind,
        host: Option<&str>,
        volume: Option<&str>,
        text: String,
        failed_io: Option<IoFailure>,
    ) {
        if let Some(host) = host.filter(|_| self.stores && !kind.is_audit()) {
            let all = self.allowances.entry(host.into()).or_default();
            match all.take(self.now.at) {
                EventDecision::None => return,
                EventDecision::One => {}
                EventDecision::After(left_out) => {
                    let text = format!(
                        "{left_out} events of {host} were omitted: it caused more than {EVENTS_BURST} in a short time"
                    );
                    self.push_event(EventKind::Host, Some(host), None, text, None);
                }
            }
        }
        self.push_event(kind, host, volume, text, failed_io);
    }

    fn push_event(
        &mut self,
        kind: EventKind,
        host: Option<&str>,
        volume: Option<&str>,
        text: String,
        failed_io: Option<IoFailure>,
    ) {
        self.tallies.next_event += 1;
        self.changes.push(Change::Event(EventView {
            id: self.tallies.next_event,
            at_ns: self.now.at.0,
            unix_ms: self.now.unix_ms,
            kind,
            actor: self.actor.clone(),
            host: host.map(Into::into),
            volume: volume.map(Into::into),
            text: bounds::tidy(&text, EVENT_BYTES_MAX),
            failed_io,
        }));
    }

    /// Sets the valid tokens.
    pub fn set_tokens(&mut self, now: Now, terms: Vec<TokenTerm>) {
        self.advance(now);
        self.actor = "controller".into();
        self.tokens = terms;
        self.look_for_problem();
    }

    /// Sets the valid tokens of a controller that was read from the store again.
    pub(crate) fn restore_tokens(&mut self, terms: Vec<TokenTerm>) {
        self.tokens = terms;
    }

    /// Records a reload of the tokens.
    pub fn tokens_changed(&mut self, now: Now, actor: &Actor, text: String) {
        self.advance(now);
        self.actor = actor.0.clone();
        self.event(EventKind::Access, None, None, text);
    }

    /// Records rejected callers without a valid token.
    pub fn refused(&mut self, now: Now, text: String) {
        self.advance(now);
        self.actor = "controller".into();
        self.event(EventKind::Refused, None, None, text);
    }

    /// Registers an agent.
    ///
    /// # Errors
    /// [`WireRefusal`].
    pub fn register(
        &mut self,
        now: Now,
        name: &str,
        message: &Register,
    ) -> Result<Welcome, WireRefusal> {
        self.advance(now);
        self.actor = "controller".into();
        if message.protocol != PROTOCOL {
            return Err(WireRefusal::Protocol {
                theirs: message.protocol,
            });
        }
        if let Some(why) = host_name_fault(name) {
            return Err(WireRefusal::Nonsense { why });
        }
        let other = self.hosts.get(name).filter(|h| {
            let link = h.link.filter(|l| l.session != message.session && l.seq > 0);
            let last = h.last.as_ref().map_or(Nanos::ZERO, |l| l.0);
            link.is_some() && self.now.at.saturating_sub(last) <= self.late_after()
        });
        if other.is_some() {
            let why = format!(
                "another agent reports for host {name:?}: stop it, or wait until it is late, or rename one"
            );
            return Err(WireRefusal::Nonsense { why });
        }
        if !self.hosts.contains_key(name) {
            if self.hosts.len() >= HOSTS_MAX {
                let why = format!("the controller has {HOSTS_MAX} hosts and accepts no more");
                return Err(WireRefusal::Nonsense { why });
            }
            let host = Host::new(name, self.strategy.initial_state());
            self.hosts.insert(name.into(), host);
        }
        let host = self
            .hosts
            .get_mut(name)
            .expect("the host was just inserted");
        host.link = Some(Link {
            session: message.session,
            seq: 0,
        });
        if self.operator.paused && !host.executor.paused() {
            // A new host has no move that could start.
            let _ = host.executor.handle(self.now.at, executor::Input::Pause);
            host.dirty.executor = true;
        }
        self.end_responses(name, "its agent has restarted");
        let host = self
            .hosts
            .get_mut(name)
            .expect("the host was just inserted");
        // Reports of the earlier session do not belong to this epoch.
        host.epoch = None;
        host.last = None;
        host.dirty.kept = true;
        let version = bounds::tidy(&message.version, VERSION_BYTES_MAX);
        let text = format!("agent of {name} registered (version {version})");
        self.event(EventKind::Host, Some(name), None, text);
        self.look_for_problem();
        Ok(Welcome {
            protocol: PROTOCOL,
            at_ns: self.now.at.0,
            window_ns: self.settings.words.window.0,
            objectives: self.objectives(),
            policy: Some(self.settings.array_policy()),
            detail: self.detail(),
        })
    }

    /// Detail of reports that the strategy needs.
    fn detail(&self) -> Detail {
        match self.strategy.granularity() {
            Granularity::Volume => Detail::Volumes,
            Granularity::Extent => Detail::Extents,
        }
    }

    /// Objectives by class.
    fn objectives(&self) -> Vec<ClassObjective> {
        let of = |c: &SloClass| {
            Some(ClassObjective {
                class: c.name.clone(),
                objective: c.target?,
            })
        };
        self.settings.classes.iter().filter_map(of).collect()
    }

    /// Processes a window of an agent's array, and returns its orders.
    ///
    /// # Errors
    /// [`WireRefusal`].
    pub fn report(
        &mut self,
        now: Now,
        name: &str,
        report: WindowReport,
    ) -> Result<Orders, WireRefusal> {
        self.report_knowing(now, name, report, &respond::SamplesOnly)
    }

    /// Same as [`Controller::report`], with more knowledge about volumes for remedies.
    ///
    /// # Errors
    /// [`WireRefusal`].
    pub fn report_knowing(
        &mut self,
        now: Now,
        name: &str,
        mut report: WindowReport,
        known: &dyn slo::Knowledge,
    ) -> Result<Orders, WireRefusal> {
        self.advance(now);
        self.actor = "controller".into();
        let (session, seq) = (report.session, report.seq);
        let taken = self.accept(name, &report);
        if let Err(refusal) = taken {
            self.counters.reports_refused += 1;
            return Err(refusal);
        }
        self.counters.reports += 1;
        self.reconsider(name);
        bounds::tidy_report(&mut report);
        let as_of = Nanos(report.as_of_ns).min(self.now.at);
        let fresh = self.now.at.saturating_sub(as_of) <= self.late_after();
        self.take_in(name, as_of, report);
        self.watch();
        if self.other_holder(name).is_some() {
            self.stand_back(name);
        } else if fresh {
            self.respond(name, known);
            self.decide_when_due(name, as_of);
            self.approve_by_mode(name);
        }
        self.look_for_problem();
        Ok(self.orders(name, session, seq))
    }

    /// Processes a window of an agent's array without decisions and orders.
    ///
    /// # Errors
    /// [`WireRefusal`].
    pub fn observe(
        &mut self,
        now: Now,
        name: &str,
        report: WindowReport,
    ) -> Result<(), WireRefusal> {
        self.advance(now);
        self.actor = "controller".into();
        self.accept(name, &report)?;
        let as_of = Nanos(report.as_of_ns).min(self.now.at);
        self.take_in(name, as_of, report);
        self.watch();
        self.look_for_problem();
        Ok(())
    }

    /// Processes ended jobs of an agent's array, and returns its orders.
    ///
    /// # Errors
    /// [`WireRefusal`].
    pub fn jobs_ended(
        &mut self,
        now: Now,
        name: &str,
        message: &JobsReport,
    ) -> Result<Orders, WireRefusal> {
        self.advance(now);
        self.actor = "controller".into();
        let (session, seq) = (message.session, message.seq);
        let link = self.link(name, session, seq)?;
        intake::check_jobs(&message.jobs)?;
        link.seq = seq;
        self.reconsider(name);
        let mut host = self
            .hosts
            .remove(name)
            .expect("the host of a session is known");
        self.take_in_jobs(&mut host, self.now.at, &message.jobs);
        self.hosts.insert(name.into(), host);
        Ok(self.orders(name, session, seq))
    }

    /// Session of a message, which must be newer than the last one.
    fn link(&mut self, name: &str, session: u64, seq: u64) -> Result<&mut Link, WireRefusal> {
        let host = self.hosts.get_mut(name).ok_or(WireRefusal::Register)?;
        let link = host.link.as_mut().ok_or(WireRefusal::Register)?;
        if link.session != session {
            return Err(WireRefusal::Register);
        }
        if seq <= link.seq {
            return Err(WireRefusal::Stale { last_seq: link.seq });
        }
        Ok(link)
    }

    fn accept(&mut self, name: &str, report: &WindowReport) -> Result<(), WireRefusal> {
        self.link(name, report.session, report.seq)?;
        intake::check(report)?;
        self.link(name, report.session, report.seq)?.seq = report.seq;
        Ok(())
    }

    /// Advances the time.
    pub fn tick(&mut self, now: Now) {
        self.advance(now);
        self.actor = "controller".into();
        self.end_throttles();
        let forgotten = self.seasons.forget_old(now.unix_ms);
        self.changes.extend(forgotten);
        self.watch();
        self.look_now_and_then();
    }

    /// Complete orders for a host.
    fn orders(&mut self, name: &str, session: u64, seq: u64) -> Orders {
        let objectives = self.objectives();
        let lease_ns = self.settings.words.window.0 * LEASE_WINDOWS;
        let (at, detail) = (self.now.at, self.detail());
        let policy = Some(self.settings.array_policy());
        let mut throttles = self.throttle_orders(name);
        self.hold(name, &mut throttles);
        let remedies = self.remedies(name);
        let host = self.hosts.get_mut(name).expect("its agent reports");
        let before = host.executor.jobs().len();
        let before_all = at.saturating_sub(JOBS_KEPT);
        // No message about a job that ended so long ago is still in transit.
        let settled = at.saturating_sub(Nanos(10 * lease_ns));
        let too_many = jobs::too_many_ranges(&host.executor);
        host.executor.forget(before_all.max(too_many.min(settled)));
        host.dirty.executor |= before != host.executor.jobs().len();
        let active = host.executor.jobs().iter().filter(|j| j.state.active());
        let active: Vec<_> = active.map(|j| j.id).collect();
        Orders {
            session,
            seq,
            controller: self.id,
            at_ns: at.0,
            lease_ns,
            // A cancelled move has to end before its volume moves again.
            moves: active
                .iter()
                .map(|id| order_of(host, *id))
                .filter(|o| !host.kept.cancelling.values().any(|c| c.volume == o.volume))
                .collect(),
            cancels: host.kept.cancelling.values().cloned().collect(),
            calibrations: if self.operator.paused {
                vec![]
            } else {
                host.kept.calibrations.clone()
            },
            calibrations_taken: host.kept.taken.iter().copied().collect(),
            throttles,
            remedies,
            objectives,
            policy,
            detail,
        }
    }
}

/// Order of a job for an agent.
fn order_of(host: &Host, id: executor::JobId) -> MoveOrder {
    let job = host.executor.get(id).expect("the job belongs to this host");
    let names = &host.kept.names;
    let device = names.of_device(job.order.to).to_string();
    MoveOrder {
        job: id.0,
        volume: names.of_volume(job.order.volume).into(),
        tier: host.tier_of(&device).into(),
        device,
        extents: job.order.extents.clone(),
        rate_bytes_per_s: job.order.bandwidth.0,
    }
}
