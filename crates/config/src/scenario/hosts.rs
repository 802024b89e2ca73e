//! Compute servers: `[hosts.NAME]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, BytesPerSec, Nanos};

/// A compute server whose virtual machines have their volumes on the array: what it has to spare for caching appliances, and how it
/// reaches the array.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HostConfig {
    /// Virtual CPUs that nobody has.
    #[serde(default = "default_cpus")]
    pub cpus: u32,
    /// Memory that nobody has.
    #[serde(default = "default_memory")]
    pub memory: Bytes,
    /// Its rack; all without one are in one.
    #[serde(default)]
    pub rack: String,
    /// Rate of its link to the array, each way; without one it is never what is waited for.
    pub link: Option<BytesPerSec>,
    /// How volumes share what comes over the link from the array.
    #[serde(default)]
    pub sharing: LinkSharing,
    /// Time to the array, one way.
    #[serde(default = "default_latency")]
    pub latency: Nanos,
}

/// Who is next on a link that several wait for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LinkSharing {
    /// What is there first goes first.
    #[default]
    FirstCome,
    /// Volumes take turns, weighed by bytes, as connections that share a link get about equal shares of it.
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
