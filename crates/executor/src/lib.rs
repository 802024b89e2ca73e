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
//! The driver feeds [`Input`]s and carries out [`Action`]s; whether that takes simulated or real time is its affair. Every
//! state is serializable: an executor read back from its store emits again what was under way
//! ([`Executor::resume`]). A plan that is not newer than the last one accepted is refused, so that a stale controller
//! never moves the system backwards. Moves of an older plan that have not started are dropped when a newer plan
//! arrives: its facts were newer.
//!
//! What it is not: it does not choose devices, order or rates (the plan does), and does not know about chunks that
//! guests overwrite (`volume` does).

use std::collections::VecDeque;

use model::{Move, MoveLimits, Plan};
use serde::{Deserialize, Serialize};
use units::{Bytes, DeviceId, Nanos, VolumeId};

/// One move under way, by number; never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobId(pub u32);

/// Where a job stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum JobState {
    /// For its turn, or for moves that free its space.
    Waiting,
    /// Space on the target has been asked for.
    Reserving,
    /// Bytes are being copied.
    Copying,
    /// Everything is copied; the target is becoming the truth.
    Switching,
    /// The target is the truth; the source is being freed.
    Releasing,
    /// Ended well.
    Done {
        /// When.
        at: Nanos,
    },
    /// Ended, with the source as the truth.
    Cancelled {
        /// When.
        at: Nanos,
        /// Why.
        why: String,
    },
    /// Ended, with the source as the truth.
    Failed {
        /// When.
        at: Nanos,
        /// Why.
        why: String,
    },
}

impl JobState {
    /// Whether nothing will happen any more.
    pub fn ended(&self) -> bool {
        matches!(
            self,
            JobState::Done { .. } | JobState::Cancelled { .. } | JobState::Failed { .. }
        )
    }

    /// Whether it takes bandwidth and space now.
    pub fn active(&self) -> bool {
        !self.ended() && *self != JobState::Waiting
    }
}

/// One move and how far it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Number.
    pub id: JobId,
    /// Generation of its plan.
    pub generation: u64,
    /// What to do.
    pub order: Move,
    /// Jobs that must have ended well first.
    pub after: Vec<JobId>,
    /// Where it stands.
    pub state: JobState,
    /// When it left the queue.
    pub started: Option<Nanos>,
    /// Bytes copied, those copied again included.
    pub copied: Bytes,
    /// Earliest time of the next chunk.
    pub next_copy: Nanos,
}

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// A new plan.
    Plan(Box<Plan>),
    /// Space on the target is reserved.
    Reserved(JobId),
    /// There is no space on the target now.
    Refused(JobId),
    /// A chunk was copied.
    Copied {
        /// The job.
        job: JobId,
        /// Bytes of the chunk.
        bytes: Bytes,
        /// Bytes still to copy.
        remaining: Bytes,
    },
    /// The next chunk cannot be copied yet; try again at the given time.
    CopyBlocked {
        /// The job.
        job: JobId,
        /// When.
        retry: Nanos,
    },
    /// The target is the truth, durably.
    Switched(JobId),
    /// The source is free.
    Released(JobId),
    /// Reading or writing failed.
    IoError {
        /// The job.
        job: JobId,
        /// What failed.
        why: String,
    },
    /// The operator wants it to end.
    Cancel(JobId),
}

