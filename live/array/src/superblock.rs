//! Superblock: the first bytes of a device, which identify its array.
//!
//! ```text
//! offset  size  field                                       all numbers little-endian
//! ──────  ────  ───────────────────────────────────────
//! 0       8     magic: 89 'T' 'R' 'D' 0D 0A 1A 0A
//! 8       4     version: 3
//! 12      2     device id
//! 14      2     zero
//! 16      16    array id
//! 32      8     extent size, bytes
//! 40      4     number of slots
//! 44      8     generation of the membership
//! 52      8     its nonce
//! 60      1     1 if everything written was flushed when the array was last closed, else 0
//! 61      3     zero
//! 64      16    boot of the host on which it was last used
//! 80      8     commits of the map up to then, if everything was flushed
//! 88      4000  zero
//! 4088    8     XXH3-64 of bytes 0..4088
//! ```
//!
//! The superblock occupies the first 4 KiB, and a second copy the next 4 KiB ([`SUPERBLOCKS_BYTES`] in all). It is
//! rewritten often, and a power loss may tear one copy, so the second is written and flushed before the first
//! ([`Superblock::writes`]). The later one of the two counts.
//!
//! The rest of the first MiB ([`DATA_START`]) is reserved. Magic, version and checksum have the same place in every
//! version.

use thiserror::Error;
use units::{Bytes, DeviceId};
use xxhash_rust::xxh3::xxh3_64;

use crate::{ArrayId, Stamp};

/// Offset of slot 0 on a file or block device; slot `s` begins at `DATA_START + s * extent`.
pub const DATA_START: u64 = 1 << 20;

/// Length of a superblock: a size that all devices can read, and that they write in one piece.
pub const SUPERBLOCK_BYTES: usize = 4096;

const MAGIC: [u8; 8] = [0x89, b'T', b'R', b'D', 0x0D, 0x0A, 0x1A, 0x0A];
/// Length of both superblocks of a device.
pub const SUPERBLOCKS_BYTES: usize = 2 * SUPERBLOCK_BYTES;

const VERSION: u32 = 3;
const SUM_AT: usize = SUPERBLOCK_BYTES - 8;

/// Identity of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Superblock {
    pub array: ArrayId,
    pub device: DeviceId,
    /// Size of a slot.
    pub extent: Bytes,
    /// Number of slots.
    pub slots: u32,
    /// Last membership that the device was part of.
    pub stamp: Stamp,
    /// True if all writes to the device were flushed when the array was last closed.
    pub flushed: bool,
    /// Boot of the host on which the device was last used; 0 if it never was.
    pub boot: u128,
    /// Number of commits of the map when the array was last closed with everything flushed; else 0.
    pub commits: u64,
}

impl Superblock {
    /// Returns the writes, in order, that put this superblock in both places; each must be durable before the next.
    /// `there` is the present content of both places as read, which need not be on the medium. At any moment one of the
    /// two places is intact on the medium:
    ///
    /// - The first place is written only when the second is durable. The first may be torn, or missing on the medium
    ///   after a   failed flush, in which case it reads like the second. So it is made equal to the second before the
    ///   second is touched.
    /// - The second place is written only when the first is durable. If both are intact and differ, the second was
    ///   being   written or is durable, and the first is older.
    pub fn writes(&self, there: &[u8]) -> Vec<(u64, [u8; SUPERBLOCK_BYTES])> {
        const SECOND: u64 = SUPERBLOCK_BYTES as u64;
        let block = self.encode();
        let (first, rest) = there.split_at(SUPERBLOCK_BYTES.min(there.len()));
        let second = rest.first_chunk::<SUPERBLOCK_BYTES>();
        let good = second.filter(|second| Self::decode(&second[..]).is_ok());
        let torn = Self::decode(first) == Err(SuperblockError::Checksum);
        let mut writes = vec![];
        if let Some(second) = good.filter(|second| torn || second[..] == *first) {
            writes.push((0, *second));
            if *second == block {
                return writes;
            }
        }
        writes.extend([(SECOND, block), (0, block)]);
        writes
    }
}

/// Reason bytes are not a superblock.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SuperblockError {
    /// Fewer bytes than a superblock has.
    #[error("superblock: {found} bytes, needs {SUPERBLOCK_BYTES}")]
    Short {
        /// Number of bytes.
        found: usize,
    },
    /// Only zeroes: the device belongs to no array.
    #[error("superblock: bytes 0 to 4096 are zero: the device belongs to no array")]
    Blank,
    /// Data of another program.
    #[error("superblock: unknown magic at byte 0: another program uses the device")]
    Magic,
    /// Damaged superblock.
    #[error("superblock: checksum at byte 4088 does not fit bytes 0 to 4088")]
    Checksum,
    /// Written by another version of the program.
    #[error(
        "superblock: version at byte 8 is {found}, and this program reads version {VERSION}: use the program that wrote it"
    )]
    Version {
        /// Version in the superblock.
        found: u32,
    },
    /// A field has an invalid value although the checksum matches.
    #[error("superblock: {field} at byte {offset}: {why}")]
    Field {
        field: &'static str,
        offset: usize,
        why: String,
    },
}

