//! What is done when an objective breaks: `[response]`.

use ::cache::WriteMode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use slo::ResponderConfig;
use slo::ladder::RungKind;
use units::{Bytes, BytesPerSec, Nanos};

/// Answers to broken objectives, window by window: who is held back, who gets a part of the cache or the spare flash, who gets a
/// caching appliance. Moves are the strategy's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResponseConfig {
    /// What may be done; of those that would do, the cheapest is (`workflow.choice`).
    #[serde(default = "default_rungs")]
    pub rungs: Vec<RungKind>,
    /// How caching appliances behave; they need `[hosts]`.
    #[serde(default)]
    pub appliance: ApplianceConfig,
    /// What goes wrong with them.
    #[serde(default)]
    pub failures: ApplianceFailures,
    /// How answers are found: detection, interference, what can be cached, sizes, warm-up, removal.
    #[serde(default)]
    pub workflow: ResponderConfig,
}

/// How caching appliances behave.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ApplianceConfig {
    /// From order to being up.
    pub create: Nanos,
    /// Until requests go through it, or back.
    pub reroute: Nanos,
    /// Until it is gone.
    pub destroy: Nanos,
    /// Time of its processors that each request takes: a bound on its rate.
    pub per_request: Nanos,
    /// Response time of a hit, on top.
    pub hit: Nanos,
    /// Size of a page: a power of two from 4 KiB to 256 KiB. A miss reads whole pages.
    pub page: Bytes,
    /// What it does with writes: `write-around` or `write-through`.
    pub writes: WriteMode,
    /// Most that it takes in, a second; none is as fast as the array reads.
    pub fill_max: Option<BytesPerSec>,
    /// Reads of a warm-up that are outstanding at once.
    pub warm_outstanding: u32,
}

impl Default for ApplianceConfig {
    /// Times of the reproduction of Dynamite but for processor and memory, which are of today.
    fn default() -> Self {
        Self {
            create: Nanos::from_secs(59),
            reroute: Nanos::from_secs(1),
            destroy: Nanos::from_secs(10),
            per_request: Nanos::from_micros(10),
            hit: Nanos::from_micros(20),
            page: Bytes(8 << 10),
            writes: WriteMode::WriteAround,
            fill_max: None,
            warm_outstanding: 8,
        }
    }
}

/// What goes wrong with appliances.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ApplianceFailures {
    /// Creations that fail after their time, counted from 0.
    pub creations: Vec<u32>,
    /// Re-routings that are said to have failed and may have taken place, counted from 0.
    pub reroutings: Vec<u32>,
    /// Times at which the hosts of all appliances are lost.
    pub hosts_lost: Vec<Nanos>,
    /// Until then no appliance can be destroyed.
    pub destroying_until: Option<Nanos>,
}

fn default_rungs() -> Vec<RungKind> {
    ResponseConfig::default_rungs()
}

impl ResponseConfig {
    /// All that can be done without a move.
    pub fn default_rungs() -> Vec<RungKind> {
        vec![
            RungKind::Throttle,
            RungKind::MemoryShare,
            RungKind::OpsShare,
            RungKind::Appliance,
        ]
    }
}
