//! Tests of this crate, in one program.

mod appliances;
mod jobs;
