//! Facts: observations at one moment, the input of every decision.
//!
//! A measurement that is missing or too old is `None`, never zero: a strategy must not mistake missing data for an idle volume.

use serde::{Deserialize, Serialize};
use units::{Bytes, ClassId, DeviceId, Nanos, VmId, VolumeId};

use crate::{ExtentFacts, ExtentRanges, Op, SloClass, Topology};

/// All information about the array that a strategy may use at the time `at`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// Time at which the facts were gathered, since the start of the simulation or of the controller.
    pub at: Nanos,
    /// Number of the monitor epoch that ends with these facts.
    pub epoch: u64,
    /// True if a migration epoch ends with these facts. Only then may the plan move data (paper 0, Alg. 1 line 7).
    pub placement_due: bool,
    /// Generation of the last accepted plan; the parent of a new plan.
    pub generation: u64,
    /// Tiers and devices of the array.
    pub topology: Topology,
    /// Service classes by [`ClassId`].
    pub classes: Vec<SloClass>,
    /// Names of virtual machines by [`VmId`].
    pub vms: Vec<String>,
    /// Volumes by [`VolumeId`].
    pub volumes: Vec<VolumeFacts>,
    /// Devices by [`DeviceId`].
    pub devices: Vec<DeviceFacts>,
    /// Running moves.
    pub moves: Vec<RunningMove>,
    /// Failed moves that must not be retried at present.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<FailedMove>,
    /// Nodes of a cluster; empty if every volume can be on every device.
    #[serde(default, skip_serializing_if = "Nodes::is_empty")]
    pub nodes: Nodes,
}

/// Nodes of a cluster, as numbers: a volume cannot be on a device of another node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nodes {
    /// Node of the virtual machine of each volume, by [`VolumeId`].
    pub volumes: Vec<Option<u16>>,
    /// Node that alone reaches a device, by [`DeviceId`]; `None` if all do.
    pub devices: Vec<Option<u16>>,
}

impl Nodes {
    /// Returns true without a cluster.
    pub fn is_empty(&self) -> bool {
        self.devices.iter().all(Option::is_none)
    }
}

impl Facts {
    /// Returns true if the volume can be on the device.
    pub fn reaches(&self, volume: VolumeId, device: DeviceId) -> bool {
        let of_device = self.nodes.devices.get(device.index()).copied().flatten();
        let of_volume = self.nodes.volumes.get(volume.index()).copied().flatten();
        of_device.is_none() || of_device == of_volume
    }

    /// Returns true if the volume cannot move to the device at present.
    pub fn barred(&self, volume: VolumeId, device: DeviceId) -> bool {
        !self.reaches(volume, device) || self.failed_move(volume, device).is_some()
    }

    /// Returns the failure that prevents a move of the volume to the device at present.
    pub fn failed_move(&self, volume: VolumeId, device: DeviceId) -> Option<&FailedMove> {
        let mut failed = self.failed.iter();
        failed.find(|f| f.volume == volume && f.device == device)
    }
}

/// Failed move that must not be retried at present.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedMove {
    /// Volume of the move.
    pub volume: VolumeId,
    /// Target device.
    pub device: DeviceId,
    /// Number of consecutive failed attempts.
    pub attempts: u32,
    /// Time until the next attempt is permitted; `None` if no attempt is permitted while the cause persists.
    pub left: Option<Nanos>,
    /// Cause of the last failure, in words.
    pub why: String,
}

/// State and load of a volume.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VolumeFacts {
    /// Unique name.
    pub name: String,
    /// Virtual machine that uses the volume.
    pub vm: VmId,
    /// Service class.
    pub class: ClassId,
    /// Provisioned size.
    pub size: Bytes,
    /// Device with most of the volume's data. During a move, the data is on two devices.
    pub device: DeviceId,
    /// Load in the last monitor epoch; `None` if unknown.
    pub measured: Option<MeasuredLoad>,
    /// Calibration windows that have ended since the last facts, in order of time.
    pub calibration: Vec<CalibrationWindow>,
    /// True during a calibration session.
    pub calibrating: bool,
    /// End of the last move of the volume, on the clock of [`Facts::at`]; `None` if it was never moved.
    #[serde(default)]
    pub last_moved: Option<Nanos>,
    /// Extents of the volume; `None` if the strategy does not use them and treats the volume as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extents: Option<ExtentFacts>,
}

impl VolumeFacts {
    /// Returns the bytes on each device, in the order of devices. If the extents are unknown, all bytes count as on
    /// [`VolumeFacts::device`].
    pub fn held(&self) -> Vec<(DeviceId, Bytes)> {
        match &self.extents {
            Some(e) => e.places.held(self.size, e.extent),
            None => vec![(self.device, self.size)],
        }
    }

    /// Returns the bytes that a move of the whole volume copies: those of its allocated extents, or its size if its extents are
    /// unknown. A volume that was never written counts as one extent.
    pub fn taken(&self) -> Bytes {
        match &self.extents {
            Some(e) => {
                let held = e.places.held(self.size, e.extent);
                held.into_iter().map(|h| h.1).sum::<Bytes>().max(e.extent)
            }
            None => self.size,
        }
    }
}

