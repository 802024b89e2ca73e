//! Configuration files as TOML: how they are read, and the words that a scenario and a live configuration share.
//!
//! ```text
//!  text ──▶ read ──▶ words (names are text) ──▶ resolve_* ──▶ model (names are ids)
//!             └▶ Text: line of a key, for the faults of everything that comes later
//! ```
//!
//! A fault names the file, the line, the key and the reason, and guesses what was meant. Nothing here opens a file: the
//! caller brings the text.

mod autonomy;
mod edit;
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
pub use edit::Edited;
pub use grid::{Axis, Setting, axes};
pub use hours::{Hours, unix_ms_of};
pub use lend::{LEND_MIN, LendConfig, LendListen, SECOND_LEVEL_PAGES_MAX};
pub use origin::write_with_origin;
pub use policy::{
    AffinityConfig, ClassConfig, PolicyConfig, ResolvedPolicy, UnknownVolumes, class_of,
    resolve_classes, resolve_policy,
};
pub use remedies::{LIVE_REMEDIES, LiveResponseConfig, NodeConfig, RemedyMode, node_uri_fault};
pub use strategies::{StrategyTables, parameters, strategy};
pub use text::{ConfigFault, Text, only, read, root_keys, write};
pub use tiers::{MemberConfig, TierConfig, resolve_tier_spec, resolve_topology};
pub use unknown::{find, suggestion};
