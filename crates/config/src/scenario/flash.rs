//! What is inside the SSDs of a tier: `[flash.TIER]`.

use flash::drive::DriveConfig;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The inside of a tier's SSDs. The run then serves requests by pages, erase blocks and their collection instead of by the tier's caps
/// and load curve; these stay what strategies believe of it.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FlashConfig {
    /// A drive by name (`terrace sim presets`).
    pub preset: Option<String>,
    /// The drive in full instead of a preset.
    pub drive: Option<DriveConfig>,
    /// Spare space: share of the flash that the host does not see; the preset's if left out.
    pub spare: Option<f64>,
    /// Programs and erasures that a block stands; the preset's if left out.
    pub endurance: Option<u32>,
    /// Only one in so many runs of pages is in the maps, which large drives need; by size if left out.
    pub scale: Option<u32>,
    /// How often its capacity was overwritten at random before the run.
    #[serde(default = "default_age")]
    pub age: f64,
    /// Whether space that holds no volume is trimmed: after ageing, and when a move leaves it.
    #[serde(default = "default_discard")]
    pub discard: bool,
}

fn default_age() -> f64 {
    2.0
}
fn default_discard() -> bool {
    true
}
