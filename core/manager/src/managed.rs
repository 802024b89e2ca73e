//! Controller with its store: every change is committed before it is acknowledged.
//!
//! ```text
//!            the store fails, or the controller panics
//!  in step ─────────────────────────────────────────────▶ observing
//!     ▲                                                       │ retry: read the store,
//!     └───────────────────────────────────────────────────────┘ commit an audit event
//! ```
//!
//! In step, memory equals the store, and every change is committed before its reply. While
//! observing, the controller accepts reports of agents, but decides nothing and gives no orders: it
//! rejects reports and orders with the reason. It reads status, volumes, tiers and counters from
//! memory, so an alert about the store does not depend on the store. State from this time is
//! discarded afterwards. Agents continue running activities and start no new ones.

use executor::EndCause;
use units::Nanos;

use crate::controller::Controller;
use crate::export;
use crate::planned;
use crate::problem::{ProblemKind, ProblemView};
use crate::question::{Actor, Answer, Done, Question, Refusal};
use crate::recording::{Call, Entry, RECORDING_SCHEMA};
use crate::service::{MessageRefusal, Now, Service, TokenTerm};
use crate::settings::Settings;
use crate::store::{Change, HistoryQuery, Store, StoreError, TidyResult};
use crate::view::{JobView, OutcomeView, StatusView};
use crate::wire::{JobsReport, Orders, Register, Welcome, WindowReport, WireRefusal};

/// Maximum rows in the reply to one question. Protects the memory of the controller and of the
/// caller.
const ROWS_MAX: usize = 100_000;

/// Number of outcomes of a volume that `why` shows.
const WHY_OUTCOMES: usize = 5;

/// Number of outcomes that are searched for those of one volume.
const WHY_SEARCHED: usize = 1_000;

/// Time between two retries with a failing store. It doubles from the first value to the last.
/// Protects the store's disk, and the latency of callers, from continuous reads of the whole store.
const WAIT_FIRST: Nanos = Nanos::from_secs(1);
const WAIT_LAST: Nanos = Nanos::from_secs(30);

/// Maximum time between two failures of the store that doubles the wait. A later failure starts
/// with the first wait.
const FAILS_AGAIN: Nanos = Nanos::from_secs(60);

/// Controller with its store.
pub struct ManagedController<S> {
    settings: Settings,
    store: S,
    /// State of the store; while observing, state from the reports of agents.
    controller: Controller,
    observing: Option<ObserveState>,
    tries: Tries,
    /// Offset of controller time from the time that callers pass in. It is known only after the
    /// store has been read.
    ahead: Nanos,
    /// True after the store has been read once.
    was_read: bool,
    /// Reason for the failure of the last tidying, and the start of these failures.
    untidied: Option<(String, Nanos)>,
    /// Parts of the controller that do not run.
    faults: Vec<ProblemView>,
    recorder: Option<Recorder>,
    /// Random number of this start.
    random: u64,
    /// Tokens in force, for a controller that is restored from the store.
    tokens: Vec<TokenTerm>,
}

/// State while memory and store differ.
struct ObserveState {
    why: String,
    /// Error of the store; `None` if the controller has panicked.
    error: Option<StoreError>,
    since: Nanos,
    /// True if the store could not be read, so memory started empty.
    blank: bool,
}

/// Schedule of the retries with a failing store.
#[derive(Default)]
struct Tries {
    wait: Nanos,
    next: Nanos,
    failed: Option<Nanos>,
}

impl Tries {
    fn failed(&mut self, at: Nanos) {
        let again = self
            .failed
            .is_some_and(|before| at.saturating_sub(before) < self.wait + FAILS_AGAIN);
        self.wait = match again {
            false => Nanos::ZERO,
            true => Nanos((self.wait.0 * 2).clamp(WAIT_FIRST.0, WAIT_LAST.0)),
        };
        self.failed = Some(at);
        self.next = at + self.wait;
    }
}

/// Receiver of the entries of a recording.
pub type Recorder = Box<dyn FnMut(&Entry) + Send>;

impl<S: Store> ManagedController<S> {
    /// Returns the checked configuration.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Creates a controller from the state in the store; it observes if the store fails. `random`
    /// distinguishes this start from all others, including those of controllers on copies of the
    /// store.
    pub fn new(settings: Settings, store: S, unix_ms: u64, random: u64) -> Self {
        let controller = blank(&settings);
        let mut managed = Self {
            settings,
            store,
            controller,
            observing: None,
            tries: Tries::default(),
            ahead: Nanos::ZERO,
            was_read: false,
            untidied: None,
            faults: vec![],
            recorder: None,
            random,
            tokens: vec![],
        };
        let now = Now {
            at: Nanos::ZERO,
            unix_ms,
        };
        if let Err(error) = managed.get_in_step(now, None) {
            managed.observe_for(now, &error);
        }
        managed.ahead = Nanos::ZERO;
        managed
    }

