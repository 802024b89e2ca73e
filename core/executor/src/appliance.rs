//! Appliances: one state machine each, from creation to removal; sans-io, storable.
//!
//! ```text
//!            created          re-routed         warmed or failed            removal requested, host lost
//!  creating ────────▶ rerouting ──────▶ warming ─────────────▶ serving ────────────────┐
//!     │ failed, late,     │ failed, late,  │ removal                                    ▼
//!     │ removal requested │ removal req.   └──────────────────────────────────────▶ returning ──▶ stranded
//!     │                   └───────────────────────────────────────────────────────▶   │  ▲  ▲        │ retry
//!     │                                                            failed, late: again └──┘  └────────┘
//!     ▼                                    drained, failed, late             returned │
//!  removing ◀──────────────────────────────────────────────────────────── draining ◀──┘
//!     │ removed, or too many attempts
//!     ▼
//!  ended
//! ```
//!
//! **Safe state**: requests go to the backend, and the appliance has no data that the backend lacks. All kinds write around
//! or through, so an appliance never has dirty data, and only the route matters. An appliance is destroyed only when its
//! route is known to be the backend's. From the beginning of re-routing until its confirmation, the route is *unknown*.
//! After a failed or late re-routing, the route is set back and confirmed first. If it cannot be set back, the appliance
//! stays, *stranded* and serving, and an operator is notified. If its host is reported lost during the return or afterwards,
//! the return starts again at once; only the first report has this effect.
//!
//! The driver carries out the actions of one appliance in order. An action of a new step ends the work of the step before,
//! in particular a re-routing. Every step has a deadline ([`ApplianceDeadlines`]), which restarts do not extend
//! ([`Appliances::resume`]). Every action has an attempt number, which its answer repeats. Two kinds of answers are
//! accepted: those to the latest attempt, and those of the same step with a lasting result (route set back, virtual machine
//! destroyed). A lasting result is true whichever attempt reports it, because no action re-routes during a return or creates
//! during a removal. All other answers are [`IgnoreReason`]: those to earlier attempts, to ended steps, or from before a restart.
//! The responder (crate `slo`) chooses volume, host and size.

mod parts;

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use units::Nanos;

pub use parts::{
    ApplianceAction, ApplianceAnswer, ApplianceDeadlines, ApplianceExists, ApplianceId,
    ApplianceInput, ApplianceKind, ApplianceOrder, ApplianceOutcome, ApplianceState, ApplianceStep,
    ENDED_MAX, IgnoreReason, LATE_RESTARTS_MAX, REMOVE_ATTEMPTS_MAX, RETURN_ATTEMPTS_MAX, Route,
    WarmUp,
};

/// Appliance with its state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Appliance {
    /// Number.
    pub id: ApplianceId,
    /// Order.
    pub order: ApplianceOrder,
    /// State.
    pub state: ApplianceState,
    /// Route of the volume's requests.
    pub route: Route,
    /// Deadline of the current step.
    pub deadline: Option<Nanos>,
    /// Attempts at the current step so far; a repetition after a restart is the same attempt.
    attempts: u32,
    /// Number of the latest action.
    #[serde(default)]
    asked: u32,
    /// Number of the first action of the current step; stranded and returning are one step. `None` if an older version
    /// stored the state.
    first: Option<u32>,
    /// Time of the first report that its host is lost.
    lost_at: Option<Nanos>,
    /// Number of restarts that gave the latest attempt its full time again, at most [`LATE_RESTARTS_MAX`].
    #[serde(default)]
    late_restarts: u32,
    /// Final outcome, once it is certain.
    ending: Option<ApplianceOutcome>,
}

impl Appliance {
    /// Returns true if the appliance has reached a final state.
    pub fn ended(&self) -> bool {
        matches!(self.state, ApplianceState::Ended { .. })
    }

    /// Returns the latest attempt. Answers to other attempts are accepted only if they report a lasting result.
    pub fn step(&self) -> ApplianceStep {
        ApplianceStep {
            id: self.id,
            attempt: self.asked,
        }
    }

    /// Returns true if an answer to this attempt is accepted: one to the latest attempt, or one of the same step with a
    /// lasting result.
    fn hears(&self, attempt: u32, answer: &ApplianceAnswer) -> bool {
        use ApplianceAnswer as A;
        use ApplianceState as S;
        // No action re-routes during a return, and none creates during a removal.
        let lasting = matches!(
            (&self.state, answer),
            (S::Returning | S::Stranded, A::Returned) | (S::Removing, A::Destroyed)
        );
        let of_step = self.first.is_some_and(|first| attempt >= first);
        attempt == self.asked || lasting && of_step && attempt < self.asked
    }

