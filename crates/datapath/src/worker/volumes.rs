//! A volume on its worker, with the stages that its requests pass.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use units::VolumeId;
use volume::Slack;

use crate::engine::{Engine, IoKind};
use crate::io::Buf;
use crate::objective::SharedObjective;
use crate::stages::Stages;

use super::guests::Guest;
use super::zeroes::Zeroing;

/// One volume.
pub(super) struct LiveVolume {
    pub(super) id: VolumeId,
    pub(super) name: String,
    pub(super) engine: Engine<Guest>,
    pub(super) stages: Stages,
    pub(super) objective: Arc<SharedObjective>,
    /// What its guest used of it at the last look.
    pub(super) slack: Slack,
    /// For chunks of a move, made when the first one is copied.
    pub(super) copy: Option<Arc<Buf>>,
    /// How the last move ended.
    pub(super) last_move: Option<super::LastMove>,
    /// Whoever waits for it to be let go, and how many connections were cut for it.
    pub(super) detached: Option<(Sender<super::Detached>, usize)>,
}

/// An I/O on a device, in flight or held back by a stage of the device.
#[derive(Debug)]
pub(super) struct LiveIo {
    pub(super) volume: u32,
    /// The engine's number of it.
    pub(super) io: u32,
    pub(super) kind: IoKind,
    pub(super) device: u16,
    pub(super) at: u64,
    pub(super) length: u64,
    pub(super) buf: Option<Arc<Buf>>,
    pub(super) from: usize,
    /// Bytes done; the kernel may do less than was asked for.
    pub(super) done: u64,
    pub(super) background: bool,
    pub(super) zeroing: Zeroing,
    /// It has its turn, of this opening of its device.
    pub(super) turn: Option<u32>,
    /// A stage of the device lets it be over no earlier.
    pub(super) not_before_ns: u64,
    pub(super) result: Result<(), crate::engine::Fault>,
}
