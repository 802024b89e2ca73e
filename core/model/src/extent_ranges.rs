//! Selection of extents of one volume.
//!
//! It names extents and does not contain their places.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use units::Bytes;

use crate::ModelError;

/// Extent numbers of one volume, as rising ranges that neither overlap nor adjoin.
///
/// The text and JSON form lists the ranges with both ends included: `0-15,20,31-40`. The length of a plan therefore depends on
/// the number of ranges, not of extents.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ExtentRanges {
    /// First extent of each range, and the first extent after it.
    ranges: Vec<(u32, u32)>,
}

impl ExtentRanges {
    /// Returns the ranges of strictly rising extent numbers.
    ///
    /// # Panics
    /// If the numbers do not rise.
    pub fn from_sorted(numbers: impl IntoIterator<Item = u32>) -> Self {
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for n in numbers {
            match ranges.last_mut() {
                Some(last) if last.1 == n => last.1 = n + 1,
                Some(last) => {
                    assert!(
                        last.1 < n,
                        "extents must rise strictly: {n} follows {}",
                        last.1 - 1
                    );
                    ranges.push((n, n + 1));
                }
                None => ranges.push((n, n + 1)),
            }
        }
        Self { ranges }
    }

    /// Checks ranges, each given as its first extent and the first extent after it.
    ///
    /// # Errors
    /// A range is empty, or overlaps, adjoins or precedes the range before it.
    pub fn from_ranges(ranges: Vec<(u32, u32)>) -> Result<Self, ModelError> {
        let mut before: Option<u32> = None;
        for (first, end) in &ranges {
            if end <= first {
                let last = end.wrapping_sub(1);
                return Err(ModelError::EmptyRange {
                    first: *first,
                    last,
                });
            }
            if let Some(b) = before.filter(|b| first <= b) {
                let (first, before) = (*first, b - 1);
                return Err(ModelError::RangeOrder { first, before });
            }
            before = Some(*end);
        }
        Ok(Self { ranges })
    }

    /// Number of extents.
    pub fn count(&self) -> u32 {
        self.ranges.iter().map(|(first, end)| end - first).sum()
    }

    /// Returns true if no extent is selected.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns true if the extent is selected.
    pub fn contains(&self, extent: u32) -> bool {
        let after = self.ranges.partition_point(|r| r.0 <= extent);
        after > 0 && extent < self.ranges[after - 1].1
    }

    /// Returns true if both selections have an extent in common.
    pub fn meets(&self, other: &ExtentRanges) -> bool {
        let (mut a, mut b) = (
            self.ranges.iter().peekable(),
            other.ranges.iter().peekable(),
        );
        while let (Some(x), Some(y)) = (a.peek(), b.peek()) {
            if x.1 <= y.0 {
                a.next();
            } else if y.1 <= x.0 {
                b.next();
            } else {
                return true;
            }
        }
        false
    }

    /// Number of extents that both selections have in common.
    pub fn common(&self, other: &ExtentRanges) -> u32 {
        let shared = |(first, end): &(u32, u32)| {
            let after = other.ranges.partition_point(|r| r.1 <= *first);
            let met = other.ranges[after..].iter().take_while(|r| r.0 < *end);
            met.map(|r| r.1.min(*end) - r.0.max(*first)).sum::<u32>()
        };
        self.ranges.iter().map(shared).sum()
    }

    /// Returns the extents in rising order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.from(0)
    }

    /// Returns the extents from `extent` on, in rising order.
    pub fn from(&self, extent: u32) -> impl Iterator<Item = u32> + '_ {
        let begin = self.ranges.partition_point(|r| r.1 <= extent);
        let rest = self.ranges[begin..].iter();
        rest.flat_map(move |(first, end)| (*first).max(extent)..*end)
    }

    /// Returns the ranges, each as its first extent and the first extent after it.
    pub fn ranges(&self) -> &[(u32, u32)] {
        &self.ranges
    }

    /// Returns the highest extent; `None` if no extent is selected.
    pub fn last(&self) -> Option<u32> {
        self.ranges.last().map(|r| r.1 - 1)
    }

    /// Returns the size of the extents in a volume of `size` bytes with extents of `extent` bytes. The last extent of a volume may be
    /// short. `None` if an extent is beyond the end of the volume.
    pub fn bytes(&self, size: Bytes, extent: Bytes) -> Option<Bytes> {
        let Some(last) = self.last() else {
            return Some(Bytes::ZERO);
        };
        let begin = u64::from(last) * extent.0;
        let of_last = size.0.checked_sub(begin).filter(|rest| *rest > 0)?;
        let others = u64::from(self.count() - 1) * extent.0;
        Some(Bytes(others + of_last.min(extent.0)))
    }
}

impl fmt::Display for ExtentRanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (first, end)) in self.ranges.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            match end - first {
                1 => write!(f, "{comma}{first}")?,
                _ => write!(f, "{comma}{first}-{}", end - 1)?,
            }
        }
        Ok(())
    }
}

