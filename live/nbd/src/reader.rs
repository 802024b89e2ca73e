//! Reader for replies of the transmission phase, for clients.
//!
//! ```text
//!   input   │ header │ payload of a read … │ header │ …
//!             next()   read by the caller    next()
//! ```
//!
//! The reader returns headers and small payloads (extents, messages). The data of a read is left to the caller: it follows
//! `consumed` in the input and must be consumed before the next call.

use crate::error::WireError;
use crate::export::Session;
use crate::reply::{
    DATA_CHUNK_BYTES, ErrorCode, HOLE_CHUNK_BYTES, NONE_CHUNK_BYTES, SIMPLE_REPLY_BYTES,
    STATUS_EXTENTS_MAX, StatusExtent,
};
use crate::wire::{CHUNK_MAGIC, Fields, SIMPLE_MAGIC, chunk, words};

/// Largest accepted payload of an error chunk: the longest message with a 16-bit length, and the fields after it. Protects
/// memory, because the caller keeps a chunk until it is complete.
const ERROR_BYTES_MAX: u32 = 6 + 0xffff + 64;
/// Largest accepted payload of a block status chunk; see [`STATUS_EXTENTS_MAX`].
const STATUS_BYTES_MAX: u32 = 4 + 8 * STATUS_EXTENTS_MAX as u32;

/// Reply of a server to a request, without read data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplyHeader {
    /// The whole reply. For a successful read the data follows; the caller knows the requested length.
    Simple {
        /// Cookie of the request.
        cookie: u64,
        /// Error of a failed request.
        error: Option<ErrorCode>,
    },
    /// Data of a read; `length` bytes follow.
    Data {
        /// Cookie of the request.
        cookie: u64,
        /// Offset of the data in the export.
        offset: u64,
        /// Number of bytes that follow, not 0.
        length: u32,
        /// True if this is the last chunk of the reply.
        done: bool,
    },
    /// Zeroes of a read.
    Hole {
        /// Cookie of the request.
        cookie: u64,
        /// Offset of the zeroes in the export.
        offset: u64,
        /// Number of bytes, not 0.
        length: u32,
        /// True if this is the last chunk of the reply.
        done: bool,
    },
    /// The end of a reply.
    None {
        /// Cookie of the request.
        cookie: u64,
    },
    /// Extents from the request's offset on.
    Status {
        /// Cookie of the request.
        cookie: u64,
        /// Id of the session's allocation context.
        context: u32,
        /// At least one extent; none is empty.
        extents: Vec<StatusExtent>,
        /// True if this is the last chunk of the reply.
        done: bool,
    },
    /// The request failed.
    Error {
        /// Cookie of the request.
        cookie: u64,
        /// Error of the request.
        error: ErrorCode,
        /// Message of the server, truncated; may be empty.
        message: String,
        /// Offset of the failure, if the server sends one.
        offset: Option<u64>,
        /// True if this is the last chunk of the reply.
        done: bool,
    },
}

/// Result of reading from the input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplyStep {
    /// The reply is incomplete: `input` must have at least `need` bytes from its present start. `need` is at most slightly
    /// above half a MiB.
    More {
        /// Required number of bytes.
        need: usize,
    },
    /// A reply, or one chunk of it.
    Header {
        /// Bytes of the reply in the input; the data of a read follows them.
        consumed: usize,
        /// Content of the reply.
        reply: ReplyHeader,
    },
}

/// Reader for the replies of one session.
#[derive(Debug)]
pub struct ReplyReader {
    structured: bool,
    allocation_context: Option<u32>,
    size: u64,
}

fn bad<T>(place: &'static str, why: &'static str) -> Result<T, WireError> {
    Err(WireError::BadReply { place, why })
}

impl ReplyReader {
    /// Creates a reader for a negotiated session.
    pub fn new(session: &Session) -> Self {
        Self {
            structured: session.structured,
            allocation_context: session.allocation_context,
            size: session.export.size,
        }
    }

    /// Reads the reply at the front of `input`. The reader keeps no input: after [`ReplyStep::More`] call again with the
    /// same bytes and more after them. After an error the connection must be closed.
    pub fn next(&mut self, input: &[u8]) -> Result<ReplyStep, WireError> {
        let mut fields = Fields::new(input);
        let Some(magic) = fields.u32() else {
            return Ok(ReplyStep::More {
                need: SIMPLE_REPLY_BYTES,
            });
        };
        match magic {
            SIMPLE_MAGIC => Ok(simple(fields)),
            CHUNK_MAGIC if self.structured => self.chunk(fields, input),
            CHUNK_MAGIC => bad("reply", "structured replies were not negotiated"),
            _ => Err(WireError::BadMagic {
                place: "reply",
                found: magic.into(),
            }),
        }
    }

