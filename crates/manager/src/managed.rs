//! A controller and its store as one: nothing is answered that is not committed.
//!
//! When the store fails, what the controller holds in memory is ahead of it, and void: it is thrown away and read again from
//! the store before anything else is taken in. Until the store works, nothing is decided and nobody is ordered anything; agents go
//! on with what is under way, and begin nothing new.

use executor::EndCause;
use units::Nanos;

use crate::controller::Controller;
use crate::export;
use crate::planned;
use crate::question::{Actor, Answer, Done, Question, Refusal};
use crate::recording::{Call, Entry, RECORDING_SCHEMA};
use crate::service::{MessageRefusal, Now, Service};
use crate::settings::Settings;
use crate::store::{Change, HistoryQuery, Store, StoreError};
use crate::trouble::{TroubleKind, TroubleView};
use crate::view::{JobView, OutcomeView};
use crate::wire::{JobsReport, Orders, Register, Welcome, WindowReport, WireRefusal};

/// Most rows that one question gets. Protects the controller's memory and whoever asks.
const ROWS_MAX: usize = 100_000;

/// Outcomes of a volume that `why` shows.
const WHY_OUTCOMES: usize = 5;

/// Outcomes that are looked through for them.
const WHY_SEARCHED: usize = 1_000;

/// A controller with its store.
pub struct Managed<S> {
    settings: Settings,
    store: S,
    /// None after the store failed: to be read again.
    controller: Option<Controller>,
    /// What the store said last.
    failure: Option<String>,
    /// Since when it has failed, in the controller's time.
    failing_since: Option<Nanos>,
    recorder: Option<Recorder>,
}

/// Takes what is recorded.
pub type Recorder = Box<dyn FnMut(&Entry) + Send>;

impl<S: Store> Managed<S> {
    /// What the operator's file says.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// From what the store has.
    ///
    /// # Errors
    /// The store, or a value in it that is not understood.
    pub fn new(settings: Settings, mut store: S, unix_ms: u64) -> Result<Self, StoreError> {
        let mut controller = load(&settings, &mut store)?;
        let at = controller.time_at(unix_ms);
        controller.started(Now { at, unix_ms });
        let changes = controller.take_changes();
        store.commit(&changes)?;
        Ok(Self {
            settings,
            store,
            controller: Some(controller),
            failure: None,
            failing_since: None,
            recorder: None,
        })
    }

