//! An array behind its control socket.

use std::path::PathBuf;

use datapath::control::ask;
use datapath::desk::{Ask, DeviceSample, Samples, Told, VolumeSample};
use datapath::{DirectionCounts, LastMove, explain};
use manager::agent::{Counts, Deed, DeviceSnapshot, MoveEnd, Snapshot, VolumeSnapshot};
use manager::wire::{DeviceIo, Load, LoadOf, MovingWindow, Placed};
use units::{BytesPerSec, Nanos};

/// An array that a server has.
pub(crate) struct ControlledArray {
    control: PathBuf,
}

impl ControlledArray {
    pub(crate) fn new(control: PathBuf) -> Self {
        Self { control }
    }

    fn ask(&self, question: &Ask) -> Result<Told, String> {
        ask(&self.control, question).map_err(|e| explain(&e))
    }

    /// The array as it is.
    pub(crate) fn snapshot(&self) -> Result<Snapshot, String> {
        match self.ask(&Ask::Samples)? {
            Told::Samples(samples) => Ok(snapshot(samples)),
            _ => Err(
                "it answers something else: use the same version of terrace on both sides".into(),
            ),
        }
    }

    /// Does what the agent wants.
    pub(crate) fn carry_out(&self, deed: &Deed) -> Result<(), String> {
        let question = match deed {
            Deed::StartMove(order) => Ask::Move {
                volume: order.volume.clone(),
                to: order.tier.clone(),
                device: Some(order.device.clone()),
                bandwidth: BytesPerSec(order.rate_bytes_per_s),
            },
            Deed::CancelMove { volume } => Ask::CancelMove {
                volume: volume.clone(),
            },
            Deed::Inject {
                volume,
                delay_ns,
                lasting_ns,
            } => Ask::Inject {
                volume: volume.clone(),
                read: Nanos(*delay_ns),
                write: Nanos(*delay_ns),
                lasting: Nanos(*lasting_ns),
            },
        };
        self.ask(&question).map(|_| ())
    }
}

fn snapshot(samples: Samples) -> Snapshot {
    Snapshot {
        tiers: samples.tiers,
        devices: samples.devices.into_iter().map(device).collect(),
        volumes: samples.volumes.into_iter().map(volume).collect(),
    }
}

fn device(d: DeviceSample) -> DeviceSnapshot {
    DeviceSnapshot {
        name: d.name,
        tier: d.tier,
        size_bytes: d.size.0,
        used_bytes: d.used.0,
        emulate: d.emulate,
        connected: d.connected,
        since_ns: d.since_ns,
        io: DeviceIo {
            reads: d.reads,
            writes: d.writes,
            read_bytes: d.read_bytes,
            write_bytes: d.write_bytes,
            busy_ns: d.busy_ns,
        },
    }
}

fn volume(v: VolumeSample) -> VolumeSnapshot {
    VolumeSnapshot {
        name: v.name,
        class: v.class,
        size_bytes: v.size.0,
        home: v.home,
        placed: v
            .placed
            .into_iter()
            .map(|(device, bytes)| Placed {
                device,
                bytes: bytes.0,
            })
            .collect(),
        movable: v.healthy && v.exported,
        moving: v.moving.map(|m| MovingWindow {
            device: m.to,
            copied_bytes: m.copied.0,
            left_bytes: m.left.0,
            rate_bytes_per_s: m.rate.0,
        }),
        last_move: v.last_move.map(|end| match end {
            LastMove::Done { copied } => MoveEnd::Done {
                copied_bytes: copied.0,
            },
            LastMove::Stopped { why, copied } => MoveEnd::Stopped {
                why,
                copied_bytes: copied.0,
            },
        }),
        counts: v.counts.map(|c| Counts {
            since_ns: c.since_ns,
            total: Load {
                reads: direction(c.reads),
                writes: direction(c.writes),
                errors: c.errors,
                depth_ns: c.depth_ns,
            },
        }),
    }
}

fn direction(d: DirectionCounts) -> LoadOf {
    LoadOf {
        ios: d.ios,
        bytes: d.bytes,
        sum_ns: d.sum_ns,
        held_ns: d.held_ns,
        buckets: d.buckets,
    }
}