    /// Records all inputs and decisions from now on.
    ///
    /// # Errors
    /// The store cannot be read; a recording starts with its content.
    pub fn record(&mut self, recorder: Recorder) -> Result<(), StoreError> {
        self.recorder = Some(recorder);
        match self.observing {
            None => self.record_beginning(),
            Some(_) => Ok(()), // the recording starts when the store can be read
        }
    }

    fn record_beginning(&mut self) -> Result<(), StoreError> {
        let Some(recorder) = &mut self.recorder else {
            return Ok(());
        };
        let text = self.settings.text();
        recorder(&Entry::Begin {
            schema: RECORDING_SCHEMA.into(),
            file: text.file.clone(),
            text: text.text.clone(),
            saved: self.store.values()?,
        });
        Ok(())
    }

    /// Records an input before the controller processes it.
    fn record_call(&mut self, now: Now, call: impl FnOnce() -> Call) {
        if self.recorder.is_none() || self.in_step(now).is_err() {
            return;
        }
        if let Some(recorder) = &mut self.recorder {
            recorder(&Entry::Called {
                at_ns: now.at.0,
                unix_ms: now.unix_ms,
                call: call(),
            });
        }
    }

    /// Returns the controller time of the last input, from which a clock continues.
    pub fn time(&self) -> Nanos {
        self.controller.time()
    }

    pub fn store(&mut self) -> &mut S {
        &mut self.store
    }

    /// Returns the reason why the controller decides and orders nothing; `None` while it does.
    pub fn failure(&self) -> Option<&str> {
        self.observing.as_ref().map(|o| &*o.why)
    }

    /// Returns true if another controller has opened the store.
    pub fn is_in_use(&self) -> bool {
        let error = self.observing.as_ref().and_then(|o| o.error.as_ref());
        matches!(error, Some(StoreError::InUse { .. }))
    }

