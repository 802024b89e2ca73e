//! Inside of a solid-state drive: flash translation, garbage collection, over-provisioning.
//!
//! ```text
//!  tenants' requests ─▶ service between tenants ─▶ tags (NCQ) ─▶ write buffer ─▶ parallel units, channels
//!                                                                                   ▲ programs, copies, erases
//!                                                        flash translation layer ───┘
//!                                                        (page map, choice of the erase block to collect)
//! ```
//!
//! - [`ftl`]: the page-mapped translation layer without time: write amplification, wear, pages moved per tenant.
//! - [`drive`]: a drive with time, fast. An array uses it as a device.
//! - [`event`]: the same drive with an event queue, slow. It is the reference for the fast one.
//! - [`host`]: tenants with loads, the scheduling between them, objectives, and spare space that is adjusted to them.
//! - [`model`]: the closed forms (Menon, Desnoyers), and the over-provisioning that an objective needs.
//!
//! The models follow Kim, Lee and Noh, Towards SLO complying SSDs through OPS isolation (FAST 2015), and the slides of
//! the same title ("paper 4"). All results are functions of a configuration, a seed and the requests; no code reads a
//! clock. A request causes no allocation, except for queues until they reach their maximum length, and in [`event`],
//! which creates a node for every operation.

pub mod drive;
mod error;
pub mod event;
pub mod ftl;
pub mod host;
pub mod model;

pub use drive::Drive;
pub use error::FlashError;
