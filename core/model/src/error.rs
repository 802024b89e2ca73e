//! Errors in the text forms and lists of this crate.

use thiserror::Error;

/// Invalid text or list of points.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum ModelError {
    /// The text names no use of direct I/O.
    #[error("{0:?} must be auto, on or off")]
    DirectIo(String),
    /// The points of a load curve break a rule.
    #[error("load curve {points:?}: {why}")]
    LoadCurve {
        /// Points: utilization and factor.
        points: Vec<(f64, f64)>,
        /// Broken rule.
        why: &'static str,
    },
    /// An item of a list of extent places or counts is malformed.
    #[error("\"{item}\" is not {form}")]
    ExtentItem {
        /// Malformed item.
        item: String,
        /// Valid form.
        form: &'static str,
    },
    /// The extent number at this item exceeds 32 bits.
    #[error("extent numbers exceed their limit at \"{0}\"")]
    TooManyExtents(String),
    /// An item of a list of extents is neither a number nor a pair of numbers.
    #[error("extent range \"{0}\" must be a number or two numbers with a dash, such as 3 or 4-7")]
    RangeSyntax(String),
    /// A range of extents ends before it begins, or exceeds the largest extent number.
    #[error("extent range {first}-{last} is empty or exceeds the largest extent number")]
    EmptyRange {
        /// First extent of the range.
        first: u32,
        /// Last extent of the range.
        last: u32,
    },
    /// A range of extents overlaps or adjoins the previous range.
    #[error(
        "extent range at {first} overlaps or adjoins the previous range, which ends at {before}"
    )]
    RangeOrder {
        /// First extent of the range.
        first: u32,
        /// Last extent of the previous range.
        before: u32,
    },
}
