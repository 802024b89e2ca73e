//! A process takes a served array over from another one, and its guests notice nothing but a moment in which nobody answers.
//!
//! ```text
//!  new ──asks──▶ old        may it be? moves come to a rest, what is written is flushed            guests are served
//!      ◀──yes──
//!      ──begin─▶            nothing more is read; what is in flight ends; all is durable           ┐
//!      ◀─state, bytes, files                                                                      │
//!      ──ready─▶            the map is closed                                                      │ guests wait
//!      ◀──go───                                                                                    │
//!   opens the map,                                                                                 │
//!   makes a membership of its own: from that commit on the array is its                            │
//!      ──taken─▶            ends, and touches nothing                                              │
//!   goes on with the connections                                                                   ┘
//! ```
//!
//! # Why there are never two
//!
//! Locks belong to open files (the map's and devices'), which both have from "files" on: nobody else gets them before both are gone. Of the
//! two, the new one writes nothing before "go", and the old one writes nothing after it, unless the new one has ended (its end of the socket
//! is closed, with all its files; it is killed if it takes too long) and the map has the very commits that it had. The first thing that the
//! new one commits is the proposal of a membership: whatever it does later, the old one, or a start, sees that in the map.
//!
//! # What it is not
//!
//! What a restart would not find in the map either is not handed over but for limits: counters, recordings, objectives of a controller.
//! Connections with TLS and those of vhost-user end with the old process, and their clients connect again.

mod gate;
mod listeners;
pub(crate) mod state;
mod take;
pub(crate) mod wire;

pub use gate::{Alone, Gate, Handover};
pub use listeners::{Listener, Listeners, Listening, pause_after_accept, pause_after_poll};
pub use take::{TakeOverError, Taken, Wanted, take_over};
