//! Devices and tiers of an array.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, BytesPerSec, DeviceId, Nanos, TierId};

use crate::{ModelError, Op};

/// Growth of latency with load: points (utilization, factor on the idle latency), with linear interpolation.
///
/// Utilization is the larger of two ratios from 0 to 1: requests over the IOPS cap, and bytes over the bandwidth cap,
/// with reads and writes added. The curve does not include queueing at a saturated device, which follows from the caps.
/// The curve starts at (0, 1) and never falls.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Vec<(f64, f64)>", into = "Vec<(f64, f64)>")]
pub struct LoadCurve(Vec<(f64, f64)>);

impl LoadCurve {
    /// Checks `(utilization, factor)` points. The first one is `(0, 1)`, utilization increases to at most 1, and the factor never
    /// decreases.
    pub fn new(points: Vec<(f64, f64)>) -> Result<Self, ModelError> {
        let bad = |why| {
            let points = points.clone();
            Err(ModelError::LoadCurve { points, why })
        };
        if points.is_empty() {
            return bad("needs at least one point");
        }
        if points.iter().any(|(u, f)| !u.is_finite() || !f.is_finite()) {
            return bad("points must be finite");
        }
        if points[0] != (0.0, 1.0) {
            return bad("must start at utilization 0 with factor 1");
        }
        if points
            .windows(2)
            .any(|w| w[1].0 <= w[0].0 || w[1].1 < w[0].1)
        {
            return bad(
                "utilization must increase from point to point, and the factor must not decrease",
            );
        }
        if points.last().is_some_and(|p| p.0 > 1.0) {
            return bad("utilization must be at most 1: queueing beyond it follows from the caps");
        }
        Ok(Self(points))
    }

    /// Returns the curve of a device whose latency does not grow with load.
    pub fn flat() -> Self {
        Self(vec![(0.0, 1.0)])
    }

    /// Returns the factor at `utilization`; that of the nearest point outside the curve.
    pub fn factor(&self, utilization: f64) -> f64 {
        let points = &self.0;
        let after = points.partition_point(|p| p.0 <= utilization);
        match (after.checked_sub(1).map(|i| points[i]), points.get(after)) {
            (Some(a), Some(b)) => a.1 + (b.1 - a.1) * (utilization - a.0) / (b.0 - a.0),
            (Some(a), None) => a.1,
            (None, _) => points[0].1,
        }
    }

    /// Returns the points.
    pub fn points(&self) -> &[(f64, f64)] {
        &self.0
    }
}

impl TryFrom<Vec<(f64, f64)>> for LoadCurve {
    type Error = ModelError;
    fn try_from(points: Vec<(f64, f64)>) -> Result<Self, ModelError> {
        Self::new(points)
    }
}

impl From<LoadCurve> for Vec<(f64, f64)> {
    fn from(curve: LoadCurve) -> Self {
        curve.0
    }
}

/// Capability of one device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceSpec {
    /// Model name, for display.
    pub model: String,
    /// Usable space.
    pub capacity: Bytes,
    /// Largest read rate, requests per second.
    pub read_iops: f64,
    /// Largest sustained write rate, requests per second.
    pub write_iops: f64,
    /// Largest read bandwidth.
    pub read_bandwidth: BytesPerSec,
    /// Largest sustained write bandwidth.
    pub write_bandwidth: BytesPerSec,
    /// Read latency of the idle device, without the transfer of data.
    pub read_latency: Nanos,
    /// Write latency of the idle device, without the transfer of data.
    pub write_latency: Nanos,
    /// Growth of latency with load.
    pub curve: LoadCurve,
    /// Spread of latencies: sigma of a log-normal factor with mean 1; 0 means no spread.
    pub jitter_sigma: f64,
    /// Price in US dollars per GB (1e9 bytes), to order tiers by cost.
    pub usd_per_gb: f64,
}

impl DeviceSpec {
    /// Mean latency of one request on the idle device, including the transfer, microseconds. A run of fio with depth 1 and this
    /// request size measures it. Flush and trim count as writes without bytes.
    pub fn bare_latency_us(&self, op: Op, bytes: f64) -> f64 {
        match op {
            Op::Read => {
                self.read_latency.as_micros_f64() + bytes * 1e6 / self.read_bandwidth.as_f64()
            }
            Op::Write => {
                self.write_latency.as_micros_f64() + bytes * 1e6 / self.write_bandwidth.as_f64()
            }
            Op::Trim | Op::Flush => self.write_latency.as_micros_f64(),
        }
    }

    /// Time of the device that one request occupies, seconds: the reciprocal of the cap that limits the device.
    pub fn occupancy_s(&self, op: Op, bytes: f64) -> f64 {
        match op {
            Op::Read => (1.0 / self.read_iops).max(bytes / self.read_bandwidth.as_f64()),
            Op::Write => (1.0 / self.write_iops).max(bytes / self.write_bandwidth.as_f64()),
            Op::Trim | Op::Flush => 1.0 / self.write_iops,
        }
    }

