//! Waiting requests to try again after an event that they may have waited for.

use std::ops::Range;

/// Requests to try again.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum Retry {
    #[default]
    None,
    /// Requests that touch this range.
    Touching(Range<u64>),
    All,
}

impl Retry {
    #[inline]
    pub(super) fn is_none(&self) -> bool {
        matches!(self, Retry::None)
    }

    /// Adds the requests that touch a range.
    pub(super) fn touching(&mut self, bytes: Range<u64>) {
        *self = match std::mem::take(self) {
            Retry::None => Retry::Touching(bytes),
            Retry::Touching(other) => {
                Retry::Touching(other.start.min(bytes.start)..other.end.max(bytes.end))
            }
            Retry::All => Retry::All,
        };
    }

    /// Returns true if a request for a range is included.
    pub(super) fn takes(&self, bytes: Range<u64>) -> bool {
        match self {
            Retry::None => false,
            Retry::Touching(of) => overlap(of, &bytes),
            Retry::All => true,
        }
    }
}

/// Returns true if two ranges have a common byte.
pub(super) fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}
