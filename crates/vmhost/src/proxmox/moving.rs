//! Moves of disks by `move_disk`: what is written down, and the next step.
//!
//! ```text
//!  Begun ─▶ Copying ─▶ Kept ─▶ forgotten
//!    │        │  └──▶ Doubtful ─▶ Kept, or forgotten
//!    └────────┴─────▶ forgotten (the disk stays)
//! ```
//!
//! A task on the node copies, switches QEMU to the new volume and then names it in the configuration.
//! The old volume stays as `unusedN` until its time is over. Its name is not enough to remove it then:
//! somebody may have removed it earlier, and another volume may have its name. So its [`Identity`] is
//! recorded at the switch, and the move is forgotten as soon as no `unusedN` has the name. Between the switch and the configuration
//! a task that fails or is stopped frees the new volume although the guest is on it (qemu-server,
//! `API2/Qemu.pm`, `move_vm_disk`). So a task is stopped only while it copies, and one that fails
//! after the switch was ordered is a doubt, which a person resolves.
//!
//! A step is taken only on what was just seen, and may be taken twice.

use serde::{Deserialize, Serialize};

use super::{Identity, Progress, TaskState};

/// The form of [`Intent`] that this program writes.
pub const INTENT_FORM: u32 = 2;

/// An old volume that has changed later than this after the end of the task, in seconds, is another
/// one: the task leaves it closed.
const CHANGES_AFTER_END_S: u64 = 2;

/// A task is stopped only below this share of the copy, of 10,000, and if the rest takes this long at
/// the ordered rate, in seconds: QEMU switches at the end, and a log is a second old or more.
///
/// The rate bounds only data. QEMU may pass over ranges of zeroes and discarded ranges within a
/// second, so the copy must also have kept to the rate so far. A rest that is all zeroes stays a risk.
const STOPPED_BELOW: u32 = 9_000;
const REST_MIN_S: u64 = 60;

/// A move of one disk, durable before its next step.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Intent {
    /// [`INTENT_FORM`].
    pub form: u32,
    /// The job that ordered it.
    pub job: u32,
    /// The volume's name when it was ordered.
    pub volume: String,
    pub vmid: u32,
    /// The node on which the task runs.
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
    /// Start of the VM in which it was ordered.
    pub life: u32,
    /// Tasks of this kind that existed before the order.
    pub earlier: Vec<String>,
    /// Reason for which the copy is to be stopped, if it is.
    pub cancel: Option<String>,
    pub phase: Phase,
}

/// How far a move is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Phase {
    /// The task was ordered, perhaps.
    Begun,
    /// This task copies. `stopped` is true once it was told to end.
    Copying { task: String, stopped: bool },
    /// The disk is on this volume. The old one is unused until then, in seconds of the wall clock.
    /// `old` tells it from others of its name, if that is known.
    Kept {
        to: String,
        until_s: u64,
        old: Option<Identity>,
    },
    /// The configuration names the old volume, and the guest may use the new one.
    Doubtful { why: String },
}

impl Intent {
    /// Returns true until the disk is where it belongs.
    pub fn moves(&self) -> bool {
        !matches!(self.phase, Phase::Kept { .. })
    }
}

/// The volume of a disk by the configuration of its VM.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Named {
    Unknown,
    /// The VM does not exist any more.
    NoVm,
    /// The VM has no such drive.
    NoDrive,
    Volume(String),
}

/// A task as it was just seen.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SeenTask {
    Unknown,
    /// Its node does not know it, or has lost the VM to another node.
    Lost,
    Known(TaskState),
}

/// A cluster as far as a move is concerned, just looked at.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Seen {
    pub named: Named,
    /// Keys of unused volumes that are the old one.
    pub unused: Vec<String>,
    /// True if a drive of the VM has the old volume.
    pub from_in_use: bool,
    /// Present volume with the name of the old one, if its storage tells.
    pub old: Option<Identity>,
    /// In phase `Copying`: end of the task in seconds of the wall clock, if it is known.
    pub ended_s: Option<u64>,
    /// In phase `Begun`: a task that was not there before the order.
    pub new_task: Option<String>,
    /// True if an order that was not answered is not carried out any more.
    pub sure: bool,
    pub task: SeenTask,
    /// Progress by the task's log, if that was just read to its end.
    pub progress: Option<Progress>,
    /// Measured rate of the copy, bytes per second, if several looks have seen its progress.
    pub pace: Option<u64>,
    /// Present start of the VM; 0 if it is unknown.
    pub life: u32,
    pub now_s: u64,
    /// For how long an old volume is kept.
    pub keep_s: u64,
}

/// One step of a move.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Step {
    Wait,
    /// The intent is to say this, durably.
    Note(Phase),
    /// The task is to end.
    Stop {
        task: String,
    },
    /// This unused volume is to be removed, if the configuration still is as it was seen.
    Remove {
        key: String,
    },
    /// The old volume is not removed, because it may be another one. The reason is for the operator.
    Leave(String),
    /// The intent is to be removed. Why, if the disk did not move.
    Forget(Option<String>),
}

/// Returns the next step.
pub fn next(intent: &Intent, seen: &Seen) -> Step {
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

/// The disk is on another volume than before.
fn moved(intent: &Intent, seen: &Seen, volume: &str) -> Step {
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

fn begun(intent: &Intent, seen: &Seen) -> Step {
    if let Some(task) = &seen.new_task {
        return Step::Note(Phase::Copying {
            task: task.clone(),
            stopped: false,
        });
    }
    match &seen.named {
        _ if !seen.sure => Step::Wait,
        Named::Unknown => Step::Wait,
        Named::NoVm => stays("its VM does not exist any more"),
        Named::NoDrive => stays("its VM has no such drive any more"),
        Named::Volume(volume) if *volume == intent.from => stays("the task did not start"),
        Named::Volume(volume) => moved(intent, seen, volume),
    }
}

/// Returns true if QEMU cannot switch soon, as far as the log tells.
fn is_far_from_the_switch(intent: &Intent, seen: &Seen) -> bool {
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

fn copying(intent: &Intent, seen: &Seen, task: &str, stopped: bool) -> Step {
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
        Named::Unknown => Step::Wait,
        Named::NoVm => stays("its VM does not exist any more"),
        Named::NoDrive => stays("its VM has no such drive any more"),
        Named::Volume(volume) if *volume != intent.from => moved(intent, seen, volume),
        Named::Volume(_) => match seen.progress {
            Some(progress) if !progress.switches => stays(why),
            // The next looks read the rest of the log.
            None if seen.task != SeenTask::Lost => Step::Wait,
            // Without a log nobody knows how far it was.
            Some(_) | None => Step::Note(Phase::Doubtful { why }),
        },
    }
}

fn kept(seen: &Seen, until_s: u64, old: Option<Identity>) -> Step {
    match &seen.named {
        Named::Unknown => return Step::Wait,
        Named::NoVm => return Step::Forget(None),
        // Somebody has taken it into use again.
        Named::NoDrive | Named::Volume(_) if seen.from_in_use => return Step::Forget(None),
        Named::NoDrive | Named::Volume(_) => {}
    }
    // Somebody has removed it: a later volume may get its name.
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

fn doubtful(intent: &Intent, seen: &Seen, why: &str) -> Step {
    let restarted = seen.life != 0 && seen.life != intent.life;
    match &seen.named {
        Named::Volume(volume) if *volume != intent.from => moved(intent, seen, volume),
        Named::Volume(_) if restarted => stays(format!(
            "{why}; its VM was restarted from the old volume after a switch with unknown result"
        )),
        Named::NoVm => stays(why),
        _ => Step::Wait,
    }
}