    /// Sets the parts of the controller that do not run, with the reasons. The status lists them.
    pub fn set_faults<'a>(&mut self, faults: impl Iterator<Item = (&'a str, &'a str)>) {
        let before = std::mem::take(&mut self.faults);
        let since = |part: &str| {
            let known = before.iter().find(|f| f.subject == part);
            known.map_or(self.controller.time().0, |f| f.since_ns)
        };
        let fault = |(part, what): (&str, &str)| ProblemView {
            kind: ProblemKind::ControllerDegraded,
            host: None,
            subject: part.into(),
            what: format!("{part}: {what}"),
            undecided: None,
            since_ns: since(part),
        };
        self.faults = faults.map(fault).collect();
    }

    /// Handles a panic of the controller while it processed an input: its state in memory is
    /// invalid.
    pub fn broke_off(&mut self, now: Now, why: &str) {
        let now = self.own(now);
        let why = format!(
            "{why}; nothing is decided or ordered until the state is read from the store again"
        );
        self.observe_because(now, why, None);
    }

    /// Summarizes old data and removes older data, a bounded amount of work per call.
    ///
    /// # Errors
    /// A failing store.
    pub fn tidy(&mut self, now: Now) -> Result<TidyResult, StoreError> {
        let now = self.own(now);
        if self.observing.is_some() {
            return Ok(TidyResult::All);
        }
        let tidied = self.store.tidy(now.at.0);
        self.untidied = match &tidied {
            Ok(_) => None,
            Err(error) => {
                let since = self.untidied.take().map_or(now.at, |(_, since)| since);
                Some((error.to_string(), since))
            }
        };
        tidied
    }

    /// Returns the time with controller time.
    fn own(&self, now: Now) -> Now {
        Now {
            at: now.at + self.ahead,
            ..now
        }
    }

    /// Retries the store if a retry is due.
    ///
    /// # Errors
    /// [`Refusal::Unavailable`] with the reason why the controller only observes.
    fn in_step(&mut self, now: Now) -> Result<(), Refusal> {
        let Some(observing) = &self.observing else {
            return Ok(());
        };
        if now.at >= self.tries.next {
            let lasted = now.at.saturating_sub(observing.since).words();
            let why = format!(
                "nothing was decided or ordered for {lasted}: {}",
                observing.why
            );
            match self.get_in_step(now, Some(why)) {
                Ok(()) => return Ok(()),
                Err(error) => self.observe_for(now, &error),
            }
        }
        Err(self.unavailable())
    }

    /// Returns the reason why the controller only observes.
    fn unavailable(&self) -> Refusal {
        Refusal::Unavailable(self.failure().unwrap_or_default().to_owned())
    }

    /// Reads the state from the store and commits an audit event. A store that is only readable is
    /// not sufficient.
    fn get_in_step(&mut self, now: Now, interruption: Option<String>) -> Result<(), StoreError> {
        let mut controller = load(&self.settings, &mut self.store)?;
        controller.restore_tokens(self.tokens.clone());
        let at = match self.was_read {
            true => now.at,
            false => controller.time_at(now.unix_ms).max(now.at),
        };
        let now_at = Now { at, ..now };
        match interruption {
            None => controller.started(now_at, self.random),
            Some(why) => controller.resumed(now_at, self.random, why),
        }
        self.store.commit(&controller.take_changes())?;
        self.record_beginning()?;
        self.ahead.0 += at.saturating_sub(now.at).0;
        self.controller = controller;
        (self.was_read, self.observing) = (true, None);
        Ok(())
    }

    /// Starts to observe because of an error of the store.
    fn observe_for(&mut self, now: Now, error: &StoreError) {
        let why = format!("{error}; nothing is decided or ordered until the store works again");
        self.observe_because(now, why, Some(error.clone()));
    }

    fn observe_because(&mut self, now: Now, why: String, error: Option<StoreError>) {
        self.tries.failed(now.at);
        if let Some(observing) = &mut self.observing
            && error.is_some()
        {
            (observing.why, observing.error) = (why, error);
            return;
        }
        // The state in memory is ahead of the store, and therefore invalid.
        let read = load(&self.settings, &mut self.store);
        let is_blank = read.is_err();
        self.controller = read.unwrap_or_else(|_| blank(&self.settings));
        self.controller.restore_tokens(self.tokens.clone());
        let since = self.observing.take().map_or(now.at, |o| o.since);
        self.observing = Some(ObserveState {
            why,
            error,
            since,
            blank: is_blank,
        });
    }

    /// Calls the controller and commits the resulting changes.
    fn with<R>(&mut self, now: Now, what: impl FnOnce(&mut Controller) -> R) -> Result<R, Refusal> {
        self.in_step(now)?;
        let result = what(&mut self.controller);
        let changes = self.controller.take_changes();
        if changes.is_empty() {
            return Ok(result);
        }
        if let Err(error) = self.store.commit(&changes) {
            self.observe_for(now, &error);
            return Err(self.unavailable());
        }
        if let Some(recorder) = &mut self.recorder {
            for change in changes {
                if let Change::Decision(d) = change {
                    recorder(&Entry::Decided {
                        host: d.host,
                        generation: d.generation,
                        plan: d.plan,
                    });
                }
            }
        }
        Ok(result)
    }

    /// Passes an input to the controller, which processes it even if the changes cannot be
    /// committed.
    fn tell(&mut self, now: Now, what: impl Fn(&mut Controller)) {
        if self.with(now, &what).is_err() {
            self.observe(what);
        }
    }

    /// Calls the controller and discards the resulting changes.
    fn observe<R>(&mut self, what: impl FnOnce(&mut Controller) -> R) -> R {
        let result = what(&mut self.controller);
        drop(self.controller.take_changes());
        result
    }

    /// Answers a question; from memory while the store fails.
    fn view(&mut self, now: Now, actor: &Actor, question: Question) -> Result<Answer, Refusal> {
        if let Ok(answer) = self.with(now, |c| c.ask(now, actor, question.clone())) {
            return answer;
        }
        // Replies to these questions come from the last reports. Data for the other questions may
        // be lost.
        let measured = matches!(
            question,
            Question::Status
                | Question::Tiers
                | Question::Volumes
                | Question::Volume { .. }
                | Question::Counters
        );
        match &self.observing {
            Some(observing) if observing.blank && !measured => {
                Err(Refusal::Unavailable(observing.why.clone()))
            }
            _ => self.observe(|c| c.ask(now, actor, question)),
        }
    }

    /// Adds problems to a status that only this layer knows.
    fn complete(&self, status: &mut StatusView) {
        let mut problems = std::mem::take(&mut status.problems);
        problems.extend(self.faults.iter().cloned());
        let failing = |what: &str, undecided: Option<&str>, since: Nanos| ProblemView {
            kind: ProblemKind::StoreFailing,
            host: None,
            subject: "store".into(),
            what: what.into(),
            undecided: undecided.map(Into::into),
            since_ns: since.0,
        };
        if let Some(observing) = &self.observing {
            let undecided = Some("all decisions and orders");
            problems.push(failing(&observing.why, undecided, observing.since));
            status.store_failure = Some(observing.why.clone());
        } else if let Some((why, since)) = &self.untidied {
            let what = format!(
                "{why}; old records are not removed, and the store grows: check the free space and the disk of the store"
            );
            problems.push(failing(&what, None, *since));
        }
        *status = status.clone().with_problems(problems);
    }
}

