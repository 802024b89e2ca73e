//! QEMU's machine protocol (QMP), the client's side, sans I/O: greeting, negotiation, commands with their answers, events.
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
//! Bytes go in, messages come out; who reads and writes the socket is the driver's affair. A message is a line of JSON. At most
//! [`LINE_MAX`] bytes of one are kept, nothing that the peer announces is believed, and the first thing that is wrong ends the session with
//! the place where it is: what came after it cannot be told apart from garbage.
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
//! What it is not: no out-of-band commands, no knowledge of any command, no time limits, and no second session on a socket: QEMU serves one at a
//! time, and a second client waits for the first to go.

#![warn(missing_docs)]

mod error;
pub mod fuzzing;
mod session;
mod version;

pub use error::QmpError;
pub use session::{CommandError, Event, LINE_MAX, Message, PENDING_MAX, Session};
pub use version::Version;
