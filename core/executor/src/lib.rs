//! Moves of plans and their states: one state machine per move, sans-io. It makes no choices.
//!
//! ```text
//!               approved              its turn, its predecessors are done            host reports success
//!  proposed ───────────────▶ waiting ──────────────────────────────────────▶ active ─────────────────────▶ ended: done
//!     │   ◀───────────────     │                                               │
//!     │       withdrawn        │ superseded, cancelled, its space not freed    │ failed, cancelled
//!     ▼                        ▼                                               ▼
//!  ended: cancelled, with its cause                                         ended: switched extents stay on the target
//! ```
//!
//! The driver repeatedly passes all active jobs to their hosts, and passes the hosts' reports back as [`Input`]s. The mover
//! (`volume`) carries out a move: reserve, copy, switch, release. [`Executor::take_changed`] returns the jobs whose state
//! changed. While the executor is *paused*, no job starts. If a move fails or is cancelled, the moves that wait for its
//! space end in the same way.
//!
//! The whole state can be stored and read back. A plan that is not newer than the last accepted one is refused, so a stale
//! controller never moves the system backwards. When a newer plan arrives, moves of older plans that have not started are
//! dropped, because the new plan has newer facts.
//!
//! [`Appliances`] is the corresponding state machine for temporary appliances between a guest and its storage.
//!
//! Not its responsibility: the choice of devices, order and rates (the plan), and the copies themselves.

mod appliance;
mod input;
mod job;

use std::collections::BTreeMap;

use model::{Action, Move, MoveLimits, Plan};
use serde::{Deserialize, Serialize};
use units::{Bytes, DeviceId, Nanos};

pub use appliance::{
    Appliance, ApplianceAction, ApplianceAnswer, ApplianceDeadlines, ApplianceExists, ApplianceId,
    ApplianceInput, ApplianceKind, ApplianceOrder, ApplianceOutcome, ApplianceState, ApplianceStep,
    Appliances, ENDED_MAX, IgnoreReason, LATE_RESTARTS_MAX, REMOVE_ATTEMPTS_MAX,
    RETURN_ATTEMPTS_MAX, Route, WarmUp,
};
pub use input::Input;
pub use job::{End, EndCause, FailCause, Job, JobId, JobState};

/// Error: the plan is not newer than the last accepted one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StalePlan {
    pub generation: u64,
    /// Generation of the last accepted plan.
    pub accepted: u64,
}

impl std::fmt::Display for StalePlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "plan of generation {} rejected: generation {} was already accepted",
            self.generation, self.accepted
        )
    }
}

impl std::error::Error for StalePlan {}

/// Generation of moves outside of plans: remedies for violations.
pub const OF_NO_PLAN: u64 = 0;

/// All jobs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Executor {
    generation: u64,
    limits: MoveLimits,
    /// Number of the first job in the list, which is the number of forgotten jobs.
    #[serde(default)]
    base: u32,
    /// True if no further jobs start.
    #[serde(default)]
    paused: bool,
    jobs: Vec<Job>,
    #[serde(skip)]
    changed: BTreeMap<JobId, Option<JobState>>,
}

impl Default for Executor {
    fn default() -> Self {
        Self::new()
    }
}

