//! How tenants share a drive, and how it serves them: two independent choices.
//!
//! ```text
//!              FCFS   host weights   equal device time   device time by weight
//!  one pool     ┌──────────────────────────────────────────────────────────┐
//!  handles      │  a row: what service alone changes                       │
//!  isolated     │  a column: what isolation alone changes                  │
//!               └──────────────────────────────────────────────────────────┘
//! ```
//!
//! The paper goes from the upper left of this table to somewhere below and to the right of it in one step.

use flash::ftl::Sharing;
use flash::host::{Control, Service, Split};
use serde::Serialize;
use units::Nanos;

/// Whose pages share erase blocks, and whose the spare space (OPS) is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SharingMode {
    /// Everybody's pages side by side, spare space for all: drives as they are sold.
    OnePool,
    /// Flexible data placement, initially isolated: writes go to blocks of their tenant, what collection moves is mixed.
    HandlesInitially,
    /// Flexible data placement, persistently isolated: collected pages stay with their tenant's. Spare space is still everybody's.
    HandlesPersistently,
    /// Every tenant owns its blocks, with the same number of spare ones.
    IsolatedEqual,
    /// The same with spare blocks by the cost model and the weights.
    IsolatedByModel,
    /// The same with spare blocks that a controller moves while it runs, from equal numbers on.
    IsolatedByController,
}

impl SharingMode {
    /// All, from the most shared on.
    pub const ALL: [Self; 6] = [
        Self::OnePool,
        Self::HandlesInitially,
        Self::HandlesPersistently,
        Self::IsolatedEqual,
        Self::IsolatedByModel,
        Self::IsolatedByController,
    ];

    /// As printed.
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

    /// As the translation layer knows it.
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

    /// How spare blocks are split in the beginning.
    pub(super) fn split(self) -> Split {
        match self {
            Self::IsolatedByModel => Split::ByModel,
            _ => Split::Equal,
        }
    }

    /// What moves them afterwards, on a drive with so many units: one that does as much in a second is looked at as often for what it does.
    pub(super) fn control(self, units: u64) -> Option<Control> {
        let usual = Control::default();
        (self == Self::IsolatedByController).then(|| Control {
            step: 0.02,
            interval: Nanos(usual.interval.0 / units),
            ..usual
        })
    }
}

/// Whose request is next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServiceMode {
    /// First come, first served.
    Fcfs,
    /// Bytes in proportion to weights, by the host.
    HostWeights,
    /// The same device time for all.
    EqualTime,
    /// Device time in proportion to weights.
    WeightedTime,
}

impl ServiceMode {
    /// All, from the one that knows least on.
    pub const ALL: [Self; 4] = [
        Self::Fcfs,
        Self::HostWeights,
        Self::EqualTime,
        Self::WeightedTime,
    ];

    /// As printed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fcfs => "FCFS",
            Self::HostWeights => "host weights",
            Self::EqualTime => "equal device time",
            Self::WeightedTime => "device time by weight",
        }
    }

    /// As the host knows it.
    pub(super) fn of_host(self) -> Service {
        match self {
            Self::Fcfs => Service::Fcfs,
            Self::HostWeights => Service::HostWeights,
            Self::EqualTime | Self::WeightedTime => Service::DeviceTime,
        }
    }

    /// A tenant's share of device time, where that is what is shared.
    pub(super) fn time_share(self, weight: f64) -> f64 {
        match self {
            Self::WeightedTime => weight,
            _ => 1.0,
        }
    }
}

/// Both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Mode {
    /// Whose pages share erase blocks.
    pub sharing: SharingMode,
    /// Whose request is next.
    pub service: ServiceMode,
}

impl Mode {
    /// One pool with host weights: what the paper measures on real devices.
    pub const POOL_WEIGHTS: Self = Self::new(SharingMode::OnePool, ServiceMode::HostWeights);

    /// Of its parts.
    pub const fn new(sharing: SharingMode, service: ServiceMode) -> Self {
        Self { sharing, service }
    }

    /// All combinations, service by service within a sharing.
    pub fn all() -> impl Iterator<Item = Self> {
        SharingMode::ALL.into_iter().flat_map(|sharing| {
            ServiceMode::ALL
                .into_iter()
                .map(move |service| Self::new(sharing, service))
        })
    }

    /// As printed: both names.
    pub fn name(self) -> String {
        format!("{}; {}", self.sharing.name(), self.service.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_json_tell_all_combinations_apart() {
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
