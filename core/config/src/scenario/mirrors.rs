//! Mirrored extents: `[mirrors]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, BytesPerSec, Nanos};

/// Mirrors of hot extents that are mostly read, for volumes on busy devices. Each read uses the faster of the two
/// copies.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MirrorsConfig {
    /// Largest total size of the mirrors of all volumes.
    pub budget: Bytes,
    /// Smallest share of reads in the requests of a mirrored extent, 0 to 1. Default: 0.9.
    #[serde(default = "default_read_share")]
    pub read_share: f64,
    /// Smallest utilization of a device for which its extents are mirrored, 0 to 1. Default: 0.7.
    #[serde(default = "default_busy")]
    pub busy: f64,
    /// Share of each device that mirrors leave free, 0 to 1. Default: 0.1.
    #[serde(default = "default_free")]
    pub free: f64,
    /// Interval between selections of extents, a multiple of the window. Default: 1 minute.
    #[serde(default = "default_every")]
    pub every: Nanos,
    /// Interval between adjustments of the share of reads that use the second copy. Default: 200 milliseconds.
    #[serde(default = "default_look")]
    pub look: Nanos,
    /// Largest share of reads that use the second copy, 0 to 1. Default: 0.9.
    #[serde(default = "default_offload")]
    pub offload_max: f64,
    /// Largest copy rate, for each volume. Default: 200 MiB/s.
    #[serde(default = "default_bandwidth")]
    pub bandwidth: BytesPerSec,
}

fn default_read_share() -> f64 {
    0.9
}
fn default_busy() -> f64 {
    0.7
}
fn default_free() -> f64 {
    0.1
}
fn default_every() -> Nanos {
    Nanos::from_secs(60)
}
fn default_look() -> Nanos {
    Nanos(200_000_000)
}
fn default_offload() -> f64 {
    0.9
}
fn default_bandwidth() -> BytesPerSec {
    BytesPerSec(200 << 20)
}
