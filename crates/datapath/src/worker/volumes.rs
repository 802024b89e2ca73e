//! A volume on its worker, with the stages that its requests pass.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use model::Op;
use units::{DeviceId, VolumeId};
use volume::Slack;

use crate::engine::{Engine, Fault, IoKind};
use crate::io::{Buf, Urgency};
use crate::objective::SharedObjective;
use crate::stages::Stages;

use super::cached::LiveCache;
use super::direct::ByBuffer;
use super::guests::Guest;
use super::turns::Turn;
use super::zeroes::{WRITTEN_AT_ONCE, Zeroing};

pub(super) struct LiveVolume {
    pub(super) id: VolumeId,
    pub(super) name: String,
    /// Its service class.
    pub(super) class: String,
    pub(super) engine: Engine<Guest>,
    pub(super) stages: Stages,
    pub(super) objective: Arc<SharedObjective>,
    /// What its guest used of it at the last look.
    pub(super) slack: Slack,
    /// For chunks of a move, made when the first one is copied.
    pub(super) copy: Option<Arc<Buf>>,
    /// For extents that are given slots of their own, by number; a few at most.
    pub(super) copies_up: BTreeMap<u32, Arc<Buf>>,
    /// Who waits until it is at rest.
    pub(super) resting: Option<(u32, Sender<Result<u32, Fault>>)>,
    /// It is read only: nobody is let in who may write ([`super::holds`]).
    pub(super) held: bool,
    /// Time that its guest's I/O took of devices.
    pub(super) took: Took,
    /// How the last move ended.
    pub(super) last_move: Option<super::LastMove>,
    /// How the last mirror ended.
    pub(super) last_mirror: Option<super::LastMirror>,
    /// When its second copies end, where they are for a time.
    pub(super) mirror_until_ns: Option<u64>,
    /// Its pages in the worker's cache, if it is cached.
    pub(super) cached: Option<LiveCache>,
    /// Whoever waits for it to be let go, and how many connections were cut for it.
    pub(super) detached: Option<(Sender<super::Detached>, usize)>,
}

/// Time that I/O took of devices which say how much each one takes.
#[derive(Debug, Default)]
pub(super) struct Took {
    /// By device: by reads and by all else, in nanoseconds.
    by_device: Vec<[u64; 2]>,
}

impl Took {
    #[inline]
    pub(super) fn add(&mut self, device: DeviceId, op: Op, ns: u64) {
        let d = device.index();
        if self.by_device.len() <= d {
            self.by_device.resize(d + 1, [0; 2]);
        }
        self.by_device[d][usize::from(op != Op::Read)] += ns;
    }

    /// Those devices that any was taken of.
    pub(super) fn all(&self) -> Vec<(DeviceId, [u64; 2])> {
        let all = self.by_device.iter().enumerate();
        let some = all.filter(|(_, [reads, others])| reads + others > 0);
        some.map(|(d, ns)| (DeviceId::from_index(d), *ns)).collect()
    }
}

/// Most retries of an I/O that the kernel interrupts or cannot take. Protects a worker from a file system that never takes it.
const RETRIES_MAX: u16 = 1000;

/// Counts a retry. Returns true if it is permitted.
pub(super) fn may_retry(retries: &mut u16) -> bool {
    *retries += 1;
    *retries <= RETRIES_MAX
}

/// An I/O on a device, in flight or held back by a stage of the device.
#[derive(Debug)]
pub(super) struct LiveIo {
    pub(super) volume: u32,
    /// The engine's number of it.
    pub(super) io: u32,
    pub(super) kind: IoKind,
    pub(super) device: u16,
    /// The byte of its device's file that the device's data begins at.
    pub(super) start: u64,
    pub(super) at: u64,
    pub(super) length: u64,
    pub(super) buf: Option<Arc<Buf>>,
    pub(super) from: usize,
    /// Bytes done; the kernel may do less than was asked for.
    pub(super) done: u64,
    /// Number of retries ([`may_retry`]).
    pub(super) retries: u16,
    pub(super) background: bool,
    /// What it reads is written elsewhere.
    pub(super) copies: bool,
    pub(super) zeroing: Zeroing,
    /// The opening of its device that it is for: it does not go on with another one.
    pub(super) opening: u32,
    pub(super) turn: Option<Turn>,
    /// A part of it goes through a buffer.
    pub(super) by_buffer: Option<Box<ByBuffer>>,
    /// A stage of the device lets it be over no earlier.
    pub(super) not_before_ns: u64,
    pub(super) result: Result<(), Fault>,
}

impl LiveIo {
    /// Where on its file the next byte is.
    pub(super) fn place(&self) -> u64 {
        self.start + self.at + self.done
    }

    /// Bytes that are not done; of zeroes that are written, those of one buffer.
    pub(super) fn left(&self) -> u64 {
        let left = self.length - self.done;
        match self.zeroing {
            Zeroing::Asked => left,
            Zeroing::Written => left.min(WRITTEN_AT_ONCE),
        }
    }

    /// Where in its buffer the next byte is: one of zeroes is used again and again.
    pub(super) fn in_memory(&self) -> usize {
        match self.zeroing {
            Zeroing::Asked => self.from + self.done as usize,
            Zeroing::Written => 0,
        }
    }

    pub(super) fn urgency(&self) -> Urgency {
        match self.background || self.zeroing == Zeroing::Written {
            true => Urgency::Background,
            false => Urgency::Guest,
        }
    }

    pub(super) fn is_durable(&self) -> bool {
        self.kind == IoKind::Write { durable: true }
    }
}
