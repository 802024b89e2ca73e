//! Numbers of the protocol, and two helpers of all parsers: a buffer that is filled to a known length, and fields from the
//! front of a slice.

/// `NBDMAGIC`, first in every greeting.
pub(crate) const NBD_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// `IHAVEOPT`, second in a newstyle greeting and first in every option.
pub(crate) const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Second in an oldstyle greeting.
pub(crate) const OLDSTYLE_MAGIC: u64 = 0x0000_4202_8186_1253;
/// First in every reply to an option.
pub(crate) const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// First in every request.
pub(crate) const REQUEST_MAGIC: u32 = 0x2560_9513;
/// First in a simple reply.
pub(crate) const SIMPLE_MAGIC: u32 = 0x6744_6698;
/// First in a structured chunk.
pub(crate) const CHUNK_MAGIC: u32 = 0x668e_33ef;

/// Handshake and client flag: errors and replies to options.
pub(crate) const FIXED_NEWSTYLE: u16 = 1;
/// Handshake and client flag: no padding after the answer to `EXPORT_NAME`.
pub(crate) const NO_ZEROES: u16 = 2;

/// Bytes of the server's greeting: two magics and flags.
pub const GREETING_BYTES: usize = 18;
/// Header of an option: magic, number, length.
pub(crate) const OPTION_BYTES: usize = 16;
/// Header of a reply to an option: magic, option, type, length.
pub(crate) const OPTION_REPLY_BYTES: usize = 20;
/// Padding after the answer to `EXPORT_NAME`.
pub(crate) const ZEROES_BYTES: usize = 124;

/// Longest string of the protocol, bytes. It is a limit of the specification and protects the memory of both sides.
pub const STRING_BYTES_MAX: usize = 4096;

/// Options.
pub(crate) mod option {
    pub const EXPORT_NAME: u32 = 1;
    pub const ABORT: u32 = 2;
    pub const LIST: u32 = 3;
    pub const STARTTLS: u32 = 5;
    pub const INFO: u32 = 6;
    pub const GO: u32 = 7;
    pub const STRUCTURED_REPLY: u32 = 8;
    pub const LIST_META_CONTEXT: u32 = 9;
    pub const SET_META_CONTEXT: u32 = 10;
}

/// Types of replies to options.
pub(crate) mod option_reply {
    pub const ACK: u32 = 1;
    pub const SERVER: u32 = 2;
    pub const INFO: u32 = 3;
    pub const META_CONTEXT: u32 = 4;
    /// Bit of all errors.
    pub const ERROR: u32 = 1 << 31;
    pub const ERR_UNSUP: u32 = ERROR | 1;
    pub const ERR_POLICY: u32 = ERROR | 2;
    pub const ERR_INVALID: u32 = ERROR | 3;
    pub const ERR_TLS_REQD: u32 = ERROR | 5;
    pub const ERR_UNKNOWN: u32 = ERROR | 6;
    pub const ERR_TOO_BIG: u32 = ERROR | 9;
}

/// Kinds of information in `INFO` and `GO`.
pub(crate) mod info {
    pub const EXPORT: u16 = 0;
    pub const NAME: u16 = 1;
    pub const DESCRIPTION: u16 = 2;
    pub const BLOCK_SIZE: u16 = 3;
}

/// Types of structured chunks.
pub(crate) mod chunk {
    pub const DONE: u16 = 1;
    pub const NONE: u16 = 0;
    pub const OFFSET_DATA: u16 = 1;
    pub const OFFSET_HOLE: u16 = 2;
    pub const BLOCK_STATUS: u16 = 5;
    /// Bit of all errors.
    pub const ERROR_BIT: u16 = 1 << 15;
    pub const ERROR: u16 = ERROR_BIT | 1;
    pub const ERROR_OFFSET: u16 = ERROR_BIT | 2;
}

/// Metadata context of each export.
pub(crate) const ALLOCATION: &str = "base:allocation";
/// Prefix of the metadata contexts of changed ranges, and its namespace.
pub(crate) const DIRTY: &str = "qemu:dirty-bitmap:";
pub(crate) const QEMU: &str = "qemu:";
/// Namespace of `base:allocation`.
pub(crate) const BASE: &str = "base:";

/// Buffer for input until a required length is reached. It grows with received bytes, never with announced lengths.
#[derive(Debug, Default)]
pub(crate) struct InputBuffer {
    /// Buffered bytes.
    pub bytes: Vec<u8>,
}

impl InputBuffer {
    /// Moves bytes from the front of `input` until the buffer has `need`; returns false while it has fewer.
    pub fn fill(&mut self, input: &mut &[u8], need: usize) -> bool {
        let missing = need.saturating_sub(self.bytes.len());
        let (taken, rest) = input.split_at(missing.min(input.len()));
        self.bytes.extend_from_slice(taken);
        *input = rest;
        self.bytes.len() >= need
    }
}

/// Reader of big-endian fields from the front of a slice; `None` if the slice is too short.
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub fn bytes(&mut self, n: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(n)?;
        self.rest = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*taken)
    }

    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// Reads a 32-bit length and as many bytes.
    pub fn counted(&mut self) -> Option<&'a [u8]> {
        let n = self.u32()?;
        self.bytes(usize::try_from(n).ok()?)
    }

    pub fn rest(self) -> &'a [u8] {
        self.rest
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
}

/// Returns the longest prefix of at most `limit` bytes that ends at a character boundary.
pub(crate) fn cut(text: &str, limit: usize) -> &str {
    &text[..text.floor_char_boundary(limit)]
}

/// Checks a string of the protocol: short UTF-8 without NUL. The error is the violated rule.
pub(crate) fn name(bytes: &[u8]) -> Result<&str, &'static str> {
    if bytes.len() > STRING_BYTES_MAX {
        return Err("longer than 4096 bytes");
    }
    let text = std::str::from_utf8(bytes).map_err(|_| "not UTF-8")?;
    if text.contains('\0') {
        return Err("contains NUL");
    }
    Ok(text)
}

/// Returns a peer's string for display: invalid UTF-8 is replaced, and the text is truncated.
pub(crate) fn words(bytes: &[u8]) -> String {
    let bytes = &bytes[..bytes.len().min(STRING_BYTES_MAX)];
    cut(&String::from_utf8_lossy(bytes), STRING_BYTES_MAX).to_string()
}

/// Returns `value` as a 32-bit length field. All lengths in this crate are far below the limit.
pub(crate) fn length32(value: usize) -> [u8; 4] {
    u32::try_from(value)
        .expect("lengths on the wire are bounded")
        .to_be_bytes()
}
