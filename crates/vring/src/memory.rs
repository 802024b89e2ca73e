//! A guest's memory as this process has it mapped.
//!
//! ```text
//!  guest's addresses     0 ─────────── 0xc0000          0x1_0000_0000 ────────
//!                        region 0                        region 1
//!  who runs it           0x7f10_0000_0000                0x7f55_0000_0000
//! ```
//!
//! Descriptors speak in the guest's addresses, the rings' places are told in those of the process that runs it. Both are looked up
//! once: a [`Span`] is inside its region for as long as the memory is there, since regions never change. Whatever is *in* the memory
//! may change between two looks, so nobody looks twice at what has to stay the same.

use std::sync::Arc;

use vm_memory::{MmapRegion, VolatileMemory, VolatileSlice};

use crate::RingError;

/// A part of a guest's memory, in one mapping.
#[derive(Debug)]
pub struct Region {
    /// Its first byte as the guest calls it.
    pub guest: u64,
    /// As the process that runs the guest calls it.
    pub user: u64,
    /// Bytes.
    pub length: u64,
    /// Where it is mapped.
    pub map: Arc<MmapRegion>,
    /// Where it begins there.
    pub at: usize,
}

/// A piece of memory that is known to be mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    region: u32,
    at: usize,
    length: usize,
}

impl Span {
    /// Bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }
}

/// All of a guest's memory.
#[derive(Debug)]
pub struct Memory {
    /// In order of the guest's addresses.
    regions: Vec<Region>,
}

impl Memory {
    /// Of these regions.
    ///
    /// # Errors
    /// When they overlap, or are not in their mappings.
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

    /// Adds where some bytes are, which the guest names; they may lie in regions that follow one another.
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

    /// Where some bytes are, which the guest names and which lie in one region.
    pub(crate) fn whole(
        &self,
        what: &'static str,
        address: u64,
        length: u64,
    ) -> Result<Span, RingError> {
        let found = self.region_of(address);
        self.span(found, what, address, length)
    }

    /// Where a ring is, which the process that runs the guest names.
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

    /// The bytes of a span, which others may change at any moment.
    #[inline]
    pub(crate) fn slice(&self, span: Span) -> VolatileSlice<'_> {
        let map = &self.regions[span.region as usize].map;
        map.get_slice(span.at, span.length)
            .expect("a span is inside its region")
    }
}
