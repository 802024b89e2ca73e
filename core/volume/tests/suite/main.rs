//! Integration tests of this crate in one program.

mod move_under_load;
