//! Requests of the transmission phase.
//!
//! ```text
//!  0        4       6       8                16               24       28
//!  │ magic  │ flags │ type  │     cookie     │     offset     │ length │ payload of a write …
//! ```

use crate::error::WireError;
use crate::wire::REQUEST_MAGIC;

/// Bytes of a request's header.
pub const REQUEST_BYTES: usize = 28;

/// Command of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u16)]
pub enum Command {
    /// Reads a range.
    Read = 0,
    /// Writes a range; the data follows the header.
    Write = 1,
    /// Ends the session, without a reply.
    Disconnect = 2,
    /// Makes all acknowledged writes durable.
    Flush = 3,
    /// Discards a range.
    Trim = 4,
    /// Prefetches a range.
    Cache = 5,
    /// Writes zeroes to a range.
    WriteZeroes = 6,
    /// Returns the locations of data and holes.
    BlockStatus = 7,
}

impl Command {
    /// All commands, by number.
    pub const ALL: [Command; 8] = [
        Command::Read,
        Command::Write,
        Command::Disconnect,
        Command::Flush,
        Command::Trim,
        Command::Cache,
        Command::WriteZeroes,
        Command::BlockStatus,
    ];

    /// Returns the number on the wire.
    pub fn number(self) -> u16 {
        self as u16
    }

    /// Returns the command of a number.
    pub fn from_number(number: u16) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

/// Flags of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RequestFlags(pub u16);

impl RequestFlags {
    /// The effect must be durable before the reply.
    pub const FUA: Self = Self(1 << 0);
    /// Write zeroes: allocate the range instead of punching a hole.
    pub const NO_HOLE: Self = Self(1 << 1);
    /// Read: reply in one chunk.
    pub const DF: Self = Self(1 << 2);
    /// Block status: one extent suffices.
    pub const REQ_ONE: Self = Self(1 << 3);
    /// Write zeroes: fail if it would be as slow as writing.
    pub const FAST_ZERO: Self = Self(1 << 4);

    /// Returns true if all of `flags` are set.
    pub fn contains(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// Returns these flags and `flags`.
    #[must_use]
    pub const fn with(self, flags: Self) -> Self {
        Self(self.0 | flags.0)
    }
}

/// Request without its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestHeader {
    /// Flags, including those that the command does not support.
    pub flags: RequestFlags,
    /// Command of the request.
    pub command: Command,
    /// The client's id of the request; the reply repeats it.
    pub cookie: u64,
    /// Offset of the range.
    pub offset: u64,
    /// Length of the range, bytes.
    pub length: u32,
}

impl RequestHeader {
    /// Returns the number of payload bytes after the header on the wire, also for a refused request.
    pub fn payload_bytes(&self) -> u32 {
        match self.command {
            Command::Write => self.length,
            _ => 0,
        }
    }
}

/// Decodes a header. A server answers an unknown command with `EINVAL`; all other errors end the connection.
pub fn decode_request(bytes: &[u8; REQUEST_BYTES]) -> Result<RequestHeader, WireError> {
    let [m0, m1, m2, m3, f0, f1, t0, t1, rest @ ..] = *bytes;
    let [c0, c1, c2, c3, c4, c5, c6, c7, rest @ ..] = rest;
    let [o0, o1, o2, o3, o4, o5, o6, o7, l0, l1, l2, l3] = rest;
    let magic = u32::from_be_bytes([m0, m1, m2, m3]);
    if magic != REQUEST_MAGIC {
        return Err(WireError::BadMagic {
            place: "request",
            found: magic.into(),
        });
    }
    let cookie = u64::from_be_bytes([c0, c1, c2, c3, c4, c5, c6, c7]);
    let length = u32::from_be_bytes([l0, l1, l2, l3]);
    let number = u16::from_be_bytes([t0, t1]);
    let Some(command) = Command::from_number(number) else {
        return Err(WireError::UnknownCommand {
            number,
            cookie,
            length,
        });
    };
    Ok(RequestHeader {
        flags: RequestFlags(u16::from_be_bytes([f0, f1])),
        command,
        cookie,
        offset: u64::from_be_bytes([o0, o1, o2, o3, o4, o5, o6, o7]),
        length,
    })
}

/// Encodes a header; the payload of a write follows it.
pub fn encode_request(header: &RequestHeader) -> [u8; REQUEST_BYTES] {
    let mut bytes = [0; REQUEST_BYTES];
    bytes[0..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
    bytes[4..6].copy_from_slice(&header.flags.0.to_be_bytes());
    bytes[6..8].copy_from_slice(&header.command.number().to_be_bytes());
    bytes[8..16].copy_from_slice(&header.cookie.to_be_bytes());
    bytes[16..24].copy_from_slice(&header.offset.to_be_bytes());
    bytes[24..28].copy_from_slice(&header.length.to_be_bytes());
    bytes
}