impl FromStr for ExtentRanges {
    type Err = ModelError;

    fn from_str(text: &str) -> Result<Self, ModelError> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        let range = |piece: &str| {
            let syntax = || ModelError::RangeSyntax(piece.into());
            let number = |digits: &str| {
                let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
                plain
                    .then(|| digits.parse::<u32>().ok())
                    .flatten()
                    .ok_or_else(syntax)
            };
            let (first, last) = piece.split_once('-').unwrap_or((piece, piece));
            let (first, last) = (number(first)?, number(last)?);
            let end = last.checked_add(1).filter(|end| *end > first);
            end.map(|end| (first, end))
                .ok_or(ModelError::EmptyRange { first, last })
        };
        Self::from_ranges(text.split(',').map(range).collect::<Result<_, _>>()?)
    }
}

impl TryFrom<String> for ExtentRanges {
    type Error = ModelError;
    fn try_from(text: String) -> Result<Self, ModelError> {
        text.parse()
    }
}

impl From<ExtentRanges> for String {
    fn from(ranges: ExtentRanges) -> String {
        ranges.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(text: &str) -> ExtentRanges {
        text.parse().unwrap()
    }

    #[test]
    fn extent_numbers_are_joined_to_ranges_and_round_trip() {
        let some = ExtentRanges::from_sorted([0, 1, 2, 7, 9, 10]);
        assert_eq!(some.to_string(), "0-2,7,9-10");
        assert_eq!(ranges("0-2,7,9-10"), some);
        assert_eq!(some.iter().collect::<Vec<_>>(), [0, 1, 2, 7, 9, 10]);
        assert_eq!(some.from(2).collect::<Vec<_>>(), [2, 7, 9, 10]);
        assert_eq!(some.from(3).collect::<Vec<_>>(), [7, 9, 10]);
        assert_eq!((some.count(), some.last()), (6, Some(10)));
        let inside = (0..12).filter(|n| some.contains(*n)).collect::<Vec<_>>();
        assert_eq!(inside, [0, 1, 2, 7, 9, 10]);
        let stored = serde_json::to_string(&some).unwrap();
        assert_eq!(stored, "\"0-2,7,9-10\"");
        assert_eq!(serde_json::from_str::<ExtentRanges>(&stored).unwrap(), some);
        assert_eq!(ranges(""), ExtentRanges::default());
    }

    #[test]
    fn short_last_extent_counts_with_its_size() {
        let (size, extent) = (Bytes(25), Bytes(10));
        assert_eq!(ranges("0-1").bytes(size, extent), Some(Bytes(20)));
        assert_eq!(ranges("0,2").bytes(size, extent), Some(Bytes(15)));
        assert_eq!(ranges("3").bytes(size, extent), None);
        assert_eq!(ranges("").bytes(size, extent), Some(Bytes(0)));
    }

    #[test]
    fn ranges_intersect_if_they_share_an_extent() {
        let pairs = [
            ("0-2,7", "3-6,8", false),
            ("0-2,7", "5-9", true),
            ("", "1", false),
            ("4", "4", true),
        ];
        for (a, b, meet) in pairs {
            assert_eq!(ranges(a).meets(&ranges(b)), meet, "{a} {b}");
            assert_eq!(ranges(b).meets(&ranges(a)), meet, "{b} {a}");
        }
    }

    #[test]
    fn shared_extents_of_two_ranges_are_counted() {
        for (a, b, common) in [
            ("0-9", "3-4,8-20", 4),
            ("0-9", "10-20", 0),
            ("1,3,5", "0-9", 3),
            ("5", "5", 1),
        ] {
            assert_eq!(ranges(a).common(&ranges(b)), common, "{a} and {b}");
            assert_eq!(ranges(b).common(&ranges(a)), common, "{b} and {a}");
        }
    }

    #[test]
    fn invalid_ranges_are_refused() {
        for text in [
            "a",
            "1-",
            "-1",
            "1--2",
            "1,,2",
            "+1",
            "1 ",
            "99999999999",
            "1-2-3",
        ] {
            let fault = text.parse::<ExtentRanges>().unwrap_err();
            assert!(
                matches!(fault, ModelError::RangeSyntax(_)),
                "{text}: {fault}"
            );
        }
        for text in ["3-2", "4294967295", "0-4294967295"] {
            let fault = text.parse::<ExtentRanges>().unwrap_err();
            assert!(
                matches!(fault, ModelError::EmptyRange { .. }),
                "{text}: {fault}"
            );
        }
        for text in ["5,4", "1-5,5", "1-5,6", "1-5,3-9"] {
            let fault = text.parse::<ExtentRanges>().unwrap_err();
            assert!(
                matches!(fault, ModelError::RangeOrder { .. }),
                "{text}: {fault}"
            );
        }
        let json = serde_json::from_str::<ExtentRanges>("\"2,1\"").unwrap_err();
        assert!(
            json.to_string()
                .contains("overlaps or adjoins the previous range"),
            "{json}"
        );
    }
}
