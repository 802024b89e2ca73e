//! The tests of this crate, in one program.

mod live;
mod page;
mod reasons;
mod support;
mod text;
mod views;
