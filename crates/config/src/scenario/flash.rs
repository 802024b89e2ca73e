//! What is inside the SSDs of a tier: `[flash.TIER]`.

use flash::drive::DriveConfig;
use flash::ftl::Sharing;
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
    /// How tenants share the erase blocks of a drive, as with `terrace sim ssd --sharing`; one pool for all if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Sharing>,
    /// Who shares the drives: groups of volumes. Volumes that none of them names belong to the tenant "others".
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tenants: Vec<FlashTenantConfig>,
}

/// A tenant of a tier's SSDs: volumes by name, or those of a class.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FlashTenantConfig {
    /// Its name. "others" are all volumes that no tenant names: it can have a share, and neither volumes nor a class.
    pub name: String,
    /// Its volumes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<String>,
    /// All volumes of this class, instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Share of a drive's over-provisioned space, 0..=1, where blocks are isolated; what shares leave is split by the size of the data there
    /// among those without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ops_share: Option<f64>,
}

/// The tenant of volumes that no tenant names.
pub const OTHER_TENANTS: &str = "others";

fn default_age() -> f64 {
    2.0
}
fn default_discard() -> bool {
    true
}
