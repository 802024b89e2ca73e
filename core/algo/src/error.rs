//! Errors in stored states.

use std::fmt;

/// Fault in the stored form of numbers, of counters or of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateError {
    /// A character of packed text is not base64.
    NotBase64 {
        /// Position of the character.
        at: usize,
    },
    /// Packed text lacks its last characters.
    Truncated,
    /// Packed text ends within a number.
    PartialNumber,
    /// A number in packed text has too many bytes.
    LongNumber,
    /// A packed number does not fit in 32 bits.
    WideNumber(u64),
    /// Packed text repeats a number before the first one.
    RepeatOfNothing,
    /// Packed text has too many numbers.
    TooManyNumbers {
        /// Maximum number.
        max: usize,
    },
    /// A set has too few or too many words.
    Words {
        /// Numbers of the set.
        len: u32,
        /// Words of such a set.
        expected: usize,
        /// Words that were read.
        found: usize,
    },
    /// A set has a number beyond its end.
    BeyondEnd {
        /// Numbers of the set.
        len: u32,
    },
    /// A counter is above the maximum.
    Counter {
        /// Index of the counter.
        no: usize,
        /// Maximum of a counter.
        max: u32,
    },
}

impl fmt::Display for StateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotBase64 { at } => write!(f, "character {at} of packed text is not base64"),
            Self::Truncated => f.write_str("packed text is truncated"),
            Self::PartialNumber => f.write_str("packed text ends within a number"),
            Self::LongNumber => f.write_str("a number in packed text is too long"),
            Self::WideNumber(value) => write!(f, "packed value {value} exceeds 32 bits"),
            Self::RepeatOfNothing => f.write_str("packed text begins with a repeat"),
            Self::TooManyNumbers { max } => write!(f, "packed text has more than {max} numbers"),
            Self::Words {
                len,
                expected,
                found,
            } => write!(
                f,
                "a set of {len} numbers has {expected} words, not {found}"
            ),
            Self::BeyondEnd { len } => write!(f, "a number exceeds the end of a set of {len}"),
            Self::Counter { no, max } => write!(f, "counter {no} exceeds {max}"),
        }
    }
}

impl std::error::Error for StateError {}
