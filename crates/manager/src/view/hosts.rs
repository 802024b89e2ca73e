//! Hosts, and what they lend to one another.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::wire::NodeStore;

/// How much is known of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HostState {
    /// Its agent reports.
    Live,
    /// Its agent has missed windows, and what is known is old: nothing is decided.
    Late,
    /// Its agent is gone: everything about it is unknown.
    Lost,
}

/// A host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostView {
    /// Its name.
    pub name: String,
    /// How much is known.
    pub state: HostState,
    /// Age of the last window.
    pub age_ns: Option<u64>,
    /// Number of its last plan.
    pub generation: u64,
    /// Time to the next decision that may move data.
    pub next_decision_ns: Option<u64>,
    /// Why it is not planned, if so.
    pub problem: Option<String>,
    /// All bytes of its devices.
    #[serde(default)]
    pub size_bytes: u64,
    /// Sizes of its volumes added up: what their guests were promised.
    #[serde(default)]
    pub provisioned_bytes: u64,
    /// What it lends to the arrays of other hosts; none where it lends nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lends: Option<LendsView>,
}

/// What a host lends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LendsView {
    /// How much memory in all.
    pub memory_bytes: u64,
    /// What somebody has of it, or what is not known to be free again.
    pub lent_bytes: u64,
    /// How much flash in all.
    #[serde(default)]
    pub flash_bytes: u64,
    /// What somebody has of that, likewise.
    #[serde(default)]
    pub lent_flash_bytes: u64,
    /// Who has it.
    pub to: Vec<LentView>,
}

impl LendsView {
    /// Stores of which it lends anything, or somebody has, with how much that is in all and what somebody has of it.
    pub fn stores(&self) -> impl Iterator<Item = (NodeStore, u64, u64)> {
        let all = [
            (NodeStore::Memory, self.memory_bytes, self.lent_bytes),
            (NodeStore::Flash, self.flash_bytes, self.lent_flash_bytes),
        ];
        all.into_iter()
            .filter(|(_, all, lent)| *all > 0 || *lent > 0)
    }
}

/// What another host's array has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LentView {
    /// That host.
    pub to: String,
    /// The volume that it is for; none where it is being given up.
    pub volume: Option<String>,
    /// How much.
    pub bytes: u64,
    /// Of what.
    #[serde(default)]
    pub store: NodeStore,
    /// Whether the process that serves it listens.
    pub ready: bool,
}
