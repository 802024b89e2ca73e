//! The first bytes of a device: whose it is.
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
//! It takes up the first 4 KiB, and a second time the next 4 KiB ([`SUPERBLOCKS_BYTES`] in all), since it is written again and again and a
//! power loss may tear one of them: the second is written and flushed before the first ([`Superblock::writes`]). Of the two the later
//! one counts.
//! The rest of the first MiB ([`DATA_START`]) is kept for later. Magic, version and checksum have their places in every version.

use thiserror::Error;
use units::{Bytes, DeviceId};
use xxhash_rust::xxh3::xxh3_64;

use crate::{ArrayId, Stamp};

/// Where slot 0 begins on a file or block device; slot `s` begins at `DATA_START + s * extent`.
pub const DATA_START: u64 = 1 << 20;

/// Length of a superblock: what all devices write in one piece, or can read at least.
pub const SUPERBLOCK_BYTES: usize = 4096;

const MAGIC: [u8; 8] = [0x89, b'T', b'R', b'D', 0x0D, 0x0A, 0x1A, 0x0A];
/// Bytes of both superblocks of a device.
pub const SUPERBLOCKS_BYTES: usize = 2 * SUPERBLOCK_BYTES;

const VERSION: u32 = 3;
const SUM_AT: usize = SUPERBLOCK_BYTES - 8;

/// Whose a device is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Superblock {
    pub array: ArrayId,
    pub device: DeviceId,
    /// Size of a slot.
    pub extent: Bytes,
    /// Number of slots.
    pub slots: u32,
    /// The membership that it was last part of.
    pub stamp: Stamp,
    /// Whether everything that was written to it was flushed when the array was last closed.
    pub flushed: bool,
    /// The boot of the host on which it was last used; 0 if it never was.
    pub boot: u128,
    /// How many commits the map had when the array was last closed with everything flushed; else 0.
    pub commits: u64,
}

impl Superblock {
    /// What to write where on a device so that both places hold it, in this order and each durably before the next. `there` is what they hold
    /// now, as it is read: that need not be on the medium. At any moment one of the two is good on the medium:
    ///
    /// - The first place is written only when the second is durable. So a first one that is torn, or may not be on the medium as its flush failed
    ///   (it is read as what the second is then), is made what the second is before that one is touched.
    /// - The second place is written only when the first is durable. Where both are read as good and differ the second was being written, or
    ///   is durable, and the first is older.
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
    #[error("superblock: unknown magic at byte 0: another program uses the device")]
    Magic,
    /// Damaged.
    #[error("superblock: checksum at byte 4088 does not fit bytes 0 to 4088")]
    Checksum,
    /// Written by another version of the program.
    #[error(
        "superblock: version at byte 8 is {found}, and this program reads version {VERSION}: use the program that wrote it"
    )]
    Version {
        /// The version.
        found: u32,
    },
    /// A field has an impossible value although the checksum fits.
    #[error("superblock: {field} at byte {offset}: {why}")]
    Field {
        field: &'static str,
        offset: usize,
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
        bytes[44..52].copy_from_slice(&self.stamp.generation.to_le_bytes());
        bytes[52..60].copy_from_slice(&self.stamp.nonce.to_le_bytes());
        bytes[60] = u8::from(self.flushed);
        bytes[64..80].copy_from_slice(&self.boot.to_le_bytes());
        bytes[80..88].copy_from_slice(&self.commits.to_le_bytes());
        let sum = xxh3_64(&bytes[..SUM_AT]);
        bytes[SUM_AT..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Reads the later one of the two at the start of a device; if one cannot be read, the other. What is wrong is said of the first.
    ///
    /// # Errors
    /// [`SuperblockError`].
    pub fn decode_both(bytes: &[u8]) -> Result<Self, SuperblockError> {
        let first = Self::decode(bytes);
        let second = bytes.get(SUPERBLOCK_BYTES..).map(Self::decode);
        match (first, second) {
            // Of two of one membership the one that promises less is taken.
            (Ok(a), Some(Ok(b))) => {
                let later = |s: &Self| (s.stamp, !s.flushed);
                Ok(if later(&b) > later(&a) { b } else { a })
            }
            // Another program's bytes at the start are no torn write.
            (Err(SuperblockError::Checksum), Some(Ok(b))) => Ok(b),
            (first, _) => first,
        }
    }

    /// Whether it is the superblock of this device of this array, whatever membership it is of.
    pub fn is_of(&self, array: ArrayId, device: DeviceId, extent: Bytes, slots: u32) -> bool {
        (self.array, self.device, self.extent, self.slots) == (array, device, extent, slots)
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
