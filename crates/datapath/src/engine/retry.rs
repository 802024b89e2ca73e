//! Which of the requests that wait may go on: something that one of them may have waited for has happened.

use std::ops::Range;

/// Requests to try again.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum Retry {
    #[default]
    None,
    /// Those that touch these bytes.
    Touching(Range<u64>),
    All,
}

impl Retry {
    #[inline]
    pub(super) fn is_none(&self) -> bool {
        matches!(self, Retry::None)
    }

    /// Those that touch these bytes, too.
    pub(super) fn touching(&mut self, bytes: Range<u64>) {
        *self = match std::mem::take(self) {
            Retry::None => Retry::Touching(bytes),
            Retry::Touching(other) => {
                Retry::Touching(other.start.min(bytes.start)..other.end.max(bytes.end))
            }
            Retry::All => Retry::All,
        };
    }

    /// Whether a request for these bytes is one of them.
    pub(super) fn takes(&self, bytes: Range<u64>) -> bool {
        match self {
            Retry::None => false,
            Retry::Touching(of) => overlap(of, &bytes),
            Retry::All => true,
        }
    }
}

/// Whether two ranges have a byte in common.
pub(super) fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}