    /// Request rate at which a mix of reads and writes saturates the device, requests per second.
    pub fn max_iops(&self, read_share: f64, read_bytes: f64, write_bytes: f64) -> f64 {
        let share = read_share.clamp(0.0, 1.0);
        1.0 / (share * self.occupancy_s(Op::Read, read_bytes)
            + (1.0 - share) * self.occupancy_s(Op::Write, write_bytes))
    }
}

/// Device of a tier.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Device {
    /// Unique name.
    pub name: String,
    /// Tier of the device.
    pub tier: TierId,
    /// Capability.
    pub spec: DeviceSpec,
}

/// Purpose of a tier, as weights from 0 to 1 (paper 0, Sec. IV-4 step 1).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Specialty {
    /// Weight of throughput (IOPS).
    pub performance: f64,
    /// Weight of bandwidth.
    pub bandwidth: f64,
    /// Weight of space.
    pub space: f64,
}

impl Specialty {
    /// Returns the default of tier `index` of `tiers`, fastest first: performance for the first tier, space for the last one and
    /// mixed weights for the others. The values are ours; the paper gives none.
    pub fn for_tier(index: usize, tiers: usize) -> Self {
        match index {
            0 => Self {
                performance: 1.0,
                bandwidth: 1.0,
                space: 0.0,
            },
            i if i + 1 == tiers => Self {
                performance: 0.2,
                bandwidth: 0.2,
                space: 1.0,
            },
            _ => Self {
                performance: 0.7,
                bandwidth: 0.7,
                space: 0.5,
            },
        }
    }
}

/// Class of similar devices.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tier {
    /// Unique name.
    pub name: String,
    /// Purpose as weights.
    pub specialty: Specialty,
    /// Devices of the tier.
    pub devices: Vec<DeviceId>,
}

/// Tiers of an array, fastest first (the priority order of paper 0), and their devices.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Topology {
    /// Tiers by [`TierId`].
    pub tiers: Vec<Tier>,
    /// Devices by [`DeviceId`].
    pub devices: Vec<Device>,
}

impl Topology {
    /// Returns the ids of the tiers, fastest first.
    pub fn tier_ids(&self) -> impl DoubleEndedIterator<Item = TierId> + use<> {
        (0..self.tiers.len()).map(TierId::from_index)
    }

    /// Returns the tier with this id.
    pub fn tier(&self, id: TierId) -> &Tier {
        &self.tiers[id.index()]
    }

    /// Returns the device with this id.
    pub fn device(&self, id: DeviceId) -> &Device {
        &self.devices[id.index()]
    }

    /// Returns the tier of a device.
    pub fn tier_of(&self, device: DeviceId) -> TierId {
        self.devices[device.index()].tier
    }

    /// Returns the capabilities of the devices of a tier.
    pub fn specs(&self, tier: TierId) -> impl Iterator<Item = &DeviceSpec> {
        self.tier(tier)
            .devices
            .iter()
            .map(|d| &self.device(*d).spec)
    }

    /// Sum of a quantity over the devices of a tier.
    pub fn sum(&self, tier: TierId, quantity: impl Fn(&DeviceSpec) -> f64) -> f64 {
        self.specs(tier).map(quantity).sum()
    }

    /// Total space of a tier.
    pub fn capacity(&self, tier: TierId) -> Bytes {
        self.specs(tier).map(|s| s.capacity).sum()
    }

    /// Space of the largest device. A larger volume fits on no device.
    pub fn largest_device(&self) -> Bytes {
        self.devices
            .iter()
            .map(|d| d.spec.capacity)
            .max()
            .unwrap_or(Bytes::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_are_validated_and_interpolated() {
        let curve = LoadCurve::new(vec![(0.0, 1.0), (0.5, 2.0), (1.0, 6.0)]).unwrap();
        assert_eq!(curve.factor(0.25), 1.5);
        assert_eq!(curve.factor(0.75), 4.0);
        assert_eq!(curve.factor(-1.0), 1.0);
        assert_eq!(curve.factor(9.0), 6.0);
        for bad in [
            vec![],
            vec![(0.0, 2.0)],
            vec![(0.1, 1.0)],
            vec![(0.0, 1.0), (0.5, 0.5)],
            vec![(0.0, 1.0), (0.0, 2.0)],
            vec![(0.0, 1.0), (1.5, 2.0)],
            vec![(0.0, 1.0), (f64::NAN, 2.0)],
        ] {
            assert!(LoadCurve::new(bad.clone()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn depth_at_the_iops_caps_matches_littles_law() {
        // By Little's law at 100 us: 24 / 20 / 9.9 outstanding reads, 1.9 / 3.7 / 1.8 writes.
        let depth = |iops: f64| iops * 100.0 / 1e6;
        let specs: Vec<_> = ["pm953", "pm1633", "pm863"]
            .iter()
            .map(|p| crate::preset(p).unwrap().spec())
            .collect();
        let reads: Vec<f64> = specs.iter().map(|s| depth(s.read_iops)).collect();
        let writes: Vec<f64> = specs.iter().map(|s| depth(s.write_iops)).collect();
        for (got, want) in reads
            .iter()
            .chain(&writes)
            .zip([24.0, 20.0, 9.9, 1.9, 3.7, 1.8])
        {
            assert!((got - want).abs() < 1e-9, "{got} {want}");
        }
    }
}