    /// Reads a chunk; its magic number was already taken from `fields`.
    fn chunk(&self, mut fields: Fields, input: &[u8]) -> Result<ReplyStep, WireError> {
        let (Some(flags), Some(kind), Some(cookie), Some(length)) =
            (fields.u16(), fields.u16(), fields.u64(), fields.u32())
        else {
            return Ok(ReplyStep::More {
                need: NONE_CHUNK_BYTES,
            });
        };
        let done = flags & chunk::DONE != 0;
        // Part of the payload that is read here.
        let (place, wanted) = match kind {
            chunk::NONE if length != 0 || !done => {
                return bad(
                    "chunk without content",
                    "has data, or is not the last chunk",
                );
            }
            chunk::NONE => ("chunk without content", 0),
            chunk::OFFSET_DATA if length < 9 => return bad("data chunk", "contains no data"),
            chunk::OFFSET_DATA => ("data chunk", (DATA_CHUNK_BYTES - NONE_CHUNK_BYTES) as u32),
            chunk::OFFSET_HOLE if length as usize != HOLE_CHUNK_BYTES - NONE_CHUNK_BYTES => {
                return bad("hole chunk", "the length is not 12 bytes");
            }
            chunk::OFFSET_HOLE => ("hole chunk", length),
            chunk::BLOCK_STATUS if length < 12 || length % 8 != 4 => {
                return bad("block status chunk", "not a whole number of extents");
            }
            chunk::BLOCK_STATUS => {
                within("block status chunk", length, STATUS_BYTES_MAX)?;
                ("block status chunk", length)
            }
            kind if kind & chunk::ERROR_BIT != 0 => {
                within("error chunk", length, ERROR_BYTES_MAX)?;
                ("error chunk", length)
            }
            _ => return bad("chunk", "unknown type"),
        };
        let need = NONE_CHUNK_BYTES + wanted as usize;
        let Some(payload) = fields.bytes(wanted as usize) else {
            return Ok(ReplyStep::More { need });
        };
        debug_assert!(input.len() >= need);
        let reply = match kind {
            chunk::NONE => Some(ReplyHeader::None { cookie }),
            chunk::OFFSET_DATA => self.data(cookie, payload, length - wanted, done)?,
            chunk::OFFSET_HOLE => self.hole(cookie, payload, done)?,
            chunk::BLOCK_STATUS => self.status(cookie, payload, done)?,
            _ => error(cookie, kind, payload, done),
        };
        match reply {
            Some(reply) => Ok(ReplyStep::Header {
                consumed: need,
                reply,
            }),
            None => bad(place, "the length does not match the fields"),
        }
    }

    fn inside(&self, place: &'static str, offset: u64, length: u32) -> Result<(), WireError> {
        let end = offset.checked_add(length.into());
        if length == 0 || end.is_none_or(|end| end > self.size) {
            return bad(place, "empty or beyond the end of the export");
        }
        Ok(())
    }

    fn data(
        &self,
        cookie: u64,
        payload: &[u8],
        length: u32,
        done: bool,
    ) -> Result<Option<ReplyHeader>, WireError> {
        let Some(offset) = Fields::new(payload).u64() else {
            return Ok(None);
        };
        self.inside("data chunk", offset, length)?;
        Ok(Some(ReplyHeader::Data {
            cookie,
            offset,
            length,
            done,
        }))
    }

    fn hole(
        &self,
        cookie: u64,
        payload: &[u8],
        done: bool,
    ) -> Result<Option<ReplyHeader>, WireError> {
        let mut fields = Fields::new(payload);
        let (Some(offset), Some(length)) = (fields.u64(), fields.u32()) else {
            return Ok(None);
        };
        self.inside("hole chunk", offset, length)?;
        Ok(Some(ReplyHeader::Hole {
            cookie,
            offset,
            length,
            done,
        }))
    }

    fn status(
        &self,
        cookie: u64,
        payload: &[u8],
        done: bool,
    ) -> Result<Option<ReplyHeader>, WireError> {
        let mut fields = Fields::new(payload);
        let Some(context) = fields.u32() else {
            return Ok(None);
        };
        if Some(context) != self.allocation_context {
            return bad(
                "block status chunk",
                "a metadata context that was not negotiated",
            );
        }
        let mut extents = Vec::with_capacity(payload.len() / 8);
        while let (Some(length), Some(flags)) = (fields.u32(), fields.u32()) {
            if length == 0 {
                return bad("block status chunk", "an empty extent");
            }
            extents.push(StatusExtent { length, flags });
        }
        Ok(Some(ReplyHeader::Status {
            cookie,
            context,
            extents,
            done,
        }))
    }
}

fn within(place: &'static str, length: u32, limit: u32) -> Result<(), WireError> {
    if length > limit {
        return Err(WireError::ReplyTooLong {
            place,
            length,
            limit,
        });
    }
    Ok(())
}

fn simple(mut fields: Fields) -> ReplyStep {
    let (Some(error), Some(cookie)) = (fields.u32(), fields.u64()) else {
        return ReplyStep::More {
            need: SIMPLE_REPLY_BYTES,
        };
    };
    ReplyStep::Header {
        consumed: SIMPLE_REPLY_BYTES,
        reply: ReplyHeader::Simple {
            cookie,
            error: (error != 0).then(|| ErrorCode::from_wire(error)),
        },
    }
}

/// Parses any error chunk; unknown types start like the known ones.
fn error(cookie: u64, kind: u16, payload: &[u8], done: bool) -> Option<ReplyHeader> {
    let mut fields = Fields::new(payload);
    let number = fields.u32().filter(|number| *number != 0)?;
    let length = fields.u16()?;
    let message = words(fields.bytes(length.into())?);
    let offset = match kind {
        chunk::ERROR_OFFSET => Some(fields.u64()?),
        _ => None,
    };
    Some(ReplyHeader::Error {
        cookie,
        error: ErrorCode::from_wire(number),
        message,
        offset,
        done,
    })
}