    /// Records everything from here on.
    ///
    /// # Errors
    /// The store, of which a recording begins with what it has.
    pub fn record(&mut self, recorder: Recorder) -> Result<(), StoreError> {
        self.recorder = Some(recorder);
        self.record_beginning()
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
        if self.recorder.is_none() || self.ready().is_err() {
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
        self.controller
            .as_ref()
            .map_or(Nanos::ZERO, Controller::time)
    }

    pub fn store(&mut self) -> &mut S {
        &mut self.store
    }

    /// The controller's core; none while the store fails.
    pub fn controller(&self) -> Option<&Controller> {
        self.controller.as_ref()
    }

    /// Rolls up and forgets what is old, a bounded amount of it.
    ///
    /// # Errors
    /// The store.
    pub fn tidy(&mut self, now: Now) -> Result<crate::store::Tidied, StoreError> {
        let tidied = self.store.tidy(now.at.0);
        if let Err(error) = &tidied {
            self.failure = Some(error.to_string());
            self.failing_since.get_or_insert(now.at);
        }
        tidied
    }

    fn ready(&mut self) -> Result<&mut Controller, String> {
        if self.controller.is_none() {
            let read = load(&self.settings, &mut self.store);
            self.controller = Some(read.map_err(|e| e.to_string())?);
            self.record_beginning().map_err(|e| e.to_string())?;
        }
        Ok(self.controller.as_mut().expect("it was just read"))
    }

    /// Does something, and commits what came of it.
    fn with<R>(&mut self, what: impl FnOnce(&mut Controller) -> R) -> Result<R, String> {
        let controller = self.ready()?;
        let result = what(controller);
        let changes = controller.take_changes();
        let at = controller.time();
        if changes.is_empty() {
            return Ok(result);
        }
        match self.store.commit(&changes) {
            Ok(()) => {
                (self.failure, self.failing_since) = (None, None);
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
            Err(error) => {
                self.controller = None;
                let why = format!("{error}; nothing is decided or ordered until it can be");
                self.failure = Some(why.clone());
                self.failing_since.get_or_insert(at);
                Err(why)
            }
        }
    }
}

fn load<S: Store>(settings: &Settings, store: &mut S) -> Result<Controller, StoreError> {
    let saved = store.values()?;
    Controller::new(settings.clone(), saved).map_err(|why| StoreError::Read { why })
}

impl<S: Store> Service for Managed<S> {
    fn register(
        &mut self,
        now: Now,
        host: &str,
        message: Register,
    ) -> Result<Welcome, MessageRefusal> {
        self.record_call(now, || Call::Register {
            host: host.into(),
            message: message.clone(),
        });
        let outcome = self.with(|c| c.register(now, host, &message));
        flatten(outcome)
    }

    fn report(
        &mut self,
        now: Now,
        host: &str,
        message: WindowReport,
    ) -> Result<Orders, MessageRefusal> {
        self.record_call(now, || Call::Report {
            host: host.into(),
            message: Box::new(message.clone()),
        });
        let outcome = self.with(|c| c.report(now, host, message));
        flatten(outcome)
    }

    fn jobs_ended(
        &mut self,
        now: Now,
        host: &str,
        message: JobsReport,
    ) -> Result<Orders, MessageRefusal> {
        self.record_call(now, || Call::JobsEnded {
            host: host.into(),
            message: message.clone(),
        });
        let outcome = self.with(|c| c.jobs_ended(now, host, &message));
        flatten(outcome)
    }

    fn tick(&mut self, now: Now) {
        self.record_call(now, || Call::Tick);
        // A store that fails says so to everybody who asks.
        let _ = self.with(|c| c.tick(now));
    }

    fn reload(&mut self, now: Now, actor: &Actor, settings: Settings) -> Result<Done, Refusal> {
        settings
            .check_reload(&self.settings)
            .map_err(|fault| Refusal::Invalid(fault.to_string()))?;
        self.record_call(now, || Call::Reload {
            actor: actor.clone(),
            file: settings.text().file.clone(),
            text: settings.text().text.clone(),
        });
        let done = self
            .with(|c| c.reload(now, actor, settings.clone()))
            .map_err(Refusal::Unavailable)??;
        self.settings = settings;
        Ok(done)
    }

    fn ask(&mut self, now: Now, actor: &Actor, question: Question) -> Result<Answer, Refusal> {
        let unavailable = |e: StoreError| Refusal::Unavailable(e.to_string());
        if question.is_order() {
            self.record_call(now, || Call::Order {
                actor: actor.clone(),
                order: question.clone(),
            });
        }
        match question {
            Question::History { volume, last_ns } => {
                let controller = self.ready().map_err(Refusal::Unavailable)?;
                let (host, volume) = controller.volume_key(&volume)?;
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
                let controller = self.ready().map_err(Refusal::Unavailable)?;
                let host = controller.host_key(host.as_deref())?;
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
                let mut answer = self
                    .with(|c| c.ask(now, actor, Question::Why { volume }))
                    .map_err(Refusal::Unavailable)??;
                if let Answer::Why(why) = &mut answer {
                    let all = self.store.outcomes(WHY_SEARCHED).map_err(unavailable)?;
                    let own =
                        |o: &OutcomeView| o.host == why.volume.host && o.volume == why.volume.name;
                    why.outcomes = all.into_iter().filter(own).take(WHY_OUTCOMES).collect();
                }
                Ok(answer)
            }
            Question::Status => {
                let mut answer = self
                    .with(|c| c.ask(now, actor, Question::Status))
                    .map_err(Refusal::Unavailable)??;
                // A store that can be read and not written looks well until it is said.
                if let (Answer::Status(status), Some(why)) = (&mut answer, &self.failure) {
                    let mut troubles = std::mem::take(&mut status.troubles);
                    troubles.push(TroubleView {
                        kind: TroubleKind::StoreFailing,
                        host: None,
                        subject: "store".into(),
                        what: why.clone(),
                        undecided: Some("anything: nothing is ordered either".into()),
                        since_ns: self.failing_since.map_or(now.at.0, |at| at.0),
                    });
                    **status = status.as_ref().clone().with_troubles(troubles);
                    status.store_failure = Some(why.clone());
                }
                Ok(answer)
            }
            other => self
                .with(|c| c.ask(now, actor, other))
                .map_err(Refusal::Unavailable)?,
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
        let answer = self
            .with(|c| c.ask(now, actor, current))
            .map_err(Refusal::Unavailable)??;
        if matches!(&answer, Answer::Plan(p) if p.generation == generation) {
            return Ok(answer);
        }
        let host = self
            .ready()
            .map_err(Refusal::Unavailable)?
            .host_key(host.as_deref())?;
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
        let answer = self
            .with(|c| c.ask(now, actor, Question::Jobs { limit }))
            .map_err(Refusal::Unavailable)??;
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
