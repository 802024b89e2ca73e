//! Inside of a tier's SSDs: `[flash.TIER]`.

use flash::drive::DriveConfig;
use flash::ftl::Sharing;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Inside of a tier's SSDs. The simulation models pages, erase blocks and garbage collection instead of the tier's
/// caps and load curve, which remain the description that strategies get.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FlashConfig {
    /// Name of a drive preset (`terrace sim presets`). Use either this key or `drive`.
    pub preset: Option<String>,
    /// Complete description of the drive, instead of a preset.
    pub drive: Option<DriveConfig>,
    /// Over-provisioned share of the flash, which hosts cannot use. Default: the preset's.
    pub spare: Option<f64>,
    /// Number of program/erase cycles of a block. Default: the preset's.
    pub endurance: Option<u32>,
    /// Sampling factor: only one in this many runs of pages is simulated, which large drives need. Default: chosen
    /// by size.
    pub scale: Option<u32>,
    /// Number of times that the capacity is overwritten at random before the run. Default: 2.
    #[serde(default = "default_age")]
    pub age: f64,
    /// If true, space without a volume is trimmed: after ageing, and when a move frees it. Default: true.
    #[serde(default = "default_discard")]
    pub discard: bool,
    /// Method by which tenants share the erase blocks of a drive, as with `terrace sim ssd --sharing`. Default: one
    /// pool for all. Required with `tenants`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Sharing>,
    /// Tenants of the drives: groups of volumes. Volumes without a tenant belong to the tenant "others".
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tenants: Vec<FlashTenantConfig>,
}

/// Tenant of a tier's SSDs: volumes by name, or all volumes of a class.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FlashTenantConfig {
    /// Name of the tenant. The name "others" stands for all volumes without a tenant; its entry can set a share,
    /// but no volumes and no class.
    pub name: String,
    /// Volumes of the tenant, by name. Use either this key or `class`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<String>,
    /// Class whose volumes all belong to the tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Share of each drive's over-provisioned space, 0 to 1, with `isolation = "isolated"`. Tenants without a share
    /// divide the rest by the size of their data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ops_share: Option<f64>,
}

/// Tenant of volumes that belong to no other tenant.
pub const OTHER_TENANTS: &str = "others";

fn default_age() -> f64 {
    2.0
}
fn default_discard() -> bool {
    true
}
