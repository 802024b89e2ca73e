//! Positions in a queue, counted from the end where pages are evicted.
//!
//! ```text
//!   evicted next                                   most recently used
//!   0 %  ├────┼────┼────┼────┼── … ──┼────┼────┼────┤  100 %
//!   segment 0    1    2    3            17   18   19
//! ```
//!
//! The paper on Priority-LRU states in its introduction that hot data is inserted at the start of the queue, and later
//! that it is inserted towards the end. Both mean the end far from eviction; here that is 100 %.

/// Number of segments of a queue. Every position that Priority-LRU uses is a multiple of 5 %.
pub const SEGMENTS: usize = 20;

/// Insertion position of a missed page: the upper end of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(u8);

impl Position {
    /// Most recently used end.
    pub const TOP: Self = Self(SEGMENTS as u8 - 1);

    /// Returns the segment whose upper end is at `percent` of the queue or next above: ⌈percent · 20 / 100⌉ − 1. Values
    /// outside (0, 100] give the nearer end; not-a-number gives the top.
    pub fn from_percent(percent: f64) -> Self {
        // Slightly less, so that 70 % computed as 70.00000000000001 % is still 70 %.
        let segments = (percent * SEGMENTS as f64 / 100.0 - 1e-9).ceil();
        if segments.is_nan() {
            return Self::TOP;
        }
        Self((segments as i64 - 1).clamp(0, SEGMENTS as i64 - 1) as u8)
    }

    /// Returns the upper end of a segment, 0..20; higher values give the top.
    #[inline]
    pub fn from_segment(segment: u32) -> Self {
        Self(segment.min(SEGMENTS as u32 - 1) as u8)
    }

    /// Returns the segment; 0 is the end where pages are evicted.
    #[inline]
    pub fn segment(self) -> usize {
        usize::from(self.0)
    }

    /// Returns the upper end of the segment in percent.
    pub fn percent(self) -> f64 {
        f64::from(self.0 + 1) * 100.0 / SEGMENTS as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_is_the_upper_end_of_a_segment() {
        for (percent, segment) in [
            (5.0, 0),
            (20.0, 3),
            (40.0, 7),
            (70.0, 13),
            (100.0, 19),
            (0.1 * 700.0, 13),
            (71.0, 14),
            (0.0, 0),
            (-3.0, 0),
            (f64::NAN, 19),
            (f64::INFINITY, 19),
        ] {
            assert_eq!(
                Position::from_percent(percent).segment(),
                segment,
                "{percent}"
            );
        }
        for segment in 0..SEGMENTS as u8 {
            assert_eq!(
                Position::from_percent(Position(segment).percent()),
                Position(segment)
            );
        }
    }
}
