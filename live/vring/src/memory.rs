//! Memory of a guest, mapped into this process.
//!
//! ```text
//!  guest addresses       0 ─────────── 0xc0000          0x1_0000_0000 ────────
//!                        region 0                        region 1
//!  process of the guest  0x7f10_0000_0000                0x7f55_0000_0000
//! ```
//!
//! Descriptors have guest addresses, and rings have addresses of the process that runs the guest. Both are translated once.
//! A [`Span`] is inside its region while the memory exists, because regions never change. The *content* of the memory may
//! change between two reads, so a value that must stay constant is read only once.

use std::sync::Arc;

use vm_memory::{MmapRegion, VolatileMemory, VolatileSlice};

use crate::RingError;

/// Contiguous part of a guest's memory in one mapping.
#[derive(Debug)]
pub struct Region {
    /// Address of its first byte in the guest.
    pub guest: u64,
    /// Address of its first byte in the process that runs the guest.
    pub user: u64,
    /// Length in bytes.
    pub length: u64,
    /// Mapping that contains it.
    pub map: Arc<MmapRegion>,
    /// Offset of its first byte in the mapping.
    pub at: usize,
}

/// Validated byte range of a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    region: u32,
    at: usize,
    length: usize,
}

impl Span {
    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Returns true if the length is 0.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }
}

/// Whole memory of a guest.
#[derive(Debug)]
pub struct Memory {
    /// Regions by guest address.
    regions: Vec<Region>,
}

impl Memory {
    /// Creates the memory from its regions.
    ///
    /// # Errors
    /// Regions that overlap or exceed their mappings.
    pub fn new(mut regions: Vec<Region>) -> Result<Self, RingError> {
        regions.sort_by_key(|r| r.guest);
        for region in &regions {
            let end = (region.at as u64).checked_add(region.length);
            let ends = [region.guest, region.user].map(|a| a.checked_add(region.length));
            if end.is_none_or(|end| end > region.map.size() as u64) || ends.contains(&None) {
                return Err(RingError::Unmapped {
                    address: region.guest,
                    length: region.length,
                });
            }
        }
        let overlap = regions
            .windows(2)
            .find(|pair| pair[0].guest + pair[0].length > pair[1].guest);
        match overlap {
            Some(pair) => Err(RingError::Overlap {
                address: pair[1].guest,
            }),
            None => Ok(Self { regions }),
        }
    }

    /// Adds the spans of a guest address range, which may cross adjacent regions.
    #[inline]
    pub(crate) fn at_guest(
        &self,
        mut address: u64,
        mut length: u64,
        spans: &mut Vec<Span>,
    ) -> Result<(), RingError> {
        let outside = RingError::Outside {
            what: "a buffer",
            address,
            length,
        };
        while length > 0 {
            let (region, from) = self.region_of(address).ok_or(outside)?;
            let here = length.min(self.regions[region].length - from);
            spans.push(Span {
                region: region as u32,
                at: self.regions[region].at + from as usize,
                length: here as usize,
            });
            length -= here;
            address = address.wrapping_add(here);
        }
        Ok(())
    }

    /// Returns the span of a guest address range that must be in one region.
    pub(crate) fn whole(
        &self,
        what: &'static str,
        address: u64,
        length: u64,
    ) -> Result<Span, RingError> {
        let found = self.region_of(address);
        self.span(found, what, address, length)
    }

    /// Returns the span of a ring, by its address in the process that runs the guest.
    pub(crate) fn at_user(
        &self,
        what: &'static str,
        address: u64,
        length: u64,
        align: usize,
    ) -> Result<Span, RingError> {
        let found = self.regions.iter().position(|r| {
            let from = address.checked_sub(r.user);
            from.is_some_and(|from| from < r.length)
        });
        let found = found.map(|region| (region, address - self.regions[region].user));
        let span = self.span(found, what, address, length)?;
        match span.at.is_multiple_of(align) {
            true => Ok(span),
            false => Err(RingError::Unaligned { what, address }),
        }
    }

    #[inline]
    fn region_of(&self, address: u64) -> Option<(usize, u64)> {
        let after = self.regions.partition_point(|r| r.guest <= address);
        let region = after.checked_sub(1)?;
        let from = address - self.regions[region].guest;
        (from < self.regions[region].length).then_some((region, from))
    }

    fn span(
        &self,
        found: Option<(usize, u64)>,
        what: &'static str,
        address: u64,
        length: u64,
    ) -> Result<Span, RingError> {
        let inside = found.filter(|(region, from)| length <= self.regions[*region].length - from);
        let (region, from) = inside.ok_or(RingError::Outside {
            what,
            address,
            length,
        })?;
        Ok(Span {
            region: region as u32,
            at: self.regions[region].at + from as usize,
            length: length as usize,
        })
    }

    /// Returns the bytes of a span. Other processes may change them at any time.
    #[inline]
    pub(crate) fn slice(&self, span: Span) -> VolatileSlice<'_> {
        let map = &self.regions[span.region as usize].map;
        map.get_slice(span.at, span.length)
            .expect("a span is inside its region")
    }
}