fn load<S: Store>(settings: &Settings, store: &mut S) -> Result<Controller, StoreError> {
    let saved = store.values()?;
    Controller::new(settings.clone(), saved).map_err(|e| StoreError::Read { why: e.to_string() })
}

fn blank(settings: &Settings) -> Controller {
    Controller::new(settings.clone(), vec![]).expect("settings include a check of the strategy")
}

impl<S: Store> Service for ManagedController<S> {
    fn register(
        &mut self,
        now: Now,
        host: &str,
        message: Register,
    ) -> Result<Welcome, MessageRefusal> {
        let now = self.own(now);
        self.record_call(now, || Call::Register {
            host: host.into(),
            message: message.clone(),
        });
        if self.in_step(now).is_err() {
            // The controller gives no orders, and the agent registers again after the store has
            // recovered.
            let seen = self.observe(|c| c.register(now, host, &message));
            return seen.map_err(MessageRefusal::Wire);
        }
        flatten(self.with(now, |c| c.register(now, host, &message)))
    }

    fn report(
        &mut self,
        now: Now,
        host: &str,
        message: WindowReport,
    ) -> Result<Orders, MessageRefusal> {
        let now = self.own(now);
        self.record_call(now, || Call::Report {
            host: host.into(),
            message: Box::new(message.clone()),
        });
        if let Err(why) = self.in_step(now) {
            let seen = self.observe(|c| c.observe(now, host, message));
            seen.map_err(MessageRefusal::Wire)?;
            return Err(MessageRefusal::Unavailable(why.to_string()));
        }
        flatten(self.with(now, |c| c.report(now, host, message)))
    }

    fn jobs_ended(
        &mut self,
        now: Now,
        host: &str,
        message: JobsReport,
    ) -> Result<Orders, MessageRefusal> {
        let now = self.own(now);
        self.record_call(now, || Call::JobsEnded {
            host: host.into(),
            message: message.clone(),
        });
        flatten(self.with(now, |c| c.jobs_ended(now, host, &message)))
    }

    fn tick(&mut self, now: Now) {
        let now = self.own(now);
        if self.observing.is_none()
            && let Err(error) = self.store.check()
        {
            self.observe_for(now, &error);
        }
        self.record_call(now, || Call::Tick);
        self.tell(now, |c| c.tick(now));
    }

    fn reload(&mut self, now: Now, actor: &Actor, settings: Settings) -> Result<Done, Refusal> {
        settings
            .check_reload(&self.settings)
            .map_err(|fault| Refusal::Invalid(fault.to_string()))?;
        let now = self.own(now);
        self.record_call(now, || Call::Reload {
            actor: actor.clone(),
            file: settings.text().file.clone(),
            text: settings.text().text.clone(),
        });
        let done = self.with(now, |c| c.reload(now, actor, settings.clone()))??;
        self.settings = settings;
        Ok(done)
    }

    // Tokens and refusals do not influence decisions, so recordings omit them.
    fn set_tokens(&mut self, now: Now, terms: Vec<TokenTerm>) {
        let now = self.own(now);
        self.tokens.clone_from(&terms);
        self.tell(now, |c| c.set_tokens(now, terms.clone()));
    }

    fn tokens_changed(&mut self, now: Now, actor: &Actor, text: String) {
        let now = self.own(now);
        self.tell(now, |c| c.tokens_changed(now, actor, text.clone()));
    }

    fn refused(&mut self, now: Now, text: String) {
        let now = self.own(now);
        self.tell(now, |c| c.refused(now, text.clone()));
    }

