//! Moves of disks by `move_disk`: intents, and the decision of the next step.
//!
//! ```text
//!  Begun ─▶ Copying ─▶ Kept ─▶ forgotten
//!    │        │  └──▶ Doubtful ─▶ Kept, or forgotten
//!    └────────┴─────▶ forgotten (the disk stays)
//! ```
//!
//! A task on the node copies, switches QEMU to the new volume and then names it in the configuration. The old volume
//! stays as `unusedN` until its time expires. Its name is not enough to remove it then: an operator may have removed it
//! earlier, and another volume may have its name. Its [`Identity`] is therefore recorded at the switch, and the move is
//! forgotten as soon as no `unusedN` has the name. Between the switch and the configuration, a task that fails or is
//! stopped frees the new volume although the guest uses it (qemu-server, `API2/Qemu.pm`, `move_vm_disk`). A task is
//! therefore stopped only while it copies. If a task fails after the switch was ordered, the result is a doubt, which
//! an operator resolves.
//!
//! A step is taken only on the state that was just read, and may be repeated.

use serde::{Deserialize, Serialize};

use super::{Identity, Progress, TaskState};

/// Version of the form of [`Intent`].
pub const INTENT_FORM: u32 = 2;

/// Seconds after the end of the task from which a change of the old volume shows that it is another volume: the task
/// leaves the old one closed.
const CHANGES_AFTER_END_S: u64 = 2;

/// Share of the copy, of 10,000, below which a task may be stopped, and seconds that the rest must take at the ordered
/// rate. QEMU switches at the end, and a log is at least a second old.
///
/// The rate bounds only data. QEMU may pass over zeroes and discarded ranges within a second, so the copy must also
/// have kept to the rate so far. A rest of zeroes only remains a risk.
const STOPPED_BELOW: u32 = 9_000;
const REST_MIN_S: u64 = 60;

/// Move of one disk, durable before its next step.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Intent {
    /// Version of the form: [`INTENT_FORM`].
    pub form: u32,
    /// Job that ordered the move.
    pub job: u32,
    /// Name of the volume at the time of the order.
    pub volume: String,
    pub vmid: u32,
    /// Node on which the task runs.
    pub node: String,
    /// Key of the drive.
    pub disk: String,
    /// Identifier of the volume that the disk leaves.
    pub from: String,
    /// Name of the target device.
    pub device: String,
    /// Storage of the target device.
    pub storage: String,
    /// Bytes to copy.
    pub bytes: u64,
    /// Highest rate of the copy.
    pub rate_bytes_per_s: u64,
    /// Start of the VM at the time of the order.
    pub life: u32,
    /// Tasks of this kind that existed before the order.
    pub earlier: Vec<String>,
    /// Reason for which the copy is to be stopped.
    pub cancel: Option<String>,
    pub phase: Phase,
}

/// Phase of a move.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Phase {
    /// The task may have been ordered.
    Begun,
    /// This task copies. `stopped` is true after it was ordered to end.
    Copying { task: String, stopped: bool },
    /// The disk is on this volume. The old one is kept until this time, in seconds of the wall clock. `old`
    /// distinguishes it from others of its name; `None` if that is unknown.
    Kept {
        to: String,
        until_s: u64,
        old: Option<Identity>,
    },
    /// The configuration names the old volume, and the guest may use the new one.
    Doubtful { why: String },
}

impl Intent {
    /// Returns true until the disk has reached its final volume.
    pub fn moves(&self) -> bool {
        !matches!(self.phase, Phase::Kept { .. })
    }
}

/// Volume of a disk according to the configuration of its VM.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum NamedVolume {
    Unknown,
    /// The VM no longer exists.
    NoVm,
    /// The VM has no such drive.
    NoDrive,
    Volume(String),
}

/// Present state of a task.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SeenTask {
    Unknown,
    /// Its node does not know it, or the VM has moved to another node.
    Lost,
    Known(TaskState),
}

/// State of a cluster for one move, just read.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ClusterObservation {
    pub named: NamedVolume,
    /// Keys of unused volumes with the name of the old one.
    pub unused: Vec<String>,
    /// True if a drive of the VM uses the old volume.
    pub from_in_use: bool,
    /// Present volume with the name of the old one, if its storage reports it.
    pub old: Option<Identity>,
    /// In phase `Copying`: end of the task in seconds of the wall clock, if it is known.
    pub ended_s: Option<u64>,
    /// In phase `Begun`: a task that did not exist before the order.
    pub new_task: Option<String>,
    /// True if an unanswered order can no longer be carried out.
    pub sure: bool,
    pub task: SeenTask,
    /// Progress according to the task's log; `None` unless the log was just read to its end.
    pub progress: Option<Progress>,
    /// Measured rate of the copy in bytes per second; `None` without several looks.
    pub pace: Option<u64>,
    /// Present start of the VM; 0 if it is unknown.
    pub life: u32,
    pub now_s: u64,
    /// Seconds for which an old volume is kept.
    pub keep_s: u64,
}

/// Step of a move.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Step {
    Wait,
    /// Record this phase in the intent, durably.
    Note(Phase),
    /// End the task.
    Stop {
        task: String,
    },
    /// Remove this unused volume, if the configuration is unchanged.
    Remove {
        key: String,
    },
    /// Leave the old volume, because it may be another one. The reason is for the operator.
    Leave(String),
    /// Remove the intent. The reason is set if the disk did not move.
    Forget(Option<String>),
}

