//! A controller and its store as one: nothing is answered that is not committed.
//!
//! ```text
//!            the store fails, or the controller panics
//!  in step ─────────────────────────────────────────────▶ observing
//!     ▲                                                       │ a try is due: read the store,
//!     └───────────────────────────────────────────────────────┘ commit a line of the audit
//! ```
//!
//! In step, memory is what the store has, and every change is committed before it is answered.
//! While it observes, the controller takes in what agents report, decides nothing, and gives no
//! orders: reports and orders are refused with the reason. Status, volumes, tiers and counters are
//! answered from memory, so that an alert about the store does not depend on the store. What it
//! takes in while it observes is dropped afterwards. Agents go on with what is under way, and begin
//! nothing new.

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
use crate::store::{Change, HistoryQuery, Store, StoreError, Tidied};
use crate::view::{JobView, OutcomeView, StatusView};
use crate::wire::{JobsReport, Orders, Register, Welcome, WindowReport, WireRefusal};

/// Most rows that one question gets. Protects the controller's memory and whoever asks.
const ROWS_MAX: usize = 100_000;

/// Outcomes of a volume that `why` shows.
const WHY_OUTCOMES: usize = 5;

/// Outcomes that are looked through for them.
const WHY_SEARCHED: usize = 1_000;

/// Time between two tries to get in step with a store that fails: it doubles from the first to the
/// last. Protects the store's disk, and those who ask, from reading all of a store again and again.
const WAIT_FIRST: Nanos = Nanos::from_secs(1);
const WAIT_LAST: Nanos = Nanos::from_secs(30);

/// A store that has failed within this time before fails again, so that the wait goes on to double.
const FAILS_AGAIN: Nanos = Nanos::from_secs(60);

/// A controller with its store.
pub struct Managed<S> {
    settings: Settings,
    store: S,
    /// The state in the store, unless the controller only observes.
    controller: Controller,
    observing: Option<Observing>,
    tries: Tries,
    /// The controller's time is so far ahead of the time that is passed in: it is only known once
    /// the store was read.
    ahead: Nanos,
    /// True once the store was read.
    was_read: bool,
    /// Why the last round of tidying failed, and since when.
    untidied: Option<(String, Nanos)>,
    /// Parts of the controller that do not run.
    faults: Vec<ProblemView>,
    recorder: Option<Recorder>,
    /// Tells this start from all others.
    random: u64,
    /// For a controller that is read again.
    tokens: Vec<TokenTerm>,
}

/// It is not in step with its store.
struct Observing {
    why: String,
    /// The store's own error, if it was the store.
    error: Option<StoreError>,
    since: Nanos,
    /// Nothing of the store could be read, so memory begins with nothing.
    blank: bool,
}

/// When the next try is due.
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

/// Takes what is recorded.
pub type Recorder = Box<dyn FnMut(&Entry) + Send>;

impl<S: Store> Managed<S> {
    /// What the operator's file says.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// From what the store has; it observes if the store fails. `random` tells this start from all
    /// others, also of controllers on copies of the store.
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

