//! NBD protocol of client and server, sans I/O: fixed newstyle negotiation, and the transmission phase with simple and
//! structured replies.
//!
//! ```text
//!        client                                   server
//!          │ ◀── greeting ─────────────────────────  │  ServerHandshake::greeting
//!          │ ─── client flags, option ────────────▶  │  ServerHandshake::step
//!          │ ◀── option replies ───────────────────  │
//!          │          … until GO or EXPORT_NAME      │
//!       Session                                   Session
//!          │ ─── request header [payload] ────────▶  │  decode_request, check
//!          │ ◀── simple reply or chunks [payload] ─  │  simple_reply, data_chunk, …
//!     ReplyReader
//! ```
//!
//! Bytes go in; bytes and decisions come out. The driver reads and writes the socket. Each reader accepts input in pieces of
//! any size and keeps at most a named limit of it. Lengths from the peer are untrusted: memory grows with the received
//! bytes, not with announced ones. Payloads of reads and writes do not pass through this crate. The encoders of the
//! transmission phase return arrays and do not allocate.
//!
//! ```
//! use nbd::{Command, RequestFlags, RequestHeader, decode_request, encode_request};
//!
//! let read = RequestHeader {
//!     flags: RequestFlags(0),
//!     command: Command::Read,
//!     cookie: 7,
//!     offset: 4096,
//!     length: 512,
//! };
//! assert_eq!(decode_request(&encode_request(&read)), Ok(read));
//! ```
//!
//! The driver implements TLS. This crate negotiates `STARTTLS`; all later input must have passed through the driver's TLS
//! session.
//!
//! Not supported: oldstyle negotiation, extended headers (64-bit lengths), and metadata contexts other than
//! `base:allocation` and `qemu:dirty-bitmap:`. The crate does not track requests in flight: the driver matches cookies.

#![warn(missing_docs)]

mod check;
mod client;
mod dirty_ranges;
mod error;
mod export;
pub mod fuzzing;
mod limits;
mod list;
mod options;
mod reader;
mod reply;
mod request;
mod server;
mod talk;
mod uri;
mod wire;

pub use check::{Refusal, check};
pub use client::{ClientHandshake, ClientProgress, ClientWishes};
pub use dirty_ranges::DirtyRanges;
pub use error::WireError;
pub use export::{
    ALLOCATION_CONTEXT, AlignedRead, BlockSizes, DIRTY_MAX, DirtyContexts, Export, ExportFlags,
    Exports, Session,
};
pub use limits::HandshakeLimits;
pub use list::{ListHandshake, ListProgress, ListedExport};
pub use reader::{ReplyHeader, ReplyReader, ReplyStep};
pub use reply::{
    DATA_CHUNK_BYTES, ErrorCode, HOLE_CHUNK_BYTES, NONE_CHUNK_BYTES, SIMPLE_REPLY_BYTES,
    STATUS_EXTENTS_MAX, StatusExtent, data_chunk, error_chunk, hole_chunk, none_chunk,
    simple_reply, status_chunk,
};
pub use request::{
    Command, REQUEST_BYTES, RequestFlags, RequestHeader, decode_request, encode_request,
};
pub use server::{Progress, ServerHandshake};
pub use uri::{Address, DEFAULT_PORT, TlsWords, Uri, UriError};
pub use wire::{GREETING_BYTES, STRING_BYTES_MAX};
