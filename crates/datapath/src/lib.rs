//! The live path of guest I/O: an NBD server over tiers of files, block devices and remote exports.
mod client;
mod clock;
pub mod desk;
pub mod device;
pub mod engine;
mod inject;
mod io;
pub mod keeper;
mod measure;
mod record;
mod registry;
mod server;
mod share;
mod worker;

pub use client::ClientError;
pub use engine::EngineLimits;
pub use io::IoChoice;
pub use keeper::{Keeper, KeeperError};
pub use measure::{Direction, Heat, Latency, Measured};
pub use server::{Listen, ListenError, Server, ServerConfig, ServerError};
pub use worker::VolumeStatus;
