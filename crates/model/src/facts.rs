//! What was observed, as of one moment: the input of every decision.
//!
//! A measurement that is missing or too old is `None`, never zero: a strategy must not take silence for idleness.

use serde::{Deserialize, Serialize};
use units::{Bytes, ClassId, DeviceId, Nanos, VmId, VolumeId};

use crate::{ExtentFacts, ExtentRanges, Op, SloClass, Topology};

/// Everything a strategy may know at `at`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// When the facts were gathered, since the start of the run or of the controller.
    pub at: Nanos,
    /// Number of this monitor epoch.
    pub epoch: u64,
    /// Whether a migration epoch ends here: only then may data be moved (paper 0, Alg. 1 line 7).
    pub placement_due: bool,
    /// Generation of the last plan that was accepted; a new plan names it as its parent.
    pub generation: u64,
    /// The array.
    pub topology: Topology,
    /// Service classes by [`ClassId`].
    pub classes: Vec<SloClass>,
    /// VM names by [`VmId`].
    pub vms: Vec<String>,
    /// Volumes by [`VolumeId`].
    pub volumes: Vec<VolumeFacts>,
    /// Devices by [`DeviceId`].
    pub devices: Vec<DeviceFacts>,
    /// Moves that have not ended yet.
    pub moves: Vec<RunningMove>,
    /// Moves that have failed and are not tried now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<FailedMove>,
}

impl Facts {
    /// The failure for which a volume is not moved to a device now.
    pub fn failed_move(&self, volume: VolumeId, device: DeviceId) -> Option<&FailedMove> {
        let mut failed = self.failed.iter();
        failed.find(|f| f.volume == volume && f.device == device)
    }
}

/// A move that has failed and is not tried now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedMove {
    /// The volume.
    pub volume: VolumeId,
    /// The target.
    pub device: DeviceId,
    /// Attempts that have failed, one after the other.
    pub attempts: u32,
    /// Time until the next attempt; none while the cause lasts.
    pub left: Option<Nanos>,
    /// The last cause.
    pub why: String,
}

/// One volume.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VolumeFacts {
    /// Unique name.
    pub name: String,
    /// The VM that it belongs to.
    pub vm: VmId,
    /// Its service class.
    pub class: ClassId,
    /// Provisioned size.
    pub size: Bytes,
    /// The device that holds it, or most of it: a move takes a volume over piece by piece.
    pub device: DeviceId,
    /// Load over the last monitor epoch; `None` is unknown.
    pub measured: Option<Measured>,
    /// Windows of calibration that ended since the last facts, in order of time.
    pub calibration: Vec<CalibrationWindow>,
    /// Whether a calibration session is under way.
    pub calibrating: bool,
    /// When its last move ended, on the clock of [`Facts::at`]; `None` if it was never moved.
    #[serde(default)]
    pub last_moved: Option<Nanos>,
    /// Its extents; `None` where nobody asked for them, and the volume counts as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extents: Option<ExtentFacts>,
}

impl VolumeFacts {
    /// Its bytes by device, in order of device: all of them on its device where its extents are not known.
    pub fn held(&self) -> Vec<(DeviceId, Bytes)> {
        match &self.extents {
            Some(e) => e.places.held(self.size, e.extent),
            None => vec![(self.device, self.size)],
        }
    }

    /// Bytes that a move of all of it moves: those of its extents that have a place, where they are known. A volume that was never written counts
    /// as one extent.
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

/// Mean and percentiles of a latency, microseconds. Percentiles of requests that there were are zero where they are not known.
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

/// Requests of one direction over a window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    /// Requests.
    pub ios: u64,
    /// Bytes.
    pub bytes: u64,
    /// Their latency as the guest sees it; the mean is without latency that was injected on purpose.
    pub latency: LatencySummary,
}

/// Load of a volume over a window.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Length of the window.
    pub window: Nanos,
    /// Reads.
    pub reads: Flow,
    /// Writes (trims and flushes count here, with no bytes).
    pub writes: Flow,
    /// Mean number of requests in flight.
    pub outstanding: f64,
}

impl Measured {
    /// Requests.
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

    /// Mean bytes per request of one direction; 4096 where there was none.
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

    /// Mean bytes per request, both directions.
    pub fn mean_io_bytes(&self) -> f64 {
        if self.ios() == 0 {
            4096.0
        } else {
            (self.reads.bytes + self.writes.bytes) as f64 / self.ios() as f64
        }
    }

    /// Mean latency of one direction, microseconds; `None` without such requests. Flushes and trims count as writes.
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

/// One window of a calibration session (paper 0, Sec. IV-2).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CalibrationWindow {
    /// Latency that was to be added to each request of the volume; zero is a control window.
    pub wanted_us: f64,
    /// Latency that was really added, on average: timers are late.
    pub injected_us: f64,
    /// Length of the window.
    pub duration: Nanos,
    /// Requests completed in the window.
    pub reads: u64,
    /// Requests completed in the window.
    pub writes: u64,
    /// Mean latency of reads, injected part included.
    pub read_mean_us: f64,
    /// Mean latency of writes, injected part included.
    pub write_mean_us: f64,
    /// The device that held the volume.
    pub device: DeviceId,
    /// Whether this window ends its session.
    pub last: bool,
}

impl CalibrationWindow {
    /// Requests completed in the window.
    pub fn ios(&self) -> u64 {
        self.reads + self.writes
    }

    /// Mean latency over all requests of the window, injected part included; zero for an empty one.
    pub fn mean_us(&self) -> f64 {
        let n = self.ios();
        if n == 0 {
            return 0.0;
        }
        (self.reads as f64 * self.read_mean_us + self.writes as f64 * self.write_mean_us) / n as f64
    }
}

/// One device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceFacts {
    /// Space taken by volumes.
    pub used: Bytes,
    /// Space reserved by moves under way.
    pub reserved: Bytes,
    /// Share of the device's time in use over the last monitor epoch, 0..=1.
    pub utilization: f64,
    /// Bytes read per second over the last monitor epoch, moves included.
    pub read_bytes_per_s: f64,
    /// Bytes written per second over the last monitor epoch, moves included.
    pub write_bytes_per_s: f64,
    /// Bytes that an SSD programmed for each byte written to it, over the last monitor epoch; none where nobody knows (drives rarely
    /// say, simulated flash does), or nothing was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waf: Option<f64>,
}

/// A move that has not ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunningMove {
    /// The volume.
    pub volume: VolumeId,
    /// Its source.
    pub from: DeviceId,
    /// Its target.
    pub to: DeviceId,
    /// The extents that move; `None` is the whole volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extents: Option<ExtentRanges>,
}
