//! Messages about remedies.

use model::{ExtentHeat, ExtentPlaces, ExtentRanges};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use slo::ApplianceEvent;
pub use slo::warm::Warm;

/// Measurements of a volume in a window for the choice of remedies, in addition to its load.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeSample {
    /// Requests that started at the end offset of the previous one.
    pub sequential: u64,
    /// Requests issued.
    pub issued: u64,
    /// Distinct bytes requested; absent if they are not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_set_bytes: Option<u64>,
    /// Time with at least one request outstanding, nanoseconds.
    pub occupied_ns: u64,
    /// Time at the limit of outstanding requests, nanoseconds; absent or 0 if the limit is unknown.
    #[serde(default, skip_serializing_if = "is_none")]
    pub limited_ns: u64,
    /// Requests at the end of the window that have arrived and are not issued yet.
    pub waiting: u64,
    /// Reads that reached the array.
    pub array_reads: u64,
    /// Reads of these that the array's cache served.
    pub cache_hits: u64,
    /// Time of devices and links that the volume's requests occupied, for those with any. Emulated
    /// devices and links report it. Real devices do not; their share is estimated.
    pub busy: Vec<BusyWindow>,
}

/// Returns true for zero, which is not serialized.
fn is_none(ns: &u64) -> bool {
    *ns == 0
}

impl VolumeSample {
    /// Returns the increase since an earlier reading of the same counters, or `None` if a counter
    /// decreased. `waiting` is that of this reading.
    pub fn since(&self, earlier: &VolumeSample) -> Option<VolumeSample> {
        let busy = self.busy.iter().map(|b| {
            let old = earlier.busy.iter().find(|o| o.resource == b.resource);
            let [old_reads, old_writes] = old.map_or([0; 2], |o| [o.reads_ns, o.writes_ns]);
            Some(BusyWindow {
                resource: b.resource.clone(),
                reads_ns: b.reads_ns.checked_sub(old_reads)?,
                writes_ns: b.writes_ns.checked_sub(old_writes)?,
            })
        });
        let mut busy = busy.collect::<Option<Vec<_>>>()?;
        busy.retain(|b| b.reads_ns + b.writes_ns > 0);
        Some(VolumeSample {
            sequential: self.sequential.checked_sub(earlier.sequential)?,
            issued: self.issued.checked_sub(earlier.issued)?,
            working_set_bytes: None,
            occupied_ns: self.occupied_ns.checked_sub(earlier.occupied_ns)?,
            limited_ns: self.limited_ns.checked_sub(earlier.limited_ns)?,
            waiting: self.waiting,
            array_reads: self.array_reads.checked_sub(earlier.array_reads)?,
            cache_hits: self.cache_hits.checked_sub(earlier.cache_hits)?,
            busy,
        })
    }
}

/// Time of a device or link that a volume's requests occupied in a window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BusyWindow {
    /// Name of the device or link.
    pub resource: String,
    /// Time occupied by reads, nanoseconds.
    pub reads_ns: u64,
    /// Time occupied by writes, nanoseconds.
    pub writes_ns: u64,
}

/// Use of a memory cache in front of the devices by a volume.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CacheWindow {
    /// Number of the cache. Each worker of the host has one cache for its volumes.
    pub pool: u32,
    /// Capacity of the cache, bytes.
    pub pool_bytes: u64,
    /// Size of a cache page, bytes; absent or 0 if unknown.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub page_bytes: u64,
    /// True if cache shares of volumes can change while the cache is in use.
    pub in_parts: bool,
    /// Cache share that an operator has reserved for the volume, bytes; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given_bytes: Option<u64>,
    /// Cache share that the volume has as a remedy, bytes; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lent_bytes: Option<u64>,
    /// Miss-ratio curve of its reads, by rising cache size. Absent if the orders do not request it
    /// or too few reads were seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub curve: Option<Vec<CurvePoint>>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Point of a miss-ratio curve.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CurvePoint {
    /// Size of the cache, bytes.
    pub bytes: u64,
    /// Share of reads that miss a cache of this size, 0 to 1.
    pub miss_ratio: f64,
}

/// Mirror of a volume's extents, and their access counts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MirrorWindow {
    /// Mirror that exists or is being created; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copies: Option<CopiesWindow>,
    /// Reads and writes by extent; absent if the orders do not request them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<ExtentAccess>,
}

/// Mirror of a volume's extents.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CopiesWindow {
    /// Device of the mirror.
    pub device: String,
    /// Mirrored bytes.
    pub bytes: u64,
    /// Share of reads of mirrored extents that the mirror serves, 0 to 1; absent until the mirror
    /// is complete.
    pub read_share: f64,
    /// True if an operator has ordered the mirror.
    pub by_hand: bool,
}

/// Reads and writes of a volume's extents in a window, as its guest requested them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExtentAccess {
    /// Size of an extent, bytes.
    pub extent_bytes: u64,
    /// Device of each extent at the end of the window, as runs `COUNTxDEVICE`: `100x0,20x-,3x1`.
    /// DEVICE is the position in the report's list of devices; `-` means no space is allocated.
    #[schemars(with = "String")]
    pub places: ExtentPlaces,
    /// Reads by extent, as pairs `GAP:READS`: `4:17,0:3`. GAP is the number of extents without
    /// reads before this one.
    #[schemars(with = "String")]
    pub reads: ExtentHeat,
    /// Writes by extent, in the same format.
    #[schemars(with = "String")]
    pub writes: ExtentHeat,
}

