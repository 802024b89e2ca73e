//! Execution of moves of virtual machines' disks. [`vmhost::moving`] decides the next step.
//!
//! ```text
//!   order ─▶ begin ─┐                        ┌─▶ MoveOperations: commands of the hypervisor
//!                   ├─▶ Move ─▶ next ─▶ carry ┼─▶ files: preparation and flushes of images
//!   beat ─▶ look ───┘                        └─▶ Intents: records before each step
//! ```

mod carry;
mod files;
mod intents;
mod one;
mod operations;
mod problems;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use manager::agent::{MoveEnd, Snapshot};
use manager::wire::{MoveOrder, MovingWindow};
use tracing::warn;
use vmhost::moving::{INTENT_FORM, Intent, Phase};
use vmhost::stored::Storage;
use vmhost::{Image, ImageLocation, Layout};

use crate::error::{AgentError, Result};
use crate::images::is_same;
use crate::storage;
use crate::virsh::OrderContext;
use carry::{begin_prepared, held};
pub(crate) use files::{boot, check_unused};
pub(crate) use intents::Intents;
pub(crate) use intents::{TEXT, read_kept, remove_durably, save_durably};
use one::Move;
pub(crate) use one::now_s;
pub(crate) use operations::{MoveOperations, Refusal, Rest, Sight};

/// Seconds of copying for which space must remain free on a target.
pub(crate) const FREE_S: u64 = 4;

/// All moves of a host.
pub(crate) struct Moves {
    intents: Intents,
    keep: Duration,
    boot: Option<String>,
    moves: BTreeMap<String, Move>,
    /// Result of the last move of each volume.
    ended: BTreeMap<String, MoveEnd>,
}

/// Disk to be moved.
pub(crate) struct DiskMove {
    pub uuid: String,
    pub target: String,
    pub from: Image,
    pub to: Image,
    /// Bytes to copy, as far as they are known.
    pub bytes: u64,
    /// Options of the new image, for a copy from qcow2 to qcow2.
    pub layout: Option<Layout>,
    /// Storage in which a volume is created for the copy.
    pub within: Option<Storage>,
    /// True if the guest must not write while the copy begins.
    pub hold: bool,
    /// Life of the domain.
    pub life: u32,
}

impl Moves {
    /// Opens the directory with its recorded moves. Old images are kept for the time `keep`.
    ///
    /// # Errors
    /// Another agent uses the directory, or it cannot be read.
    pub(crate) fn open(dir: &Path, keep: Duration) -> Result<Self> {
        let (intents, found) = Intents::open(dir, INTENT_FORM)?;
        let moves = found
            .into_iter()
            .map(|(name, intent)| (name, Move::found(intent)));
        Ok(Self {
            moves: moves.collect(),
            intents,
            keep,
            boot: boot(),
            ended: BTreeMap::new(),
        })
    }

    /// Returns the moves whose disks have not reached their final state.
    fn under_way(&self) -> impl Iterator<Item = &Move> {
        self.moves.values().filter(|m| m.intent.moves())
    }

    /// Returns true if a recorded move names an image's place.
    pub(crate) fn knows(&self, at: &ImageLocation) -> bool {
        let mut moves = self.moves.values().map(|m| &m.intent);
        moves.any(|i| is_same(&i.to.at, at) || is_same(&i.from.at, at))
    }

    /// Returns the lock and the directory, which commands to a hypervisor need.
    pub(crate) fn orders(&self) -> OrderContext {
        self.intents.orders()
    }

    /// Returns true while a move is in progress.
    pub(crate) fn is_busy(&self) -> bool {
        self.under_way().next().is_some()
    }

    /// Returns true if a disk of the domain is moving.
    pub(crate) fn concerns(&self, uuid: &str) -> bool {
        self.under_way().any(|m| m.intent.uuid == uuid)
    }

    /// Returns the state of a volume's move in progress.
    pub(crate) fn window(&self, volume: &str) -> Option<MovingWindow> {
        let m = self.under_way().find(|m| m.intent.volume == volume)?;
        Some(MovingWindow {
            device: m.intent.device.clone(),
            extents: None,
            copied_bytes: m.copied,
            left_bytes: m.left,
            rate_bytes_per_s: m.rate,
        })
    }

    /// Adds the state of moves to a snapshot.
    pub(crate) fn tell(&self, snapshot: &mut Snapshot) {
        for v in &mut snapshot.volumes {
            v.moving = self.window(&v.name);
            v.last_move = self.ended.get(&v.name).cloned();
        }
        snapshot.problems = self.problems();
    }

