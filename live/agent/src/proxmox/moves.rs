//! Execution of moves of disks. [`vmhost::proxmox::moving`] decides the next step.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use manager::agent::{MoveEnd, Snapshot};
use manager::wire::{ArrayProblem, MoveOrder, MovingWindow};
use tracing::{info, warn};
use vmhost::HostError;
use vmhost::proxmox::moving::{
    ClusterObservation, INTENT_FORM, Intent, NamedVolume, Phase, SeenTask, Step, next,
};
use vmhost::proxmox::{Disk, Identity, ListedVm, Pace, Place, Progress, TaskState};

use super::api::{Api, ApiError, MoveRequest};
use crate::error::{AgentError, Result, in_context};
use crate::moves::{Intents, now_s};
use crate::yielding::GuestSlack;

/// Time after which an order without an answer is no longer carried out.
const SURE_AFTER: Duration = Duration::from_secs(30);

/// Largest number of steps of one move per look.
const STEPS_MAX: usize = 4;

/// Time between two attempts to remove an old volume.
const REMOVE_AGAIN: Duration = Duration::from_secs(60);

/// Time between two looks at a kept old volume. An operator may remove it, and its name may then be reused for another
/// volume.
const KEPT_LOOKS_APART: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 60 });

/// Number of failed attempts to remove an old volume after which the failure is reported as a problem.
const REMOVALS_TOLD: u32 = 3;

/// Number of consecutive looks with a violated objective after which the copy is stopped.
const VIOLATING_LOOKS: u32 = 3;

/// Factor by which a violation must exceed its level before the copy to be a reason to stop the copy.
const WORSE: f32 = 1.5;

/// Share of a copy, of 10,000, from which it is not stopped for a guest: it ends soon, and Proxmox VE must not be
/// interrupted at the end.
const ENDS_SOON: u32 = 5_000;

/// Divisor of the rate for the next attempt after a stopped copy.
const SLOWER: u64 = 2;

/// Lowest rate of the next attempt after a stopped copy, in bytes per second.
const RATE_MIN: u64 = 10 << 20;

/// Move with its intent, and with the state that a restart loses.
struct Move {
    intent: Intent,
    /// Progress according to the log lines read so far.
    progress: Progress,
    /// True if the last look read the log to its end.
    current: bool,
    pace: Pace,
    /// Time of the order; for a recorded move, the start of the agent.
    ordered: Instant,
    /// Largest ratio of latency to objective of the guests before the copy.
    before: Option<f32>,
    violating: u32,
    removed: Option<Instant>,
    removals: u32,
    /// Last look at an old volume.
    looked: Option<Instant>,
    /// Reason for which the old volume is not removed.
    left: Option<String>,
    /// Reason for which the next step failed.
    stuck: Option<String>,
}

impl Move {
    fn of(intent: Intent, before: Option<f32>) -> Self {
        Self {
            intent,
            progress: Progress::default(),
            current: false,
            pace: Pace::default(),
            ordered: Instant::now(),
            before,
            violating: 0,
            removed: None,
            removals: 0,
            looked: None,
            left: None,
            stuck: None,
        }
    }

    /// Returns the progress at the last look; `None` if the log was not read to its end.
    fn known(&self) -> Option<Progress> {
        self.current.then_some(self.progress)
    }
}

/// All moves of a cluster.
pub(super) struct Moves {
    intents: Intents,
    keep: Duration,
    moves: BTreeMap<String, Move>,
    /// Result of the last move of each volume.
    ended: BTreeMap<String, MoveEnd>,
    /// Reduced rates for volumes whose copies were stopped for a guest.
    slower: BTreeMap<String, u64>,
}

impl Moves {
    /// Reads the recorded moves of a directory. Old volumes are kept for the time `keep`.
    ///
    /// # Errors
    /// Another agent uses the directory, or it cannot be read.
    pub(super) fn open(dir: &Path, keep: Duration) -> Result<Self> {
        let (intents, found) = Intents::open::<Intent>(dir, INTENT_FORM)?;
        let moves = found.into_iter().map(|(name, i)| (name, Move::of(i, None)));
        Ok(Self {
            moves: moves.collect(),
            intents,
            keep,
            ended: BTreeMap::new(),
            slower: BTreeMap::new(),
        })
    }

