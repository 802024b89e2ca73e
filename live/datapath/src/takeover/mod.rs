//! Take-over of a served array by another process. Its guests only notice a short pause without replies.
//!
//! ```text
//!  new ─request─▶ old       checks; moves pause, written data is flushed                           guests are served
//!      ◀──yes──
//!      ──begin─▶            requests are no longer read; those in flight complete; all is durable   ┐
//!      ◀─state, bytes, files                                                                        │
//!      ──ready─▶            closes the map                                                          │ guests wait
//!      ◀──go───                                                                                     │
//!   opens the map,                                                                                  │
//!   commits its own membership: from this commit on it owns the array                               │
//!      ──taken─▶            ends without touching anything                                          │
//!   continues the connections                                                                       ┘
//! ```
//!
//! # One writer at a time
//!
//! Locks belong to open files (those of the map and of the devices). Both processes have these files open from
//! "files" on, so no third process gets the locks before both have ended. Of the two, the new process writes nothing
//! before "go". The old one writes nothing after "go", with one exception: the new process has ended, and the map has
//! exactly the same commits as before. The end of the new process is visible because its end of the socket is closed,
//! with all its files; it is killed if it takes too long. The first commit of the new process is the proposal of a
//! membership. The old process, or a later start, therefore sees in the map that the new process took over.
//!
//! # Limits
//!
//! Apart from limits of volumes and tiers, state that a restart would not find in the map is not handed over:
//! counters, recordings, objectives of a controller. TLS and vhost-user connections end with the old process, and
//! their clients reconnect.

mod gate;
mod listeners;
pub(crate) mod state;
mod take;
pub(crate) mod wire;

pub use gate::{Gate, HandOverGuard, Handover};
pub use listeners::{Listener, Listeners, ListeningSocket, pause_after_accept, pause_after_poll};
pub use take::{TakeOverConfig, TakeOverError, TakeOverState, take_over};