    /// Records a move and begins it.
    ///
    /// # Errors
    /// The move did not begin; the error has the reason.
    pub(crate) fn begin(
        &mut self,
        operations: &mut dyn MoveOperations,
        order: &MoveOrder,
        disk: DiskMove,
    ) -> Result<()> {
        let same = |m: &Move| m.intent.uuid == disk.uuid && m.intent.target == disk.target;
        if self.under_way().any(same) {
            return Err(AgentError::InUse("the disk is already moving".into()));
        }
        let old = match disk.from.at.device() {
            Some(path) => storage::of(path).describe(path)?,
            None => None,
        };
        let same = |m: &Move| m.intent.uuid == disk.uuid;
        let shared = self.moves.values().any(|m| same(m) && m.intent.held);
        let name = self.name_of(&disk.uuid, &disk.target, order.job);
        let unsettled = self.intents.unsettled(&name);
        let unsettled = unsettled.to_string_lossy().into_owned();
        let renamed = disk.from.at.file().or(old.as_ref().map(|o| &*o.path));
        let kept_as = renamed.map(|from| format!("{from}.moved-{}", now_s()));
        let mut intent = Intent {
            job: order.job,
            volume: order.volume.clone(),
            device: order.device.clone(),
            kept_as,
            left: old.map(|o| o.id),
            creates: disk.within.is_some(),
            rate_bytes_per_s: order.rate_bytes_per_s.max(1),
            boot: self.boot.clone().unwrap_or_default(),
            at_s: now_s(),
            began: Some(disk.life),
            ..Intent::new(disk.uuid, disk.target, disk.from, disk.to, unsettled)
        };
        if let Some(path) = intent.target_path()
            && storage::of(path).describe(path)?.is_some()
        {
            return Err(storage::exists(path));
        }
        self.intents.save(&name, &intent)?;
        let made = self.make_target(&name, &mut intent, &disk.within, disk.bytes);
        let made = made.and_then(|()| files::prepare(&intent.to, disk.bytes, disk.layout.as_ref()));
        let began = match disk.hold {
            _ if made.is_err() => made.map_err(Refusal::Said),
            false => operations.begin(&intent),
            true => held(
                &self.intents,
                &name,
                &mut intent,
                shared,
                operations,
                begin_prepared,
            )
            .unwrap_or_else(|why| Err(Refusal::Said(why))),
        };
        let mut m = Move::of(intent, disk.bytes);
        self.ended.remove(&order.volume);
        let result = match began {
            Ok(()) => Ok(()),
            Err(Refusal::Said(error)) => {
                let why = error.to_string();
                m.intent.phase = Phase::GivingUp { why };
                // If this cannot be written, the file still has the earlier phase. The next look then finds no copy.
                let saved = self.intents.save(&name, &m.intent);
                m.stuck = saved.err().map(|e| e.to_string());
                Err(error)
            }
            // The next look shows whether the copy began.
            Err(Refusal::Silent(why)) => {
                let (volume, why) = (&order.volume, why.to_string());
                warn!(volume, why, "the hypervisor did not answer a copy command");
                Ok(())
            }
        };
        self.moves.insert(name, m);
        result
    }

    /// Creates the file or volume for the copy, and records its identity before any other program uses it.
    fn make_target(
        &self,
        name: &str,
        intent: &mut Intent,
        within: &Option<Storage>,
        bytes: u64,
    ) -> Result<()> {
        let Some(path) = intent.target_path() else {
            return Ok(());
        };
        intent.made = Some(storage::of(path).create(within.as_ref(), path, bytes)?);
        self.intents.save(name, intent)
    }

    /// Returns a name that no other move has.
    fn name_of(&self, uuid: &str, target: &str, job: u32) -> String {
        let clean = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        let of: String = format!("{uuid}-{target}").chars().map(clean).collect();
        let mut name = format!("{of}-{job}");
        let mut again = 1;
        while self.moves.contains_key(&name) {
            again += 1;
            name = format!("{of}-{job}-{again}");
        }
        name
    }

    /// Cancels the move of a volume, if that is still possible.
    ///
    /// # Errors
    /// The cancellation cannot be recorded.
    pub(crate) fn cancel(&mut self, volume: &str) -> Result<()> {
        let found = self.moves.iter_mut();
        for (name, m) in found.filter(|(_, m)| m.intent.volume == volume && m.intent.moves()) {
            if !m.intent.cancel {
                m.intent.cancel = true;
                self.intents.save(name, &m.intent)?;
            }
        }
        Ok(())
    }
}