    /// Returns true if the backend serves the volume and has all of its data.
    pub fn safe(&self) -> bool {
        self.route == Route::Backend
    }
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Appliances {
    deadlines: ApplianceDeadlines,
    all: Vec<Appliance>,
    #[serde(skip)]
    actions: VecDeque<ApplianceAction>,
}

impl Appliances {
    /// Creates an empty set.
    pub fn new(deadlines: ApplianceDeadlines) -> Self {
        Self {
            deadlines,
            ..Self::default()
        }
    }

    /// Returns all appliances, oldest first, with about the latest [`ENDED_MAX`] ended ones.
    pub fn all(&self) -> &[Appliance] {
        &self.all
    }

    /// Returns an appliance; `None` for an unknown number or a forgotten appliance.
    pub fn get(&self, id: ApplianceId) -> Option<&Appliance> {
        self.place(id).map(|i| &self.all[i])
    }

    /// Returns the index of an appliance; they are in order of their numbers.
    fn place(&self, id: ApplianceId) -> Option<usize> {
        self.all.binary_search_by_key(&id, |a| a.id).ok()
    }

    /// Returns the next action. The state must be stored before the action starts, otherwise its number may be reused after
    /// a crash.
    pub fn poll_action(&mut self) -> Option<ApplianceAction> {
        self.actions.pop_front()
    }

    /// Returns the time of the next necessary call of [`Appliances::tick`], if nothing else happens before.
    pub fn next_deadline(&self) -> Option<Nanos> {
        self.all.iter().filter_map(|a| a.deadline).min()
    }

    /// Starts an appliance.
    ///
    /// # Errors
    /// Returns an error if the volume already has an appliance that has not ended: a route has one appliance.
    pub fn create(
        &mut self,
        now: Nanos,
        order: ApplianceOrder,
    ) -> Result<ApplianceId, ApplianceExists> {
        let volume = order.volume;
        let mut open = self.all.iter().filter(|a| !a.ended());
        if let Some(other) = open.find(|a| a.order.volume == volume) {
            let by = other.id;
            return Err(ApplianceExists { volume, by });
        }
        // The last appliance is never forgotten, so no number is used twice.
        let id = ApplianceId(self.all.last().map_or(0, |a| a.id.0 + 1));
        self.forget();
        self.all.push(Appliance {
            id,
            order,
            state: ApplianceState::Creating,
            route: Route::Backend,
            deadline: None,
            attempts: 0,
            asked: 0,
            first: None,
            lost_at: None,
            late_restarts: 0,
            ending: None,
        });
        self.enter(id, now, ApplianceState::Creating);
        Ok(id)
    }

    /// Forgets the oldest ended appliances beyond [`ENDED_MAX`].
    fn forget(&mut self) {
        let ended = self.all.iter().filter(|a| a.ended()).count();
        let mut surplus = ended.saturating_sub(ENDED_MAX);
        self.all.retain(|a| {
            let goes = surplus > 0 && a.ended();
            surplus -= usize::from(goes);
            !goes
        });
    }

    /// Records the answer to a step.
    ///
    /// # Errors
    /// Returns an error, without a change, if the answer is not accepted: it is to an earlier attempt without a lasting
    /// result, or to no current step.
    pub fn answer(
        &mut self,
        now: Nanos,
        step: ApplianceStep,
        answer: ApplianceAnswer,
    ) -> Result<(), IgnoreReason> {
        let id = step.id;
        let appliance = self.get(id).ok_or(IgnoreReason::Unknown { id })?;
        if !appliance.hears(step.attempt, &answer) {
            let latest = appliance.asked;
            return Err(IgnoreReason::OtherAttempt { step, latest });
        }
        let taken = self.take(now, id, answer);
        self.check();
        taken.then_some(()).ok_or(IgnoreReason::NotAsked { step })
    }

