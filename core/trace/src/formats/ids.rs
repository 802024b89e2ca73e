//! Addresses for ids without addresses: block numbers without a unit, and ids of objects.

use std::collections::BTreeMap;
use std::str::FromStr;

use units::Bytes;

use crate::error::{FieldError, OptionError};

/// Largest number of objects, about 500 MB. Protects memory from a trace of ever new ids.
const OBJECTS_MAX: usize = 1 << 23;
/// Alignment of objects, so two objects never share a page.
const ALIGNMENT_BYTES: u64 = 4096;

/// Placement of the ids of a trace, for formats without addresses ([`crate::Format::Lis`], [`crate::Format::Lirs`],
/// [`crate::Format::OracleGeneral`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdPlacement {
    /// An id is the number of a block of this size: it begins at id · size. The size is not zero.
    Blocks(Bytes),
    /// An id is a name. Each one gets its own range in order of first appearance, rounded up to 4 KiB. An id that turns
    /// out to be larger than its range gets a new one. Use this for hashes, which as block numbers would be beyond any
    /// volume. Adjacent addresses then have no relation in the trace's source.
    Appearance,
}

impl FromStr for IdPlacement {
    type Err = OptionError;

    /// Parses a size such as `4 KiB`, or `appearance`.
    fn from_str(text: &str) -> Result<Self, OptionError> {
        if text == "appearance" {
            return Ok(IdPlacement::Appearance);
        }
        match text.parse::<Bytes>() {
            Ok(Bytes(0)) => Err(OptionError::EmptyBlock),
            Ok(bytes) => Ok(IdPlacement::Blocks(bytes)),
            Err(error) => Err(OptionError::Ids(error)),
        }
    }
}

/// Allocator of address ranges by first appearance.
#[derive(Debug, Default)]
pub(super) struct Places {
    by_id: BTreeMap<u64, Place>,
    next: u64,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    start: u64,
    bytes: u64,
}

impl Places {
    /// Returns the start of an object of at least `bytes` bytes.
    pub(super) fn start(
        &mut self,
        id: u64,
        text: &[u8],
        bytes: u64,
    ) -> Result<u64, Box<FieldError>> {
        if let Some(place) = self.by_id.get(&id)
            && place.bytes >= bytes
        {
            return Ok(place.start);
        }
        if self.by_id.len() == OBJECTS_MAX {
            let reason = format!("more than {OBJECTS_MAX} objects");
            return Err(FieldError::new("id", text, reason));
        }
        let full = || FieldError::new("size", text, "the objects exceed 2^64 bytes in total");
        let bytes = bytes
            .max(1)
            .checked_next_multiple_of(ALIGNMENT_BYTES)
            .ok_or_else(full)?;
        let end = self.next.checked_add(bytes).ok_or_else(full)?;
        let start = std::mem::replace(&mut self.next, end);
        self.by_id.insert(id, Place { start, bytes });
        Ok(start)
    }
}

/// Returns an id's address under a placement.
pub(super) fn place(
    placement: IdPlacement,
    places: &mut Places,
    id: u64,
    text: &[u8],
    bytes: u64,
) -> Result<u64, Box<FieldError>> {
    match placement {
        IdPlacement::Blocks(block) => id.checked_mul(block.0).ok_or_else(|| {
            let reason = format!(
                "block {id} of {} bytes starts beyond 2^64: if ids are hashes, use --ids appearance",
                block.0
            );
            FieldError::new("id", text, reason)
        }),
        IdPlacement::Appearance => places.start(id, text, bytes),
    }
}
