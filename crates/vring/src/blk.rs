//! virtio-blk: what a guest is told of its disk, and what a chain asks for.
//!
//! ```text
//!  readable   type u32, reserved u32, sector u64 │ data of a write, or one range to discard or zero
//!  writable   data of a read, or the name │ status u8
//! ```

use crate::{Chain, RingError};

/// What sectors are counted in, whatever the block size.
pub const SECTOR_BYTES: u64 = 512;

/// Longest name that a guest is told.
pub const NAME_BYTES: usize = 20;

/// Bytes of the configuration that may be asked for; those without a meaning are zero.
pub const CONFIG_BYTES: usize = 256;

/// The byte of the configuration that the guest may change: whether it has a write cache to flush.
pub const WRITE_CACHE_AT: u32 = 32;

const HEADER_BYTES: u64 = 16;
const RANGE_BYTES: u64 = 16;
const STATUS_BYTES: u64 = 1;

/// Buffers of one request that a guest is told it may use, and their size: 4 MiB together, what others wait for at most.
const SEGMENTS_MAX: u32 = 126;
const SEGMENT_BYTES_MAX: u32 = 32 << 10;

/// Sectors of one range to discard or zero: 1 GiB.
const RANGE_SECTORS_MAX: u32 = 1 << 21;

/// Features of the device and its queues, as bits.
pub mod feature {
    /// The size of one buffer has a limit.
    pub const SIZE_MAX: u64 = 1 << 1;
    /// The number of buffers has one.
    pub const SEG_MAX: u64 = 1 << 2;
    /// Cylinders, heads and sectors, which a PC's BIOS wants to see.
    pub const GEOMETRY: u64 = 1 << 4;
    /// Block size.
    pub const BLK_SIZE: u64 = 1 << 6;
    /// There is a write cache, and a command to flush it.
    pub const FLUSH: u64 = 1 << 9;
    /// Physical blocks, and what sizes are good.
    pub const TOPOLOGY: u64 = 1 << 10;
    /// The guest may switch the write cache off.
    pub const CONFIG_WCE: u64 = 1 << 11;
    /// Several queues.
    pub const MQ: u64 = 1 << 12;
    /// Discard.
    pub const DISCARD: u64 = 1 << 13;
    /// Write zeroes.
    pub const WRITE_ZEROES: u64 = 1 << 14;
    /// Tables of descriptors in descriptors.
    pub const INDIRECT: u64 = 1 << 28;
    /// Event indices.
    pub const EVENT_INDEX: u64 = 1 << 29;
    /// The protocol between device and who runs the guest has features of its own.
    pub const PROTOCOL: u64 = 1 << 30;
    /// Not a device from before virtio 1.0.
    pub const VERSION_1: u64 = 1 << 32;

    /// All that is offered.
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

/// Whether a guest with these features flushes what it wants to be durable. `cached` is what it has set in the configuration. One
/// that does not is answered when its writes are durable.
pub fn flushes(features: u64, cached: bool) -> bool {
    let has = |feature| features & feature != 0;
    has(feature::FLUSH) && (!has(feature::CONFIG_WCE) || cached)
}

/// Least size of physical blocks that is announced: a page of flash.
const PHYSICAL_BLOCK_BYTES: u32 = 4096;

/// The configuration of a disk of so many bytes, with logical blocks of a size from 512 bytes to
/// 4096.
pub fn config(
    disk_bytes: u64,
    logical_block: u32,
    queues: u16,
    cached: bool,
) -> [u8; CONFIG_BYTES] {
    let sectors = disk_bytes / SECTOR_BYTES;
    // 16 heads and 63 sectors are what every BIOS makes of a large disk.
    let cylinders = (sectors / (16 * 63)).min(16383) as u16;
    let mut bytes = [0; CONFIG_BYTES];
    let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
    put(0, &sectors.to_le_bytes());
    put(8, &SEGMENT_BYTES_MAX.to_le_bytes());
    put(12, &SEGMENTS_MAX.to_le_bytes());
    put(16, &cylinders.to_le_bytes());
    put(18, &[16, 63]);
    put(20, &logical_block.to_le_bytes());
    // Logical blocks of a physical one, aligned; one of those is a good size for the least I/O.
    let physical = PHYSICAL_BLOCK_BYTES / logical_block;
    put(24, &[physical.ilog2() as u8, 0]);
    put(26, &(physical as u16).to_le_bytes());
    put(WRITE_CACHE_AT as usize, &[u8::from(cached)]);
    put(34, &queues.to_le_bytes());
    for at in [36, 48] {
        put(at, &RANGE_SECTORS_MAX.to_le_bytes());
        put(at + 4, &1u32.to_le_bytes());
    }
    // Alignment of ranges that are worth it, in sectors; zeroes may give space back.
    put(44, &8u32.to_le_bytes());
    put(56, &[1]);
    bytes
}

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Make durable what was answered before.
    Flush,
    /// What is the disk's name?
    Name,
    /// The contents are of no use any more.
    Discard,
    /// Read as zeroes from now on.
    Zero,
    /// Likewise, and the space stays allocated.
    ZeroAllocated,
}

/// A request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// What to do.
    pub operation: Operation,
    /// First byte of the disk. It may be outside.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
}

/// How a request ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It is done.
    Done,
    /// It failed.
    Failed,
    /// It is not known here.
    Unknown,
}

/// A request, or its end where there is nothing to do.
pub type Asked = Result<Request, Status>;

/// What a chain asks for. `most` is how many bytes a request may move.
///
/// # Errors
/// When it cannot be answered at all.
pub fn parse(chain: &Chain, most: u64) -> Result<Asked, RingError> {
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

fn moves(operation: Operation, sector: u64, length: u64, most: u64) -> Asked {
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

/// One range to discard or zero, which is what a guest is told it may hand in.
fn range(chain: &Chain, kind: u32, given: u64) -> Asked {
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

/// The name that a guest is told, in its field.
pub fn name_field(name: &str) -> [u8; NAME_BYTES] {
    let mut field = [0; NAME_BYTES];
    let bytes = &name.as_bytes()[..name.floor_char_boundary(NAME_BYTES)];
    field[..bytes.len()].copy_from_slice(bytes);
    field
}

/// Writes how a request ended to the last byte that it has for that; how many bytes were written, with so many of data.
pub fn finish(chain: &Chain, status: Status, data: u64) -> u32 {
    let byte = match status {
        Status::Done => 0,
        Status::Failed => 1,
        Status::Unknown => 2,
    };
    chain.write(chain.writable() - STATUS_BYTES, &[byte]);
    u32::try_from(data + STATUS_BYTES).unwrap_or(u32::MAX)
}

/// Where the data of a write begins among what is read.
pub const DATA_AT: u64 = HEADER_BYTES;
