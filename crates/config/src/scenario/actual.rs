//! Devices that are not what strategies are told of them: `[actual.TIER]`.

use model::DeviceSpec;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{BytesPerSec, Nanos};

/// In what a tier's devices differ from what strategies are told of them, as factors: a preset is rarely right.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ActualConfig {
    /// On the latencies of the idle device.
    #[serde(default = "same")]
    pub latency: f64,
    /// On the IOPS that it can do.
    #[serde(default = "same")]
    pub iops: f64,
    /// On the bytes per second that it can do.
    #[serde(default = "same")]
    pub bandwidth: f64,
}

fn same() -> f64 {
    1.0
}

impl ActualConfig {
    /// Factors are from 1/1000 to 1000; the first that is not, by key.
    pub fn fault(&self) -> Option<(&'static str, f64)> {
        let factors = [
            ("latency", self.latency),
            ("iops", self.iops),
            ("bandwidth", self.bandwidth),
        ];
        factors.into_iter().find(|(_, f)| !(1e-3..=1e3).contains(f))
    }

    /// The device as it is.
    pub fn of(&self, told: &DeviceSpec) -> DeviceSpec {
        let time = |t: Nanos| Nanos((t.0 as f64 * self.latency).round() as u64);
        let rate =
            |b: BytesPerSec| BytesPerSec(((b.0 as f64 * self.bandwidth).round() as u64).max(1));
        DeviceSpec {
            read_iops: told.read_iops * self.iops,
            write_iops: told.write_iops * self.iops,
            read_bandwidth: rate(told.read_bandwidth),
            write_bandwidth: rate(told.write_bandwidth),
            read_latency: time(told.read_latency),
            write_latency: time(told.write_latency),
            ..told.clone()
        }
    }
}
