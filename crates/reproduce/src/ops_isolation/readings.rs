//! How the paper can be read where it is silent: how requests come, how many each virtual machine has outstanding, what the simulated SSD
//! has inside, and who is served next.
//!
//! ```text
//!  way of running (closed, few, elements, unequal, open)  ×  service (4)  =  readings, few with one service
//! ```
//!
//! Claims that do not hang on the service are asked in the readings with equal device time only: the others would repeat them.

use algo::Rng;
use serde::Serialize;

use super::device::Device;
use super::mode::ServiceMode;
use crate::claim::Reading;

/// The service in whose readings claims are asked that do not hang on it.
pub(super) const USUAL: ServiceMode = ServiceMode::EqualTime;

/// Requests outstanding per tenant, where all have as many; the paper does not say.
const DEPTH: u32 = 16;
/// The same where they are few: all together no more than the tags of the SSDs.
const DEPTH_FEW: u32 = 8;
/// Where they differ: dealt out by the seed.
const DEPTHS_UNEQUAL: [u32; 4] = [4, 8, 16, 32];

/// How requests come, and what to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// Closed loops of one depth on one unit of flash.
    Closed,
    /// The same with fewer requests outstanding.
    Few,
    /// Closed loops of one depth on a drive of several elements.
    Elements,
    /// Closed loops of unequal depths there.
    Unequal,
    /// Requests that arrive in their own time there, more than are served.
    Open,
}

impl Way {
    /// All, the simplest first.
    pub const ALL: [Self; 5] = [
        Self::Closed,
        Self::Few,
        Self::Elements,
        Self::Unequal,
        Self::Open,
    ];

    /// Short name.
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

    /// What is called the simulated SSD.
    pub(super) fn simulated(self) -> Device {
        match self {
            Self::Closed | Self::Few => Device::Simulated,
            Self::Elements | Self::Unequal | Self::Open => Device::Elements,
        }
    }

    /// Requests outstanding of each tenant; none where they arrive in their own time.
    pub(super) fn depths(self, tenants: usize, seed: u64) -> Option<Vec<u32>> {
        match self {
            Self::Closed | Self::Elements => Some(vec![DEPTH; tenants]),
            Self::Few => Some(vec![DEPTH_FEW; tenants]),
            Self::Unequal => Some(dealt(tenants, seed)),
            Self::Open => None,
        }
    }

    /// Whether devices other than the simulated SSD are run too: not where they would do the same as in another way.
    pub(super) fn on_all_devices(self) -> bool {
        self != Self::Elements
    }

    /// Services for which isolation is tried. With one tag fewer outstanding requests change nothing, as long as there are some.
    pub(super) fn services(self) -> Vec<ServiceMode> {
        let others = ServiceMode::ALL.into_iter().filter(|s| *s != USUAL);
        match self {
            Self::Few => vec![USUAL],
            _ => [USUAL].into_iter().chain(others).collect(),
        }
    }

    /// Whether isolation is tried at all.
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

    /// With a service.
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

/// The unequal depths in an order that is the seed's.
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
    fn unequal_depths_are_all_there_and_in_another_order_with_another_seed() {
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
    fn readings_differ_in_their_names_and_their_choices() {
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
