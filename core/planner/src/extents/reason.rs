//! Reasons for a change of an extent's tier.

use model::Reason;
use units::Nanos;

/// Reason for extents to change tier. Reasons of heat are formatted for each group of extents that moves together.
#[derive(Debug, Clone, PartialEq)]
pub enum ExtentReason {
    /// Enough requests for the fast tier.
    Hot {
        /// Time over which their requests were counted.
        period: Nanos,
    },
    /// Fewer requests than the extents that replace them on the fast tier.
    Cool {
        /// Time over which their requests were counted.
        period: Nanos,
    },
    /// A reason other than heat.
    Other(Reason),
}

impl ExtentReason {
    /// Returns the reason for extents with this number of requests.
    pub fn of(&self, requests: u64) -> Reason {
        let (kind, words, period) = match self {
            ExtentReason::Hot { period } => {
                ("hot-extents", "hot enough for the fast tier", *period)
            }
            ExtentReason::Cool { period } => (
                "cool-extents",
                "cooler than the extents that move to the fast tier",
                *period,
            ),
            ExtentReason::Other(reason) => return reason.clone(),
        };
        Reason::new(
            kind,
            format!("{words} ({requests} requests in {})", period.words()),
        )
        .with("period", period)
        .with("requests", requests)
    }
}
