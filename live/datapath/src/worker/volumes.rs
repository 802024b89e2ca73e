//! Served volume: its engine, its stages and its state on the worker.

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
use super::zeroes::{WRITTEN_AT_ONCE, ZeroMethod};

pub(super) struct LiveVolume {
    pub(super) id: VolumeId,
    pub(super) name: String,
    /// Service class.
    pub(super) class: String,
    pub(super) engine: Engine<Guest>,
    pub(super) stages: Stages,
    pub(super) objective: Arc<SharedObjective>,
    /// Use of the latency objective by its guest at the last tick.
    pub(super) slack: Slack,
    /// Buffer for chunks of a move; allocated for the first chunk.
    pub(super) copy: Option<Arc<Buf>>,
    /// Buffers for extents that are copied up, by number; a few at most.
    pub(super) copies_up: BTreeMap<u32, Arc<Buf>>,
    /// Number of the rest, and caller that waits for it.
    pub(super) resting: Option<(u32, Sender<Result<u32, Fault>>)>,
    /// True for a held volume, which accepts no writers ([`super::holds`]).
    pub(super) held: bool,
    /// Device time of its guest's I/O.
    pub(super) took: DeviceTimes,
    /// End of the last move.
    pub(super) last_move: Option<super::LastMove>,
    /// End of the last mirror.
    pub(super) last_mirror: Option<super::LastMirror>,
    /// End time of a mirror with a time limit.
    pub(super) mirror_until_ns: Option<u64>,
    /// Cached pages, if the volume is cached.
    pub(super) cached: Option<LiveCache>,
    /// Caller that waits for the end of service, and the number of connections that were cut.
    pub(super) detached: Option<(Sender<super::DetachResult>, usize)>,
}

/// Device time of I/O, for devices that report it.
#[derive(Debug, Default)]
pub(super) struct DeviceTimes {
    /// By device: for reads and for other kinds, in nanoseconds.
    by_device: Vec<[u64; 2]>,
}

impl DeviceTimes {
    #[inline]
    pub(super) fn add(&mut self, device: DeviceId, op: Op, ns: u64) {
        let d = device.index();
        if self.by_device.len() <= d {
            self.by_device.resize(d + 1, [0; 2]);
        }
        self.by_device[d][usize::from(op != Op::Read)] += ns;
    }

    /// Returns the devices with a time above 0.
    pub(super) fn all(&self) -> Vec<(DeviceId, [u64; 2])> {
        let all = self.by_device.iter().enumerate();
        let some = all.filter(|(_, [reads, others])| reads + others > 0);
        some.map(|(d, ns)| (DeviceId::from_index(d), *ns)).collect()
    }
}

/// Limit on the retries of an I/O that the kernel interrupts or cannot take. Protects a worker from a file system that
/// never takes it.
const RETRIES_MAX: u16 = 1000;

/// Counts a retry. Returns true if it is permitted.
pub(super) fn may_retry(retries: &mut u16) -> bool {
    *retries += 1;
    *retries <= RETRIES_MAX
}

/// I/O on a device, in flight or delayed by a stage of the device.
#[derive(Debug)]
pub(super) struct LiveIo {
    pub(super) volume: u32,
    /// Number of the I/O in the engine.
    pub(super) io: u32,
    pub(super) kind: IoKind,
    pub(super) device: u16,
    /// First byte of the device's data in its file.
    pub(super) start: u64,
    pub(super) at: u64,
    pub(super) length: u64,
    pub(super) buf: Option<Arc<Buf>>,
    pub(super) from: usize,
    /// Number of completed bytes; the kernel may do less than the whole request.
    pub(super) done: u64,
    /// Number of retries ([`may_retry`]).
    pub(super) retries: u16,
    pub(super) background: bool,
    /// True if the data that is read is written elsewhere.
    pub(super) copies: bool,
    pub(super) zeroing: ZeroMethod,
    /// Opening of the device that the I/O belongs to. It does not continue on another one.
    pub(super) opening: u32,
    pub(super) turn: Option<Turn>,
    /// Part that goes through a buffer.
    pub(super) by_buffer: Option<Box<ByBuffer>>,
    /// Earliest end that a stage of the device permits.
    pub(super) not_before_ns: u64,
    pub(super) result: Result<(), Fault>,
}

impl LiveIo {
    /// Returns the position of the next byte in the file.
    pub(super) fn place(&self) -> u64 {
        self.start + self.at + self.done
    }

    /// Returns the number of bytes that are not completed; for written zeroes, those of one buffer.
    pub(super) fn left(&self) -> u64 {
        let left = self.length - self.done;
        match self.zeroing {
            ZeroMethod::Asked => left,
            ZeroMethod::Written => left.min(WRITTEN_AT_ONCE),
        }
    }

    /// Returns the position of the next byte in the buffer. A buffer of zeroes is used repeatedly from its start.
    pub(super) fn in_memory(&self) -> usize {
        match self.zeroing {
            ZeroMethod::Asked => self.from + self.done as usize,
            ZeroMethod::Written => 0,
        }
    }

    pub(super) fn urgency(&self) -> Urgency {
        match self.background || self.zeroing == ZeroMethod::Written {
            true => Urgency::Background,
            false => Urgency::Guest,
        }
    }

    pub(super) fn is_durable(&self) -> bool {
        self.kind == IoKind::Write { durable: true }
    }
}
