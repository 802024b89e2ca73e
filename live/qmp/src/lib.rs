//! Client side of the QEMU machine protocol (QMP), sans I/O: greeting, negotiation, commands with their answers, and events.
//!
//! ```text
//!        client                                   QEMU
//!          │ ◀── greeting: version ──────────────  │
//!          │ ─── qmp_capabilities ───────────────▶ │  Session::output
//!          │ ◀── return ─────────────────────────  │  Session::feed, Message::Ready
//!          │ ─── command with id ────────────────▶ │  Session::command
//!          │ ◀── return or error with that id ───  │  Message::Answer
//!          │ ◀── event, at any time ─────────────  │  Message::Event
//! ```
//!
//! Bytes go in; messages come out. The driver reads and writes the socket. A message is one line of JSON. The session keeps
//! at most [`LINE_MAX`] bytes of a line and trusts no data of the peer. The first violation ends the session and reports its
//! offset, because later bytes cannot be interpreted safely.
//!
//! ```
//! use qmp::{Message, Session};
//!
//! let mut session = Session::default();
//! session.feed(b"{\"QMP\":{\"version\":{\"qemu\":{\"major\":7,\"minor\":2,\"micro\":0},\"package\":\"\"},\"capabilities\":[]}}\r\n");
//! assert!(session.poll().unwrap().is_none());
//! assert!(session.output().starts_with(b"{\"execute\":\"qmp_capabilities\""));
//! session.feed(b"{\"return\":{},\"id\":0}\r\n");
//! assert!(matches!(session.poll().unwrap(), Some(Message::Ready(version)) if version.is_at_least(7, 2)));
//! let id = session.command("query-status", None).unwrap();
//! session.feed(format!("{{\"return\":{{\"running\":true}},\"id\":{id}}}\n").as_bytes());
//! assert!(matches!(session.poll().unwrap(), Some(Message::Answer { id: got, .. }) if got == id));
//! ```
//!
//! Not supported: out-of-band commands, the meaning of commands, time limits, and a second session on a socket. QEMU serves
//! one session at a time, and a second client waits for the end of the first.

#![warn(missing_docs)]

mod error;
pub mod fuzzing;
mod session;
mod version;

pub use error::QmpError;
pub use session::{CommandError, Event, LINE_MAX, Message, PENDING_MAX, Session};
pub use version::Version;
