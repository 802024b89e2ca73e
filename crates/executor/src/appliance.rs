//! Appliances: one state machine each, from its creation to its removal; sans I/O, resumable.
//!
//! ```text
//!            created          re-routed         warmed, or not               removal wished, host lost
//!  creating ────────▶ rerouting ──────▶ warming ─────────────▶ serving ────────────────┐
//!     │ failed, late,     │ failed, late,  │ removal wished                             ▼
//!     │ removal wished    │ removal wished └──────────────────────────────────────▶ returning ──▶ stranded
//!     │                   └───────────────────────────────────────────────────────▶   │  ▲  ▲        │ asked again
//!     │                                                            failed, late: again └──┘  └────────┘
//!     ▼                                    drained, failed, late             returned │
//!  removing ◀──────────────────────────────────────────────────────────── draining ◀──┘
//!     │ removed, or given up after some attempts
//!     ▼
//!  ended
//! ```
//!
//! **The safe state**: requests go to the backend, and the appliance holds nothing that the backend does not. Only kinds that never
//! hold anything dirty are known here (writes go around or through), so the second half always holds and what matters is the
//! route. An appliance is destroyed only once its route is known to be the backend's: from the moment that re-routing begins it is
//! *unknown* until it is said to be done, and after a failed or late one it is set back and confirmed first. If it cannot be set
//! back the appliance stays, *stranded* and serving, and an operator is told; if its host is lost then, it is tried again at once,
//! the first time that this is said.
//!
//! The driver carries out the actions of one appliance in order; one of another step ends what is still under way of the step
//! before, a re-routing above all. Every step has a deadline ([`ApplianceDeadlines`]), which restarts do not put off
//! ([`Appliances::resume`]). Every action carries the number of its attempt, and an answer repeats it. Only an answer to the latest
//! is taken, or one that says that a route is back or a virtual machine gone: nothing re-routes after the first attempt at the one
//! or creates after the first at the other, so it is true whichever of them says it. All else from an earlier attempt, of a step
//! that is over or from before a restart is [`Ignored`]. Which volume, which host and which size is the responder's choice (crate
//! `slo`), not this one's.

mod parts;

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use units::Nanos;

pub use parts::{
    ApplianceAction, ApplianceAnswer, ApplianceDeadlines, ApplianceId, ApplianceInput,
    ApplianceKind, ApplianceOrder, ApplianceOutcome, ApplianceState, ApplianceStep, ENDED_MAX,
    Ignored, LATE_RESTARTS_MAX, REMOVE_ATTEMPTS_MAX, RETURN_ATTEMPTS_MAX, Route, Taken, WarmUp,
};

/// One appliance and where it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Appliance {
    /// Number.
    pub id: ApplianceId,
    /// What was ordered.
    pub order: ApplianceOrder,
    /// Where it stands.
    pub state: ApplianceState,
    /// Where its volume's requests go.
    pub route: Route,
    /// When the step under way is late.
    pub deadline: Option<Nanos>,
    /// Attempts at it so far; one that is asked for again after a restart is the same.
    attempts: u32,
    /// Number of the latest action.
    #[serde(default)]
    asked: u32,
    /// Number of the first action of its step; being stranded and being returned are one. None where it was not stored.
    first: Option<u32>,
    /// When its host was first said to be lost.
    lost_at: Option<Nanos>,
    /// Restarts that gave the latest attempt its full time again, of [`LATE_RESTARTS_MAX`].
    #[serde(default)]
    late_restarts: u32,
    /// How it will end, once that is settled.
    ending: Option<ApplianceOutcome>,
}

impl Appliance {
    /// Whether nothing will happen any more.
    pub fn ended(&self) -> bool {
        matches!(self.state, ApplianceState::Ended { .. })
    }

    /// The latest attempt: of another one only that the step is done for good is taken.
    pub fn step(&self) -> ApplianceStep {
        ApplianceStep {
            id: self.id,
            attempt: self.asked,
        }
    }

    /// Whether an answer to that attempt is heard: one to the latest, and one to an earlier one of the step that says what stays true.
    fn hears(&self, attempt: u32, answer: &ApplianceAnswer) -> bool {
        use ApplianceAnswer as A;
        use ApplianceState as S;
        // Nothing re-routes any more once it is being returned, and nothing is created once it is being removed.
        let lasting = matches!(
            (&self.state, answer),
            (S::Returning | S::Stranded, A::Returned) | (S::Removing, A::Destroyed)
        );
        let of_step = self.first.is_some_and(|first| attempt >= first);
        attempt == self.asked || lasting && of_step && attempt < self.asked
    }

    /// Whether the volume is served by the backend with nothing missing there.
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
    /// None yet.
    pub fn new(deadlines: ApplianceDeadlines) -> Self {
        Self {
            deadlines,
            ..Self::default()
        }
    }

    /// All of them, oldest first, the latest [`ENDED_MAX`] or so of those that ended included.
    pub fn all(&self) -> &[Appliance] {
        &self.all
    }

    /// One of them; `None` if there never was one of that number, or it ended long ago.
    pub fn get(&self, id: ApplianceId) -> Option<&Appliance> {
        self.place(id).map(|i| &self.all[i])
    }

