//! Carries out plans: one state machine per move, sans I/O. It chooses nothing.
//!
//! ```text
//!            moves it comes after are done          space reserved           all copied            durable          source freed
//!  waiting ───────────────────────────▶ reserving ───────────────▶ copying ───────────▶ switching ────────▶ releasing ───────────▶ done
//!     │                                     │ refused                │ error, cancel      │                     (no way back: the
//!     ▼ superseded by a newer plan          ▼                        ▼                    ▼ error                target is the truth)
//!  cancelled                              failed                cancelled / failed: the source was never touched
//! ```
//!
//! A plan may be *proposed*: its moves begin as `proposed`, and each waits only once it is approved. While the executor is
//! *paused* nothing new starts. A move that comes after one that did not end well ends like that one.
//!
//! The driver feeds [`Input`]s and carries out [`Action`]s; whether that takes simulated or real time is its affair. Every
//! state is serializable: an executor read back from its store emits again what was under way
//! ([`Executor::resume`]). A plan that is not newer than the last one accepted is refused, so that a stale controller
//! never moves the system backwards. Moves of an older plan that have not started are dropped when a newer plan
//! arrives: its facts were newer.
//!
//! [`Appliances`] are the same for what stands between a guest and its storage for a while.
//!
//! What it is not: it does not choose devices, order or rates (the plan does), and does not know about chunks that
//! guests overwrite (`volume` does).

mod appliance;
mod driver;
mod job;

use std::collections::VecDeque;

use model::{Move, MoveLimits, Plan};
use serde::{Deserialize, Serialize};
use units::{Bytes, DeviceId, Nanos};

pub use appliance::{
    Appliance, ApplianceAction, ApplianceAnswer, ApplianceDeadlines, ApplianceId, ApplianceInput,
    ApplianceKind, ApplianceOrder, ApplianceOutcome, ApplianceState, ApplianceStep, Appliances,
    ENDED_MAX, Ignored, LATE_RESTARTS_MAX, REMOVE_ATTEMPTS_MAX, RETURN_ATTEMPTS_MAX, Route, Taken,
    WarmUp,
};
pub use driver::{Action, Input};
pub use job::{EndCause, Job, JobId, JobState};

/// A plan that is not newer than the last one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StalePlan {
    /// Its generation.
    pub generation: u64,
    /// The last one accepted.
    pub accepted: u64,
}

impl std::fmt::Display for StalePlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "plan of generation {} refused: generation {} was accepted already",
            self.generation, self.accepted
        )
    }
}

impl std::error::Error for StalePlan {}

/// All jobs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Executor {
    generation: u64,
    limits: MoveLimits,
    /// Number of the first job that is kept: as many were forgotten.
    #[serde(default)]
    base: u32,
    /// Nothing new starts.
    #[serde(default)]
    paused: bool,
    jobs: Vec<Job>,
    #[serde(skip)]
    actions: VecDeque<Action>,
}

/// What an answer is followed by.
#[derive(PartialEq, Eq)]
enum Then {
    /// The job alone goes on.
    Go,
    /// Another job may start.
    Start,
}

impl Default for Executor {
    fn default() -> Self {
        Self::new()
    }
}

impl Executor {
    /// No jobs.
    pub fn new() -> Self {
        let limits = MoveLimits {
            concurrent: 1,
            concurrent_per_device: 1,
        };
        Self {
            generation: 0,
            limits,
            base: 0,
            paused: false,
            jobs: Vec::new(),
            actions: VecDeque::new(),
        }
    }

    /// Generation of the last plan that was accepted.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether nothing new starts.
    pub fn paused(&self) -> bool {
        self.paused
    }

    /// All jobs that are not forgotten, oldest first, ended ones included.
    pub fn jobs(&self) -> &[Job] {
        &self.jobs
    }

    /// The number that the next job will have.
    pub fn next_job(&self) -> JobId {
        JobId(self.base + self.jobs.len() as u32)
    }

    /// One job; `None` for one that was forgotten, or that there never was.
    pub fn get(&self, id: JobId) -> Option<&Job> {
        let place = id.0.checked_sub(self.base)?;
        self.jobs.get(place as usize)
    }

    /// One job, which must be there and not forgotten.
    pub fn job(&self, id: JobId) -> &Job {
        self.get(id).expect("a job that is not forgotten")
    }

    /// Drops jobs from the front of the list that ended before `before`, so that it does not grow for ever; numbers stay
    /// what they are. What is said of a forgotten job later is ignored, so `before` lies further back than any answer may
    /// still be on its way: a reservation for a forgotten job would stay.
    pub fn forget(&mut self, before: Nanos) {
        let kept = |job: &Job| job.state.ended_at().is_none_or(|at| at >= before);
        let forgotten = self.jobs.iter().position(kept).unwrap_or(self.jobs.len());
        self.jobs.drain(..forgotten);
        self.base += forgotten as u32;
    }

