//! Lease of an array: the right of one controller to give it orders.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Identity of one start of a controller. A controller that starts on a copy or an older state
/// of a store has another identity.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(deny_unknown_fields)]
pub struct ControllerId {
    /// Random number of the store, generated when the store was created.
    pub store: u64,
    /// Number of starts on the store, including this one.
    pub epoch: u64,
    /// Random number of this start; it differs between starts on copies of one store.
    pub start: u64,
}

impl fmt::Display for ControllerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ControllerId { store, epoch, .. } = self;
        write!(f, "{store:016x}, start {epoch}")
    }
}

/// Controller that holds the lease of an array, or has requested it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LeaseHolder {
    /// Identity of the controller.
    pub id: ControllerId,
    /// Address at which the agent reaches the controller.
    pub name: String,
}

impl fmt::Display for LeaseHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "controller {} ({})", self.name, self.id)
    }
}

/// Lease of an array after a request for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LeaseStatus {
    /// Controller whose orders the array carries out.
    pub holder: LeaseHolder,
    /// Time until the lease ends if its holder does not renew it, nanoseconds.
    pub left_ns: u64,
    /// Controller whose request was rejected recently; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<LeaseHolder>,
}
