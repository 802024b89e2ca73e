//! Which extents of a volume a move is about.

use model::ExtentRanges;

/// What of a volume is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Selection<'a> {
    /// All extents.
    Whole,
    /// These; the volume must have them.
    Extents(&'a ExtentRanges),
}

impl Selection<'_> {
    /// Whether the extent is meant.
    pub fn contains(&self, extent: usize) -> bool {
        match self {
            Selection::Whole => true,
            Selection::Extents(ranges) => {
                u32::try_from(extent).is_ok_and(|extent| ranges.contains(extent))
            }
        }
    }
}
