//! Tables of the map, and the seal of a value with its checksum.
//!
//! ```text
//!   value of a record                                    value of an extent: 14 bytes
//!  ┌─────────┬──────────┬───────────────────────────┐   ┌────────┬──────┬───────────────────────────┐
//!  │ version │ fields … │ XXH3-64 of table number,  │   │ device │ slot │ XXH3-64 of table number,  │
//!  │ 1 byte  │          │ key and the bytes before  │   │ 2      │ 4    │ key and the bytes before  │
//!  └─────────┴──────────┴───────────────────────────┘   └────────┴──────┴───────────────────────────┘
//! ```
//!
//! The value of a changed extent is the checksum alone.
//!
//! All numbers are little-endian, also those of the key in the checksum. The table's number is one byte.

use redb::TableDefinition;
use units::VolumeId;
use volume::Location;
use xxhash_rust::xxh3::xxh3_64;

use crate::ArrayError;

/// Version of the format that this program reads and writes.
pub const FORMAT_VERSION: u32 = 3;

/// Version of a record's layout, its first byte, unless the record has a newer one.
pub(crate) const RECORD_VERSION: u8 = 1;

/// Version of the record of a move of some extents. A program that does not support it must refuse the record, or it
/// would move the whole volume.
pub(crate) const RANGES_VERSION: u8 = 2;

/// Version of a device record with a setting for direct I/O. A program that does not support it would use the page
/// cache.
pub(crate) const DIRECT_VERSION: u8 = 2;

/// Version of a snapshot's record. A program that does not support it would write to slots that are shared.
pub(crate) const SNAPSHOT_VERSION: u8 = 2;

/// Version of the record of an imported volume. A program that does not support it would treat extents at the source as
/// lost.
pub(crate) const SOURCE_VERSION: u8 = 3;

pub(crate) type Bytes = &'static [u8];
pub(crate) type ExtentBytes = &'static [u8; EXTENT_VALUE_BYTES];

pub(crate) const EXTENT_VALUE_BYTES: usize = 14;

pub(crate) type ChangedBytes = &'static [u8; SUM_BYTES];

/// One record, [`META_KEY`].
pub(crate) const META: TableDefinition<&str, Bytes> = TableDefinition::new("meta");
pub(crate) const META_KEY: &str = "array";
pub(crate) const TIERS: TableDefinition<u16, Bytes> = TableDefinition::new("tiers");
pub(crate) const DEVICES: TableDefinition<u16, Bytes> = TableDefinition::new("devices");
pub(crate) const VOLUMES: TableDefinition<u32, Bytes> = TableDefinition::new("volumes");
pub(crate) const EXTENTS: TableDefinition<u64, ExtentBytes> = TableDefinition::new("extents");
pub(crate) const MOVES: TableDefinition<u32, Bytes> = TableDefinition::new("moves");

/// Two records: [`STATE_KEY`] is the state of a copy, [`STATE_SUM_KEY`] the sum over all other
/// records.
pub(crate) const STATE: TableDefinition<&str, Bytes> = TableDefinition::new("state");
pub(crate) const STATE_KEY: &str = "now";
pub(crate) const STATE_SUM_KEY: &str = "sum";
/// Stamps that the superblocks of devices must carry.
pub(crate) const STAMPS: TableDefinition<u16, Bytes> = TableDefinition::new("stamps");
/// Sums over the records of each volume (`sums`).
pub(crate) const SUMS: TableDefinition<u32, Bytes> = TableDefinition::new("sums");
/// Extents that may differ from the previous snapshot, with the keys of [`EXTENTS`]. A value is
/// only a checksum.
pub(crate) const CHANGED: TableDefinition<u64, ChangedBytes> = TableDefinition::new("changed");

/// Table, as named in messages and covered by checksums.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Table {
    Meta = 0,
    Tiers = 1,
    Devices = 2,
    Volumes = 3,
    Extents = 4,
    Moves = 5,
    State = 6,
    Stamps = 7,
    Changed = 8,
    Sums = 9,
}

impl Table {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Table::Meta => "meta",
            Table::Tiers => "tiers",
            Table::Devices => "devices",
            Table::Volumes => "volumes",
            Table::Extents => "extents",
            Table::Moves => "moves",
            Table::State => "state",
            Table::Stamps => "stamps",
            Table::Changed => "changed",
            Table::Sums => "sums",
        }
    }
}

/// Key, as covered by the checksum and shown in messages.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Key {
    Name(&'static str),
    Short(u16),
    Long(u32),
    Extent(u64),
}

