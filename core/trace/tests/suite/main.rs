//! Integration tests of this crate in one program.

mod common;
mod formats;
mod measurements;
mod native;
mod parquet;
mod readers;
mod robustness;
mod sample;
mod shared_traces;
