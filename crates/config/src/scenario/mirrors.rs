//! Extents with a second copy: `[mirrors]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, BytesPerSec, Nanos};

/// Read-mostly hot extents of volumes whose device is busy get a second copy on another device, and reads go to whichever answers sooner.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MirrorsConfig {
    /// Bytes of second copies, of all volumes together.
    pub budget: Bytes,
    /// Share of an extent's requests that read, at least.
    #[serde(default = "default_read_share")]
    pub read_share: f64,
    /// Utilization of a device from which its volumes are worth a second copy.
    #[serde(default = "default_busy")]
    pub busy: f64,
    /// Share of a device that stays free.
    #[serde(default = "default_free")]
    pub free: f64,
    /// How often extents are chosen anew, whole windows.
    #[serde(default = "default_every")]
    pub every: Nanos,
    /// How often the share of reads that goes to the second copy is looked at.
    #[serde(default = "default_look")]
    pub look: Nanos,
    /// That share, at most.
    #[serde(default = "default_offload")]
    pub offload_max: f64,
    /// At most so fast is copied, for each volume.
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
