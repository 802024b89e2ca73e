//! virtio-blk: configuration of the disk that a guest sees, and requests in descriptor chains.
//!
//! ```text
//!  readable   type u32, reserved u32, sector u64 │ data of a write, or one range to discard or zero
//!  writable   data of a read, or the name │ status u8
//! ```

use crate::{Chain, RingError};

/// Bytes of a sector, the unit of offsets and lengths, whatever the block size.
pub const SECTOR_BYTES: u64 = 512;

/// Longest disk name that a guest can read.
pub const NAME_BYTES: usize = 20;

/// Bytes of the configuration space that a guest may read; undefined bytes are zero.
pub const CONFIG_BYTES: usize = 256;

/// Offset of the only configuration byte that the guest may write: the state of its write cache.
pub const WRITE_CACHE_AT: u32 = 32;

const HEADER_BYTES: u64 = 16;
const RANGE_BYTES: u64 = 16;
const STATUS_BYTES: u64 = 1;

/// Limits of one request that are announced to the guest: number of buffers, and bytes per buffer. Together they allow 4
/// MiB, which bounds the time that one request delays others.
const SEGMENTS_MAX: u32 = 126;
const SEGMENT_BYTES_MAX: u32 = 32 << 10;

/// Largest number of sectors in a discard or zero range: 1 GiB.
const RANGE_SECTORS_MAX: u32 = 1 << 21;

/// Feature bits of the device and its queues.
pub mod feature {
    /// Limit on the bytes of one buffer.
    pub const SIZE_MAX: u64 = 1 << 1;
    /// Limit on the number of buffers.
    pub const SEG_MAX: u64 = 1 << 2;
    /// Cylinders, heads and sectors, which the BIOS of a PC needs.
    pub const GEOMETRY: u64 = 1 << 4;
    /// Block size.
    pub const BLK_SIZE: u64 = 1 << 6;
    /// Write cache with a flush command.
    pub const FLUSH: u64 = 1 << 9;
    /// Physical block size and recommended I/O sizes.
    pub const TOPOLOGY: u64 = 1 << 10;
    /// The guest may switch the write cache off.
    pub const CONFIG_WCE: u64 = 1 << 11;
    /// Multiple queues.
    pub const MQ: u64 = 1 << 12;
    /// Discard.
    pub const DISCARD: u64 = 1 << 13;
    /// Write zeroes.
    pub const WRITE_ZEROES: u64 = 1 << 14;
    /// Indirect descriptors.
    pub const INDIRECT: u64 = 1 << 28;
    /// Event indices.
    pub const EVENT_INDEX: u64 = 1 << 29;
    /// Protocol features of vhost-user, between the device and the process that runs the guest.
    pub const PROTOCOL: u64 = 1 << 30;
    /// Device of virtio 1.0 or later.
    pub const VERSION_1: u64 = 1 << 32;

    /// All offered features.
    pub const ALL: u64 = SIZE_MAX
        | SEG_MAX
        | GEOMETRY
        | BLK_SIZE
        | FLUSH
        | TOPOLOGY
        | CONFIG_WCE
        | MQ
        | DISCARD
        | WRITE_ZEROES
        | INDIRECT
        | EVENT_INDEX
        | PROTOCOL
        | VERSION_1;
}

/// Returns true if a guest with these features sends flushes for durability. `cached` is the write cache setting of its
/// configuration. Writes of a guest that does not flush must be durable before they complete.
pub fn flushes(features: u64, cached: bool) -> bool {
    let has = |feature| features & feature != 0;
    has(feature::FLUSH) && (!has(feature::CONFIG_WCE) || cached)
}

/// Smallest physical block size that is announced: a flash page.
const PHYSICAL_BLOCK_BYTES: u32 = 4096;

/// Returns the configuration of a disk of `disk_bytes` bytes, with logical blocks of 512 to 4096 bytes.
pub fn config(
    disk_bytes: u64,
    logical_block: u32,
    queues: u16,
    cached: bool,
) -> [u8; CONFIG_BYTES] {
    let sectors = disk_bytes / SECTOR_BYTES;
    // Each BIOS uses 16 heads and 63 sectors for a large disk.
    let cylinders = (sectors / (16 * 63)).min(16383) as u16;
    let mut bytes = [0; CONFIG_BYTES];
    let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
    put(0, &sectors.to_le_bytes());
    put(8, &SEGMENT_BYTES_MAX.to_le_bytes());
    put(12, &SEGMENTS_MAX.to_le_bytes());
    put(16, &cylinders.to_le_bytes());
    put(18, &[16, 63]);
    put(20, &logical_block.to_le_bytes());
    // Logical blocks per physical block, without an offset; a physical block is also the recommended smallest I/O.
    let physical = PHYSICAL_BLOCK_BYTES / logical_block;
    put(24, &[physical.ilog2() as u8, 0]);
    put(26, &(physical as u16).to_le_bytes());
    put(WRITE_CACHE_AT as usize, &[u8::from(cached)]);
    put(34, &queues.to_le_bytes());
    for at in [36, 48] {
        put(at, &RANGE_SECTORS_MAX.to_le_bytes());
        put(at + 4, &1u32.to_le_bytes());
    }
    // Recommended alignment of discard ranges, in sectors, and permission to free the space of zeroed ranges.
    put(44, &8u32.to_le_bytes());
    put(56, &[1]);
    bytes
}

