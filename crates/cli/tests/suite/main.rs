//! The tests of this crate, in one program.

mod architecture;
mod asked;
mod cache;
mod clients;
mod dependencies;
mod device;
mod docs;
mod filter;
mod golden;
mod guards;
mod live;
mod live_extents;
mod live_manager;
mod mrc;
mod packaging;
mod programs;
mod remote;
mod run;
mod safety;
mod sim;
mod ssd;
mod suites;
mod support;
mod sweep;
mod trace;
mod volume;
