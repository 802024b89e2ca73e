//! Devices that differ from the description that strategies get: `[actual.TIER]`.

use model::DeviceSpec;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{BytesPerSec, Nanos};

/// Factors by which a tier's devices differ from the description that strategies get, each from 0.001 to 1000.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ActualConfig {
    /// Factor on the latencies of the idle device. Default: 1.
    #[serde(default = "same")]
    pub latency: f64,
    /// Factor on the largest request rates. Default: 1.
    #[serde(default = "same")]
    pub iops: f64,
    /// Factor on the largest bandwidths. Default: 1.
    #[serde(default = "same")]
    pub bandwidth: f64,
}

fn same() -> f64 {
    1.0
}

impl ActualConfig {
    /// Returns the key and value of the first factor outside 0.001 to 1000.
    pub fn fault(&self) -> Option<(&'static str, f64)> {
        let factors = [
            ("latency", self.latency),
            ("iops", self.iops),
            ("bandwidth", self.bandwidth),
        ];
        factors.into_iter().find(|(_, f)| !(1e-3..=1e3).contains(f))
    }

    /// Returns the actual device, from its description.
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