/// Operation of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Makes all completed writes durable.
    Flush,
    /// Reads the name of the disk.
    Name,
    /// Discards the contents.
    Discard,
    /// Writes zeroes; the space may be freed.
    Zero,
    /// Writes zeroes; the space stays allocated.
    ZeroAllocated,
}

/// Block request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Operation to carry out.
    pub operation: Operation,
    /// Offset of the first byte on the disk. It may be beyond the end.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
}

/// Status of a completed request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// The request succeeded.
    Done,
    /// The request failed.
    Failed,
    /// The request type is not supported.
    Unknown,
}

/// Parsed request, or its status if it needs no I/O.
pub type ParsedRequest = Result<Request, Status>;

/// Parses the request of a chain. `most` is the largest number of bytes that a request may transfer.
///
/// # Errors
/// A chain without room for header or status: it cannot be completed at all.
pub fn parse(chain: &Chain, most: u64) -> Result<ParsedRequest, RingError> {
    let (readable, writable) = (chain.readable(), chain.writable());
    if readable < HEADER_BYTES || writable < STATUS_BYTES {
        return Err(RingError::Headless { readable, writable });
    }
    let mut header = [0; HEADER_BYTES as usize];
    chain.read(0, &mut header);
    let (kind, rest) = header.split_first_chunk().expect("16 bytes");
    let sector = rest.last_chunk().expect("12 of them are left");
    let sector = u64::from_le_bytes(*sector);
    let (given, wanted) = (readable - HEADER_BYTES, writable - STATUS_BYTES);
    Ok(match u32::from_le_bytes(*kind) {
        0 => moves(Operation::Read, sector, wanted, most),
        1 => moves(Operation::Write, sector, given, most),
        4 => Ok(Request {
            operation: Operation::Flush,
            offset: 0,
            length: 0,
        }),
        8 => Ok(Request {
            operation: Operation::Name,
            offset: 0,
            length: wanted.min(NAME_BYTES as u64),
        }),
        kind @ (11 | 13) => range(chain, kind, given),
        _ => Err(Status::Unknown),
    })
}

fn moves(operation: Operation, sector: u64, length: u64, most: u64) -> ParsedRequest {
    if length == 0 {
        return Err(Status::Done);
    }
    if length > most || !length.is_multiple_of(SECTOR_BYTES) {
        return Err(Status::Failed);
    }
    let offset = sector.checked_mul(SECTOR_BYTES).ok_or(Status::Failed)?;
    Ok(Request {
        operation,
        offset,
        length,
    })
}

/// Parses a single range to discard or zero; the device announces a limit of one range.
fn range(chain: &Chain, kind: u32, given: u64) -> ParsedRequest {
    if given != RANGE_BYTES {
        return Err(Status::Failed);
    }
    let mut bytes = [0; RANGE_BYTES as usize];
    chain.read(HEADER_BYTES, &mut bytes);
    let (sector, rest) = bytes.split_first_chunk().expect("16 bytes");
    let (sectors, flags) = rest.split_first_chunk().expect("8 of them are left");
    let sectors = u32::from_le_bytes(*sectors);
    let flags = u32::from_le_bytes(flags.try_into().expect("4 of them are left"));
    let operation = match (kind, flags) {
        (11, 0) => Operation::Discard,
        (13, 0) => Operation::ZeroAllocated,
        (13, 1) => Operation::Zero,
        _ => return Err(Status::Unknown),
    };
    if sectors > RANGE_SECTORS_MAX {
        return Err(Status::Failed);
    }
    let most = u64::from(RANGE_SECTORS_MAX) * SECTOR_BYTES;
    let length = u64::from(sectors) * SECTOR_BYTES;
    moves(operation, u64::from_le_bytes(*sector), length, most)
}

/// Returns the name as the guest's fixed-size field, truncated at a character boundary.
pub fn name_field(name: &str) -> [u8; NAME_BYTES] {
    let mut field = [0; NAME_BYTES];
    let bytes = &name.as_bytes()[..name.floor_char_boundary(NAME_BYTES)];
    field[..bytes.len()].copy_from_slice(bytes);
    field
}

/// Writes the status to the last writable byte. Returns the number of written bytes, which includes `data` bytes of data.
pub fn finish(chain: &Chain, status: Status, data: u64) -> u32 {
    let byte = match status {
        Status::Done => 0,
        Status::Failed => 1,
        Status::Unknown => 2,
    };
    chain.write(chain.writable() - STATUS_BYTES, &[byte]);
    u32::try_from(data + STATUS_BYTES).unwrap_or(u32::MAX)
}

/// Offset of a write's data in the readable bytes.
pub const DATA_AT: u64 = HEADER_BYTES;
