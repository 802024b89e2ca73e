//! The lease on an array: which controller's orders the array carries out.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One start of a controller on one store. A copy of the store, or an older state of it, gives
/// another identity at its next start.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(deny_unknown_fields)]
pub struct ControllerId {
    /// Random number of the store, made with it.
    pub store: u64,
    /// Number of starts on the store, this one included.
    pub epoch: u64,
    /// Random number of this start: tells starts on copies of one store apart.
    pub start: u64,
}

impl fmt::Display for ControllerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ControllerId { store, epoch, .. } = self;
        write!(f, "{store:016x}, start {epoch}")
    }
}

/// A controller that asks for the lease of an array, or has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LeaseHolder {
    /// Its identity.
    pub id: ControllerId,
    /// The address where its agent reaches it.
    pub name: String,
}

impl fmt::Display for LeaseHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "controller {} ({})", self.name, self.id)
    }
}

/// The lease of an array after a claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LeaseStatus {
    /// The controller whose orders the array carries out.
    pub holder: LeaseHolder,
    /// Time until the lease ends unless its holder renews it.
    pub left_ns: u64,
    /// A controller that was refused lately.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<LeaseHolder>,
}