    /// Applies an accepted answer. Returns true if it belongs to the current step.
    fn take(&mut self, now: Nanos, id: ApplianceId, answer: ApplianceAnswer) -> bool {
        use ApplianceAnswer as A;
        use ApplianceState as S;
        match (self.at(id).state.clone(), answer) {
            (S::Creating, A::Created) => {
                self.at(id).route = Route::Unknown;
                self.enter(id, now, S::Rerouting);
            }
            (S::Rerouting, A::Rerouted) => {
                self.at(id).route = Route::Appliance;
                let next = match self.at(id).order.warm {
                    WarmUp::Planned => S::Warming,
                    WarmUp::None => S::Serving,
                };
                self.enter(id, now, next);
            }
            // A cold cache still works as a cache.
            (S::Warming, A::Warmed | A::Failed { .. }) => self.enter(id, now, S::Serving),
            (S::Returning | S::Stranded, A::Returned) => {
                self.at(id).route = Route::Backend;
                self.enter(id, now, S::Draining);
            }
            // The appliance has no dirty data, and no further action could complete hanging requests.
            (S::Draining, A::Drained | A::Failed { .. }) => self.enter(id, now, S::Removing),
            (S::Removing, A::Destroyed) => self.end(id, now),
            (S::Creating | S::Rerouting | S::Returning | S::Removing, A::Failed { why }) => {
                self.failed(id, now, why);
            }
            _ => return false,
        }
        true
    }

    /// Records an event of an appliance. Events of ended appliances and requests for the present state are ignored.
    pub fn handle(&mut self, now: Nanos, id: ApplianceId, input: ApplianceInput) {
        let state = match self.get(id) {
            Some(appliance) if !appliance.ended() => &appliance.state,
            _ => return,
        };
        match input {
            ApplianceInput::Lost { why } => self.lost(id, now, why),
            ApplianceInput::Remove { why } => self.remove(id, now, why),
            ApplianceInput::Retry if *state == ApplianceState::Stranded => {
                self.enter(id, now, ApplianceState::Returning);
            }
            ApplianceInput::Retry => {}
        }
        self.check();
    }

    /// Handles deadlines that have passed.
    pub fn tick(&mut self, now: Nanos) {
        for i in 0..self.all.len() {
            let appliance = &self.all[i];
            if appliance.deadline.is_some_and(|d| d <= now) {
                self.late(appliance.id, now);
            }
        }
        self.check();
    }

    fn late(&mut self, id: ApplianceId, now: Nanos) {
        let late = ApplianceAnswer::Failed { why: "late".into() };
        let taken = self.take(now, id, late);
        assert!(taken, "what has a deadline can fail");
    }

    /// Resumes after the state was read back from a store; `now` is of a clock that continued meanwhile. Repeats the current
    /// actions. A restart is no failure of a step and uses no attempt. The repeated actions have new numbers; of earlier
    /// answers, only those with a lasting result are accepted. The deadline of the step remains, whatever the number of
    /// restarts. If it passed during the downtime, the attempt gets its full time again, [`LATE_RESTARTS_MAX`] times per
    /// attempt; after that it is late.
    pub fn resume(&mut self, now: Nanos) {
        self.actions.clear();
        for i in 0..self.all.len() {
            let appliance = &mut self.all[i];
            let id = appliance.id;
            match appliance.deadline {
                Some(at) if at > now => {
                    self.ask(id, now);
                    // At most the full time, in case the clock was set back.
                    let full = self.at(id).deadline.map_or(at, |full| full.min(at));
                    self.at(id).deadline = Some(full);
                }
                Some(_) if appliance.late_restarts < LATE_RESTARTS_MAX => {
                    appliance.late_restarts += 1;
                    self.ask(id, now);
                }
                Some(_) => self.late(id, now),
                // No action is under way.
                None => {}
            }
        }
        self.check();
    }

    fn remove(&mut self, id: ApplianceId, now: Nanos, why: String) {
        use ApplianceState as S;
        match self.at(id).state {
            S::Creating => {
                self.settle(id, ApplianceOutcome::Removed { why });
                self.enter(id, now, S::Removing);
            }
            S::Rerouting | S::Warming | S::Serving => {
                self.settle(id, ApplianceOutcome::Removed { why });
                self.enter(id, now, S::Returning);
            }
            // The removal is already under way.
            _ => {}
        }
    }

    /// Handles the loss of the host. The cache is lost, but the route must still be set back. The loss may be reported
    /// repeatedly: if each report restarted the step, it would never be late.
    fn lost(&mut self, id: ApplianceId, now: Nanos, why: String) {
        use ApplianceState as S;
        let why = format!("its host was lost: {why}");
        let first = self.at(id).lost_at.is_none();
        self.at(id).lost_at.get_or_insert(now);
        match self.at(id).state {
            S::Creating => {
                self.settle(id, ApplianceOutcome::Failed { why });
                self.enter(id, now, S::Removing);
            }
            S::Rerouting | S::Warming | S::Serving => {
                self.settle(id, ApplianceOutcome::Failed { why });
                self.enter(id, now, S::Returning);
            }
            // Until the route is set back, no process serves the guests. So the return starts again at once with all
            // attempts, and an operator is notified after these.
            S::Returning | S::Stranded if first => {
                self.settle(id, ApplianceOutcome::Failed { why });
                self.enter(id, now, S::Returning);
            }
            S::Draining => self.enter(id, now, S::Removing),
            _ => {}
        }
    }