    /// Records everything from here on.
    ///
    /// # Errors
    /// The store, of which a recording begins with what it has.
    pub fn record(&mut self, recorder: Recorder) -> Result<(), StoreError> {
        self.recorder = Some(recorder);
        match self.observing {
            None => self.record_beginning(),
            Some(_) => Ok(()), // it begins with the store
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

    /// Notes what the controller is about to be told.
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

    /// The controller's time at its last input: a clock goes on from here.
    pub fn time(&self) -> Nanos {
        self.controller.time()
    }

    pub fn store(&mut self) -> &mut S {
        &mut self.store
    }

    /// Why nothing is decided or ordered, while that is so.
    pub fn failure(&self) -> Option<&str> {
        self.observing.as_ref().map(|o| &*o.why)
    }

    /// Returns true if another controller has the store open.
    pub fn is_in_use(&self) -> bool {
        let error = self.observing.as_ref().and_then(|o| o.error.as_ref());
        matches!(error, Some(StoreError::InUse { .. }))
    }

    /// Sets which parts of the controller do not run, and why: the status lists them.
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

    /// The controller panicked in the middle of something: what it has in memory is void.
    pub fn broke_off(&mut self, now: Now, why: &str) {
        let now = self.own(now);
        let why = format!("{why}; nothing is decided or ordered until it is read again");
        self.observe_because(now, why, None);
    }

    /// Rolls up and forgets what is old, a bounded amount of it.
    ///
    /// # Errors
    /// The store.
    pub fn tidy(&mut self, now: Now) -> Result<Tidied, StoreError> {
        let now = self.own(now);
        if self.observing.is_some() {
            return Ok(Tidied::All);
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

    /// The controller's own time.
    fn own(&self, now: Now) -> Now {
        Now {
            at: now.at + self.ahead,
            ..now
        }
    }

    /// Tries to get in step with the store, if that is due.
    ///
    /// # Errors
    /// Why the controller only observes.
    fn in_step(&mut self, now: Now) -> Result<(), String> {
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
        Err(self.failure().unwrap_or_default().to_owned())
    }

    /// Reads what the store has, and commits that: a store that can only be read is not enough.
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

    /// The store failed: only observes from here on.
    fn observe_for(&mut self, now: Now, error: &StoreError) {
        let why = format!("{error}; until the store works, nothing is decided or ordered");
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
        // The state in memory is ahead of the store, and void.
        let read = load(&self.settings, &mut self.store);
        let is_blank = read.is_err();
        self.controller = read.unwrap_or_else(|_| blank(&self.settings));
        self.controller.restore_tokens(self.tokens.clone());
        let since = self.observing.take().map_or(now.at, |o| o.since);
        self.observing = Some(Observing {
            why,
            error,
            since,
            blank: is_blank,
        });
    }

    /// Does something, and commits what came of it.
    fn with<R>(&mut self, now: Now, what: impl FnOnce(&mut Controller) -> R) -> Result<R, String> {
        self.in_step(now)?;
        let result = what(&mut self.controller);
        let changes = self.controller.take_changes();
        if changes.is_empty() {
            return Ok(result);
        }
        if let Err(error) = self.store.commit(&changes) {
            self.observe_for(now, &error);
            return Err(self.failure().unwrap_or_default().to_owned());
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

    /// Tells the controller something, which it takes in even if nothing can be kept of it.
    fn tell(&mut self, now: Now, what: impl Fn(&mut Controller)) {
        if self.with(now, &what).is_err() {
            self.observe(what);
        }
    }

    /// Does something of which nothing is kept.
    fn observe<R>(&mut self, what: impl FnOnce(&mut Controller) -> R) -> R {
        let result = what(&mut self.controller);
        drop(self.controller.take_changes());
        result
    }

    /// Answers a question, from memory while the store fails.
    fn view(&mut self, now: Now, actor: &Actor, question: Question) -> Result<Answer, Refusal> {
        if let Ok(answer) = self.with(now, |c| c.ask(now, actor, question.clone())) {
            return answer;
        }
        // These answers come from the last reports. Data of the others may be gone.
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

    /// Adds to a status what the controller's core does not know.
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
            let undecided = Some("anything: nothing is ordered either");
            problems.push(failing(&observing.why, undecided, observing.since));
            status.store_failure = Some(observing.why.clone());
        } else if let Some((why, since)) = &self.untidied {
            let what = format!("{why}; old records are not removed, and the store grows");
            problems.push(failing(&what, None, *since));
        }
        *status = status.clone().with_problems(problems);
    }
}

fn load<S: Store>(settings: &Settings, store: &mut S) -> Result<Controller, StoreError> {
    let saved = store.values()?;
    Controller::new(settings.clone(), saved).map_err(|why| StoreError::Read { why })
}

fn blank(settings: &Settings) -> Controller {
    Controller::new(settings.clone(), vec![]).expect("the strategy was checked with the settings")
}

impl<S: Store> Service for Managed<S> {
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
            // It orders nothing, and the agent registers again when that is over.
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
            return Err(MessageRefusal::Unavailable(why));
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
        let done = self
            .with(now, |c| c.reload(now, actor, settings.clone()))
            .map_err(Refusal::Unavailable)??;
        self.settings = settings;
        Ok(done)
    }

    // Tokens and refusals reach no decision, so no recording has them.
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
            return self
                .with(now, |c| c.ask(now, actor, question))
                .map_err(Refusal::Unavailable)?;
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
                        Some(g) => format!("there is no decision {g} of {host} any more, or yet"),
                        None => {
                            format!("there was no decision about {host} yet that could move data")
                        }
                    })
                })?;
                let text =
                    export::scenario(&decision, &self.settings).map_err(Refusal::Conflict)?;
                Ok(Answer::Text(text))
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

impl<S: Store> Managed<S> {
    /// A plan by its number: the current one as it stands, an older one as it was.
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
        let decision = found
            .ok_or_else(|| Refusal::NotFound(format!("there is no plan {generation} of {host}")))?;
        planned::old(&decision)
            .map(|p| Answer::Plan(Box::new(p)))
            .map_err(Refusal::Conflict)
    }

    /// Jobs that the core knows, and older ones.
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
            // One that has not ended is known to its executor, or it is a ghost: superseded under an older version.
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

fn flatten<T>(outcome: Result<Result<T, WireRefusal>, String>) -> Result<T, MessageRefusal> {
    outcome
        .map_err(MessageRefusal::Unavailable)?
        .map_err(MessageRefusal::Wire)
}
