//! What agents and the controller say of answers to broken objectives.

use model::{ExtentHeat, ExtentPlaces, ExtentRanges};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use slo::ApplianceEvent;
pub use slo::warm::Warm;

use super::{PROTOCOL_APPLIANCES, PROTOCOL_LENDS, PROTOCOL_LENDS_FLASH, PROTOCOL_MIRRORS};

/// What answers are judged by: a volume's window beside its load.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeSample {
    /// Requests that began where the one before ended.
    pub sequential: u64,
    /// Requests that were issued.
    pub issued: u64,
    /// Distinct bytes that were touched; none where they are not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_set_bytes: Option<u64>,
    /// Time with at least one request outstanding.
    pub occupied_ns: u64,
    /// Time with as many requests outstanding as it may have at once; 0 where such a limit is not known.
    #[serde(default, skip_serializing_if = "is_none")]
    pub limited_ns: u64,
    /// Requests that have arrived and wait to be issued, at the window's end.
    pub waiting: u64,
    /// Reads that got to the array.
    pub array_reads: u64,
    /// Of those, the ones that the array's cache answered.
    pub cache_hits: u64,
    /// Time that its requests took of devices and links, those with any. Emulated devices and links say it; of a real device nobody
    /// does, and it is estimated where it is needed.
    pub busy: Vec<BusyWindow>,
}

/// Whether it is no time at all.
fn is_none(ns: &u64) -> bool {
    *ns == 0
}

impl VolumeSample {
    /// What was added since an earlier reading of the same counters; none if something went backwards. Those that wait are this reading's.
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

/// Time that a volume's requests took of a device or a link in a window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BusyWindow {
    /// The device or link.
    pub resource: String,
    /// By reads.
    pub reads_ns: u64,
    /// By writes.
    pub writes_ns: u64,
}

/// A volume's place in a cache in memory in front of the devices.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CacheWindow {
    /// Which cache of the host's: each worker has one for its volumes.
    pub pool: u32,
    /// What that holds.
    pub pool_bytes: u64,
    /// Size of its pages; 0 where that is not told.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub page_bytes: u64,
    /// Whether volumes can be given parts of it while it runs.
    pub in_parts: bool,
    /// The part that it was given by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given_bytes: Option<u64>,
    /// The part that it has for a time, as an answer to a broken objective.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lent_bytes: Option<u64>,
    /// Miss ratios of its reads by size of cache, rising; none where the orders do not ask for it, or too little is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub curve: Option<Vec<CurvePoint>>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A point of a miss-ratio curve.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CurvePoint {
    /// Size of the cache.
    pub bytes: u64,
    /// Share of the reads that miss it, 0 to 1.
    pub miss_ratio: f64,
}

/// Second copies of a volume's extents.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MirrorWindow {
    /// Those that it has, or that are being made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copies: Option<CopiesWindow>,
    /// What was asked of its extents; none where the orders do not ask for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<ExtentAccess>,
}

/// Second copies that there are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CopiesWindow {
    /// Where they are.
    pub device: String,
    /// Their bytes.
    pub bytes: u64,
    /// Share of the reads of what is mirrored that go to them, 0 to 1; none before they are there.
    pub read_share: f64,
    /// Whether a person has ordered them.
    pub by_hand: bool,
}

/// Reads and writes of a volume's extents in a window, as its guest asked for them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExtentAccess {
    /// Size of an extent.
    pub extent_bytes: u64,
    /// Where they are at its end, as runs: `100x0,20x-,3x1`. A device is its place in the report.
    #[schemars(with = "String")]
    pub places: ExtentPlaces,
    /// Reads by extent, `4:17,0:3`: the extents in between and the reads.
    #[schemars(with = "String")]
    pub reads: ExtentHeat,
    /// Writes, likewise.
    #[schemars(with = "String")]
    pub writes: ExtentHeat,
}

/// Second copies that are to be there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MirrorOrder {
    /// The volume.
    pub volume: String,
    /// The device of the second copies.
    pub device: String,
    /// Of which extents.
    #[schemars(with = "String")]
    pub extents: ExtentRanges,
    /// At most so fast they are made.
    pub rate_bytes_per_s: u64,
}

/// A part of the array's cache for one volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CacheShareOrder {
    /// The volume.
    pub volume: String,
    /// Its part.
    pub bytes: u64,
}

