//! Units and typed ids: what every other crate counts in.
//!
//! A quantity is a number with its unit in the type ([`Bytes`], [`Nanos`], [`Iops`], [`BytesPerSec`]), so that
//! "256" can never be read as seconds in one place and bytes in another. Text forms (`"256 GiB"`, `"5m"`,
//! `"200 MiB/s"`) always carry a unit; a bare number is an error. Sizes are IEC: 1 KiB = 1024 bytes, and so is `"1K"`.
//!
//! Not here: arithmetic that belongs to a model (queueing, regression). Ids are dense indices assigned by whoever
//! builds the inventory; they are only meaningful within one inventory.

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
