//! What happens inside a solid-state drive: flash translation, garbage collection, over-provisioning.
//!
//! ```text
//!  tenants' requests ─▶ service between tenants ─▶ tags (NCQ) ─▶ write buffer ─▶ parallel units, channels
//!                                                                                   ▲ programs, copies, erases
//!                                                        flash translation layer ───┘
//!                                                        (whose page is where, which erase block is collected)
//! ```
//!
//! - [`ftl`]: the page-mapped translation layer alone, without time: write amplification, wear, who moves whose pages.
//! - [`drive`]: a drive with time, fast; an array's device.
//! - [`event`]: the same with an event queue, slow; what the fast one is measured against.
//! - [`host`]: tenants with loads, the service between them, objectives and spare space that follows them.
//! - [`model`]: the closed forms (Menon, Desnoyers) and what over-provisioning an objective needs.
//!
//! After Kim, Lee and Noh, Towards SLO complying SSDs through OPS isolation (FAST 2015), and the slides of that name ("paper 4").
//! Everything is a function of a configuration, a seed and the requests; nothing here reads a clock. Nothing is allocated for a request, but
//! for queues that grow until they are as long as they ever get, and in [`event`], which makes a node of every operation.

pub mod drive;
mod error;
pub mod event;
pub mod ftl;
pub mod host;
pub mod model;

pub use drive::Drive;
pub use error::FlashError;
