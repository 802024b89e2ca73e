//! Approval of planned moves, by the mode of their goal or by an operator.

use executor::{EndCause, Input, Job, JobId, JobState};
use model::Goal;
use units::{Nanos, counted};

use super::Controller;
use super::host::{CurrentPlan, Host};
use crate::question::{Choice, Done, Refusal};
use crate::view::{EventKind, HostState};
use model::Mode;

/// Migration epochs after which a plan is too old to be applied.
const PLAN_EPOCHS: u64 = 2;

/// Reason for which no agent can carry out a move.
pub(super) enum MoveObstacle {
    /// An operator must make it by hand.
    ByHand(String),
    /// The volume cannot be moved.
    Stays(String),
    /// The volume is not reported at present.
    Gone,
}

impl MoveObstacle {
    /// Text of the reason.
    fn why(self) -> String {
        match self {
            MoveObstacle::ByHand(why) => why,
            MoveObstacle::Stays(why) => format!("the volume cannot be moved: {why}"),
            MoveObstacle::Gone => "its host does not report the volume now".into(),
        }
    }
}

impl Controller {
    /// Reason for which the controller does not approve a move by itself; none if it does.
    pub(super) fn waits_for(&self, host: &Host, job: &Job) -> Option<String> {
        if let Some(not_ours) = Self::not_ours(host, job) {
            return Some(not_ours.why());
        }
        let goal = job.order.terms.goal;
        let mode = self.mode_of(goal);
        if self.operator.paused {
            return Some("the controller is paused".into());
        }
        // Before the mode, so that an operator reads it before an approval.
        if let Some(why) = self.distrust(host, job.id.0, goal) {
            return Some(why);
        }
        match mode {
            Mode::Off => return Some(format!("the mode of {goal} is off")),
            Mode::Recommend => return Some(format!("the mode of {goal} is recommend")),
            Mode::Partial if goal == Goal::Latency && !faster(job) => {
                return Some("the mode of latency is partial, and no lower latency is predicted for the volume".into());
            }
            Mode::Partial | Mode::Auto => {}
        }
        if goal != Goal::Space && !self.settings.hours.hold(self.now.unix_ms) {
            return Some("the current time is outside the hours for moves".into());
        }
        None
    }

    /// Reason for which no agent can carry out a job now. A volume that is not reported now may be bound when it returns.
    pub(super) fn not_ours(host: &Host, job: &Job) -> Option<MoveObstacle> {
        let volume = host.kept.names.of_volume(job.order.volume);
        let mut volumes = host.report()?.volumes.iter();
        let Some(found) = volumes.find(|v| v.name == volume) else {
            return Some(MoveObstacle::Gone);
        };
        let bound = found.bound.as_ref()?;
        let why = bound.why.clone();
        Some(match bound.by_hand {
            true => MoveObstacle::ByHand(why),
            false => MoveObstacle::Stays(why),
        })
    }

    /// Checks pending moves of a host before any starts: drops outdated ones, and withdraws those that modes, hours or agents no
    /// longer allow.
    pub(super) fn reconsider(&mut self, name: &str) {
        let now = self.now.at;
        let oldest = Nanos(self.migration_epoch().0 * PLAN_EPOCHS);
        let mut host = self.hosts.remove(name).expect("its agent reports");
        let made = host.current.as_ref().map(|c| c.plan.at);
        if made.is_some_and(|at| now.saturating_sub(at) > oldest) {
            self.drop_queued(&mut host, &EndCause::PlanTooOld, |_, _| true);
        }
        let by_mode = |j: &&Job| host.kept.by_mode.contains(&j.id.0);
        let jobs = host.executor.jobs().iter();
        let withdrawn: Vec<JobId> = jobs
            .filter(|j| j.state == JobState::Waiting)
            .filter(|j| match by_mode(j) {
                true => self.waits_for(&host, j).is_some(),
                false => Self::not_ours(&host, j).is_some(),
            })
            .map(|j| j.id)
            .collect();
        for id in withdrawn {
            if !host.kept.by_mode.contains(&id.0) {
                let volume = volume_of(&host, id);
                let not_ours = Self::not_ours(&host, host.executor.job(id));
                // The approval of an operator is valid again when the volume returns.
                let comes_back = matches!(not_ours, Some(MoveObstacle::Gone));
                let text = match not_ours.map(MoveObstacle::why) {
                    Some(why) if comes_back => {
                        host.kept.missing.insert(id.0);
                        format!("job {} of {volume} waits: {why}", id.0)
                    }
                    why => format!(
                        "job {} of {volume} is no longer approved: {}",
                        id.0,
                        why.unwrap_or_default()
                    ),
                };
                self.event(EventKind::Approval, Some(name), Some(&volume), text);
            }
            self.input(&mut host, now, Input::Withdraw(id));
            host.kept.by_mode.remove(&id.0);
            host.dirty.kept = true;
        }
        self.approve_reported_moves_again(&mut host);
        self.hosts.insert(name.into(), host);
    }