    /// They are in order of their numbers.
    fn place(&self, id: ApplianceId) -> Option<usize> {
        self.all.binary_search_by_key(&id, |a| a.id).ok()
    }

    /// The next thing to do. What is to survive a crash is stored before it is begun, or its number may come twice.
    pub fn poll_action(&mut self) -> Option<ApplianceAction> {
        self.actions.pop_front()
    }

    /// When [`Appliances::tick`] is to be called next, if nothing happens before.
    pub fn next_deadline(&self) -> Option<Nanos> {
        self.all.iter().filter_map(|a| a.deadline).min()
    }

    /// Begins an appliance.
    ///
    /// # Errors
    /// The volume has one that has not ended: one route, one appliance.
    pub fn create(&mut self, now: Nanos, order: ApplianceOrder) -> Result<ApplianceId, Taken> {
        let volume = order.volume;
        let mut open = self.all.iter().filter(|a| !a.ended());
        if let Some(other) = open.find(|a| a.order.volume == volume) {
            let by = other.id;
            return Err(Taken { volume, by });
        }
        // The last one is never forgotten, so no number comes twice.
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

    /// Forgets the oldest of those that ended, beyond [`ENDED_MAX`].
    fn forget(&mut self) {
        let ended = self.all.iter().filter(|a| a.ended()).count();
        let mut surplus = ended.saturating_sub(ENDED_MAX);
        self.all.retain(|a| {
            let goes = surplus > 0 && a.ended();
            surplus -= usize::from(goes);
            !goes
        });
    }

    /// Takes in what became of a step.
    ///
    /// # Errors
    /// The answer is to another attempt than the latest and does not say that the step is done for good, or is to none: nothing
    /// changes.
    pub fn answer(
        &mut self,
        now: Nanos,
        step: ApplianceStep,
        answer: ApplianceAnswer,
    ) -> Result<(), Ignored> {
        let id = step.id;
        let appliance = self.get(id).ok_or(Ignored::Unknown { id })?;
        if !appliance.hears(step.attempt, &answer) {
            let latest = appliance.asked;
            return Err(Ignored::OtherAttempt { step, latest });
        }
        let taken = self.take(now, id, answer);
        self.check();
        taken.then_some(()).ok_or(Ignored::NotAsked { step })
    }

    /// Whether an answer that is heard is one to the step under way; if so, goes on.
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
            // A cold cache is a cache all the same.
            (S::Warming, A::Warmed | A::Failed { .. }) => self.enter(id, now, S::Serving),
            (S::Returning | S::Stranded, A::Returned) => {
                self.at(id).route = Route::Backend;
                self.enter(id, now, S::Draining);
            }
            // Nothing in it is dirty: requests that do not end are answered by nobody, whatever is done.
            (S::Draining, A::Drained | A::Failed { .. }) => self.enter(id, now, S::Removing),
            (S::Removing, A::Destroyed) => self.end(id, now),
            (S::Creating | S::Rerouting | S::Returning | S::Removing, A::Failed { why }) => {
                self.failed(id, now, why);
            }
            _ => return false,
        }
        true
    }

    /// Takes in what happened to one of them; what is said of one that ended, or asks for what is done already, is ignored.
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

    /// Deals with deadlines that have passed.
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

    /// After reading the state back from a store, with the time of a clock that went on meanwhile: emits again what was under way. A
    /// restart is no failure of a step, so it takes none of its attempts; but what is asked now has a new number, and of answers from
    /// before only what stays true is taken. Nor does it put the step's end off, however often it comes: the deadline stays. One that
    /// passed while nobody ran is given in full once more, [`LATE_RESTARTS_MAX`] times to an attempt; then the attempt was late.
    pub fn resume(&mut self, now: Nanos) {
        self.actions.clear();
        for i in 0..self.all.len() {
            let appliance = &mut self.all[i];
            let id = appliance.id;
            match appliance.deadline {
                Some(at) if at > now => {
                    self.ask(id, now);
                    // Never more than the full time, in case the clock was set back.
                    let full = self.at(id).deadline.map_or(at, |full| full.min(at));
                    self.at(id).deadline = Some(full);
                }
                Some(_) if appliance.late_restarts < LATE_RESTARTS_MAX => {
                    appliance.late_restarts += 1;
                    self.ask(id, now);
                }
                Some(_) => self.late(id, now),
                // Nothing is under way.
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
            // It is going already.
            _ => {}
        }
    }

    /// Whatever it served is lost with its host; the route has to be set back all the same. That it is lost may be told again and
    /// again: were that news, nothing would ever be late.
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
            // Until the route is back nobody serves its guests: asked at once, with all attempts, and after those an operator is.
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

    /// The first reason to end stands.
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

    /// Asks for what the state is about: one more attempt.
    fn begin(&mut self, id: ApplianceId, now: Nanos) {
        let appliance = self.at(id);
        appliance.attempts += 1;
        appliance.late_restarts = 0;
        self.ask(id, now);
    }

    /// Asks for what the state is about, with a number that no answer so far can have.
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

    /// What must hold after every event, also in release.
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