/// Order to mirror extents of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MirrorOrder {
    /// Name of the volume.
    pub volume: String,
    /// Device of the mirror.
    pub device: String,
    /// Extents to mirror, as ranges such as `0-99,200`.
    #[schemars(with = "String")]
    pub extents: ExtentRanges,
    /// Maximum copy rate, bytes per second.
    pub rate_bytes_per_s: u64,
}

/// Order to reserve a share of the array's cache for a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CacheShareOrder {
    /// Name of the volume.
    pub volume: String,
    /// Size of the share, bytes.
    pub bytes: u64,
}

/// Order to run a caching appliance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApplianceOrder {
    /// Number of the appliance; later ones have higher numbers.
    pub id: u64,
    /// Name of the volume that it serves.
    pub volume: String,
    /// Compute server that runs it.
    pub server: String,
    /// Number of virtual CPUs.
    pub cpus: u32,
    /// Memory in total, bytes, including that of the appliance itself.
    pub memory_bytes: u64,
    /// Memory for cached data, bytes.
    pub cache_bytes: u64,
    /// Path of requests to the appliance.
    pub way: String,
    /// Data that the appliance reads during its warm-up.
    #[schemars(with = "serde_json::Value")]
    pub warm: Warm,
    /// NBD URI of its cache node. Absent if the host has compute servers of its own, or while the
    /// address of a lent node is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
}

/// State of a caching appliance at the agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApplianceWindow {
    /// Number of the appliance.
    pub id: u64,
    /// Last event of the appliance; null while it is being created.
    #[schemars(with = "Option<serde_json::Value>")]
    pub event: Option<ApplianceEvent>,
}

/// Kind of store that a cache node uses.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum NodeStore {
    /// Memory of its host.
    #[default]
    Memory,
    /// File on flash of its host.
    Flash,
}

impl NodeStore {
    /// All kinds, in order of preference.
    pub const ALL: [NodeStore; 2] = [NodeStore::Memory, NodeStore::Flash];

    /// Returns the name of the kind.
    pub fn word(self) -> &'static str {
        match self {
            NodeStore::Memory => "memory",
            NodeStore::Flash => "flash",
        }
    }
}

/// Memory and flash that a donor host lends to other hosts through cache nodes (`terrace
/// cache-node`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LendWindow {
    /// Memory that the host offers, bytes.
    pub memory_bytes: u64,
    /// Flash that the host offers, bytes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub flash_bytes: u64,
    /// Ordered cache nodes that have not ended. A failed node is listed while it is ordered.
    pub nodes: Vec<NodeWindow>,
}

impl LendWindow {
    /// Returns the offered bytes of a kind of store.
    pub fn lends(&self, store: NodeStore) -> u64 {
        match store {
            NodeStore::Memory => self.memory_bytes,
            NodeStore::Flash => self.flash_bytes,
        }
    }
}

/// Cache node of a donor host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeWindow {
    /// Number of the order.
    pub id: u64,
    /// Size, bytes.
    pub bytes: u64,
    /// Kind of store; memory if absent.
    pub store: NodeStore,
    /// State of the node.
    pub state: NodeState,
}

/// State of a cache node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NodeState {
    /// Started, and not ready yet.
    Starting,
    /// Ready: it accepts connections.
    Ready {
        /// NBD URI for other hosts.
        at: String,
    },
    /// Stopping; it still uses its memory or flash.
    Ending,
    /// Ended, or failed to start.
    Failed {
        /// Reason.
        why: String,
    },
}

impl NodeState {
    /// Returns true if the node uses memory or flash, or may use it.
    pub fn has_store(&self) -> bool {
        !matches!(self, NodeState::Failed { .. })
    }
}

/// Order to run a cache node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeOrder {
    /// Number of the node, never reused.
    pub id: u64,
    /// Size, bytes.
    pub bytes: u64,
    /// Kind of store; memory if absent.
    pub store: NodeStore,
}

/// Remedies that must be in force. The agent withdraws remedies that are not listed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Remedies {
    /// Shares of the array's cache.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cache_shares: Vec<CacheShareOrder>,
    /// Volumes whose miss-ratio curves reports must contain, because their objectives or those of
    /// volumes on the same devices are violated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub curves: Vec<String>,
    /// Mirrors of extents.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mirrors: Vec<MirrorOrder>,
    /// Volumes whose reads and writes by extent reports must contain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub access: Vec<String>,
    /// Volumes whose devices receive all spare flash as over-provisioning.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub over_provisioned: Vec<String>,
    /// Caching appliances.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub appliances: Vec<ApplianceOrder>,
    /// Numbers of appliances whose end the controller has seen; the agent may forget them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub appliances_taken: Vec<u64>,
    /// Cache nodes that this host must run for other hosts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeOrder>,
}

impl Remedies {
    /// Returns true if no remedy must be in force.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