    /// Approves moves again that an operator had approved and whose volumes are reported again.
    fn approve_reported_moves_again(&mut self, host: &mut Host) {
        for id in host.kept.missing.clone() {
            let job = host.executor.get(JobId(id));
            let Some(job) = job.filter(|j| j.state == JobState::Proposed) else {
                host.kept.missing.remove(&id);
                host.dirty.kept = true;
                continue;
            };
            let not_ours = Self::not_ours(host, job);
            if matches!(not_ours, Some(MoveObstacle::Gone)) || host.report().is_none() {
                continue;
            }
            host.kept.missing.remove(&id);
            host.dirty.kept = true;
            let (name, volume) = (host.name.clone(), volume_of(host, JobId(id)));
            let text = match not_ours {
                Some(why) => format!("job {id} of {volume} is no longer approved: {}", why.why()),
                None => {
                    self.input(host, self.now.at, Input::Approve(JobId(id)));
                    format!(
                        "job {id} of {volume} is approved again: its host reports the volume again"
                    )
                }
            };
            self.event(EventKind::Approval, Some(&name), Some(&volume), text);
        }
    }

    /// Drops moves that have not started. Returns their number.
    pub(super) fn drop_queued(
        &mut self,
        host: &mut Host,
        cause: &EndCause,
        which: impl Fn(&Host, &Job) -> bool,
    ) -> usize {
        let jobs = host.executor.jobs().iter();
        let queued: Vec<(JobId, JobState)> = jobs
            .filter(|j| matches!(j.state, JobState::Proposed | JobState::Waiting))
            .filter(|j| which(host, j))
            .map(|j| (j.id, j.state.clone()))
            .collect();
        let now = self.now.at;
        for (id, state) in &queued {
            if *state == JobState::Waiting {
                self.input(host, now, Input::Withdraw(*id));
            }
            let cause = cause.clone();
            self.input(host, now, Input::Reject { job: *id, cause });
        }
        queued.len()
    }

    /// Approves moves that modes and hours allow.
    pub(super) fn approve_by_mode(&mut self, name: &str) {
        let mut host = self.hosts.remove(name).expect("its agent reports");
        let ripe: Vec<JobId> = host
            .executor
            .jobs()
            .iter()
            .filter(|j| j.state == JobState::Proposed && self.waits_for(&host, j).is_none())
            .map(|j| j.id)
            .collect();
        for id in ripe {
            host.kept.by_mode.insert(id.0);
            let volume = volume_of(&host, id);
            let text = format!(
                "job {} of {volume} is approved by the mode of its goal",
                id.0
            );
            self.event(EventKind::Approval, Some(name), Some(&volume), text);
            self.input(&mut host, self.now.at, Input::Approve(id));
        }
        let known = |id: &u32| {
            host.executor
                .get(JobId(*id))
                .is_some_and(|j| !j.state.ended())
        };
        host.kept.by_mode.retain(known);
        self.hosts.insert(name.into(), host);
    }

    /// Applies an operator's verdict to moves of a plan.
    pub(super) fn choose(&mut self, choice: &Choice, apply: Verdict) -> Result<Done, Refusal> {
        let name = self.host_named(choice.host.as_deref())?;
        let mut host = self.hosts.remove(&name).expect("the host was just found");
        let done = self.choose_on(&mut host, choice, apply);
        self.hosts.insert(name, host);
        done
    }