    /// The next thing to do.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Takes in what happened.
    ///
    /// # Errors
    /// A plan that is not newer than the last one, proposed or not.
    pub fn handle(&mut self, now: Nanos, input: Input) -> Result<(), StalePlan> {
        if input.job().is_some_and(|job| self.get(job).is_none()) {
            return Ok(()); // forgotten meanwhile
        }
        if self.take_in(now, input)? == Then::Start {
            self.start_ready(now);
        }
        Ok(())
    }

    fn take_in(&mut self, now: Nanos, input: Input) -> Result<Then, StalePlan> {
        match input {
            Input::Plan(plan) => self.accept(now, *plan, &JobState::Waiting)?,
            Input::Propose(plan) => self.accept(now, *plan, &JobState::Proposed)?,
            Input::Pause => self.paused = true,
            Input::Resume => self.paused = false,
            Input::Approve(job) => {
                // Or it was superseded meanwhile.
                if self.job(job).state == JobState::Proposed {
                    self.job_mut(job).state = JobState::Waiting;
                }
            }
            Input::Withdraw(job) => {
                if self.job(job).state == JobState::Waiting {
                    self.job_mut(job).state = JobState::Proposed;
                }
            }
            Input::Reject { job, cause } => {
                if self.job(job).state == JobState::Proposed {
                    self.cancel(job, now, cause);
                }
            }
            Input::Cancel(job) => self.give_up(job, now),
            Input::Reserved(job) if self.job(job).state.ended() => {
                // It was cancelled while the answer was on its way: undo.
                self.abort(job);
                return Ok(Then::Go);
            }
            Input::Refused(job) if self.job(job).state.ended() => return Ok(Then::Go),
            Input::Reserved(job) => {
                self.expect(job, &JobState::Reserving);
                self.job_mut(job).state = JobState::Copying;
                self.copy_next(job, now);
                return Ok(Then::Go);
            }
            Input::Refused(job) => {
                self.expect(job, &JobState::Reserving);
                self.fail(job, now, "no space on the target");
            }
            Input::Copied {
                job,
                bytes,
                remaining,
            } => {
                if self.job(job).state != JobState::Copying {
                    return Ok(Then::Go); // cancelled meanwhile
                }
                let state = self.job_mut(job);
                state.copied += bytes;
                let pace = state.order.bandwidth.time_for(bytes);
                state.next_copy = now.max(state.next_copy + pace);
                if remaining == Bytes::ZERO {
                    state.state = JobState::Switching;
                    let (volume, at) = (state.order.volume, state.next_copy);
                    self.actions.push_back(Action::Switch { job, volume, at });
                } else {
                    self.copy_next(job, now);
                }
                return Ok(Then::Go);
            }
            Input::CopyBlocked { job, retry } => {
                if self.job(job).state == JobState::Copying {
                    let state = self.job_mut(job);
                    state.next_copy = state.next_copy.max(retry);
                    self.copy_next(job, now);
                }
                return Ok(Then::Go);
            }
            Input::Switched(job) => {
                self.expect(job, &JobState::Switching);
                let state = self.job_mut(job);
                state.state = JobState::Releasing;
                let Move {
                    volume, from, size, ..
                } = state.order;
                self.actions.push_back(Action::Release {
                    job,
                    volume,
                    from,
                    size,
                });
            }
            Input::Released(job) => {
                self.expect(job, &JobState::Releasing);
                self.job_mut(job).state = JobState::Done { at: now };
            }
            Input::IoError { job, why } => {
                if !matches!(self.job(job).state, JobState::Copying | JobState::Switching) {
                    return Ok(Then::Go);
                }
                self.abort(job);
                self.fail(job, now, &why);
            }
        }
        Ok(Then::Start)
    }

    /// The operator wants a job to end.
    fn give_up(&mut self, job: JobId, now: Nanos) {
        match self.job(job).state {
            // Of one that is reserving the answer tells whether there is anything to undo.
            JobState::Proposed | JobState::Waiting | JobState::Reserving => {
                self.cancel(job, now, EndCause::GivenUp);
            }
            JobState::Copying => {
                self.abort(job);
                self.cancel(job, now, EndCause::GivenUp);
            }
            // Past that point the move is as good as done, and going on is the safe way.
            _ => {}
        }
    }

    /// After reading the state back from a store: emits again the actions of every job that was under way.
    pub fn resume(&mut self, now: Nanos) {
        self.actions.clear();
        for i in 0..self.jobs.len() {
            let job = &self.jobs[i];
            let (
                id,
                Move {
                    volume,
                    from,
                    to,
                    size,
                    ..
                },
            ) = (job.id, job.order.clone());
            let action = match job.state {
                JobState::Reserving => Action::Reserve {
                    job: id,
                    volume,
                    to,
                    size,
                },
                JobState::Copying => Action::Copy {
                    job: id,
                    volume,
                    at: now,
                },
                JobState::Switching => Action::Switch {
                    job: id,
                    volume,
                    at: now,
                },
                JobState::Releasing => Action::Release {
                    job: id,
                    volume,
                    from,
                    size,
                },
                _ => continue,
            };
            self.actions.push_back(action);
        }
        self.start_ready(now);
    }

