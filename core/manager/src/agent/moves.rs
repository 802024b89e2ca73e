//! Execution of ordered moves, part by part, and their progress in the array.

use model::IoFailure;
use units::DeviceId;

use super::extents::{left, part, within};
use super::{ActionError, Agent, AgentAction, MoveEnd, Snapshot, VolumeSnapshot};
use crate::wire::{JobProgress, JobWindow, MoveOrder};

/// State of a job at this agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Job {
    /// The array executes it, or will start it.
    Runs {
        order: MoveOrder,
        /// Bytes that earlier parts of an order of extents have copied.
        before: u64,
        /// Bytes copied, bytes left and permitted rate in the last snapshot.
        seen: (u64, u64, u64),
    },
    /// It has ended.
    Ended {
        /// Final progress.
        state: JobProgress,
        /// Failed I/O that caused the failure, if any.
        failed_io: Option<IoFailure>,
        /// True if a repetition fails too until an operator changes something.
        permanent: bool,
    },
}

impl Job {
    pub(super) fn runs(&self) -> bool {
        matches!(self, Job::Runs { .. })
    }

    /// Creates an ended job without a failed I/O.
    pub(super) fn ended(state: JobProgress) -> Self {
        Job::Ended {
            state,
            failed_io: None,
            permanent: false,
        }
    }

    /// Creates a job that the host refused to start.
    pub(super) fn refused(error: ActionError) -> Self {
        let ActionError { why, permanent } = error;
        Job::Ended {
            state: failed(&why),
            failed_io: None,
            permanent,
        }
    }

    /// Returns its entry in a report.
    pub(super) fn window(&self, id: u32) -> JobWindow {
        let (state, failed_io, permanent) = match self {
            Job::Ended {
                state,
                failed_io,
                permanent,
            } => (state.clone(), failed_io.clone(), *permanent),
            Job::Runs { seen, .. } => {
                let copying = JobProgress::Copying {
                    copied_bytes: seen.0,
                    left_bytes: seen.1,
                    rate_bytes_per_s: seen.2,
                };
                (copying, None, false)
            }
        };
        JobWindow {
            job: id,
            state,
            failed_io,
            permanent,
        }
    }
}

impl Agent {
    pub(super) fn look_after_moves(&mut self, now_ns: u64, snapshot: &Snapshot) {
        let volume = |name: &str| snapshot.volumes.iter().find(|v| v.name == name);
        let goes_on = now_ns < self.orders_until_ns();
        for (id, job) in &mut self.jobs {
            let Job::Runs {
                order,
                before,
                seen,
            } = job
            else {
                continue;
            };
            let wanted = goes_on && self.orders.contains_key(id) && !self.cancels.contains_key(id);
            match look_at(order, *before, seen, volume(&order.volume), snapshot) {
                Look::Runs => {}
                Look::Rest(_) if !wanted => {}
                Look::Rest(rest) => {
                    *before = seen.0;
                    self.actions.push_back(AgentAction::StartMove(rest));
                }
                Look::Ended(ended) => *job = ended,
            }
        }
        for (id, order) in &self.cancels {
            let found = volume(&order.volume);
            let under_way = found.is_some_and(|v| carries_out(v, order));
            if under_way {
                let volume = order.volume.clone();
                self.actions.push_back(AgentAction::CancelMove { volume });
                self.jobs.entry(*id).or_insert_with(|| runs(order));
                continue;
            }
            let (rests, why, copied_bytes) = match self.jobs.get(id) {
                None => (true, "cancelled before it started", 0),
                // Between two parts the array has no move to cancel.
                Some(Job::Runs { order, seen, .. }) => {
                    (order.extents.is_some(), "cancelled", seen.0)
                }
                Some(Job::Ended { .. }) => (false, "", 0),
            };
            if let Some(v) = found.filter(|v| rests && v.movable && v.moving.is_none()) {
                let ended = match is_there(v, order, snapshot) {
                    None => continue,
                    Some(true) => JobProgress::Done { copied_bytes },
                    Some(false) => JobProgress::Failed {
                        why: why.into(),
                        copied_bytes,
                    },
                };
                self.jobs.insert(*id, Job::ended(ended));
            } else if rests && found.is_some_and(|v| v.movable) && !self.jobs.contains_key(id) {
                let ended = failed("cancelled before it started");
                self.jobs.insert(*id, Job::ended(ended));
            }
        }
        if !goes_on {
            return;
        }
        for (id, order) in &self.orders {
            if self.jobs.contains_key(id) || self.cancels.contains_key(id) {
                continue;
            }
            let job = match volume(&order.volume) {
                None => Job::ended(failed("this host has no such volume")),
                // The move may resume when the volume is served again.
                Some(v) if !v.movable && !v.is_on(&order.device, &order.tier) => continue,
                Some(v) if carries_out(v, order) => runs(order),
                Some(VolumeSnapshot {
                    moving: Some(other),
                    ..
                }) => Job::ended(failed(&format!(
                    "the volume is already being moved to {}",
                    other.device
                ))),
                Some(v) => match is_there(v, order, snapshot) {
                    None => continue,
                    Some(true) => Job::ended(JobProgress::Done { copied_bytes: 0 }),
                    Some(false) => {
                        let first = next_part(v, order, snapshot).unwrap_or_else(|| order.clone());
                        self.actions.push_back(AgentAction::StartMove(first));
                        runs(order)
                    }
                },
            };
            self.jobs.insert(*id, job);
        }
    }
}

