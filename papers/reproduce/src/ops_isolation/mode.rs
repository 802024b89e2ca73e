//! Modes: sharing of a drive by tenants, and service between them. The two choices are independent.
//!
//! ```text
//!              FCFS   host weights   equal device time   device time by weight
//!  one pool     ┌──────────────────────────────────────────────────────────┐
//!  handles      │  a row: effect of service alone                          │
//!  isolated     │  a column: effect of isolation alone                     │
//!               └──────────────────────────────────────────────────────────┘
//! ```
//!
//! The paper moves from the upper left of this table to a cell below and to the right in one step.

use flash::ftl::Sharing;
use flash::host::{Control, Service, Split};
use serde::Serialize;
use units::Nanos;

/// Sharing of erase blocks and of spare space (OPS).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SharingMode {
    /// Pages of all tenants share blocks, and all share the spare space, as in drives on the market.
    OnePool,
    /// Flexible data placement, initially isolated: writes go to blocks of their tenant; collected pages are mixed.
    HandlesInitially,
    /// Flexible data placement, persistently isolated: collected pages stay separated by tenant. Spare space is shared.
    HandlesPersistently,
    /// Every tenant owns its blocks, with equal numbers of spare blocks.
    IsolatedEqual,
    /// Own blocks; spare blocks by the cost model and the weights.
    IsolatedByModel,
    /// Own blocks; spare blocks start equal and are moved by a controller.
    IsolatedByController,
}

impl SharingMode {
    /// All modes, the most shared one first.
    pub const ALL: [Self; 6] = [
        Self::OnePool,
        Self::HandlesInitially,
        Self::HandlesPersistently,
        Self::IsolatedEqual,
        Self::IsolatedByModel,
        Self::IsolatedByController,
    ];

    /// Returns the printed name.
    pub fn name(self) -> &'static str {
        match self {
            Self::OnePool => "one pool",
            Self::HandlesInitially => "handles, initially",
            Self::HandlesPersistently => "handles, persistently",
            Self::IsolatedEqual => "isolated, equal OPS",
            Self::IsolatedByModel => "isolated, OPS by model",
            Self::IsolatedByController => "isolated, OPS by controller",
        }
    }

    /// Returns the setting of the translation layer.
    pub(super) fn on_flash(self) -> Sharing {
        match self {
            Self::OnePool => Sharing::OnePool,
            Self::HandlesInitially => Sharing::HandlesInitially,
            Self::HandlesPersistently => Sharing::HandlesPersistently,
            Self::IsolatedEqual | Self::IsolatedByModel | Self::IsolatedByController => {
                Sharing::Isolated
            }
        }
    }

    /// Returns the initial split of spare blocks.
    pub(super) fn split(self) -> Split {
        match self {
            Self::IsolatedByModel => Split::ByModel,
            _ => Split::Equal,
        }
    }

    /// Returns the controller of spare blocks for a drive with this number of units. Its interval is scaled to the
    /// drive's speed.
    pub(super) fn control(self, units: u64) -> Option<Control> {
        let usual = Control::default();
        (self == Self::IsolatedByController).then(|| Control {
            step: 0.02,
            interval: Nanos(usual.interval.0 / units),
            ..usual
        })
    }
}

/// Service discipline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServiceMode {
    /// First come, first served.
    Fcfs,
    /// Bytes in proportion to weights, by the host.
    HostWeights,
    /// Equal device time for all tenants.
    EqualTime,
    /// Device time in proportion to weights.
    WeightedTime,
}

impl ServiceMode {
    /// All disciplines, in order of the information that they use.
    pub const ALL: [Self; 4] = [
        Self::Fcfs,
        Self::HostWeights,
        Self::EqualTime,
        Self::WeightedTime,
    ];

    /// Returns the printed name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fcfs => "FCFS",
            Self::HostWeights => "host weights",
            Self::EqualTime => "equal device time",
            Self::WeightedTime => "device time by weight",
        }
    }

    /// Returns the setting of the host.
    pub(super) fn of_host(self) -> Service {
        match self {
            Self::Fcfs => Service::Fcfs,
            Self::HostWeights => Service::HostWeights,
            Self::EqualTime | Self::WeightedTime => Service::DeviceTime,
        }
    }

    /// Returns a tenant's share of device time, for disciplines that divide it.
    pub(super) fn time_share(self, weight: f64) -> f64 {
        match self {
            Self::WeightedTime => weight,
            _ => 1.0,
        }
    }
}

/// Sharing and service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Mode {
    /// Sharing of erase blocks.
    pub sharing: SharingMode,
    /// Service discipline.
    pub service: ServiceMode,
}

impl Mode {
    /// One pool with host weights: the paper's measurements on real devices.
    pub const POOL_WEIGHTS: Self = Self::new(SharingMode::OnePool, ServiceMode::HostWeights);

    /// Creates a mode.
    pub const fn new(sharing: SharingMode, service: ServiceMode) -> Self {
        Self { sharing, service }
    }

    /// Returns all combinations, ordered by sharing, then by service.
    pub fn all() -> impl Iterator<Item = Self> {
        SharingMode::ALL.into_iter().flat_map(|sharing| {
            ServiceMode::ALL
                .into_iter()
                .map(move |service| Self::new(sharing, service))
        })
    }

    /// Returns both printed names.
    pub fn name(self) -> String {
        format!("{}; {}", self.sharing.name(), self.service.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mode_names_and_json_are_unique() {
        let mut names: Vec<String> = Mode::all().map(Mode::name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 24);
        let mut json: Vec<String> = Mode::all()
            .map(|m| serde_json::to_string(&m).unwrap())
            .collect();
        assert!(json.contains(
            &r#"{"sharing":"isolated-by-controller","service":"equal-time"}"#.to_owned()
        ));
        json.sort();
        json.dedup();
        assert_eq!(json.len(), 24);
    }
}
