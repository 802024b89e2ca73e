//! Live path of guest I/O: a server of NBD, with or without TLS, and of vhost-user, in front of tiers of files, block
//! devices and remote exports.
pub mod cached;
mod client;
mod clock;
pub mod control;
pub mod control_server;
mod counts;
pub mod device;
pub mod direct;
pub mod engine;
mod error;
mod filter;
pub mod heat;
mod helper_thread;
mod io;
pub mod keeper;
mod listen;
mod objective;
mod pulse;
mod reach;
mod reason;
mod registry;
pub mod reuse;
mod server;
mod serving;
mod source;
pub mod stages;
mod takeover;
mod text;
mod tls;
mod vhost;
mod worker;

pub use array::Health;
pub use client::{Breaker, Client, ClientError};
pub use counts::{Counts, DirectionCounts};
pub use engine::EngineLimits;
pub use error::{DatapathError, Result};
pub use filter::{Filter, FilterError, FilterOptions};
pub use heat::Heat;
pub use io::IoChoice;
pub use keeper::{AcceptLoss, Keeper, KeeperError, random};
pub use listen::{Listen, ListenError};
pub use pulse::{Pulse, StalledWorker};
pub use reach::{Reach, ReachError, add_device, has_map, open_to_look, open_to_serve, restore};
pub use reason::reason;
pub use server::{STOP_WITHIN, Server, ServerConfig, ServerError, StopError, ended_by};
pub use serving::{ArrayServer, ServeError};
pub use source::image_in_use;
pub use stages::inject::InjectedDelay;
pub use stages::measure::{Direction, Latency, MeasureStatus};
pub use stages::record::RecordingStatus;
pub use takeover::{Handover, TakeOverConfig, TakeOverError};
pub use text::explain;
pub use tls::fuzzing;
pub use tls::{Credentials, TlsError};
pub use worker::{
    CacheOfWorker, CacheSample, LastMirror, LastMove, LentPart, MirrorProgress, MoveProgress,
    SecondOf, SecondStatus, ShareOf, VolumeStatus, WarmUp,
};