impl Key {
    fn with_bytes<T>(self, with: impl FnOnce(&[u8]) -> T) -> T {
        match self {
            Key::Name(name) => with(name.as_bytes()),
            Key::Short(id) => with(&id.to_le_bytes()),
            Key::Long(id) => with(&id.to_le_bytes()),
            Key::Extent(key) => with(&key.to_le_bytes()),
        }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Key::Name(name) => f.write_str(name),
            Key::Short(id) => write!(f, "{id}"),
            Key::Long(id) => write!(f, "{id}"),
            Key::Extent(key) => {
                let (volume, extent) = split_key(*key);
                write!(f, "{}:{extent}", volume.0)
            }
        }
    }
}

/// Returns the key of an extent. Keys are ordered by volume, then extent.
pub(crate) fn extent_key(volume: VolumeId, extent: u32) -> u64 {
    u64::from(volume.0) << 32 | u64::from(extent)
}

/// Returns volume and extent of a key.
pub(crate) fn split_key(key: u64) -> (VolumeId, u32) {
    (VolumeId((key >> 32) as u32), key as u32)
}

/// Returns the range of keys of a volume's extents.
pub(crate) fn keys_of(volume: VolumeId) -> std::ops::RangeInclusive<u64> {
    extent_key(volume, 0)..=extent_key(volume, u32::MAX)
}

const SUM_BYTES: usize = 8;

fn checksum(table: Table, key: Key, body: &[u8]) -> u64 {
    let mut covered = Vec::with_capacity(16 + body.len());
    covered.push(table as u8);
    key.with_bytes(|k| covered.extend_from_slice(k));
    covered.extend_from_slice(body);
    xxh3_64(&covered)
}

/// Appends the checksum to a body.
pub(crate) fn seal(table: Table, key: Key, mut body: Vec<u8>) -> Vec<u8> {
    let sum = checksum(table, key, &body);
    body.extend_from_slice(&sum.to_le_bytes());
    body
}

/// Returns the body of a value if its checksum matches.
pub(crate) fn unseal(table: Table, key: Key, value: &[u8]) -> Result<&[u8], ArrayError> {
    let parts = value.split_last_chunk::<SUM_BYTES>();
    match parts {
        Some((body, sum)) if u64::from_le_bytes(*sum) == checksum(table, key, body) => Ok(body),
        _ => Err(ArrayError::Corrupt {
            table: table.name(),
            key: key.to_string(),
        }),
    }
}

fn extent_checksum(key: u64, body: [u8; 6]) -> u64 {
    let mut covered = [0; 15];
    covered[0] = Table::Extents as u8;
    covered[1..9].copy_from_slice(&key.to_le_bytes());
    covered[9..].copy_from_slice(&body);
    xxh3_64(&covered)
}

/// Encodes the record of an extent.
pub(crate) fn seal_extent(key: u64, at: Location) -> [u8; EXTENT_VALUE_BYTES] {
    let mut value = [0; EXTENT_VALUE_BYTES];
    value[..2].copy_from_slice(&at.device.0.to_le_bytes());
    value[2..6].copy_from_slice(&at.slot.to_le_bytes());
    let body = value[..6].try_into().expect("six bytes");
    value[6..].copy_from_slice(&extent_checksum(key, body).to_le_bytes());
    value
}

/// Decodes the place in an extent's record, if its checksum matches.
pub(crate) fn unseal_extent(
    key: u64,
    value: &[u8; EXTENT_VALUE_BYTES],
) -> Result<Location, ArrayError> {
    let body: [u8; 6] = value[..6].try_into().expect("six bytes");
    if extent_checksum(key, body).to_le_bytes() != value[6..] {
        return Err(ArrayError::Corrupt {
            table: Table::Extents.name(),
            key: Key::Extent(key).to_string(),
        });
    }
    let [d0, d1, s0, s1, s2, s3] = body;
    Ok(Location {
        device: units::DeviceId(u16::from_le_bytes([d0, d1])),
        slot: u32::from_le_bytes([s0, s1, s2, s3]),
    })
}

/// Encodes the record of a changed extent.
pub(crate) fn seal_changed(key: u64) -> [u8; SUM_BYTES] {
    let mut covered = [0; 9];
    covered[0] = Table::Changed as u8;
    covered[1..].copy_from_slice(&key.to_le_bytes());
    xxh3_64(&covered).to_le_bytes()
}

/// Verifies the checksum of the record of a changed extent.
pub(crate) fn unseal_changed(key: u64, value: &[u8; SUM_BYTES]) -> Result<(), ArrayError> {
    match *value == seal_changed(key) {
        true => Ok(()),
        false => Err(ArrayError::Corrupt {
            table: Table::Changed.name(),
            key: Key::Extent(key).to_string(),
        }),
    }
}
