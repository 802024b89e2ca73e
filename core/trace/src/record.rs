//! Request in the fixed-width form in which it is stored, mapped and replayed.

use bytemuck::{Pod, Zeroable};
use model::Op;

/// Largest number of volumes in a trace. Protects every per-volume table from a wrong column mapping (with offsets as
/// volume names, every request would have its own volume).
pub const VOLUMES_MAX: usize = 1 << 16;

/// Longest name of a volume in bytes. Protects the name table from a runaway column.
pub const VOLUME_NAME_BYTES_MAX: usize = 255;

/// Value of an unknown latency in a column with other latencies.
pub const LATENCY_UNKNOWN: u64 = u64::MAX;

const VOLUME_BITS: u32 = 24;
const VOLUME_MASK: u32 = (1 << VOLUME_BITS) - 1;

/// Request of 24 bytes, little-endian, without padding. The native format and replays consist of these records.
///
/// ```text
///  0        8              16             20          23   24
///  ├────────┼──────────────┼──────────────┼───────────┼────┤
///  │time_ns │ offset_bytes │ length_bytes │ volume    │ op │
///  └────────┴──────────────┴──────────────┴───────────┴────┘
/// ```
///
/// A *valid* record has an op code of 0..=3, a volume below the trace's number of volumes, an end
/// (`offset + length`) below 2^64, and a length of zero exactly when it is a flush, which also has offset zero.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Record {
    /// Arrival in nanoseconds since the trace's start.
    pub time_ns: u64,
    /// First byte, counted from the volume's start.
    pub offset_bytes: u64,
    /// Length in bytes; zero exactly for a flush.
    pub length_bytes: u32,
    volume_and_op: u32,
}

/// Unpacked form of a [`Record`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Arrival in nanoseconds since the trace's start.
    pub time_ns: u64,
    /// Index into the trace's volumes, below [`VOLUMES_MAX`].
    pub volume: u32,
    /// Kind.
    pub op: Op,
    /// First byte; ignored for a flush.
    pub offset_bytes: u64,
    /// Length in bytes; ignored for a flush.
    pub length_bytes: u32,
}

impl Record {
    /// Size in a file and in memory.
    pub const SIZE_BYTES: usize = size_of::<Record>();

    /// Packs a request. A flush has no range: its offset and length become zero.
    ///
    /// # Panics
    /// If the volume index needs more than 24 bits. Indices come from an interner that stops at [`VOLUMES_MAX`].
    #[inline]
    pub fn new(request: Request) -> Self {
        assert!(
            request.volume <= VOLUME_MASK,
            "volume index {} needs more than 24 bits",
            request.volume
        );
        let (offset_bytes, length_bytes) = if request.op == Op::Flush {
            (0, 0)
        } else {
            (request.offset_bytes, request.length_bytes)
        };
        Self {
            time_ns: request.time_ns,
            offset_bytes,
            length_bytes,
            volume_and_op: request.volume | (request.op as u32) << VOLUME_BITS,
        }
    }

    /// Returns the kind. On an unverified record an unknown code is mapped to one of the four known ones, so no byte
    /// pattern can panic here. [`crate::NativeTrace::verify`] rejects such codes.
    #[inline]
    pub fn op(&self) -> Op {
        Op::ALL[(self.op_code() & 3) as usize]
    }

    /// Returns the volume's index in the trace's table of volumes.
    #[inline]
    pub fn volume(&self) -> u32 {
        self.volume_and_op & VOLUME_MASK
    }

    /// Returns the offset after the last byte. Wraps only on an invalid record.
    #[inline]
    pub fn end_offset_bytes(&self) -> u64 {
        self.offset_bytes.wrapping_add(u64::from(self.length_bytes))
    }

    /// Returns the op code as stored, which may be unknown.
    #[inline]
    pub(crate) fn op_code(&self) -> u32 {
        self.volume_and_op >> VOLUME_BITS
    }

    /// Returns the reason that the record is invalid in a trace of `volumes` volumes; `None` if it is valid.
    pub(crate) fn invalid(&self, volumes: usize) -> Option<&'static str> {
        let flush = self.op_code() == Op::Flush as u32;
        if self.op_code() > Op::Flush as u32 {
            Some("unknown op code")
        } else if self.volume() as usize >= volumes {
            Some("volume index beyond the table of volumes")
        } else if flush && (self.length_bytes != 0 || self.offset_bytes != 0) {
            Some("a flush must have no range")
        } else if !flush && self.length_bytes == 0 {
            Some("zero length")
        } else if self
            .offset_bytes
            .checked_add(u64::from(self.length_bytes))
            .is_none()
        {
            Some("offset + length is beyond 2^64")
        } else {
            None
        }
    }
}

/// Request as read from a file, before times are sorted and made relative.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawRecord {
    /// Arrival in nanoseconds on the source's own clock (see [`crate::SourceClock`]).
    pub time_ns: i64,
    /// First byte.
    pub offset_bytes: u64,
    /// Service or response time in nanoseconds, or [`LATENCY_UNKNOWN`].
    pub latency_ns: u64,
    /// Length in bytes.
    pub length_bytes: u32,
    /// Index into [`crate::RecordSource::volumes`].
    pub volume: u32,
    /// Kind.
    pub op: Op,
}

impl RawRecord {
    /// Record of zeros, to be filled by [`crate::RecordSource::next`].
    pub const EMPTY: RawRecord = RawRecord {
        time_ns: 0,
        offset_bytes: 0,
        latency_ns: LATENCY_UNKNOWN,
        length_bytes: 0,
        volume: 0,
        op: Op::Read,
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_record_keeps_each_field() {
        for op in Op::ALL {
            let request = Request {
                time_ns: 7,
                volume: VOLUME_MASK,
                op,
                offset_bytes: 4096,
                length_bytes: 512,
            };
            let r = Record::new(request);
            assert_eq!((r.op(), r.volume(), r.time_ns), (op, VOLUME_MASK, 7));
            let range = if op == Op::Flush { (0, 0) } else { (4096, 512) };
            assert_eq!((r.offset_bytes, r.length_bytes), range);
            assert_eq!(r.invalid(1 << 24), None);
        }
        assert_eq!(Record::SIZE_BYTES, 24);
    }
}
