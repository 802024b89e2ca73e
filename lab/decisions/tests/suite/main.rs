//! Tests of this crate, in one program.

mod draws;
mod scripts;
