//! Moves that the orders want, and what the array says of them.

use super::{Agent, Deed, MoveEnd, Snapshot, VolumeSnapshot};
use crate::wire::{JobProgress, MoveOrder};

/// A job at this agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Job {
    /// The array carries it out, or is about to.
    Runs {
        /// The order.
        order: MoveOrder,
        /// Bytes copied, left, and the rate that it may take, when the array was last looked at.
        seen: (u64, u64, u64),
    },
    /// It is over.
    Ended(JobProgress),
}

impl Job {
    pub(super) fn runs(&self) -> bool {
        matches!(self, Job::Runs { .. })
    }

    pub(super) fn progress(&self) -> JobProgress {
        match self {
            Job::Ended(progress) => progress.clone(),
            Job::Runs { seen, .. } => JobProgress::Copying {
                copied_bytes: seen.0,
                left_bytes: seen.1,
                rate_bytes_per_s: seen.2,
            },
        }
    }
}

impl Agent {
    pub(super) fn look_after_moves(&mut self, now_ns: u64, snapshot: &Snapshot) {
        let volume = |name: &str| snapshot.volumes.iter().find(|v| v.name == name);
        for job in self.jobs.values_mut() {
            if let Job::Runs { order, seen } = job
                && let Some(ended) = look_at(order, seen, volume(&order.volume))
            {
                *job = Job::Ended(ended);
            }
        }
        for (id, order) in &self.cancels {
            let found = volume(&order.volume);
            let under_way = found.is_some_and(|v| moves_to(v, &order.device));
            if under_way {
                let volume = order.volume.clone();
                self.deeds.push_back(Deed::CancelMove { volume });
                self.jobs.entry(*id).or_insert_with(|| Job::Runs {
                    order: order.clone(),
                    seen: (0, 0, 0),
                });
            } else if !self.jobs.contains_key(id) && found.is_some_and(|v| v.movable) {
                let ended = match found {
                    Some(v) if v.is_on(&order.device, &order.tier) => {
                        JobProgress::Done { copied_bytes: 0 }
                    }
                    _ => failed("given up before it began"),
                };
                self.jobs.insert(*id, Job::Ended(ended));
            }
        }
        if now_ns >= self.lease_until_ns {
            return;
        }
        for (id, order) in &self.orders {
            if self.jobs.contains_key(id) || self.cancels.contains_key(id) {
                continue;
            }
            let job = match volume(&order.volume) {
                None => Job::Ended(failed("there is no such volume on this host")),
                Some(v) if v.is_on(&order.device, &order.tier) => {
                    Job::Ended(JobProgress::Done { copied_bytes: 0 })
                }
                // It may be resumed when it is served again: nothing is concluded yet.
                Some(v) if !v.movable => continue,
                Some(v) if moves_to(v, &order.device) => runs(order),
                Some(VolumeSnapshot {
                    moving: Some(other),
                    ..
                }) => Job::Ended(failed(&format!(
                    "the volume is being moved to {} already",
                    other.device
                ))),
                Some(_) => {
                    self.deeds.push_back(Deed::StartMove(order.clone()));
                    runs(order)
                }
            };
            self.jobs.insert(*id, job);
        }
    }
}

fn runs(order: &MoveOrder) -> Job {
    Job::Runs {
        order: order.clone(),
        seen: (0, 0, 0),
    }
}

fn failed(why: &str) -> JobProgress {
    JobProgress::Failed {
        why: why.into(),
        copied_bytes: 0,
    }
}

fn moves_to(volume: &VolumeSnapshot, device: &str) -> bool {
    volume.moving.as_ref().is_some_and(|m| m.device == device)
}

/// How a running job stands; how it ended, if it has.
fn look_at(
    order: &MoveOrder,
    seen: &mut (u64, u64, u64),
    volume: Option<&VolumeSnapshot>,
) -> Option<JobProgress> {
    let Some(volume) = volume else {
        return Some(failed("the volume is gone"));
    };
    if let Some(moving) = volume.moving.as_ref().filter(|m| m.device == order.device) {
        *seen = (
            seen.0.max(moving.copied_bytes),
            moving.left_bytes,
            moving.rate_bytes_per_s,
        );
        return None;
    }
    if !volume.movable {
        return None; // not served: it goes on when it is
    }
    let copied_bytes = match &volume.last_move {
        Some(MoveEnd::Done { copied_bytes } | MoveEnd::Stopped { copied_bytes, .. }) => {
            seen.0.max(*copied_bytes)
        }
        None => seen.0,
    };
    if volume.is_on(&order.device, &order.tier) {
        return Some(JobProgress::Done { copied_bytes });
    }
    let why = match &volume.last_move {
        Some(MoveEnd::Stopped { why, .. }) => why.clone(),
        _ => "it ended before all of the volume was on its target".into(),
    };
    Some(JobProgress::Failed { why, copied_bytes })
}
