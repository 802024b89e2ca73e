//! A host's jobs: what is fed to its executor, and what of it is told.

use executor::{Input, JobId, JobState};
use units::Nanos;

use super::host::Host;
use super::{Controller, order_of};
use crate::store::Change;
use crate::view::EventKind;

/// What the executor says of moves whose plan another one has taken the place of.
pub(super) const SUPERSEDED: &str = "superseded by a newer plan";

impl Controller {
    /// Feeds a host's executor, and notes what came of it.
    pub(super) fn input(&mut self, host: &mut Host, now: Nanos, input: Input) {
        let before: Vec<JobState> = host
            .executor
            .jobs()
            .iter()
            .map(|j| j.state.clone())
            .collect();
        let first = host.executor.jobs().first().map_or(0, |j| j.id.0);
        if let Err(stale) = host.executor.handle(now, input) {
            // A plan is made from the executor's own generation.
            unreachable!("{stale}");
        }
        host.dirty.executor = true;
        while let Some(action) = host.executor.poll_action() {
            if let executor::Action::Abort { job, .. } = action {
                let order = order_of(host, job);
                host.kept.cancelling.insert(job.0, order);
                host.dirty.kept = true;
            }
        }
        let changed: Vec<_> = host
            .executor
            .jobs()
            .iter()
            .filter(|j| before.get((j.id.0 - first) as usize) != Some(&j.state))
            .map(|j| {
                (
                    j.id,
                    j.state.clone(),
                    before.get((j.id.0 - first) as usize).cloned(),
                )
            })
            .collect();
        for (id, state, was) in changed {
            self.note_job(host, id, &state, was.as_ref());
        }
    }

    /// A line of the audit, and the store's copy of a job, when it gets to another state.
    pub(super) fn note_job(
        &mut self,
        host: &mut Host,
        id: JobId,
        state: &JobState,
        was: Option<&JobState>,
    ) {
        let superseded = matches!(state, JobState::Cancelled { why, .. } if why == SUPERSEDED);
        let begun = !matches!(was, None | Some(JobState::Proposed | JobState::Waiting));
        if *state == JobState::Proposed || (superseded && !begun) {
            return; // a plan takes another's place all the time: its moves are no jobs yet
        }
        let view = self.job_view(host, id);
        let (volume, to, goal) = (view.volume.clone(), view.to_tier.clone(), view.goal);
        let copied = view.copied_bytes;
        self.changes.push(Change::Job(view));
        // Ordered and not answered: if it ends like that, the agent may have begun it.
        let ordered = matches!(was, Some(JobState::Reserving));
        let (end, text) = match state {
            JobState::Reserving => {
                // What its last move came to cannot be told any more.
                host.kept.awaited.retain(|a| a.outcome.volume != volume);
                host.dirty.kept = true;
                let text = format!("job {}: move of {volume} to {to} begins", id.0);
                self.event(
                    EventKind::Job,
                    Some(&host.name.clone()),
                    Some(&volume),
                    text,
                );
                return;
            }
            JobState::Done { .. } => ("done", format!("job {}: {volume} is on {to}", id.0)),
            JobState::Failed { why, .. } => (
                "failed",
                format!("job {}: move of {volume} to {to} failed: {why}", id.0),
            ),
            JobState::Cancelled { why, .. } => {
                if ordered {
                    let order = order_of(host, id);
                    host.kept.cancelling.insert(id.0, order);
                    host.dirty.kept = true;
                }
                (
                    "cancelled",
                    format!(
                        "job {}: move of {volume} to {to} is not carried out: {why}",
                        id.0
                    ),
                )
            }
            _ => return,
        };
        host.progress.remove(&id);
        *self.counters.moves.entry((goal, end)).or_default() += 1;
        self.counters.moved_bytes += copied;
        self.event(
            EventKind::Job,
            Some(&host.name.clone()),
            Some(&volume),
            text,
        );
    }

    /// Says why a volume is not calibrated when that is news: it is the same from epoch to epoch, and would push the rest of
    /// the audit out.
    pub(super) fn say_once(
        &mut self,
        host: &mut Host,
        volume: &str,
        why: &'static str,
        text: String,
    ) {
        let before = host.uncalibrated.insert(volume.into(), why);
        if before != Some(why) {
            let name = host.name.clone();
            self.event(EventKind::Calibration, Some(&name), Some(volume), text);
        }
    }
}
