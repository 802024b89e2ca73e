//! Compute servers: `[hosts.NAME]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, BytesPerSec, Nanos};

/// Compute server that runs virtual machines with volumes on the array: its unused resources for caching
/// appliances, and its link to the array.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HostConfig {
    /// Number of unused virtual CPUs. Default: 16.
    #[serde(default = "default_cpus")]
    pub cpus: u32,
    /// Unused memory. Default: 32 GiB.
    #[serde(default = "default_memory")]
    pub memory: Bytes,
    /// Name of the rack. Servers without one share a rack. An appliance is placed on its volume's server, else in
    /// its rack, else anywhere.
    #[serde(default)]
    pub rack: String,
    /// Rate of the link to the array, in each direction. Default: no limit.
    pub link: Option<BytesPerSec>,
    /// Order in which volumes use the link from the array. Default: first-come.
    #[serde(default)]
    pub sharing: LinkSharing,
    /// Latency of the link, one way. Default: 50 microseconds.
    #[serde(default = "default_latency")]
    pub latency: Nanos,
}

/// Order in which volumes use a shared link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LinkSharing {
    /// First come, first served.
    #[default]
    FirstCome,
    /// Volumes take turns, weighted by bytes, as connections that share a link get about equal shares.
    ByTurns,
}

fn default_cpus() -> u32 {
    16
}
fn default_memory() -> Bytes {
    Bytes::gib(32)
}
fn default_latency() -> Nanos {
    Nanos::from_micros(50)
}
