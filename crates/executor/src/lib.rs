//! The moves of plans and where each stands: one state machine per move, sans I/O. It chooses nothing.
//!
//! ```text
//!               approved              its turn, moves it comes after are done            the host says so
//!  proposed ───────────────▶ waiting ──────────────────────────────────────▶ active ─────────────────────▶ ended: done
//!     │   ◀───────────────     │                                               │
//!     │       withdrawn        │ superseded, cancelled, its space not freed    │ failed, cancelled
//!     ▼                        ▼                                               ▼
//!  ended: cancelled, with its cause                                         ended: what was switched stays on the target
//! ```
//!
//! Whoever drives it hands all active jobs to their host, again and again, and feeds what the host says as [`Input`]s: how a move is
//! carried out (reserve, copy, switch, release) is the mover's affair (`volume`). What got to another state is told by
//! [`Executor::take_changed`]. While the executor is *paused* nothing new starts. A move that comes after one that did not end well
//! ends like that one.
//!
//! All of it can be stored and read back. A plan that is not newer than the last one accepted is refused, so that a stale
//! controller never moves the system backwards. Moves of an older plan that have not started are dropped when a newer plan
//! arrives: its facts were newer.
//!
//! [`Appliances`] are the same for what stands between a guest and its storage for a while.
//!
//! What it is not: it does not choose devices, order or rates (the plan does), and knows of no copy.

mod appliance;
mod input;
mod job;

use std::collections::BTreeMap;

use model::{Action, Move, MoveLimits, Plan};
use serde::{Deserialize, Serialize};
use units::{Bytes, DeviceId, Nanos};

pub use appliance::{
    Appliance, ApplianceAction, ApplianceAnswer, ApplianceDeadlines, ApplianceId, ApplianceInput,
    ApplianceKind, ApplianceOrder, ApplianceOutcome, ApplianceState, ApplianceStep, Appliances,
    ENDED_MAX, Ignored, LATE_RESTARTS_MAX, REMOVE_ATTEMPTS_MAX, RETURN_ATTEMPTS_MAX, Route, Taken,
    WarmUp,
};
pub use input::Input;
pub use job::{End, EndCause, FailCause, Job, JobId, JobState};

/// A plan that is not newer than the last one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StalePlan {
    pub generation: u64,
    /// The last one accepted.
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

/// The generation of what belongs to no plan: answers to broken objectives.
pub const OF_NO_PLAN: u64 = 0;

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
    changed: BTreeMap<JobId, Option<JobState>>,
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
            changed: BTreeMap::new(),
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
    /// what they are. What is said of a forgotten job later is ignored.
    pub fn forget(&mut self, before: Nanos) {
        let kept = |job: &Job| job.state.ended_at().is_none_or(|at| at >= before);
        let forgotten = self.jobs.iter().position(kept).unwrap_or(self.jobs.len());
        self.jobs.drain(..forgotten);
        self.base += forgotten as u32;
    }

    /// Jobs that got to another state since this was last asked, each with the one that it was in then; none for a new one.
    pub fn take_changed(&mut self) -> BTreeMap<JobId, Option<JobState>> {
        let mut changed = std::mem::take(&mut self.changed);
        changed.retain(|job, was| {
            let is = self.get(*job).map(|j| &j.state);
            is.is_some() && is != was.as_ref()
        });
        changed
    }

    /// Takes in what happened.
    ///
    /// # Errors
    /// A plan that is not newer than the last one.
    pub fn handle(&mut self, now: Nanos, input: Input) -> Result<(), StalePlan> {
        if input.job().is_some_and(|job| self.get(job).is_none()) {
            return Ok(()); // forgotten meanwhile
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

    /// What is said of a job in a state that it is not in any more is ignored.
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

    /// Takes a plan over.
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
        // Positions among the moves are those in the plan: they come first.
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
            // One that is forgotten ended well: otherwise this one would have ended with it.
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

    /// Ends a job whose space will not be freed, as the move that was to free it ended; whether it did.
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