impl Executor {
    /// Creates an executor without jobs.
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
            changed: BTreeMap::new(),
        }
    }

    /// Returns the generation of the last accepted plan.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns true if no further jobs start.
    pub fn paused(&self) -> bool {
        self.paused
    }

    /// Returns all remembered jobs, oldest first, including ended ones.
    pub fn jobs(&self) -> &[Job] {
        &self.jobs
    }

    /// Returns the number of the next job.
    pub fn next_job(&self) -> JobId {
        JobId(self.base + self.jobs.len() as u32)
    }

    /// Returns a job; `None` for a forgotten or unknown job.
    pub fn get(&self, id: JobId) -> Option<&Job> {
        let place = id.0.checked_sub(self.base)?;
        self.jobs.get(place as usize)
    }

    /// Returns a job. It must exist and be remembered.
    pub fn job(&self, id: JobId) -> &Job {
        self.get(id).expect("a job that is not forgotten")
    }

    /// Forgets jobs at the front of the list that ended before `before`, so the list stays bounded. Numbers do not change.
    /// Later inputs for a forgotten job are ignored.
    pub fn forget(&mut self, before: Nanos) {
        let kept = |job: &Job| job.state.ended_at().is_none_or(|at| at >= before);
        let forgotten = self.jobs.iter().position(kept).unwrap_or(self.jobs.len());
        self.jobs.drain(..forgotten);
        self.base += forgotten as u32;
    }

    /// Returns the jobs whose state has changed since the last call, each with its former state; `None` for a new job.
    pub fn take_changed(&mut self) -> BTreeMap<JobId, Option<JobState>> {
        let mut changed = std::mem::take(&mut self.changed);
        changed.retain(|job, was| {
            let is = self.get(*job).map(|j| &j.state);
            is.is_some() && is != was.as_ref()
        });
        changed
    }

    /// Handles an input.
    ///
    /// # Errors
    /// Returns an error for a plan that is not newer than the last accepted one.
    pub fn handle(&mut self, now: Nanos, input: Input) -> Result<(), StalePlan> {
        if input.job().is_some_and(|job| self.get(job).is_none()) {
            return Ok(()); // forgotten
        }
        if let Input::Copied { job, bytes } = input {
            let job = self.job_mut(job);
            if job.state.active() {
                job.copied = job.copied.max(bytes);
            }
            return Ok(());
        }
        self.take_in(now, input)?;
        self.start_ready(now);
        Ok(())
    }

    /// Applies an input. Inputs for a job in another state are ignored.
    fn take_in(&mut self, now: Nanos, input: Input) -> Result<(), StalePlan> {
        let is = |ex: &Self, job, state| ex.job(job).state == state;
        match input {
            Input::Propose(plan) => self.accept(now, *plan)?,
            Input::Add(order) => self.add(*order, vec![], OF_NO_PLAN),
            Input::Pause => self.paused = true,
            Input::Resume => self.paused = false,
            Input::Approve(job) if is(self, job, JobState::Proposed) => {
                self.set(job, JobState::Waiting);
            }
            Input::Withdraw(job) if is(self, job, JobState::Waiting) => {
                self.set(job, JobState::Proposed);
            }
            Input::Reject { job, cause } if is(self, job, JobState::Proposed) => {
                self.end(job, now, End::Cancelled(cause));
            }
            Input::Done(job) if is(self, job, JobState::Active) => {
                self.end(job, now, End::Done);
            }
            Input::Failed { job, cause } if is(self, job, JobState::Active) => {
                self.end(job, now, End::Failed(cause));
            }
            Input::Cancel(job) if !self.job(job).state.ended() => {
                self.end(job, now, End::Cancelled(EndCause::GivenUp));
            }
            _ => {}
        }
        Ok(())
    }

    /// Accepts a plan.
    fn accept(&mut self, now: Nanos, plan: Plan) -> Result<(), StalePlan> {
        if plan.generation <= self.generation {
            return Err(StalePlan {
                generation: plan.generation,
                accepted: self.generation,
            });
        }
        self.generation = plan.generation;
        for i in 0..self.jobs.len() {
            if self.jobs[i].state.queued() {
                let superseded = End::Cancelled(EndCause::Superseded);
                self.end(self.jobs[i].id, now, superseded);
            }
        }
        self.limits = plan.limits;
        let base = self.base + self.jobs.len() as u32;
        // Positions among the moves equal those in the plan, because moves come first.
        let moves = plan.actions.into_iter().filter_map(|action| match action {
            Action::Move(order) => Some(order),
            _ => None,
        });
        for order in moves {
            let after = order.after.iter().map(|a| JobId(base + a)).collect();
            self.add(order, after, plan.generation);
        }
        Ok(())
    }

    fn add(&mut self, order: Move, after: Vec<JobId>, generation: u64) {
        let id = self.next_job();
        self.changed.insert(id, None);
        self.jobs.push(Job {
            id,
            generation,
            after,
            order,
            state: JobState::Proposed,
            started: None,
            copied: Bytes::ZERO,
        });
    }

    /// Starts waiting jobs in order, as far as the limits and their predecessors allow.
    fn start_ready(&mut self, now: Nanos) {
        for i in 0..self.jobs.len() {
            if !self.jobs[i].state.queued() || self.ends_with_predecessor(i, now) {
                continue;
            }
            // A forgotten predecessor has finished: otherwise this job would have ended with it.
            let done = |a: &JobId| {
                self.get(*a)
                    .is_none_or(|a| a.state.end() == Some(&End::Done))
            };
            let ready = self.jobs[i].state == JobState::Waiting && !self.paused;
            if ready
                && self.jobs[i].after.iter().all(done)
                && self.within_limits(&self.jobs[i].order)
            {
                self.jobs[i].started = Some(now);
                self.set(self.jobs[i].id, JobState::Active);
            }
        }
    }

    /// Ends a job in the same way as the move that should have freed its space. Returns true if it ended.
    fn ends_with_predecessor(&mut self, i: usize, now: Nanos) -> bool {
        let after = self.jobs[i].after.iter();
        let mut ends = after.filter_map(|a| self.get(*a)?.state.end());
        let end = ends.find_map(|end| match end {
            End::Done => None,
            End::Failed(_) => Some(End::Failed(FailCause::SpaceNotFreed)),
            End::Cancelled(cause) => Some(End::Cancelled(EndCause::SpaceNotFreed {
                why: cause.to_string(),
            })),
        });
        let Some(end) = end else { return false };
        self.end(self.jobs[i].id, now, end);
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

    fn end(&mut self, job: JobId, at: Nanos, end: End) {
        self.set(job, JobState::Ended { at, end });
    }

    fn set(&mut self, job: JobId, state: JobState) {
        let was = std::mem::replace(&mut self.job_mut(job).state, state);
        self.changed.entry(job).or_insert(Some(was));
    }

    fn job_mut(&mut self, id: JobId) -> &mut Job {
        let place = id.0 - self.base;
        &mut self.jobs[place as usize]
    }
}
