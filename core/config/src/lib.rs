//! Configuration files in TOML: the reader, and the tables that scenarios and live configurations share.
//!
//! ```text
//!  text ──▶ read ──▶ config types (names are text) ──▶ resolve_* ──▶ model (names are ids)
//!             └▶ Text: line of each key, for errors that later steps report
//! ```
//!
//! An error names the file, line, key and reason, and suggests a similar name. This crate opens no files: the caller
//! passes the text.

mod autonomy;
mod edit;
mod error;
mod grid;
mod hours;
mod lend;
mod origin;
mod policy;
mod remedies;
pub mod scenario;
mod strategies;
mod text;
mod tiers;
mod unknown;

pub use autonomy::{HoursConfig, ModesConfig, WatchConfig};
pub use edit::EditedText;
pub use error::ValueError;
pub use grid::{Axis, Setting, axes};
pub use hours::{Hours, unix_ms_of};
pub use lend::{LEND_MIN, LendConfig, LendListen, SECOND_LEVEL_PAGES_MAX};
pub use origin::write_with_origin;
pub use policy::{
    AffinityConfig, ClassConfig, MaxSlowdown, PolicyConfig, ResolvedPolicy, UnknownVolumes,
    class_of, resolve_classes, resolve_policy,
};
pub use remedies::{LIVE_REMEDIES, LiveResponseConfig, NodeConfig, RemedyMode, node_uri_fault};
pub use strategies::{StrategyTables, parameters, strategy};
pub use text::{ConfigFault, Text, only, read, root_keys, table, write};
pub use tiers::{MemberConfig, TierConfig, resolve_tier_spec, resolve_topology};
pub use unknown::{find, suggestion};