/// What the driver is to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Reserve space for the volume on the target and prepare the copy; answer `Reserved` or `Refused`. After a restart it
    /// may be asked for again: a reservation of the same job counts once.
    Reserve {
        /// The job.
        job: JobId,
        /// The volume.
        volume: VolumeId,
        /// The target.
        to: DeviceId,
        /// Space.
        size: Bytes,
    },
    /// Copy the next chunk, not before `at`; answer `Copied`, `CopyBlocked` or `IoError`.
    Copy {
        /// The job.
        job: JobId,
        /// The volume.
        volume: VolumeId,
        /// When.
        at: Nanos,
    },
    /// Make the target the truth, durably; answer `Switched` or `IoError`.
    Switch {
        /// The job.
        job: JobId,
        /// The volume.
        volume: VolumeId,
        /// Not before this time: the last piece keeps to the rate too.
        at: Nanos,
    },
    /// Free the source once nobody reads it; answer `Released`.
    Release {
        /// The job.
        job: JobId,
        /// The volume.
        volume: VolumeId,
        /// The device to free.
        from: DeviceId,
        /// Space.
        size: Bytes,
    },
    /// Give the copy up and free what was reserved; no answer.
    Abort {
        /// The job.
        job: JobId,
        /// The volume.
        volume: VolumeId,
        /// The device that the space was reserved on.
        to: DeviceId,
        /// Space.
        size: Bytes,
    },
}

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
    jobs: Vec<Job>,
    #[serde(skip)]
    actions: VecDeque<Action>,
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
            jobs: Vec::new(),
            actions: VecDeque::new(),
        }
    }

    /// Generation of the last plan that was accepted.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// All jobs, oldest first, ended ones included.
    pub fn jobs(&self) -> &[Job] {
        &self.jobs
    }

    /// One job.
    pub fn job(&self, id: JobId) -> &Job {
        &self.jobs[id.0 as usize]
    }

    /// The next thing to do.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Takes in what happened.
    pub fn handle(&mut self, now: Nanos, input: Input) -> Result<(), StalePlan> {
        match input {
            Input::Plan(plan) => self.accept(now, *plan)?,
            Input::Reserved(job) if self.job(job).state.ended() => {
                // It was cancelled while the answer was on its way: undo.
                self.abort(job);
                return Ok(());
            }
            Input::Refused(job) if self.job(job).state.ended() => return Ok(()),
            Input::Reserved(job) => {
                self.expect(job, &JobState::Reserving);
                self.job_mut(job).state = JobState::Copying;
                self.copy_next(job, now);
                return Ok(());
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
                    return Ok(()); // cancelled meanwhile
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
                return Ok(());
            }
            Input::CopyBlocked { job, retry } => {
                if self.job(job).state == JobState::Copying {
                    let state = self.job_mut(job);
                    state.next_copy = state.next_copy.max(retry);
                    self.copy_next(job, now);
                }
                return Ok(());
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
                    return Ok(());
                }
                self.abort(job);
                self.fail(job, now, &why);
            }
            Input::Cancel(job) => match self.job(job).state {
                JobState::Waiting => self.cancel(job, now, "cancelled by the operator"),
                // The answer tells whether there is anything to undo.
                JobState::Reserving => self.cancel(job, now, "cancelled by the operator"),
                JobState::Copying => {
                    self.abort(job);
                    self.cancel(job, now, "cancelled by the operator");
                }
                // Past that point the move is as good as done, and going on is the safe way.
                _ => {}
            },
        }
        // Reached only by inputs after which another job may start.
        self.start_ready(now);
        Ok(())
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

    fn accept(&mut self, now: Nanos, plan: Plan) -> Result<(), StalePlan> {
        if plan.generation <= self.generation {
            return Err(StalePlan {
                generation: plan.generation,
                accepted: self.generation,
            });
        }
        self.generation = plan.generation;
        for i in 0..self.jobs.len() {
            if self.jobs[i].state == JobState::Waiting {
                self.cancel(self.jobs[i].id, now, "superseded by a newer plan");
            }
        }
        self.limits = plan.limits;
        let base = self.jobs.len() as u32;
        for (i, order) in plan.moves.into_iter().enumerate() {
            self.jobs.push(Job {
                id: JobId(base + i as u32),
                generation: plan.generation,
                after: order.after.iter().map(|a| JobId(base + a)).collect(),
                order,
                state: JobState::Waiting,
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
            if self.jobs[i].state != JobState::Waiting {
                continue;
            }
            let lost = self.jobs[i].after.iter().find(|a| {
                matches!(
                    self.job(**a).state,
                    JobState::Failed { .. } | JobState::Cancelled { .. }
                )
            });
            if lost.is_some() {
                self.fail(
                    self.jobs[i].id,
                    now,
                    "a move that was to free its space did not end well",
                );
                continue;
            }
            let ready = self.jobs[i]
                .after
                .iter()
                .all(|a| matches!(self.job(*a).state, JobState::Done { .. }));
            if !ready || !self.within_limits(&self.jobs[i].order) {
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

    fn cancel(&mut self, job: JobId, at: Nanos, why: &str) {
        self.job_mut(job).state = JobState::Cancelled {
            at,
            why: why.into(),
        };
    }

    fn job_mut(&mut self, id: JobId) -> &mut Job {
        &mut self.jobs[id.0 as usize]
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