/// Mean and percentiles of a latency, microseconds. Percentiles are zero if unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencySummary {
    /// Mean over all requests.
    pub mean_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 95th percentile.
    pub p95_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
}

/// Reads or writes of a window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    /// Number of requests.
    pub ios: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// Latency that the guest sees; the mean excludes latency that was injected for calibration.
    pub latency: LatencySummary,
}

/// Load of a volume in a window.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct MeasuredLoad {
    /// Length of the window.
    pub window: Nanos,
    /// Reads.
    pub reads: Flow,
    /// Writes. Trims and flushes count as writes without bytes.
    pub writes: Flow,
    /// Mean number of requests in flight.
    pub outstanding: f64,
}

impl MeasuredLoad {
    /// Number of requests.
    pub fn ios(&self) -> u64 {
        self.reads.ios + self.writes.ios
    }

    /// Requests per second.
    pub fn iops(&self) -> f64 {
        self.ios() as f64 / self.window.as_secs_f64()
    }

    /// Bytes per second.
    pub fn bytes_per_s(&self) -> f64 {
        (self.reads.bytes + self.writes.bytes) as f64 / self.window.as_secs_f64()
    }

    /// Share of reads, 0..=1; 0.5 for an idle volume.
    pub fn read_share(&self) -> f64 {
        if self.ios() == 0 {
            0.5
        } else {
            self.reads.ios as f64 / self.ios() as f64
        }
    }

    /// Mean bytes per read or per write; 4096 without such requests.
    pub fn mean_bytes(&self, op: Op) -> f64 {
        let flow = if op == Op::Read {
            &self.reads
        } else {
            &self.writes
        };
        if flow.ios == 0 {
            4096.0
        } else {
            flow.bytes as f64 / flow.ios as f64
        }
    }

    /// Mean bytes per request; 4096 for an idle volume.
    pub fn mean_io_bytes(&self) -> f64 {
        if self.ios() == 0 {
            4096.0
        } else {
            (self.reads.bytes + self.writes.bytes) as f64 / self.ios() as f64
        }
    }

    /// Mean latency of reads or of writes, microseconds; `None` without such requests. Flushes and trims count as writes.
    pub fn latency_mean_of(&self, op: Op) -> Option<f64> {
        let flow = if op == Op::Read {
            &self.reads
        } else {
            &self.writes
        };
        (flow.ios > 0).then_some(flow.latency.mean_us)
    }

    /// Mean latency over all requests, microseconds; `None` for an idle volume.
    pub fn latency_mean_us(&self) -> Option<f64> {
        (self.ios() > 0).then(|| {
            (self.reads.ios as f64 * self.reads.latency.mean_us
                + self.writes.ios as f64 * self.writes.latency.mean_us)
                / self.ios() as f64
        })
    }
}

/// Measurements of one window of a calibration session (paper 0, Sec. IV-2).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CalibrationWindow {
    /// Ordered delay of each request of the volume, microseconds; zero for a control window.
    pub wanted_us: f64,
    /// Measured mean delay, microseconds. It exceeds the ordered delay, because timers expire late.
    pub injected_us: f64,
    /// Length of the window.
    pub duration: Nanos,
    /// Reads completed in the window.
    pub reads: u64,
    /// Writes completed in the window.
    pub writes: u64,
    /// Mean latency of reads, including injected delay, microseconds.
    pub read_mean_us: f64,
    /// Mean latency of writes, including injected delay, microseconds.
    pub write_mean_us: f64,
    /// Device of the volume in the window.
    pub device: DeviceId,
    /// True for the last window of the session.
    pub last: bool,
}

impl CalibrationWindow {
    /// Number of requests completed in the window.
    pub fn ios(&self) -> u64 {
        self.reads + self.writes
    }

    /// Mean latency of all requests of the window, including injected delay, microseconds; zero without requests.
    pub fn mean_us(&self) -> f64 {
        let n = self.ios();
        if n == 0 {
            return 0.0;
        }
        (self.reads as f64 * self.read_mean_us + self.writes as f64 * self.write_mean_us) / n as f64
    }
}

/// Space and load of a device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceFacts {
    /// Space that volumes occupy.
    pub used: Bytes,
    /// Space that running moves have reserved.
    pub reserved: Bytes,
    /// Share of time in which the device was busy in the last monitor epoch, 0..=1.
    pub utilization: f64,
    /// Bytes read per second in the last monitor epoch, including those of moves.
    pub read_bytes_per_s: f64,
    /// Bytes written per second in the last monitor epoch, including those of moves.
    pub write_bytes_per_s: f64,
    /// Write amplification in the last monitor epoch: bytes programmed in flash over bytes written. `None` without writes, or if the
    /// device does not report it. Simulated flash reports it; most drives do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waf: Option<f64>,
}

/// Running move.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunningMove {
    /// Volume that moves.
    pub volume: VolumeId,
    /// Source device.
    pub from: DeviceId,
    /// Target device.
    pub to: DeviceId,
    /// Extents that move; `None` for the whole volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extents: Option<ExtentRanges>,
}
