//! Why extents change tier.

use model::Reason;
use units::Nanos;

/// Why extents are wanted on another tier; of heat it is said anew for as many of them as move together.
#[derive(Debug, Clone, PartialEq)]
pub enum ExtentReason {
    /// They are asked for often enough to be on the fast tier.
    Hot {
        /// Time over which their requests were counted.
        period: Nanos,
    },
    /// They are asked for less than those that take their place on the fast tier.
    Cool {
        /// Time over which their requests were counted.
        period: Nanos,
    },
    /// Their heat has nothing to do with it.
    Other(Reason),
}

impl ExtentReason {
    /// For extents with so many requests.
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