    fn under_way(&self) -> impl Iterator<Item = &Move> {
        self.moves.values().filter(|m| m.intent.moves())
    }

    pub(super) fn is_busy(&self) -> bool {
        self.under_way().next().is_some()
    }

    /// Returns the tasks of this agent's moves.
    pub(super) fn tasks(&self) -> Vec<String> {
        let tasks = self.under_way().filter_map(|m| match &m.intent.phase {
            Phase::Copying { task, .. } => Some(task.clone()),
            _ => None,
        });
        tasks.collect()
    }

    /// Returns the state of a volume's move in progress.
    pub(super) fn window(&self, volume: &str) -> Option<MovingWindow> {
        let m = self.under_way().find(|m| m.intent.volume == volume)?;
        let copied = (u128::from(m.intent.bytes) * u128::from(m.progress.copied) / 10_000) as u64;
        Some(MovingWindow {
            device: m.intent.device.clone(),
            extents: None,
            copied_bytes: copied,
            left_bytes: m.intent.bytes.saturating_sub(copied),
            rate_bytes_per_s: m.intent.rate_bytes_per_s,
        })
    }

    /// Adds the state of moves and their problems to a snapshot.
    pub(super) fn tell(&self, snapshot: &mut Snapshot) {
        for v in &mut snapshot.volumes {
            v.moving = self.window(&v.name);
            v.last_move = self.ended.get(&v.name).cloned();
        }
        snapshot.problems = self.moves.values().filter_map(problem).collect();
    }

