//! Request path of one volume, sans I/O: the destination of each part of a request, also during a move.
//!
//! Both the simulator and the data path drive this state machine; no other code implements its rules. It performs no I/O and
//! has no clock. The driver submits a request ([`VolumeMap::submit`]), carries out its parts, and reports the completion
//! ([`VolumeMap::complete`]).
//!
//! # Places and holes
//!
//! A volume is divided into extents. An extent is in a slot of its own size on a device ([`Location`]), or it is a hole and
//! reads as zeroes. A write to a hole returns [`Submission::NeedsPlace`]; the driver allocates a slot and calls
//! [`VolumeMap::place`]. [`VolumeMap::vacate`] turns an extent into a hole.
//!
//! # Life of a move
//!
//! A volume moves in batches of at most [`BATCH_BYTES`], one after the other. Each batch is a relocation with its own
//! switch. Between two batches the volume is on both devices, so a cancelled move leaves it split but complete.
//!
//! ```text
//!            next_batch()                                           next_batch()
//!                 │                                                      │ None: the whole volume is on the target
//!  extents  ──────▼─────[ relocation ]──▼──[ relocation ]──▼── … ────────▼──▶
//!  on the target:  0                    1 batch            2 batches     all
//! ```
//!
//! # Life of a relocation
//!
//! ```text
//!  begin_relocation          all chunks synced              switch()             last ticket completed
//!        │                          │                          │                        │
//!  ──────▼──────── copying ─────────▼─────── ready ────────────▼─────── draining ───────▼──── released ──▶
//!   reads:  source                   source                     target
//!   writes: source, and target       source and target          target
//!           if already synced
//!   cancel(): the source stays authoritative; the targets are  │  too late to cancel
//!   freed once no mirrored write is in flight                  │
//! ```
//!
//! All extents of the batch switch together. Other extents of the volume, and extents of the batch without a target, are
//! routed as usual, and holes may get places meanwhile.
//!
//! Requests that were routed before the relocation began have no ticket. Copying starts only after the driver has reported
//! their completion ([`VolumeMap::earlier_complete`]).
//!
//! States of a chunk of the batch (chunks do not cross extents):
//!
//! ```text
//!             start                     done
//!   pending ─────────▶ copying ─────────────────────▶ synced     writes to synced chunks go to both ends
//!      ▲                  │ a guest write during the copy
//!      │ done             ▼
//!      └───────────── overwritten                                the chunk is copied again
//! ```
//!
//! A chunk is copied only while no guest write to it is in flight, so a copy never misses an earlier write. After
//! [`SEAL_AFTER`] overwrites a chunk is copied *sealed*: writes to it are held during this copy. If all remaining chunks
//! always have writes in flight, new writes to one of them are held until it is copied. So a hot chunk cannot prevent the
//! end of a move, and each hold lasts for the copy of one chunk and the writes before it.
//!
//! Two overlapping writes to both ends could be applied in different order at the two ends. Hence the second one is held
//! until the first one is complete.
//!
//! # Shared slots
//!
//! A snapshot of a volume reads its slots. Such an extent is *shared* and is copied to a new slot before it is written
//! (*copy-up*). The write returns [`Submission::NeedsCopy`] and waits. The extent does not change meanwhile, so the copy
//! needs no catch-up.
//!
//! ```text
//!   share()            begin_copy_up()                    copied_up()
//!  ──▼── shared ────────▼──── copied, flushed, stored ──────▼── exclusive: writes continue, the old slot stays with the snapshot
//! ```
//!
//! A move includes shared extents: at the target they are exclusive. Writes to shared extents of the current batch wait for
//! its switch. A trim of part of a shared extent has no effect; a trim of a whole one makes a hole, as usual.
//!
//! # Mirrored extents
//!
//! A relocation that is neither switched nor cancelled keeps both ends equal: each write goes to both. After
//! [`VolumeMap::share_reads`], reads of equal ranges are divided between both ends ([`Offload`] chooses the shares). Such
//! extents are *mirrored*.
//!
//! The source stays authoritative. The driver cancels the relocation without loss of data in these cases: the target fails
//! or loses data, a write fails at either end, or the volume is to be moved, grown, shared with a snapshot, or trimmed by
//! whole extents. If a read of the mirror fails, the driver repeats it at the source. While a write to both ends is in
//! flight, reads may return the old or the new data, as on any mirror. Mirrors are not stored and end with a restart.
//!
//! # Limits
//!
//! This crate provides no durability: the driver makes the switch durable before it calls [`VolumeMap::switch`]. It frees
//! the sources only after [`VolumeMap::released`] returns true. The crate neither chooses slots nor tracks free ones.
//!
//! # Driver of a move
//!
//! [`Mover`] moves a volume, or some of its extents, batch by batch, and [`Pace`] sets the rate. Both have no I/O and no
//! clock, like the map. The data path and the simulator carry out the same steps ([`MoveStep`]), each in its own way. A move
//! yields to guests of the same devices, according to the slack of their objectives ([`SlackBoard`]).

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

pub use lease::{LEASE_MAX, Lease, LeaseClaim, LeaseError};
pub use map::{
    BATCH_BYTES, BATCH_SPAN, Batch, DeviceIo, EarlierRequests, Location, RangeError, Request,
    Submission, VolumeMap,
};
pub use mover::{
    FlushResult, Guests, MoveLimits, MoveOrder, MoveStep, Mover, Purpose, ReserveResult,
};
pub use offload::{EndReads, OFFLOAD_LOOK, Offload, OffloadLimits};
pub use pace::{CONSERVATIVE, FLOOR, GuestLatency, NEAR, Pace, YIELD_ABOVE, copy_chunk};
pub use relocation::{Chunk, CopyStep, RelocationError, SEAL_AFTER, Ticket};
pub use selection::Selection;
pub use slack::{NeighborSlack, Slack, SlackBoard};
pub use throttle::{BURST_NS, Claim, Limits, Throttle, shares};