    fn failed(&mut self, id: ApplianceId, now: Nanos, why: String) {
        use ApplianceState as S;
        let attempts = self.at(id).attempts;
        match self.at(id).state {
            S::Creating => {
                let why = format!("it could not be created: {why}");
                self.settle(id, ApplianceOutcome::Failed { why });
                self.enter(id, now, S::Removing);
            }
            S::Rerouting => {
                let why = format!("requests could not be re-routed: {why}");
                self.settle(id, ApplianceOutcome::Failed { why });
                self.enter(id, now, S::Returning);
            }
            S::Returning if attempts < RETURN_ATTEMPTS_MAX => self.begin(id, now),
            S::Returning => self.enter(id, now, S::Stranded),
            S::Removing if attempts < REMOVE_ATTEMPTS_MAX => self.begin(id, now),
            S::Removing => {
                let why = format!("its virtual machine could not be destroyed: {why}");
                self.at(id).ending = Some(ApplianceOutcome::Failed { why });
                self.end(id, now);
            }
            _ => {}
        }
    }

    /// Sets the outcome; the first reason to end is kept.
    fn settle(&mut self, id: ApplianceId, outcome: ApplianceOutcome) {
        self.at(id).ending.get_or_insert(outcome);
    }

    fn end(&mut self, id: ApplianceId, now: Nanos) {
        let appliance = self.at(id);
        let outcome = appliance.ending.take().expect("nothing is removed unasked");
        appliance.state = ApplianceState::Ended { at: now, outcome };
        appliance.deadline = None;
    }

    fn enter(&mut self, id: ApplianceId, now: Nanos, state: ApplianceState) {
        use ApplianceState as S;
        let step = self.at(id).step();
        if self.at(id).state == S::Warming {
            self.actions.push_back(ApplianceAction::StopWarming(step));
        }
        let appliance = self.at(id);
        let returning = |s: &S| matches!(s, S::Returning | S::Stranded);
        if !(returning(&appliance.state) && returning(&state)) {
            appliance.first = Some(appliance.asked + 1);
        }
        appliance.attempts = 0;
        appliance.state = state;
        self.begin(id, now);
    }

    /// Starts the next attempt at the current step.
    fn begin(&mut self, id: ApplianceId, now: Nanos) {
        let appliance = self.at(id);
        appliance.attempts += 1;
        appliance.late_restarts = 0;
        self.ask(id, now);
    }

    /// Emits the action of the current state with a new number, which no earlier answer can have.
    fn ask(&mut self, id: ApplianceId, now: Nanos) {
        use ApplianceState as S;
        let limits = self.deadlines;
        let appliance = self.at(id);
        let earlier = (appliance.attempts.max(1) - 1).min(16);
        let doubled = |first: Nanos| Nanos(first.0 << earlier);
        let (action, limit): (fn(ApplianceStep) -> ApplianceAction, Nanos) = match appliance.state {
            S::Creating => (ApplianceAction::Create, limits.create),
            S::Rerouting => (ApplianceAction::Reroute, limits.reroute),
            S::Warming => (ApplianceAction::Warm, limits.warm),
            S::Returning => (ApplianceAction::Return, doubled(limits.return_route)),
            S::Draining => (ApplianceAction::Drain, limits.drain),
            S::Removing => (ApplianceAction::Destroy, doubled(limits.remove)),
            S::Serving | S::Stranded | S::Ended { .. } => {
                appliance.deadline = None;
                return;
            }
        };
        appliance.asked += 1;
        appliance.deadline = Some(now + limit);
        let step = appliance.step();
        self.actions.push_back(action(step));
    }

    fn at(&mut self, id: ApplianceId) -> &mut Appliance {
        let i = self
            .place(id)
            .expect("only those that have not ended are asked for");
        &mut self.all[i]
    }

    /// Asserts the invariants, also in release builds.
    fn check(&self) {
        for appliance in &self.all {
            use ApplianceState as S;
            let needs_backend = matches!(
                appliance.state,
                S::Creating | S::Draining | S::Removing | S::Ended { .. }
            );
            assert!(
                !needs_backend || appliance.route == Route::Backend,
                "appliance {} is {:?} with its route {:?}",
                appliance.id.0,
                appliance.state,
                appliance.route
            );
        }
    }
}