    /// Records a move and starts it.
    ///
    /// # Errors
    /// The move did not start; the error has the reason.
    pub(super) fn begin(
        &mut self,
        api: &mut Api,
        order: &MoveOrder,
        (disk, to): (&Disk<'_>, &Place),
        format: Option<&str>,
        yielding: &GuestSlack,
    ) -> Result<()> {
        let ListedVm { vmid, node, .. } = &disk.vm.listed;
        let same = |m: &Move| m.intent.vmid == *vmid;
        if self.under_way().any(same) {
            return Err(AgentError::InUse(
                "a disk of its VM is already moving".into(),
            ));
        }
        let facts = disk.vm.facts.as_ref();
        let facts = facts.map_err(|why| AgentError::Unknown(why.to_string()))?;
        let rate = order.rate_bytes_per_s.max(1);
        let slower = self.slower.get(&order.volume).copied();
        let earlier = api.moves(node, *vmid)?;
        let intent = Intent {
            form: INTENT_FORM,
            job: order.job,
            volume: order.volume.clone(),
            vmid: *vmid,
            node: node.clone(),
            disk: disk.key.into(),
            from: disk.drive.file.clone(),
            device: to.name.clone(),
            storage: to.storage.name.clone(),
            bytes: disk.size().unwrap_or(0),
            rate_bytes_per_s: slower.map_or(rate, |slower| slower.min(rate)),
            life: disk.vm.life(),
            earlier: earlier.into_iter().map(|t| t.upid).collect(),
            cancel: None,
            phase: Phase::Begun,
        };
        let name = self.name_of(&intent);
        self.intents.save(&name, &intent)?;
        let started = api.move_disk(&MoveRequest {
            node,
            vmid: *vmid,
            disk: disk.key,
            storage: &intent.storage,
            format,
            digest: &facts.config.digest,
            rate_bytes_per_s: intent.rate_bytes_per_s,
        });
        let before = yielding.worst(&order.volume, &to.name);
        self.ended.remove(&order.volume);
        let mut m = Move::of(intent, before);
        let result = match started {
            Ok(task) => {
                m.intent.phase = Phase::Copying {
                    task,
                    stopped: false,
                };
                // If this cannot be written, the task is found in the list of the VM's tasks.
                let saved = self.intents.save(&name, &m.intent);
                m.stuck = saved.err().map(|e| e.to_string());
                Ok(())
            }
            Err(error @ ApiError::Refused { .. }) => {
                self.intents.forget(&name)?;
                return Err(in_context("Proxmox VE refuses the move")(error));
            }
            Err(ApiError::Silent(why)) => {
                let volume = &order.volume;
                warn!(volume, why, "the order to move a disk was not answered");
                Ok(())
            }
        };
        self.moves.insert(name, m);
        result
    }

    /// Returns a name that no other move has.
    fn name_of(&self, intent: &Intent) -> String {
        let name = format!("{}-{}-{}", intent.vmid, intent.disk, intent.job);
        let free = (1..).map(|n| match n {
            1 => name.clone(),
            n => format!("{name}-{n}"),
        });
        let mut free = free.filter(|name| !self.moves.contains_key(name));
        free.next().expect("there are fewer moves than numbers")
    }

    /// Cancels the move of a volume, if that is still possible.
    ///
    /// # Errors
    /// The cancellation cannot be recorded.
    pub(super) fn cancel(&mut self, volume: &str, why: &str) -> Result<()> {
        let found = self.moves.iter_mut();
        for (name, m) in found.filter(|(_, m)| m.intent.volume == volume && m.intent.moves()) {
            if m.intent.cancel.is_none() {
                m.intent.cancel = Some(why.into());
                self.intents.save(name, &m.intent)?;
            }
        }
        Ok(())
    }

    /// Cancels copies during which guests violate their objectives. The rate of a running task cannot be changed.
    pub(super) fn yield_to(&mut self, yielding: &GuestSlack) {
        let mut stopped = vec![];
        for m in self.moves.values_mut() {
            if !matches!(m.intent.phase, Phase::Copying { .. }) || m.intent.cancel.is_some() {
                continue;
            }
            if m.known().is_none_or(|p| p.copied >= ENDS_SOON) {
                continue;
            }
            let worst = yielding.worst(&m.intent.volume, &m.intent.device);
            let limit = m.before.map_or(1.0, |before| (before * WORSE).max(1.0));
            m.violating = match worst {
                Some(worst) if worst > limit => m.violating + 1,
                _ => 0,
            };
            if m.violating >= VIOLATING_LOOKS {
                let rate = (m.intent.rate_bytes_per_s / SLOWER).max(RATE_MIN);
                stopped.push((m.intent.volume.clone(), rate));
            }
        }
        for (volume, rate) in stopped {
            warn!(volume, "a copy is stopped: a guest violates its objective");
            let why = "a guest violated its objective during the copy, whose rate cannot be lowered: a later attempt is slower";
            if let Err(why) = self.cancel(&volume, why) {
                warn!(volume, why = why.to_string(), "cannot cancel a move");
            }
            self.slower.insert(volume, rate);
        }
    }

    /// Advances all moves as far as possible now. `vms` are all VMs of the cluster, if they are known.
    pub(super) fn beat(&mut self, api: &mut Api, vms: Option<&[ListedVm]>) {
        let now_s = now_s();
        let names: Vec<String> = self.moves.keys().cloned().collect();
        for name in names {
            let stuck = self.advance(api, &name, vms, now_s).err();
            let stuck = stuck.map(|e| e.to_string());
            let Some(m) = self.moves.get_mut(&name) else {
                continue;
            };
            if let Some(why) = &stuck
                && m.stuck != stuck
            {
                let volume = &m.intent.volume;
                warn!(volume, why, "a move is stuck");
            }
            m.stuck = stuck;
        }
    }

    fn advance(
        &mut self,
        api: &mut Api,
        name: &str,
        vms: Option<&[ListedVm]>,
        now_s: u64,
    ) -> Result<()> {
        for _ in 0..STEPS_MAX {
            let Some(m) = self.moves.get_mut(name) else {
                return Ok(());
            };
            if let Phase::Kept { until_s, .. } = m.intent.phase {
                let waits = now_s < until_s || m.left.is_some();
                if waits && m.looked.is_some_and(|at| at.elapsed() < KEPT_LOOKS_APART) {
                    return Ok(());
                }
                m.looked = Some(Instant::now());
            }
            let (seen, digest) = look(api, m, vms, now_s, self.keep)?;
            let step = next(&m.intent, &seen);
            m.left = None;
            match step {
                Step::Wait => return Ok(()),
                Step::Leave(why) => {
                    m.left = Some(why);
                    return Ok(());
                }
                Step::Note(phase) => {
                    let volume = &m.intent.volume;
                    info!(volume, phase = ?phase, "a move continues");
                    self.note(name, phase)?;
                }
                Step::Stop { task } => {
                    // Record the stop first: if the task ends now, this agent has stopped it.
                    let phase = Phase::Copying {
                        task: task.clone(),
                        stopped: true,
                    };
                    let node = m.intent.node.clone();
                    self.note(name, phase)?;
                    api.stop(&node, &task)?;
                }
                Step::Remove { .. } if m.removed.is_some_and(|at| at.elapsed() < REMOVE_AGAIN) => {
                    return Ok(()); // a task of the node removes it
                }
                Step::Remove { key } => {
                    m.removed = Some(Instant::now());
                    m.removals += 1;
                    let node = current_node(&m.intent, vms);
                    let removed = api.remove_unused(&node, m.intent.vmid, &digest, &key);
                    let from = &m.intent.from;
                    return removed.map_err(in_context(format_args!("cannot remove {from}")));
                }
                Step::Forget(why) => {
                    self.intents.forget(name)?;
                    let m = self.moves.remove(name).expect("it was just looked at");
                    if m.intent.moves() {
                        self.end(&m, why);
                    }
                }
            }
        }
        Ok(())
    }

    fn note(&mut self, name: &str, phase: Phase) -> Result<()> {
        let m = self.moves.get_mut(name).expect("it was just looked at");
        let moved = m.intent.moves();
        let intent = Intent {
            phase,
            ..m.intent.clone()
        };
        self.intents.save(name, &intent)?;
        m.intent = intent;
        if moved && !m.intent.moves() {
            let m = self.moves.remove(name).expect("it was just changed");
            self.slower.remove(&m.intent.volume);
            self.end(&m, None);
            self.moves.insert(name.into(), m);
        }
        Ok(())
    }

    fn end(&mut self, m: &Move, why: Option<String>) {
        let (volume, job) = (&m.intent.volume, m.intent.job);
        let copied = (u128::from(m.intent.bytes) * u128::from(m.progress.copied) / 10_000) as u64;
        let end = match why {
            None => {
                info!(volume, job, "moved a disk");
                MoveEnd::Done {
                    copied_bytes: m.intent.bytes,
                }
            }
            Some(why) => {
                warn!(volume, job, why, "the move of a disk failed");
                MoveEnd::Stopped {
                    why,
                    copied_bytes: copied,
                    failed_io: None,
                }
            }
        };
        self.ended.insert(volume.clone(), end);
    }
}

fn current_node(intent: &Intent, vms: Option<&[ListedVm]>) -> String {
    let vm = vms.into_iter().flatten().find(|vm| vm.vmid == intent.vmid);
    vm.map_or(&intent.node, |vm| &vm.node).clone()
}

/// Reads the facts that a move needs, and the digest of its VM's configuration.
///
/// # Errors
/// A fact cannot be read; the error has the reason.
fn look(
    api: &mut Api,
    m: &mut Move,
    vms: Option<&[ListedVm]>,
    now_s: u64,
    keep: Duration,
) -> Result<(ClusterObservation, String)> {
    let Intent {
        vmid, node, disk, ..
    } = &m.intent;
    let unknown = || AgentError::Unknown("the VMs of the cluster are unknown".into());
    let vms = vms.ok_or_else(unknown)?;
    let vm = vms.iter().find(|vm| vm.vmid == *vmid);
    let mut seen = ClusterObservation {
        named: NamedVolume::Unknown,
        unused: vec![],
        from_in_use: false,
        old: None,
        ended_s: None,
        new_task: None,
        sure: m.ordered.elapsed() >= SURE_AFTER,
        task: SeenTask::Unknown,
        progress: None,
        pace: None,
        life: 0,
        now_s,
        keep_s: keep.as_secs(),
    };
    m.current = false;
    // Query the task before the configuration: a configuration read after the end of the task shows its result.
    match &m.intent.phase {
        Phase::Copying { task, .. } => {
            let elsewhere = vm.is_some_and(|vm| vm.node != *node);
            seen.task = match api.task(node, task) {
                Ok(Some(state)) => SeenTask::Known(state),
                Ok(None) => SeenTask::Lost,
                // The HA manager has started the VM on another node.
                Err(_) if elsewhere => SeenTask::Lost,
                Err(why) => return Err(why.into()),
            };
            if matches!(seen.task, SeenTask::Known(_)) {
                m.current = api.log(node, task, &mut m.progress)?;
                seen.progress = m.known();
                match seen.progress {
                    Some(progress) => m.pace.add(m.ordered.elapsed(), progress),
                    None => m.pace = Pace::default(),
                }
                seen.pace = m.pace.bytes_per_s(m.intent.bytes);
            }
            if seen.task == SeenTask::Known(TaskState::Runs) {
                return Ok((seen, String::new()));
            }
        }
        Phase::Begun => {
            let tasks = api.moves(node, *vmid)?;
            let mut new = tasks.into_iter().map(|t| t.upid);
            seen.new_task = new.find(|upid| !m.intent.earlier.contains(upid));
        }
        Phase::Kept { .. } | Phase::Doubtful { .. } => {}
    }
    let Some(vm) = vm else {
        seen.named = NamedVolume::NoVm;
        return Ok((seen, String::new()));
    };
    if matches!(m.intent.phase, Phase::Doubtful { .. }) {
        let status = api.status(&vm.node, *vmid)?;
        let now = vmhost::proxmox::Vm {
            listed: vm.clone(),
            status: Ok(status),
            facts: Err(HostError::unread("")),
        };
        seen.life = now.life();
    }
    let config = api.config(&vm.node, *vmid)?;
    seen.named = match config.drives.get(disk) {
        Some(drive) => NamedVolume::Volume(drive.file.clone()),
        None => NamedVolume::NoDrive,
    };
    let from = &m.intent.from;
    let unused = config.unused.iter().filter(|(_, volume)| *volume == from);
    seen.unused = unused.map(|(key, _)| key.clone()).collect();
    seen.from_in_use = config.drives.values().any(|d| d.file == *from);
    // Read after the configuration, whose digest must not be newer than the rest.
    match &m.intent.phase {
        Phase::Copying { task, .. } if seen.task != SeenTask::Lost && !seen.from_in_use => {
            let tasks = api.moves(node, *vmid)?;
            let task = tasks.iter().find(|t| t.upid == *task);
            seen.ended_s = task.and_then(|t| t.ended_s);
            seen.old = identity(api, &vm.node, from);
        }
        Phase::Kept { until_s, .. } if now_s >= *until_s && !seen.unused.is_empty() => {
            seen.old = identity(api, &vm.node, from);
        }
        _ => {}
    }
    Ok((seen, config.digest))
}

/// Reads the properties that identify a volume besides its name; `None` if they are unknown. A move does not wait for
/// the storage that its disk has left.
fn identity(api: &mut Api, node: &str, volume: &str) -> Option<Identity> {
    let (storage, _) = volume.split_once(':')?;
    match api.contents(node, storage) {
        Ok(contents) => contents.get(volume)?.identity(),
        Err(why) => {
            let why = why.to_string();
            warn!(volume, why, "cannot list the volumes of a storage");
            None
        }
    }
}

/// Problem of a move that an operator has to solve; `None` if there is none.
fn problem(m: &Move) -> Option<ArrayProblem> {
    let intent = &m.intent;
    let Intent {
        vmid,
        disk,
        from,
        storage,
        ..
    } = intent;
    let (kind, what) = match &intent.phase {
        Phase::Doubtful { why } => (
            "stale-image",
            format!(
                "the move of {disk} of VM {vmid} failed while QEMU switched to the new volume ({why}): the configuration names {from}, and the running VM may use a volume on {storage}. Do not stop the VM before you have seen which one it uses, with `info block` in `qm monitor {vmid}`, and set the configuration to that volume"
            ),
        ),
        Phase::Kept { .. } if m.left.is_some() || m.removals >= REMOVALS_TOLD => {
            let why = m.left.as_deref().or(m.stuck.as_deref());
            let why = why.unwrap_or("Proxmox VE has not removed it");
            (
                "file-left-behind",
                format!(
                    "the old volume {from} of VM {vmid} is kept after its time ({why}): remove the unused disk if you are sure that it is the old one"
                ),
            )
        }
        Phase::Kept { .. } => return None,
        _ => ("move-stuck", m.stuck.clone()?),
    };
    Some(ArrayProblem {
        kind: kind.into(),
        about: intent.volume.clone(),
        what,
    })
}
