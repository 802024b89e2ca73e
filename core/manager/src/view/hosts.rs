//! Views of hosts and of the memory and flash that they lend.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::wire::NodeStore;

/// Freshness of the data about a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HostState {
    /// The agent reports on time.
    Live,
    /// The agent has missed windows. The data is old, and the controller decides nothing for this
    /// host.
    Late,
    /// The agent has stopped reporting. The state of the host is unknown.
    Lost,
}

/// Host with an array or with virtual machines.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostView {
    /// Name of the host.
    pub name: String,
    /// Freshness of the data.
    pub state: HostState,
    /// Age of the last window, nanoseconds; null before the first one.
    pub age_ns: Option<u64>,
    /// Number of the last plan; 0 without one.
    pub generation: u64,
    /// Time until the next decision that may move data, nanoseconds; null if none is scheduled.
    pub next_decision_ns: Option<u64>,
    /// Reason why the controller cannot plan for this host; null if it can.
    pub problem: Option<String>,
    /// Capacity of all its devices, bytes.
    #[serde(default)]
    pub size_bytes: u64,
    /// Sum of the sizes of its volumes, bytes. It can exceed `size_bytes`, because volumes are
    /// thin.
    #[serde(default)]
    pub provisioned_bytes: u64,
    /// Memory and flash that it lends to the arrays of other hosts; absent if it lends nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lends: Option<LendsView>,
}

/// Memory and flash that a donor host lends to other hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LendsView {
    /// Memory that the host offers, bytes.
    pub memory_bytes: u64,
    /// Memory that is in use by other hosts or not confirmed as free, bytes.
    pub lent_bytes: u64,
    /// Flash that the host offers, bytes.
    #[serde(default)]
    pub flash_bytes: u64,
    /// Flash that is in use by other hosts or not confirmed as free, bytes.
    #[serde(default)]
    pub lent_flash_bytes: u64,
    /// Cache nodes with their borrowers.
    pub to: Vec<LentView>,
}

impl LendsView {
    /// Returns the stores that are offered or in use, each with its offered and its used bytes.
    pub fn stores(&self) -> impl Iterator<Item = (NodeStore, u64, u64)> {
        let all = [
            (NodeStore::Memory, self.memory_bytes, self.lent_bytes),
            (NodeStore::Flash, self.flash_bytes, self.lent_flash_bytes),
        ];
        all.into_iter()
            .filter(|(_, all, lent)| *all > 0 || *lent > 0)
    }
}

/// Cache node: memory or flash of a donor host that another host uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LentView {
    /// Host that uses it.
    pub to: String,
    /// Volume that it serves; null while it is being released.
    pub volume: Option<String>,
    /// Size, bytes.
    pub bytes: u64,
    /// Kind of store: memory or flash.
    #[serde(default)]
    pub store: NodeStore,
    /// True if the cache node accepts connections.
    pub ready: bool,
}