/// A caching appliance that is to be there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApplianceOrder {
    /// Its number; rises.
    pub id: u64,
    /// The volume that it serves.
    pub volume: String,
    /// The compute server that it runs on.
    pub server: String,
    /// Virtual CPUs.
    pub cpus: u32,
    /// Memory, its own included.
    pub memory_bytes: u64,
    /// The part that caches.
    pub cache_bytes: u64,
    /// How requests get there.
    pub way: String,
    /// What it reads first.
    #[schemars(with = "serde_json::Value")]
    pub warm: Warm,
    /// Where its node is: an NBD URI. None where the host has servers of its own; of what is lent the host is told when it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
}

/// An appliance at the agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApplianceWindow {
    /// Its number.
    pub id: u64,
    /// What became of it last; none while it is being created.
    #[schemars(with = "Option<serde_json::Value>")]
    pub event: Option<ApplianceEvent>,
}

/// What a process that lends keeps pages in.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum NodeStore {
    /// Memory of its host.
    #[default]
    Memory,
    /// A file on flash of its host.
    Flash,
}

impl NodeStore {
    /// All that there are, the sooner one first.
    pub const ALL: [NodeStore; 2] = [NodeStore::Memory, NodeStore::Flash];

    /// In words.
    pub fn word(self) -> &'static str {
        match self {
            NodeStore::Memory => "memory",
            NodeStore::Flash => "flash",
        }
    }

    /// Whether it is what agents lent at first: then it is not said.
    pub(crate) fn is_memory(&self) -> bool {
        *self == NodeStore::Memory
    }
}

/// Memory and flash that a host lends to the arrays of others: processes that serve it (`terrace cache-node`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LendWindow {
    /// How much memory it lends in all.
    pub memory_bytes: u64,
    /// How much flash.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub flash_bytes: u64,
    /// Those that were ordered and are not gone. One that has failed is told of for as long as it is ordered.
    pub nodes: Vec<NodeWindow>,
}

impl LendWindow {
    /// How much of a store it lends in all.
    pub fn lends(&self, store: NodeStore) -> u64 {
        match store {
            NodeStore::Memory => self.memory_bytes,
            NodeStore::Flash => self.flash_bytes,
        }
    }
}

/// A process that serves what is lent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeWindow {
    /// The order's number.
    pub id: u64,
    /// How much.
    pub bytes: u64,
    /// Of what.
    #[serde(default, skip_serializing_if = "NodeStore::is_memory")]
    pub store: NodeStore,
    /// How it is.
    pub state: NodeState,
}

/// How a process that serves what is lent is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NodeState {
    /// It does not listen yet.
    Starting,
    /// It says that it listens.
    Ready {
        /// An NBD URI, as other hosts reach it.
        at: String,
    },
    /// It was told to end, and has its store still.
    Ending,
    /// It is gone, or never was there.
    Failed {
        /// Why.
        why: String,
    },
}

impl NodeState {
    /// Whether it has its store, or may have.
    pub fn has_store(&self) -> bool {
        !matches!(self, NodeState::Failed { .. })
    }
}

/// What is to be lent: a process that serves so much of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeOrder {
    /// Its number; never used twice.
    pub id: u64,
    /// How much.
    pub bytes: u64,
    /// Of what.
    #[serde(default, skip_serializing_if = "NodeStore::is_memory")]
    pub store: NodeStore,
}

/// Answers that are to be in force. What is and is not named is taken back.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Remedies {
    /// Parts of the array's cache.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cache_shares: Vec<CacheShareOrder>,
    /// Volumes whose miss-ratio curves reports are to tell: their objectives, or those of others beside them, are missed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub curves: Vec<String>,
    /// Second copies of extents.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mirrors: Vec<MirrorOrder>,
    /// Volumes of whose extents reports are to tell what is asked of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub access: Vec<String>,
    /// Volumes with all the spare flash below them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub over_provisioned: Vec<String>,
    /// Appliances.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub appliances: Vec<ApplianceOrder>,
    /// Appliances that have ended, as the agent has told: it may forget them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub appliances_taken: Vec<u64>,
    /// What this host is to lend to the arrays of others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeOrder>,
}

impl Remedies {
    /// What agents of that version understand of it.
    pub fn as_of(mut self, protocol: u32) -> Self {
        if protocol < PROTOCOL_LENDS_FLASH {
            self.nodes.retain(|n| n.store.is_memory());
        }
        if protocol < PROTOCOL_LENDS {
            self.nodes.clear();
        }
        if protocol < PROTOCOL_APPLIANCES {
            self.appliances.clear();
            self.appliances_taken.clear();
        }
        if protocol < PROTOCOL_MIRRORS {
            self.mirrors.clear();
            self.access.clear();
        }
        self
    }

    /// Whether nothing is to be in force.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