    /// Takes a plan over, with its moves in their first state.
    fn accept(&mut self, now: Nanos, plan: Plan, first: &JobState) -> Result<(), StalePlan> {
        if plan.generation <= self.generation {
            return Err(StalePlan {
                generation: plan.generation,
                accepted: self.generation,
            });
        }
        self.generation = plan.generation;
        for i in 0..self.jobs.len() {
            if self.jobs[i].state.queued() {
                self.cancel(self.jobs[i].id, now, EndCause::Superseded);
            }
        }
        self.limits = plan.limits;
        let base = self.base + self.jobs.len() as u32;
        for (i, order) in plan.moves.into_iter().enumerate() {
            self.jobs.push(Job {
                id: JobId(base + i as u32),
                generation: plan.generation,
                after: order.after.iter().map(|a| JobId(base + a)).collect(),
                order,
                state: first.clone(),
                started: None,
                copied: Bytes::ZERO,
                next_copy: now,
            });
        }
        Ok(())
    }

    /// Starts waiting jobs in order, as far as the limits and their predecessors allow.
    fn start_ready(&mut self, now: Nanos) {
        for i in 0..self.jobs.len() {
            if !self.jobs[i].state.queued() || self.ends_with_predecessor(i, now) {
                continue;
            }
            // One that is forgotten ended well: otherwise this one would have ended with it.
            let done = |a: &JobId| {
                self.get(*a)
                    .is_none_or(|a| matches!(a.state, JobState::Done { .. }))
            };
            let ready = self.jobs[i].state == JobState::Waiting && !self.paused;
            if !ready
                || !self.jobs[i].after.iter().all(done)
                || !self.within_limits(&self.jobs[i].order)
            {
                continue;
            }
            let job = &mut self.jobs[i];
            job.state = JobState::Reserving;
            job.started = Some(now);
            job.next_copy = now;
            let Move {
                volume, to, size, ..
            } = job.order;
            self.actions.push_back(Action::Reserve {
                job: job.id,
                volume,
                to,
                size,
            });
        }
    }

    /// Ends a job whose space will not be freed, as the move that was to free it ended; whether it did.
    fn ends_with_predecessor(&mut self, i: usize, now: Nanos) -> bool {
        let after = self.jobs[i].after.iter();
        let mut states = after.filter_map(|a| self.get(*a)).map(|a| &a.state);
        let lost = states.find_map(|state| match state {
            JobState::Failed { .. } => Some(None),
            JobState::Cancelled { why, .. } => Some(Some(why.clone())),
            _ => None,
        });
        let id = self.jobs[i].id;
        match lost {
            None => return false,
            Some(None) => self.fail(
                id,
                now,
                "a move that was to free its space did not end well",
            ),
            Some(Some(why)) => {
                self.cancel(id, now, EndCause::SpaceNotFreed { why });
            }
        }
        true
    }

    fn within_limits(&self, order: &Move) -> bool {
        let (mut total, mut here) = (0, 0);
        for job in self.jobs.iter().filter(|j| j.state.active()) {
            if job.order.volume == order.volume {
                return false;
            }
            total += 1;
            let touches = |d: DeviceId| job.order.from == d || job.order.to == d;
            if touches(order.from) || touches(order.to) {
                here += 1;
            }
        }
        total < self.limits.concurrent && here < self.limits.concurrent_per_device
    }

    fn copy_next(&mut self, job: JobId, now: Nanos) {
        let state = self.job(job);
        let action = Action::Copy {
            job,
            volume: state.order.volume,
            at: state.next_copy.max(now),
        };
        self.actions.push_back(action);
    }

    fn abort(&mut self, job: JobId) {
        let Move {
            volume, to, size, ..
        } = self.job(job).order;
        self.actions.push_back(Action::Abort {
            job,
            volume,
            to,
            size,
        });
    }

    fn fail(&mut self, job: JobId, at: Nanos, why: &str) {
        self.job_mut(job).state = JobState::Failed {
            at,
            why: why.into(),
        };
    }

    fn cancel(&mut self, job: JobId, at: Nanos, cause: EndCause) {
        self.job_mut(job).state = JobState::Cancelled {
            at,
            why: cause.to_string(),
            cause,
        };
    }

    fn job_mut(&mut self, id: JobId) -> &mut Job {
        let place = id.0 - self.base;
        &mut self.jobs[place as usize]
    }

    fn expect(&self, job: JobId, state: &JobState) {
        assert_eq!(
            &self.job(job).state,
            state,
            "an answer that job {} did not ask for",
            job.0
        );
    }
}