fn runs(order: &MoveOrder) -> Job {
    Job::Runs {
        order: order.clone(),
        before: 0,
        seen: (0, 0, 0),
    }
}

fn failed(why: &str) -> JobProgress {
    JobProgress::Failed {
        why: why.into(),
        copied_bytes: 0,
    }
}

/// Returns true if the array's move of the volume is the order's, or a part of it.
fn carries_out(volume: &VolumeSnapshot, order: &MoveOrder) -> bool {
    let to_device = volume.moving.as_ref().filter(|m| m.device == order.device);
    to_device.is_some_and(|moving| match (&moving.extents, &order.extents) {
        (None, None) => true,
        (Some(some), Some(all)) => within(some, all),
        _ => false,
    })
}

/// Returns true if all data of an order is on its target; none if that is unknown.
fn is_there(volume: &VolumeSnapshot, order: &MoveOrder, snapshot: &Snapshot) -> Option<bool> {
    match &order.extents {
        None => Some(volume.is_on(&order.device, &order.tier)),
        Some(named) => {
            let extents = volume.extents.as_ref()?;
            Some(left(named, extents, device(order, snapshot)).is_empty())
        }
    }
}

fn device(order: &MoveOrder, snapshot: &Snapshot) -> Option<DeviceId> {
    let devices = &snapshot.devices;
    let found = devices.iter().position(|d| d.name == order.device);
    found.map(DeviceId::from_index)
}

/// Next part of an order of extents; none for an order of a whole volume.
fn next_part(volume: &VolumeSnapshot, order: &MoveOrder, snapshot: &Snapshot) -> Option<MoveOrder> {
    let (named, extents) = (order.extents.as_ref()?, volume.extents.as_ref()?);
    let rest = left(named, extents, device(order, snapshot));
    Some(MoveOrder {
        extents: Some(part(&rest)),
        ..order.clone()
    })
}

/// Result of a check of a job.
enum Look {
    /// The array executes it, or its state is unknown.
    Runs,
    /// A part is done; this part is next.
    Rest(MoveOrder),
    /// It has ended.
    Ended(Job),
}

/// Checks a running job.
fn look_at(
    order: &MoveOrder,
    before: u64,
    seen: &mut (u64, u64, u64),
    volume: Option<&VolumeSnapshot>,
    snapshot: &Snapshot,
) -> Look {
    let Some(volume) = volume else {
        return Look::Ended(Job::ended(failed("the volume was removed")));
    };
    if carries_out(volume, order) {
        let moving = volume
            .moving
            .as_ref()
            .expect("a move of the volume is running");
        *seen = (
            seen.0.max(before + moving.copied_bytes),
            moving.left_bytes,
            moving.rate_bytes_per_s,
        );
        return Look::Runs;
    }
    if !volume.movable {
        return Look::Runs; // not served: it continues when it is
    }
    let there = match (&order.extents, &volume.moving) {
        (Some(_), Some(_)) => Some(false), // another move runs: the rest of this one is not started
        _ => is_there(volume, order, snapshot),
    };
    let Some(there) = there else {
        return Look::Runs; // the next beat knows the places of the extents
    };
    let copied_bytes = match &volume.last_move {
        Some(MoveEnd::Done { copied_bytes } | MoveEnd::Stopped { copied_bytes, .. }) => {
            seen.0.max(before + *copied_bytes)
        }
        None => seen.0,
    };
    if there {
        return Look::Ended(Job::ended(JobProgress::Done { copied_bytes }));
    }
    let (why, failed_io) = match (&volume.last_move, &order.extents) {
        (Some(MoveEnd::Stopped { why, failed_io, .. }), _) => (why.clone(), failed_io.clone()),
        (_, Some(_)) if volume.moving.is_none() => {
            seen.0 = copied_bytes;
            let rest = next_part(volume, order, snapshot);
            return Look::Rest(rest.expect("the snapshot has its extents"));
        }
        (_, Some(_)) => ("another move of the volume is running".into(), None),
        (_, None) => (
            "the move ended before the whole volume was on its target".into(),
            None,
        ),
    };
    Look::Ended(Job::Ended {
        state: JobProgress::Failed { why, copied_bytes },
        failed_io,
        permanent: false,
    })
}
