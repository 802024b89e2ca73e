//! Common implementation of text formats, which all are rows of columns.
//!
//! ```text
//! bytes ─▶ Lines ─▶ split by Delimiter ─▶ fields by Layout ─▶ RawRecord
//! ```
//!
//! A preset ([`crate::formats`]) is just a [`Layout`]. Blank lines and lines that begin with `#` are skipped. A field
//! may be quoted if the delimiter is a character.

mod columns;
mod date;
mod field;
mod header;
mod kinds;
mod lines;
mod plain;
mod reader;

pub use columns::{ColumnSpec, Delimiter, HeaderRow};
pub(crate) use columns::{Layout, ResolvedLayout, VolumeColumns, cells};
pub(crate) use date::looks_like_date;
pub use field::TimeUnit;
pub(crate) use field::{parse_time, parse_u64};
pub(crate) use header::normalized;
pub(crate) use kinds::{OpColumn, OpRule};
pub(crate) use lines::{LineResult, Lines};
pub(crate) use reader::{ColumnReader, Field, check_range, split};
