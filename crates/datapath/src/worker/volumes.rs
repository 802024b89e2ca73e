//! A volume on its worker, with the filters of its stack.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use units::VolumeId;
use volume::Throttle;

use crate::engine::{Engine, IoKind};
use crate::inject::{Injected, Session};
use crate::io::Buf;
use crate::measure::Measure;
use crate::record::Recorder;
use crate::share::Share;

use super::guests::Guest;
use super::zeroes::Zeroing;

/// One volume and its filters; each can be switched on and off while I/O runs.
pub(super) struct LiveVolume {
    pub(super) id: VolumeId,
    pub(super) name: String,
    pub(super) engine: Engine<Guest>,
    pub(super) measure: Option<Measure>,
    pub(super) inject: Option<Session>,
    /// What the last session measured.
    pub(super) injected: Option<Injected>,
    pub(super) throttle: Throttle,
    /// Its part of what a tier's volumes share.
    pub(super) share: Arc<Share>,
    pub(super) recorder: Option<Recorder>,
    /// For chunks of a move, made when the first one is copied.
    pub(super) copy: Option<Arc<Buf>>,
    /// How the last move ended.
    pub(super) last_move: Option<super::LastMove>,
    /// Whoever waits for it to be let go, and how many connections were cut for it.
    pub(super) detached: Option<(Sender<super::Detached>, usize)>,
}

impl LiveVolume {
    /// Ends a latency session whose time is over.
    pub(super) fn end_session(&mut self, now_ns: u64) {
        if let Some(session) = self.inject.take_if(|s| s.until_ns <= now_ns) {
            self.injected = Some(session.read());
        }
    }
}

/// An I/O on a device, in flight or waiting for an emulated device.
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
    /// When an emulated device would be done.
    pub(super) not_before_ns: u64,
    pub(super) result: Result<(), crate::engine::Fault>,
}
