//! Encoding of replies of the transmission phase.
//!
//! ```text
//!  simple  0        4        8                16
//!          │ magic  │ error  │     cookie     │ data of a read …
//!
//!  chunk   0        4       6      8                16       20
//!          │ magic  │ flags │ type │     cookie     │ length │ payload of `length` bytes …
//!                     DONE: the last of its reply
//! ```

use crate::wire::{CHUNK_MAGIC, SIMPLE_MAGIC, STRING_BYTES_MAX, chunk, cut, length32};

/// Bytes of a simple reply.
pub const SIMPLE_REPLY_BYTES: usize = 16;
/// Bytes of a data chunk before its data.
pub const DATA_CHUNK_BYTES: usize = 28;
/// Bytes of a hole chunk.
pub const HOLE_CHUNK_BYTES: usize = 32;
/// Bytes of an empty last chunk, and of the header of each chunk.
pub const NONE_CHUNK_BYTES: usize = 20;

/// Largest number of extents in one block status reply (512 KiB). Protects the client's memory: it keeps a whole chunk.
pub const STATUS_EXTENTS_MAX: usize = 1 << 16;

/// Error of a request, with its number in the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum ErrorCode {
    /// Not permitted: a write to a read-only export.
    Perm = 1,
    /// Input or output failed.
    Io = 5,
    /// Out of memory.
    NoMem = 12,
    /// Invalid request.
    Inval = 22,
    /// No space left, or beyond the end of the export.
    NoSpc = 28,
    /// Reply too long for one chunk.
    Overflow = 75,
    /// Not supported: a fast zero that would be slow.
    NotSup = 95,
    /// The server is shutting down.
    Shutdown = 108,
}

impl ErrorCode {
    /// All codes.
    pub const ALL: [ErrorCode; 8] = [
        ErrorCode::Perm,
        ErrorCode::Io,
        ErrorCode::NoMem,
        ErrorCode::Inval,
        ErrorCode::NoSpc,
        ErrorCode::Overflow,
        ErrorCode::NotSup,
        ErrorCode::Shutdown,
    ];

    /// Returns the number on the wire.
    pub fn number(self) -> u32 {
        self as u32
    }

    /// Returns the code of a number other than 0. Undefined numbers count as `Inval`, as the specification requires.
    pub fn from_wire(number: u32) -> Self {
        let known = Self::ALL.into_iter().find(|code| code.number() == number);
        known.unwrap_or(ErrorCode::Inval)
    }
}

/// Range of an export with a uniform state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatusExtent {
    /// Length in bytes, not 0.
    pub length: u32,
    /// [`StatusExtent::HOLE`], [`StatusExtent::ZERO`], both or neither.
    pub flags: u32,
}

impl StatusExtent {
    /// Not allocated.
    pub const HOLE: u32 = 1;
    /// Reads as zeroes.
    pub const ZERO: u32 = 2;
}

/// Returns a simple reply; the data of a successful read follows.
pub fn simple_reply(cookie: u64, error: Option<ErrorCode>) -> [u8; SIMPLE_REPLY_BYTES] {
    let mut bytes = [0; SIMPLE_REPLY_BYTES];
    bytes[0..4].copy_from_slice(&SIMPLE_MAGIC.to_be_bytes());
    bytes[4..8].copy_from_slice(&error.map_or(0, ErrorCode::number).to_be_bytes());
    bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
    bytes
}

fn chunk_header(cookie: u64, kind: u16, length: [u8; 4], done: bool) -> [u8; NONE_CHUNK_BYTES] {
    let flags = if done { chunk::DONE } else { 0 };
    let mut bytes = [0; NONE_CHUNK_BYTES];
    bytes[0..4].copy_from_slice(&CHUNK_MAGIC.to_be_bytes());
    bytes[4..6].copy_from_slice(&flags.to_be_bytes());
    bytes[6..8].copy_from_slice(&kind.to_be_bytes());
    bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
    bytes[16..20].copy_from_slice(&length);
    bytes
}

/// Returns the header of a chunk of `length` bytes at `offset`; the bytes follow.
///
/// # Panics
///
/// If offset and data do not fit a chunk (`length` > 2³² − 9); [`crate::check`] rejects such reads.
pub fn data_chunk(cookie: u64, offset: u64, length: u32, done: bool) -> [u8; DATA_CHUNK_BYTES] {
    let payload = length.checked_add(8).expect("the read passed `check`");
    let header = chunk_header(cookie, chunk::OFFSET_DATA, payload.to_be_bytes(), done);
    let mut bytes = [0; DATA_CHUNK_BYTES];
    bytes[..20].copy_from_slice(&header);
    bytes[20..28].copy_from_slice(&offset.to_be_bytes());
    bytes
}

/// Returns a chunk for `length` bytes of zeroes at `offset`.
pub fn hole_chunk(cookie: u64, offset: u64, length: u32, done: bool) -> [u8; HOLE_CHUNK_BYTES] {
    let header = chunk_header(cookie, chunk::OFFSET_HOLE, length32(12), done);
    let mut bytes = [0; HOLE_CHUNK_BYTES];
    bytes[..20].copy_from_slice(&header);
    bytes[20..28].copy_from_slice(&offset.to_be_bytes());
    bytes[28..32].copy_from_slice(&length.to_be_bytes());
    bytes
}

/// Returns an empty last chunk: success, unless an error chunk came before.
pub fn none_chunk(cookie: u64) -> [u8; NONE_CHUNK_BYTES] {
    chunk_header(cookie, chunk::NONE, [0; 4], true)
}

/// Appends the last chunk of a failed reply. The message is truncated to [`crate::STRING_BYTES_MAX`] bytes.
pub fn error_chunk(cookie: u64, error: ErrorCode, message: &str, out: &mut Vec<u8>) {
    let message = cut(message, STRING_BYTES_MAX).as_bytes();
    let length = u16::try_from(message.len()).expect("cut to 4096");
    let payload = length32(6 + message.len());
    out.extend_from_slice(&chunk_header(cookie, chunk::ERROR, payload, true));
    out.extend_from_slice(&error.number().to_be_bytes());
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(message);
}

/// Appends the reply to a block status request in one metadata context; with `done` it is the last chunk. The extents are
/// consecutive from the request's offset on, and there is at least one. They are truncated to [`STATUS_EXTENTS_MAX`]: a
/// server may always return fewer than requested.
pub fn status_chunk(
    cookie: u64,
    context: u32,
    extents: &[StatusExtent],
    done: bool,
    out: &mut Vec<u8>,
) {
    let extents = &extents[..extents.len().min(STATUS_EXTENTS_MAX)];
    let payload = length32(4 + 8 * extents.len());
    out.extend_from_slice(&chunk_header(cookie, chunk::BLOCK_STATUS, payload, done));
    out.extend_from_slice(&context.to_be_bytes());
    for extent in extents {
        out.extend_from_slice(&extent.length.to_be_bytes());
        out.extend_from_slice(&extent.flags.to_be_bytes());
    }
}
