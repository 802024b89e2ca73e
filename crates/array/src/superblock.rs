//! The first bytes of a device: whose it is.
//!
//! ```text
//! offset  size  field                                       all numbers little-endian
//! ──────  ────  ───────────────────────────────────────
//! 0       8     magic: 89 'T' 'R' 'D' 0D 0A 1A 0A
//! 8       4     version: 1
//! 12      2     device id
//! 14      2     zero
//! 16      16    array id
//! 32      8     extent size, bytes
//! 40      4     number of slots
//! 44      4044  zero
//! 4088    8     XXH3-64 of bytes 0..4088
//! ```
//!
//! It takes up the first 4 KiB; the rest of the first MiB ([`DATA_START`]) is kept for later. Magic, version and checksum
//! have their places in every version. Files and block devices have one, exports of NBD servers have none.

use thiserror::Error;
use units::{Bytes, DeviceId};
use xxhash_rust::xxh3::xxh3_64;

use crate::ArrayId;

/// Where slot 0 begins on a file or block device; slot `s` begins at `DATA_START + s * extent`.
pub const DATA_START: u64 = 1 << 20;

/// Length of a superblock: what all devices write in one piece, or can read at least.
pub const SUPERBLOCK_BYTES: usize = 4096;

const MAGIC: [u8; 8] = [0x89, b'T', b'R', b'D', 0x0D, 0x0A, 0x1A, 0x0A];
const VERSION: u32 = 1;
const SUM_AT: usize = SUPERBLOCK_BYTES - 8;

/// Whose a device is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Superblock {
    /// The array.
    pub array: ArrayId,
    /// Which of its devices.
    pub device: DeviceId,
    /// Size of a slot.
    pub extent: Bytes,
    /// Number of slots.
    pub slots: u32,
}

/// Why bytes are not a superblock.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SuperblockError {
    /// Fewer bytes than a superblock has.
    #[error("superblock: {found} bytes, needs {SUPERBLOCK_BYTES}")]
    Short {
        /// How many there are.
        found: usize,
    },
    /// Nothing but zeroes: nobody's device.
    #[error("superblock: bytes 0 to 4096 are zero: the device belongs to no array")]
    Blank,
    /// Something else.
    #[error("superblock: magic at byte 0 is not ours: the device belongs to something else")]
    Magic,
    /// Damaged.
    #[error("superblock: checksum at byte 4088 does not fit bytes 0 to 4088")]
    Checksum,
    /// Written by a newer version of the program.
    #[error(
        "superblock: version at byte 8 is {found}, newer than this program, which reads up to {VERSION}"
    )]
    Version {
        /// The version.
        found: u32,
    },
    /// A field has an impossible value although the checksum fits.
    #[error("superblock: {field} at byte {offset}: {why}")]
    Field {
        /// Which.
        field: &'static str,
        /// Where.
        offset: usize,
        /// Why.
        why: String,
    },
}

impl Superblock {
    /// Its bytes.
    pub fn encode(&self) -> [u8; SUPERBLOCK_BYTES] {
        let mut bytes = [0; SUPERBLOCK_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..14].copy_from_slice(&self.device.0.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.array.0);
        bytes[32..40].copy_from_slice(&self.extent.0.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.slots.to_le_bytes());
        let sum = xxh3_64(&bytes[..SUM_AT]);
        bytes[SUM_AT..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Reads it from the first bytes of a device, of which there may be more.
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
        if version > VERSION {
            return Err(SuperblockError::Version { found: version });
        }
        let refuse = |field, offset, why: &str| {
            let why = why.into();
            Err(SuperblockError::Field { field, offset, why })
        };
        if version == 0 {
            return refuse("version", 8, "must not be 0");
        }
        if let Some(at) = (14..16).chain(44..SUM_AT).find(|i| bytes[*i] != 0) {
            return refuse("reserved byte", at, "must be 0");
        }
        let superblock = Self {
            array: ArrayId(field(bytes, 16)),
            device: DeviceId(u16::from_le_bytes(field(bytes, 12))),
            extent: Bytes(u64::from_le_bytes(field(bytes, 32))),
            slots: u32::from_le_bytes(field(bytes, 40)),
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
