//! Readings of the paper where it gives no details: arrival process, outstanding requests per virtual machine, inside
//! of the simulated SSD, and service discipline.
//!
//! ```text
//!  way of running (closed, few, elements, unequal, open)  ×  service (4)  =  readings, few with one service
//! ```
//!
//! Claims that do not depend on the service are judged only in the readings with equal device time. The others would
//! repeat them.

use algo::Rng;
use serde::Serialize;

use super::device::Device;
use super::mode::ServiceMode;
use crate::claim::Reading;

/// Service of the readings for claims that do not depend on it.
pub(super) const USUAL: ServiceMode = ServiceMode::EqualTime;

/// Number of outstanding requests per tenant, if equal for all; the paper gives none.
const DEPTH: u32 = 16;
/// Smaller number: all tenants together do not exceed the tags of the SSDs.
const DEPTH_FEW: u32 = 8;
/// Unequal numbers, assigned by the seed.
const DEPTHS_UNEQUAL: [u32; 4] = [4, 8, 16, 32];

/// Arrival process of requests, and device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// Closed loops of equal depth on one unit of flash.
    Closed,
    /// Closed loops with fewer outstanding requests.
    Few,
    /// Closed loops of equal depth on a drive with several elements.
    Elements,
    /// Closed loops of unequal depths on a drive with several elements.
    Unequal,
    /// Open loops on a drive with several elements, with more arrivals than it can serve.
    Open,
}

impl Way {
    /// All ways, the simplest first.
    pub const ALL: [Self; 5] = [
        Self::Closed,
        Self::Few,
        Self::Elements,
        Self::Unequal,
        Self::Open,
    ];

    /// Returns the short name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Few => "few",
            Self::Elements => "elements",
            Self::Unequal => "unequal",
            Self::Open => "open",
        }
    }

    fn says(self) -> &'static str {
        match self {
            Self::Closed => {
                "closed loops with 16 outstanding requests per virtual machine; one unit of flash, as in the slides' cost formula"
            }
            Self::Few => {
                "closed loops of 8, which together fit into the SSD's 32 tags; the slides do not give the load of the virtual machines"
            }
            Self::Elements => {
                "closed loops of 16; four parallel elements and 32 tags, since the simulator of the same group models elements"
            }
            Self::Unequal => {
                "closed loops of 4, 8, 16 and 32, assigned to the virtual machines by the seed, since four real virtual machines are not equally busy; four elements"
            }
            Self::Open => {
                "an open replay at the times of a recording: each virtual machine issues a tenth more than the share \
                 of the greatest weight in the rate that one pool serves; four elements"
            }
        }
    }

    /// Returns the device that represents the simulated SSD.
    pub(super) fn simulated(self) -> Device {
        match self {
            Self::Closed | Self::Few => Device::Simulated,
            Self::Elements | Self::Unequal | Self::Open => Device::Elements,
        }
    }

    /// Returns the number of outstanding requests of each tenant; `None` for an open loop.
    pub(super) fn depths(self, tenants: usize, seed: u64) -> Option<Vec<u32>> {
        match self {
            Self::Closed | Self::Elements => Some(vec![DEPTH; tenants]),
            Self::Few => Some(vec![DEPTH_FEW; tenants]),
            Self::Unequal => Some(dealt(tenants, seed)),
            Self::Open => None,
        }
    }

    /// Returns true if devices other than the simulated SSD are run too. They are not if their results equal those of
    /// another way.
    pub(super) fn on_all_devices(self) -> bool {
        self != Self::Elements
    }

    /// Returns the services with which isolation is run. With one tag, the number of outstanding requests has no
    /// effect, as long as there are some.
    pub(super) fn services(self) -> Vec<ServiceMode> {
        let others = ServiceMode::ALL.into_iter().filter(|s| *s != USUAL);
        match self {
            Self::Few => vec![USUAL],
            _ => [USUAL].into_iter().chain(others).collect(),
        }
    }

    /// Returns true if isolation is run.
    pub(super) fn isolates(self) -> bool {
        self != Self::Few
    }

    fn choices(self) -> [(&'static str, &'static str); 3] {
        let (arrivals, depth) = match self {
            Self::Closed | Self::Elements => ("closed", "16"),
            Self::Few => ("closed", "8"),
            Self::Unequal => ("closed", "4 to 32"),
            Self::Open => ("open", "any"),
        };
        let drive = match self.simulated() {
            Device::Elements => "four elements",
            _ => "one element",
        };
        [("arrivals", arrivals), ("depth", depth), ("drive", drive)]
    }

    /// Returns the reading with a service.
    pub(super) fn reading(self, service: ServiceMode) -> Reading {
        let mut choices = self.choices().map(|(n, v)| (n, v.to_owned())).to_vec();
        choices.push(("service", service.name().into()));
        Reading {
            id: format!("{}, {}", self.name(), service.name()),
            says: self.says().into(),
            choices,
        }
    }
}

/// Returns the unequal depths in a random order that depends on the seed.
fn dealt(tenants: usize, seed: u64) -> Vec<u32> {
    let mut random = Rng::new(seed, 0xDE97);
    let mut depths = DEPTHS_UNEQUAL;
    for i in (1..depths.len()).rev() {
        depths.swap(i, random.below(i as u64 + 1) as usize);
    }
    depths.into_iter().cycle().take(tenants).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unequal_depths_are_complete_and_shuffled_by_seed() {
        let mut orders: Vec<Vec<u32>> = (1..=8).map(|seed| dealt(4, seed)).collect();
        for order in &orders {
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, DEPTHS_UNEQUAL);
        }
        assert_eq!(dealt(4, 3), dealt(4, 3));
        orders.sort();
        orders.dedup();
        assert!(orders.len() > 3, "{orders:?}");
    }

    #[test]
    fn readings_have_unique_names_and_choices() {
        let all = || {
            let ways = Way::ALL.into_iter();
            ways.flat_map(|w| w.services().into_iter().map(move |s| w.reading(s)))
        };
        let mut ids: Vec<String> = all().map(|r| r.id).collect();
        let mut choices: Vec<_> = all().map(|r| r.choices).collect();
        let n = ids.len();
        ids.sort();
        ids.dedup();
        choices.sort();
        choices.dedup();
        assert_eq!((ids.len(), choices.len()), (n, n));
    }
}
