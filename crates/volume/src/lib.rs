//! One volume's request path, sans I/O: where each part of a request goes, also while the volume is being moved.
//!
//! The simulator and the data path both drive this state machine; there is no other implementation of its rules. It
//! performs no I/O and knows no time: the driver asks where a request goes ([`VolumeMap::submit`]), does it, and says
//! when it is done ([`VolumeMap::complete`]).
//!
//! # Places and holes
//!
//! A volume is cut into extents, and an extent is in a slot of its own size on some device ([`Location`]), or it is a hole
//! and reads as zeroes. A write to a hole is answered with [`Submission::NeedsPlace`]; the driver finds a slot and says
//! [`VolumeMap::place`]. [`VolumeMap::vacate`] makes a hole again.
//!
//! # The life of a move
//!
//! A volume moves in batches of at most [`BATCH_BYTES`], one after the other; each is a relocation, with a switch of its
//! own, and in between the volume lies on both devices. So a move given up leaves it split, and whole.
//!
//! ```text
//!            next_batch()                                           next_batch()
//!                 │                                                      │ None: the whole volume is there
//!  extents  ──────▼─────[ relocation ]──▼──[ relocation ]──▼── … ────────▼──▶
//!  on the target:  0                    1 batch            2 batches     all
//! ```
//!
//! # The life of a relocation
//!
//! ```text
//!  begin_relocation          all chunks synced              switch()             last ticket completed
//!        │                          │                          │                        │
//!  ──────▼──────── copying ─────────▼─────── ready ────────────▼─────── draining ───────▼──── released ──▶
//!   reads:  source                   source                     target
//!   writes: source, and target       source and target          target
//!           where already synced
//!   cancel(): source stays the truth; the targets are freed    │  too late to cancel
//!   once no mirrored write is on its way to them any more      │
//! ```
//!
//! All extents of the batch switch together. Extents of the volume that are not in the batch, and those of the batch that
//! have no target, are routed as ever, and holes may be filled meanwhile.
//!
//! Requests that were routed before the relocation began carry no ticket; nothing is copied before the driver says that
//! they are complete ([`VolumeMap::earlier_complete`]).
//!
//! A chunk of the batch (chunks do not cross extents):
//!
//! ```text
//!             start                     done
//!   pending ─────────▶ copying ─────────────────────▶ synced     writes to synced chunks go to both ends
//!      ▲                  │ a guest writes to it meanwhile
//!      │ done             ▼
//!      └───────────── overwritten                                this is the catch-up: the chunk is copied again
//! ```
//!
//! A chunk is only copied while no guest write to it is in flight, so a copy never misses one that was. A chunk that was
//! overwritten [`SEAL_AFTER`] times is copied *sealed*: writes to it are held for the time of that one copy. When every
//! chunk that is left always has writes in flight, new writes to one of them are held until it is copied. So a hot chunk
//! cannot keep a move from ending, and each hold lasts for one chunk's copy and the writes before it.
//!
//! Two writes to the same bytes that go to both ends could land in different order there; the second is therefore held
//! until the first is complete.
//!
//! # Slots that others read too
//!
//! A snapshot of a volume reads its slots. An extent that is *shared* is copied to a slot of its own before it is written to (*copy-up*): a
//! write is answered with [`Submission::NeedsCopy`], and waits. Nothing changes meanwhile, so there is no catching up.
//!
//! ```text
//!   share()            begin_copy_up()                    copied_up()
//!  ──▼── shared ────────▼──── copied, flushed, stored ──────▼── alone: writes go on, the slot from before is the others'
//! ```
//!
//! A move takes shared extents along: they are alone at its target. Writes to those of the batch under way wait for its switch. A trim of a
//! part of a shared extent does nothing; one of all of it makes a hole, as ever.
//!
//! # Extents with two copies
//!
//! A relocation that is neither switched nor given up keeps both ends alike: every write goes to both. From [`VolumeMap::share_reads`] on, reads of
//! what is alike go to either ([`Offload`] says how many to which): such extents are *mirrored*. The source stays the truth: when the target
//! fails or loses something, a write fails at either end, or the volume is to be moved, grown, shared with a snapshot or trimmed by whole extents, its driver gives the relocation up first, and nothing is lost. A read of the second copy
//! that fails is asked of the first one again by the driver. While a write to both is on its way, reads may see either, as on any mirror. What is mirrored is not stored, so nothing of it is
//! there after a restart.
//!
//! # What it is not
//!
//! No durability: the driver makes the switch durable before it calls [`VolumeMap::switch`], and frees the sources only
//! after [`VolumeMap::released`] says so. No choice of slots, and no account of the free ones.
//!
//! # What drives a move
//!
//! [`Mover`] takes a volume, or some of its extents, from batch to batch, and [`Pace`] says how fast; both are as free of I/O and time as
//! the map. The data path and the simulator carry out the same steps ([`MoveStep`]), each in its own way. A move yields to those who share
//! its devices by what they have left of their objectives ([`SlackBoard`]).

#![warn(missing_docs)]

mod lease;
mod map;
mod mover;
mod offload;
mod pace;
mod relocation;
mod selection;
mod shared;
mod slack;
mod throttle;

pub use lease::{LEASE_MAX, Lease, LeaseClaim};
pub use map::{
    BATCH_BYTES, BATCH_SPAN, Batch, DeviceIo, Earlier, Location, RangeError, Request, Submission,
    VolumeMap,
};
pub use mover::{Flushed, Guests, MoveLimits, MoveOrder, MoveStep, Mover, Purpose, Reserved};
pub use offload::{EndReads, OFFLOAD_LOOK, Offload, OffloadLimits};
pub use pace::{CONSERVATIVE, FLOOR, GuestLatency, NEAR, Pace, YIELD_ABOVE, copy_chunk};
pub use relocation::{Chunk, CopyStep, RelocationError, SEAL_AFTER, Ticket};
pub use selection::Selection;
pub use slack::{Others, Slack, SlackBoard};
pub use throttle::{BURST_NS, Claim, Limits, Throttle, shares};
