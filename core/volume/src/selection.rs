//! Selection of the extents that a move includes.

use model::ExtentRanges;

/// Selected extents of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Selection<'a> {
    /// All extents.
    Whole,
    /// These extents; the volume must have them.
    Extents(&'a ExtentRanges),
}

impl Selection<'_> {
    /// Returns true if the extent is selected.
    pub fn contains(&self, extent: usize) -> bool {
        match self {
            Selection::Whole => true,
            Selection::Extents(ranges) => {
                u32::try_from(extent).is_ok_and(|extent| ranges.contains(extent))
            }
        }
    }
}