impl Superblock {
    /// Encodes the superblock.
    pub fn encode(&self) -> [u8; SUPERBLOCK_BYTES] {
        let mut bytes = [0; SUPERBLOCK_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..14].copy_from_slice(&self.device.0.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.array.0);
        bytes[32..40].copy_from_slice(&self.extent.0.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.slots.to_le_bytes());
        bytes[44..52].copy_from_slice(&self.stamp.generation.to_le_bytes());
        bytes[52..60].copy_from_slice(&self.stamp.nonce.to_le_bytes());
        bytes[60] = u8::from(self.flushed);
        bytes[64..80].copy_from_slice(&self.boot.to_le_bytes());
        bytes[80..88].copy_from_slice(&self.commits.to_le_bytes());
        let sum = xxh3_64(&bytes[..SUM_AT]);
        bytes[SUM_AT..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Reads the later one of the two superblocks at the start of a device; if one is unreadable, the other one. The
    /// error is that of the first.
    ///
    /// # Errors
    /// [`SuperblockError`].
    pub fn decode_both(bytes: &[u8]) -> Result<Self, SuperblockError> {
        let first = Self::decode(bytes);
        let second = bytes.get(SUPERBLOCK_BYTES..).map(Self::decode);
        match (first, second) {
            // If both have the same membership, the one that promises less counts.
            (Ok(a), Some(Ok(b))) => {
                let later = |s: &Self| (s.stamp, !s.flushed);
                Ok(if later(&b) > later(&a) { b } else { a })
            }
            // Data of another program at the start is not a torn write.
            (Err(SuperblockError::Checksum), Some(Ok(b))) => Ok(b),
            (first, _) => first,
        }
    }

    /// Returns true if this is the superblock of this device of this array, of any membership.
    pub fn is_of(&self, array: ArrayId, device: DeviceId, extent: Bytes, slots: u32) -> bool {
        (self.array, self.device, self.extent, self.slots) == (array, device, extent, slots)
    }

    /// Decodes a superblock from the first bytes of a device; more bytes may follow.
    pub fn decode(bytes: &[u8]) -> Result<Self, SuperblockError> {
        let found = bytes.len();
        let bytes = bytes
            .first_chunk::<SUPERBLOCK_BYTES>()
            .ok_or(SuperblockError::Short { found })?;
        if bytes.iter().all(|b| *b == 0) {
            return Err(SuperblockError::Blank);
        }
        if bytes[..8] != MAGIC {
            return Err(SuperblockError::Magic);
        }
        if xxh3_64(&bytes[..SUM_AT]).to_le_bytes() != bytes[SUM_AT..] {
            return Err(SuperblockError::Checksum);
        }
        let version = u32::from_le_bytes(field(bytes, 8));
        if version != VERSION {
            return Err(SuperblockError::Version { found: version });
        }
        let refuse = |field, offset, why: &str| {
            let why = why.into();
            Err(SuperblockError::Field { field, offset, why })
        };
        let reserved = (14..16).chain(61..64).chain(88..SUM_AT);
        if let Some(at) = reserved.into_iter().find(|i| bytes[*i] != 0) {
            return refuse("reserved byte", at, "must be 0");
        }
        if bytes[60] > 1 {
            return refuse("flushed", 60, "must be 0 or 1");
        }
        let superblock = Self {
            array: ArrayId(field(bytes, 16)),
            device: DeviceId(u16::from_le_bytes(field(bytes, 12))),
            extent: Bytes(u64::from_le_bytes(field(bytes, 32))),
            slots: u32::from_le_bytes(field(bytes, 40)),
            stamp: Stamp {
                generation: u64::from_le_bytes(field(bytes, 44)),
                nonce: u64::from_le_bytes(field(bytes, 52)),
            },
            flushed: bytes[60] == 1,
            boot: u128::from_le_bytes(field(bytes, 64)),
            commits: u64::from_le_bytes(field(bytes, 80)),
        };
        let extent = superblock.extent;
        if !extent.0.is_power_of_two() || extent < crate::EXTENT_MIN || extent > crate::EXTENT_MAX {
            return refuse("extent size", 32, &format!("{extent} is not possible"));
        }
        if superblock.slots == 0 {
            return refuse("number of slots", 40, "must not be 0");
        }
        Ok(superblock)
    }
}

fn field<const N: usize>(bytes: &[u8; SUPERBLOCK_BYTES], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("N bytes")
}
