//! Operation of a simulated host: actions of operators, and faults between the host and its controller.

use std::collections::BTreeMap;

use model::{Goal, Mode, TierState};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{BytesPerSec, Iops, Nanos};

/// Action of an operator during the run. Each entry sets the time and one further key.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OperatorConfig {
    /// Time in the run.
    pub at: Nanos,
    /// true: pause the controller, which then starts nothing new; false: resume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<bool>,
    /// New modes of moves, by goal.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub modes: BTreeMap<Goal, Mode>,
    /// New states of tiers, by name: open, cordoned or draining.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tiers: BTreeMap<String, TierState>,
    /// New pins: the tier for each volume, or an empty name to remove its pin.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pins: BTreeMap<String, String>,
    /// true: approve all moves of the newest plan; false: reject them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apply: Option<bool>,
    /// Volumes whose moves are cancelled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cancel: Vec<String>,
    /// Throttles, by volume. An entry without limits ends the volume's throttle.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub throttle: BTreeMap<String, ThrottleConfig>,
    /// New shares of the over-provisioned space of a tier's SSDs, 0 to 1, by tier and tenant.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub over_provisioning: BTreeMap<String, BTreeMap<String, f64>>,
}

/// Throttle of a volume for a limited time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ThrottleConfig {
    /// Largest number of requests per second. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iops: Option<Iops>,
    /// Largest number of bytes per second. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<BytesPerSec>,
    /// Duration of the throttle. Default: 1 hour.
    #[serde(default = "an_hour")]
    pub lasting: Nanos,
}

fn an_hour() -> Nanos {
    Nanos::from_secs(3600)
}

/// Faults of a simulated agent and of its messages to the controller.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FaultsConfig {
    /// Seed of the random faults. Default: the scenario's.
    pub seed: Option<u64>,
    /// Share of messages to the controller that are lost, 0 to 1. Default: 0.
    pub lost_reports: f64,
    /// Share of the controller's replies that are lost, 0 to 1. Default: 0.
    pub lost_replies: f64,
    /// Share of windows whose report is late, 0 to 1. Default: 0.
    pub late_reports: f64,
    /// Largest delay of late reports; delays are uniformly distributed. Default: 0.
    pub late_by: Nanos,
    /// Times without an agent. Its moves continue; afterwards a new agent starts without knowledge of the old one.
    pub agent_lost: Vec<StretchConfig>,
    /// true: reports contain no latency percentiles, like those of virtual machines without latency histograms.
    /// Default: false.
    pub means_only: bool,
}

/// Time range in the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StretchConfig {
    /// Start.
    pub at: Nanos,
    /// Length.
    pub lasting: Nanos,
}
