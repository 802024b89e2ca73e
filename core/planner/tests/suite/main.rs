//! Tests of this crate, in one program.

mod decisions;
mod edt;
mod extents;
mod goals;
mod place;
mod rivals;
mod support;
mod terrace;
mod terrace_extents;