/// Returns the next step.
pub fn next(intent: &Intent, seen: &ClusterObservation) -> Step {
    match &intent.phase {
        Phase::Begun => begun(intent, seen),
        Phase::Copying { task, stopped } => copying(intent, seen, task, *stopped),
        Phase::Kept { until_s, old, .. } => kept(seen, *until_s, *old),
        Phase::Doubtful { why } => doubtful(intent, seen, why),
    }
}

fn stays(why: impl Into<String>) -> Step {
    Step::Forget(Some(why.into()))
}

/// Handles a disk on another volume than before.
fn moved(intent: &Intent, seen: &ClusterObservation, volume: &str) -> Step {
    let storage = volume.split_once(':').map_or("", |(storage, _)| storage);
    match storage == intent.storage {
        true => Step::Note(Phase::Kept {
            to: volume.into(),
            until_s: seen.now_s.saturating_add(seen.keep_s),
            old: seen.old.filter(|old| {
                let end_s = seen.ended_s.map(|s| s.saturating_add(CHANGES_AFTER_END_S));
                end_s.is_some_and(|end_s| old.ctime_s <= end_s)
            }),
        }),
        false => stays(format!(
            "the disk has another volume than at the time of the order: {volume}"
        )),
    }
}

fn begun(intent: &Intent, seen: &ClusterObservation) -> Step {
    if let Some(task) = &seen.new_task {
        return Step::Note(Phase::Copying {
            task: task.clone(),
            stopped: false,
        });
    }
    match &seen.named {
        _ if !seen.sure => Step::Wait,
        NamedVolume::Unknown => Step::Wait,
        NamedVolume::NoVm => stays("its VM does not exist any more"),
        NamedVolume::NoDrive => stays("its VM has no such drive any more"),
        NamedVolume::Volume(volume) if *volume == intent.from => stays("the task did not start"),
        NamedVolume::Volume(volume) => moved(intent, seen, volume),
    }
}

/// Returns true if QEMU cannot switch soon, according to the log.
fn is_far_from_the_switch(intent: &Intent, seen: &ClusterObservation) -> bool {
    let (Some(progress), Some(pace)) = (seen.progress, seen.pace) else {
        return false;
    };
    let rate = intent.rate_bytes_per_s.max(1);
    let rest = u64::from(10_000 - progress.copied.min(10_000)) * (intent.bytes / 10_000);
    !progress.switches
        && progress.copied < STOPPED_BELOW
        && pace <= rate
        && rest / rate >= REST_MIN_S
}

fn copying(intent: &Intent, seen: &ClusterObservation, task: &str, stopped: bool) -> Step {
    let ended = match &seen.task {
        SeenTask::Unknown => return Step::Wait,
        SeenTask::Known(TaskState::Runs) => {
            let safe = is_far_from_the_switch(intent, seen);
            return match intent.cancel.is_some() && safe && !stopped {
                true => Step::Stop { task: task.into() },
                false => Step::Wait,
            };
        }
        SeenTask::Known(TaskState::Ended(how)) => how.trim(),
        SeenTask::Lost => "its node has lost the task",
    };
    let why = match &intent.cancel {
        Some(why) if stopped => why.clone(),
        _ => format!("Proxmox VE: {ended}"),
    };
    match &seen.named {
        NamedVolume::Unknown => Step::Wait,
        NamedVolume::NoVm => stays("its VM does not exist any more"),
        NamedVolume::NoDrive => stays("its VM has no such drive any more"),
        NamedVolume::Volume(volume) if *volume != intent.from => moved(intent, seen, volume),
        NamedVolume::Volume(_) => match seen.progress {
            Some(progress) if !progress.switches => stays(why),
            // The next looks read the rest of the log.
            None if seen.task != SeenTask::Lost => Step::Wait,
            // Without a log the progress of the task is unknown.
            Some(_) | None => Step::Note(Phase::Doubtful { why }),
        },
    }
}

fn kept(seen: &ClusterObservation, until_s: u64, old: Option<Identity>) -> Step {
    match &seen.named {
        NamedVolume::Unknown => return Step::Wait,
        NamedVolume::NoVm => return Step::Forget(None),
        // The old volume is in use again.
        NamedVolume::NoDrive | NamedVolume::Volume(_) if seen.from_in_use => {
            return Step::Forget(None);
        }
        NamedVolume::NoDrive | NamedVolume::Volume(_) => {}
    }
    // The old volume was removed, and a later volume may get its name.
    let Some(key) = seen.unused.first() else {
        return Step::Forget(None);
    };
    if seen.now_s < until_s {
        return Step::Wait;
    }
    let why = match (old, seen.old) {
        (Some(old), Some(now)) if old == now => return Step::Remove { key: key.clone() },
        (Some(_), Some(_)) => "it has changed since the move, or another volume has its name now",
        (None, _) => "its size and time of creation at the end of the move are unknown",
        (_, None) => "Proxmox VE does not report its size and time of creation",
    };
    Step::Leave(why.into())
}

fn doubtful(intent: &Intent, seen: &ClusterObservation, why: &str) -> Step {
    let restarted = seen.life != 0 && seen.life != intent.life;
    match &seen.named {
        NamedVolume::Volume(volume) if *volume != intent.from => moved(intent, seen, volume),
        NamedVolume::Volume(_) if restarted => stays(format!(
            "{why}; its VM was restarted from the old volume after a switch with unknown result"
        )),
        NamedVolume::NoVm => stays(why),
        _ => Step::Wait,
    }
}
