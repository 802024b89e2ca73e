//! Units and typed ids for all other crates.
//!
//! A quantity is a number with its unit in the type ([`Bytes`], [`Nanos`], [`Iops`], [`BytesPerSec`]), so "256" can
//! never mean seconds in one place and bytes in another. Text forms (`"256 GiB"`, `"5m"`, `"200 MiB/s"`) always have a
//! unit; a bare number is an error. Sizes are IEC: 1 KiB = 1024 bytes, and so is `"1K"`.
//!
//! Not part of this crate: arithmetic of models (queueing, regression). Ids are dense indices assigned by the builder
//! of an inventory; they are valid only within that inventory.

#![warn(missing_docs)]

mod hidden;
mod ids;
mod quantity;
mod size;
mod text;
mod words;

pub use hidden::{hidden_fault, is_hidden, shown};
pub use ids::{ClassId, DeviceId, TierId, VmId, VolumeId};
pub use quantity::{Bytes, BytesPerSec, Iops, Nanos};
pub use text::ParseUnitError;
pub use words::counted;
