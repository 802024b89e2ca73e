//! How a simulated host is run: what its operators say, and what goes wrong between it and its controller.

use std::collections::BTreeMap;

use model::{Goal, Mode, TierState};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{BytesPerSec, Iops, Nanos};

/// Something that an operator does while a scenario runs; one thing each.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OperatorConfig {
    /// When.
    pub at: Nanos,
    /// Begin nothing new anywhere; false: go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<bool>,
    /// How far the controller may go from then on, by goal.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub modes: BTreeMap<Goal, Mode>,
    /// States of tiers, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tiers: BTreeMap<String, TierState>,
    /// The tiers that volumes are kept on, by volume; an empty name is none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pins: BTreeMap<String, String>,
    /// Approve of all moves of the newest plan; false: reject them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apply: Option<bool>,
    /// Give the moves of these volumes up.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cancel: Vec<String>,
    /// Let volumes do no more than this for a time, by volume; without limits they are let go.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub throttle: BTreeMap<String, ThrottleConfig>,
    /// Shares of the over-provisioned space of a tier's SSDs from then on, 0..=1, by tier and tenant.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub over_provisioning: BTreeMap<String, BTreeMap<String, f64>>,
}

/// Limits of a volume for a time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ThrottleConfig {
    /// Requests per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iops: Option<Iops>,
    /// Bytes per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<BytesPerSec>,
    /// For so long; an hour if left out.
    #[serde(default = "an_hour")]
    pub lasting: Nanos,
}

fn an_hour() -> Nanos {
    Nanos::from_secs(3600)
}

/// What goes wrong between a simulated host and its controller.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FaultsConfig {
    /// Seed of what is random here; the scenario's if left out.
    pub seed: Option<u64>,
    /// Share of the messages to the controller that are lost, 0..=1.
    pub lost_reports: f64,
    /// Share of its answers that are lost, 0..=1.
    pub lost_replies: f64,
    /// Share of the windows that are reported late, 0..=1.
    pub late_reports: f64,
    /// They are late by up to this, uniformly.
    pub late_by: Nanos,
    /// When the agent is not there. What it had begun goes on; it comes back as another one, that knows nothing.
    pub agent_lost: Vec<StretchConfig>,
}

/// A stretch of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StretchConfig {
    /// Its beginning.
    pub at: Nanos,
    /// Its length.
    pub lasting: Nanos,
}