    fn choose_on(
        &mut self,
        host: &mut Host,
        choice: &Choice,
        verdict: Verdict,
    ) -> Result<Done, Refusal> {
        let state = self.state_of(host);
        let Some(current) = &host.current else {
            return Err(Refusal::NotFound(format!(
                "no plan for {} yet: the first plan is made at the end of the first migration epoch",
                host.name
            )));
        };
        let generation = current.plan.generation;
        if generation != choice.generation {
            let why = if choice.generation < generation {
                format!(
                    "plan {} was superseded by plan {generation}: review that plan",
                    choice.generation
                )
            } else {
                format!(
                    "unknown plan {}: the newest is {generation}",
                    choice.generation
                )
            };
            return Err(Refusal::Conflict(why));
        }
        if verdict == Verdict::Apply {
            if state != HostState::Live {
                return Err(Refusal::Conflict(format!(
                    "host {} does not report: no move starts until it does",
                    host.name
                )));
            }
            if let Some(other) = self.holder_beside(host) {
                return Err(Refusal::Conflict(format!(
                    "the array of host {} obeys another {other}: stop that controller first",
                    host.name
                )));
            }
            let age = self.now.at.saturating_sub(current.plan.at);
            let migration = self.migration_epoch();
            if age.0 > migration.0 * PLAN_EPOCHS {
                return Err(Refusal::Conflict(format!(
                    "plan {generation} is {} old: wait for a newer plan",
                    age.words()
                )));
            }
        }
        let jobs = chosen(host, current, choice)?;
        let mut changed = Vec::new();
        let mut doubtful = 0;
        for (position, id) in jobs {
            let job = host
                .executor
                .get(id)
                .expect("jobs of the current plan are kept");
            if let Some(not_ours) = Self::not_ours(host, job).filter(|_| verdict == Verdict::Apply)
            {
                if choice.moves.is_none() {
                    continue; // other moves of the plan can be applied
                }
                let of = format!("move {position} of plan {generation}");
                let why = match not_ours {
                    MoveObstacle::ByHand(why) => format!(
                        "{of} must be made by hand: {why}; `terrace plan --commands` shows the command"
                    ),
                    other => format!("{of} cannot be made now: {}", other.why()),
                };
                return Err(Refusal::Conflict(why));
            }
            match (&job.state, verdict) {
                // An operator who names a doubtful move has decided about it.
                (JobState::Proposed, Verdict::Apply)
                    if choice.moves.is_none() && current.doubt(position).is_some() =>
                {
                    doubtful += 1;
                }
                (JobState::Proposed, _) => changed.push((position, id)),
                (_, _) if choice.moves.is_none() => {} // only pending moves are meant
                (state, _) => {
                    let why = format!(
                        "move {position} of plan {generation} is no longer pending: {}",
                        state.status()
                    );
                    return Err(Refusal::Conflict(why));
                }
            }
        }
        if verdict == Verdict::Apply {
            self.check_predecessors(host, &changed)?;
        }
        let (name, what) = (host.name.clone(), verdict.name());
        for (_, id) in &changed {
            let volume = volume_of(host, *id);
            let text = format!("job {} of {volume} is {what}", id.0);
            self.event(EventKind::Approval, Some(&name), Some(&volume), text);
            let input = match verdict {
                Verdict::Apply => Input::Approve(*id),
                Verdict::Reject => Input::Reject {
                    job: *id,
                    cause: EndCause::Rejected {
                        by: self.actor.clone(),
                    },
                },
            };
            self.input(host, self.now.at, input);
        }
        let mut message = match changed.len() {
            0 if doubtful > 0 => format!("no move of plan {generation} {what}"),
            0 => format!("plan {generation} has no move pending approval"),
            n => format!("{} of plan {generation} {what}", counted(n, "move")),
        };
        if doubtful > 0 {
            let doubtful = counted(doubtful, "doubtful move");
            message += &format!(
                "; {doubtful} left: `terrace plan` shows why, `terrace apply {generation} --only MOVE` approves one"
            );
        }
        Ok(Done { message })
    }

    /// Refuses a move whose space is freed by an open move that is not chosen.
    fn check_predecessors(&self, host: &Host, chosen: &[(u32, JobId)]) -> Result<(), Refusal> {
        for (position, id) in chosen {
            let job = host.executor.get(*id).expect("the job was just read");
            for before in &job.after {
                let with = chosen.iter().any(|(_, id)| id == before);
                let open = host
                    .executor
                    .get(*before)
                    .is_some_and(|j| j.state == JobState::Proposed);
                if open && !with {
                    let first = position - (id.0 - before.0);
                    return Err(Refusal::Conflict(format!(
                        "move {position} needs the space that move {first} frees: choose both"
                    )));
                }
            }
        }
        Ok(())
    }

    pub(super) fn migration_epoch(&self) -> Nanos {
        let rules = self
            .settings
            .policy(&[], &[], crate::settings::UnknownTiers::Skip);
        rules.map_or(Nanos::from_secs(900), |r| r.policy.epochs.migration)
    }
}

fn volume_of(host: &Host, id: JobId) -> String {
    let job = host.executor.get(id).expect("the job belongs to this host");
    host.kept.names.of_volume(job.order.volume).into()
}

/// Decision of an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Apply,
    Reject,
}

impl Verdict {
    fn name(self) -> &'static str {
        match self {
            Verdict::Apply => "approved",
            Verdict::Reject => "rejected",
        }
    }
}

/// Returns true if a lower latency is predicted for the volume of a move.
fn faster(job: &Job) -> bool {
    let effect = &job.order.terms.effect;
    match (effect.latency_before_us, effect.latency_after_us) {
        (Some(before), Some(after)) => after < before,
        _ => false,
    }
}

/// Positions and jobs of a choice.
fn chosen(
    host: &Host,
    current: &CurrentPlan,
    choice: &Choice,
) -> Result<Vec<(u32, JobId)>, Refusal> {
    let count = current.plan.moves().len() as u32;
    let positions: Vec<u32> = match &choice.moves {
        None => (0..count).collect(),
        Some(moves) => moves.clone(),
    };
    let mut jobs = Vec::new();
    for position in positions {
        if position >= count {
            return Err(Refusal::NotFound(format!(
                "plan {} has {}, numbered from 0: move {position} does not exist",
                current.plan.generation,
                counted(count, "move")
            )));
        }
        let id = JobId(current.first_job + position);
        if host.executor.get(id).is_some() && !jobs.contains(&(position, id)) {
            jobs.push((position, id));
        }
    }
    Ok(jobs)
}
