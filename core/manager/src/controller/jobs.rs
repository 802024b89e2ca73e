//! Jobs of a host: inputs of its executor, and the resulting events and stored rows.

use executor::{End, Executor, Input, JobId, JobState};
use units::Nanos;

use super::host::Host;
use super::{Controller, order_of};
use crate::store::Change;
use crate::view::EventKind;

/// Most ranges of extents of ended jobs that the executor keeps. Its state is written with every window in which something moves;
/// the store has each job for itself.
const RANGES_KEPT: usize = 1 << 16;

/// End of the newest job to forget, since the jobs after it already have enough ranges.
pub(super) fn too_many_ranges(executor: &Executor) -> Nanos {
    let mut ranges = 0;
    let ended = executor.jobs().iter().rev().filter_map(|j| {
        let extents = j.order.extents.as_ref()?;
        Some((j.state.ended_at()?, extents.ranges().len()))
    });
    let mut over = ended.filter_map(|(at, own)| {
        ranges += own;
        (ranges > RANGES_KEPT).then_some(at)
    });
    over.next().unwrap_or(Nanos::ZERO)
}

impl Controller {
    /// Passes an input to a host's executor, and records the changed jobs.
    pub(super) fn input(&mut self, host: &mut Host, now: Nanos, input: Input) {
        if let Err(stale) = host.executor.handle(now, input) {
            // A plan is made from the executor's own generation.
            unreachable!("{stale}");
        }
        host.dirty.executor = true;
        for (id, was) in host.executor.take_changed() {
            let state = host.executor.job(id).state.clone();
            self.note_job(host, id, &state, was.as_ref());
        }
    }

    /// Writes the event and the stored row of a job that changes its state.
    pub(super) fn note_job(
        &mut self,
        host: &mut Host,
        id: JobId,
        state: &JobState,
        was: Option<&JobState>,
    ) {
        // Plans replace each other often, and their proposed moves are no jobs yet. A job with a stored row, approved
        // once, ends in the store too.
        if *state == JobState::Proposed {
            return;
        }
        if state.superseded() {
            if host.kept.recorded.remove(&id.0) {
                host.dirty.kept = true;
                let view = self.job_view(host, id);
                self.changes.push(Change::Job(Box::new(view)));
            }
            return;
        }
        host.dirty.kept |= match state.ended() {
            true => host.kept.recorded.remove(&id.0),
            false => host.kept.recorded.insert(id.0),
        };
        let view = self.job_view(host, id);
        let (volume, to, goal) = (view.volume.clone(), view.to_tier.clone(), view.goal);
        let what = view.subject();
        let several = view.extents.as_ref().is_some_and(|e| e.count() > 1);
        let copied = view.copied_bytes;
        self.changes.push(Change::Job(Box::new(view)));
        let text = match state {
            JobState::Active => {
                // The effect of its earlier move can no longer be measured.
                host.kept.awaited.retain(|a| a.outcome.volume != volume);
                host.dirty.kept = true;
                let text = format!("job {}: move of {what} to {to} started", id.0);
                self.event(
                    EventKind::Job,
                    Some(&host.name.clone()),
                    Some(&volume),
                    text,
                );
                return;
            }
            JobState::Ended { end, .. } => match end {
                End::Done => {
                    let are = if several { "are" } else { "is" };
                    format!("job {}: {what} {are} on {to}", id.0)
                }
                End::Failed(cause) => {
                    format!("job {}: move of {what} to {to} failed: {cause}", id.0)
                }
                End::Cancelled(cause) => {
                    // It was ordered, so the agent may have begun it.
                    if was.is_some_and(JobState::active) {
                        let order = order_of(host, id);
                        host.kept.cancelling.insert(id.0, order);
                        host.dirty.kept = true;
                    }
                    format!("job {}: move of {what} to {to} cancelled: {cause}", id.0)
                }
            },
            _ => return,
        };
        if copied > 0 || state.end() == Some(&End::Done) {
            host.kept.last_moved.insert(volume.clone(), self.now.at);
            host.dirty.kept = true;
        }
        let end = state.status().name();
        host.progress.remove(&id);
        *self.counters.moves.entry((goal, end)).or_default() += 1;
        self.counters.moved_bytes = self.counters.moved_bytes.saturating_add(copied);
        let failed_io = state.end().and_then(End::failed_io).cloned();
        self.event_with(
            EventKind::Job,
            Some(&host.name.clone()),
            Some(&volume),
            text,
            failed_io,
        );
    }

    /// Writes why a volume is not calibrated, once for each new reason: repeated in each epoch it would displace the rest of
    /// the audit log.
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

#[cfg(test)]
mod tests {
    use executor::{EndCause, Executor, Input, JobId};
    use model::{Action, Cost, Effect, ExtentRanges, Goal, Move, MoveLimits, Plan, Reason, Terms};
    use units::{Bytes, BytesPerSec, DeviceId, Nanos, VolumeId};

    use super::*;

    /// Move of a number of separate extents.
    fn scattered(ranges: u32) -> Move {
        Move {
            volume: VolumeId(0),
            from: DeviceId(1),
            to: DeviceId(0),
            extents: Some(ExtentRanges::from_sorted((0..ranges).map(|e| 2 * e))),
            size: Bytes(1),
            after: vec![],
            bandwidth: BytesPerSec(1),
            terms: Terms {
                goal: Goal::Latency,
                reason: Reason::pinned(),
                effect: Effect::default(),
                cost: Cost::default(),
            },
        }
    }

    #[test]
    fn ended_jobs_with_many_ranges_are_forgotten_first() {
        let mut executor = Executor::new();
        let half = RANGES_KEPT as u32 / 2;
        for (i, ranges) in [half, half, 3, half].into_iter().enumerate() {
            let plan = Plan {
                generation: i as u64 + 1,
                parent: i as u64,
                at: Nanos(i as u64),
                strategy: "test".into(),
                actions: vec![Action::Move(scattered(ranges))],
                limits: MoveLimits {
                    concurrent: 1,
                    concurrent_per_device: 1,
                },
            };
            let at = Nanos(10 * (i as u64 + 1));
            executor.handle(at, Input::Propose(Box::new(plan))).unwrap();
            let (job, cause) = (JobId(i as u32), EndCause::PlanTooOld);
            executor.handle(at, Input::Reject { job, cause }).unwrap();
        }
        // The newest two and the small one are within the limit; the one before them exceeds it.
        assert_eq!(too_many_ranges(&executor), Nanos(20));
        executor.forget(too_many_ranges(&executor));
        assert_eq!(
            executor.jobs().len(),
            3,
            "the last job within the limit stays"
        );
        executor.forget(Nanos(21));
        assert_eq!(too_many_ranges(&executor), Nanos::ZERO);
    }
}