    fn ask(&mut self, now: Now, actor: &Actor, question: Question) -> Result<Answer, Refusal> {
        let unavailable = |e: StoreError| Refusal::Unavailable(e.to_string());
        let now = self.own(now);
        if question.is_order() {
            self.record_call(now, || Call::Order {
                actor: actor.clone(),
                order: question.clone(),
            });
            return self.with(now, |c| c.ask(now, actor, question))?;
        }
        match question {
            Question::History { volume, last_ns } => {
                let (host, volume) = self.controller.volume_key(&volume)?;
                let query = HistoryQuery {
                    host,
                    volume,
                    from_ns: now.at.0.saturating_sub(last_ns),
                    to_ns: now.at.0,
                };
                self.store
                    .history(&query)
                    .map(Answer::History)
                    .map_err(unavailable)
            }
            Question::Events { after, limit } => {
                let events = self.store.events(after, limit.min(ROWS_MAX));
                events.map(Answer::Events).map_err(unavailable)
            }
            Question::Outcomes { limit } => {
                let outcomes = self.store.outcomes(limit.min(ROWS_MAX));
                outcomes.map(Answer::Outcomes).map_err(unavailable)
            }
            Question::ExportFacts { host, generation } => {
                let host = self.controller.host_key(host.as_deref())?;
                let found = self
                    .store
                    .decision(&host, generation)
                    .map_err(unavailable)?;
                let decision = found.ok_or_else(|| {
                    Refusal::NotFound(match generation {
                        Some(g) => {
                            format!("decision {g} of {host} does not exist or has been removed")
                        }
                        None => {
                            format!(
                                "{host} has no placement decision yet: wait one migration epoch"
                            )
                        }
                    })
                })?;
                let text = export::scenario(&decision, &self.settings);
                text.map(Answer::Text)
                    .map_err(|e| Refusal::Conflict(e.to_string()))
            }
            Question::Plan {
                host,
                generation: Some(generation),
            } => self.plan(now, actor, host, generation),
            Question::Jobs { limit } => self.jobs(now, actor, limit.min(ROWS_MAX)),
            Question::Why { volume } => {
                let mut answer = self.view(now, actor, Question::Why { volume })?;
                if let Answer::Why(why) = &mut answer {
                    let all = self.store.outcomes(WHY_SEARCHED).map_err(unavailable)?;
                    let own =
                        |o: &OutcomeView| o.host == why.volume.host && o.volume == why.volume.name;
                    why.outcomes = all.into_iter().filter(own).take(WHY_OUTCOMES).collect();
                }
                Ok(answer)
            }
            Question::Status => {
                let mut answer = self.view(now, actor, Question::Status)?;
                if let Answer::Status(status) = &mut answer {
                    self.complete(status);
                }
                Ok(answer)
            }
            other => self.view(now, actor, other),
        }
    }
}

impl<S: Store> ManagedController<S> {
    /// Returns a plan by number: the current one in its present state, an older one as it was
    /// created.
    fn plan(
        &mut self,
        now: Now,
        actor: &Actor,
        host: Option<String>,
        generation: u64,
    ) -> Result<Answer, Refusal> {
        let current = Question::Plan {
            host: host.clone(),
            generation: None,
        };
        let answer = self.view(now, actor, current)?;
        if matches!(&answer, Answer::Plan(p) if p.generation == generation) {
            return Ok(answer);
        }
        let host = self.controller.host_key(host.as_deref())?;
        let found = self
            .store
            .decision(&host, Some(generation))
            .map_err(|e| Refusal::Unavailable(e.to_string()))?;
        let decision = found.ok_or_else(|| {
            Refusal::NotFound(format!(
                "plan {generation} of {host} does not exist or has been removed"
            ))
        })?;
        planned::old(&decision)
            .map(|p| Answer::Plan(Box::new(p)))
            .map_err(|e| Refusal::Conflict(e.to_string()))
    }

    /// Returns jobs of the executors and older jobs from the store.
    fn jobs(&mut self, now: Now, actor: &Actor, limit: usize) -> Result<Answer, Refusal> {
        let answer = self.view(now, actor, Question::Jobs { limit })?;
        let Answer::Jobs(mut jobs) = answer else {
            return Ok(answer);
        };
        if jobs.len() < limit {
            let older = self
                .store
                .jobs(limit)
                .map_err(|e| Refusal::Unavailable(e.to_string()))?;
            let known: std::collections::BTreeSet<(String, u32)> =
                jobs.iter().map(|j| (j.host.clone(), j.job)).collect();
            // A job of the store that has not ended is known to its executor. Otherwise an older
            // version has recorded it as superseded.
            let over = |j: &JobView| {
                j.ended_ns.is_some() && j.cause.as_deref() != Some(EndCause::Superseded.name())
            };
            let older = older
                .into_iter()
                .filter(over)
                .filter(|j| !known.contains(&(j.host.clone(), j.job)));
            jobs.extend(older);
            jobs.truncate(limit);
        }
        Ok(Answer::Jobs(jobs))
    }
}

fn flatten<T>(outcome: Result<Result<T, WireRefusal>, Refusal>) -> Result<T, MessageRefusal> {
    outcome
        .map_err(|e| MessageRefusal::Unavailable(e.to_string()))?
        .map_err(MessageRefusal::Wire)
}
