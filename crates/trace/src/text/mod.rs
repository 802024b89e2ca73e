//! Every text format is rows of columns: this is the one implementation of splitting and reading them.
//!
//! ```text
//! bytes ─▶ Lines ─▶ split by Delimiter ─▶ fields by Layout ─▶ RawRecord
//! ```
//!
//! A preset ([`crate::formats`]) is a [`Layout`], nothing else. Blank lines and lines that begin with `#` are passed
//! over. A field may be quoted where the delimiter is a character.

mod columns;
mod field;
mod header;
mod lines;
mod plain;
mod reader;

pub use columns::{ColumnSpec, Delimiter, HeaderRow};
pub(crate) use columns::{Layout, VolumeColumns};
pub use field::{OpRule, TimeUnit};
pub(crate) use field::{parse_time, parse_u64};
pub(crate) use lines::{Lines, Next};
pub(crate) use reader::{ColumnReader, Field, check_range, split};
