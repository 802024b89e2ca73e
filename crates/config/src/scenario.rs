//! A scenario file: the array, the volumes, their loads, the policy and the strategies, as TOML.
//!
//! These are the words of the file, not yet resolved: names are text here and become ids in a model of the simulator.

mod actual;
mod cache;
mod counting;
mod disks;
mod flash;
mod hosts;
mod mirrors;
mod recorded;
mod response;
mod running;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trace::{Bursts, ClientSpec, Habits, Phase};
use units::{Bytes, Nanos};

use crate::{
    ClassConfig, HoursConfig, ModesConfig, PolicyConfig, StrategyTables, TierConfig, WatchConfig,
};

pub use actual::ActualConfig;
pub use cache::{ArrayCacheConfig, CacheConfig, CachePartConfig};
pub use counting::{Aggregation, CountingConfig, MovementReading};
pub use disks::{DisksConfig, Raid};
pub use flash::{FlashConfig, FlashTenantConfig, OTHER_TENANTS};
pub use hosts::{HostConfig, LinkSharing};
pub use mirrors::MirrorsConfig;
pub use recorded::{Recorded, RecordedFacts, RecordedFailure, RecordedMove, RecordedVolume};
pub use response::{
    ApplianceConfig, ApplianceFailures, PeakConfig, PeakRecord, ReductionConfig, ResponseConfig,
};
pub use running::{FaultsConfig, OperatorConfig, StretchConfig, ThrottleConfig};

/// The whole file.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Short name; the file's name if left out.
    #[serde(default)]
    pub name: String,
    /// What it shows, for people.
    #[serde(default)]
    pub about: String,
    /// Seed of everything random.
    #[serde(default = "default_seed")]
    pub seed: u64,
    /// Length of the run; until the traces end if left out.
    pub duration: Option<Nanos>,
    /// Time at the start that does not count in the results.
    #[serde(default)]
    pub warmup: Nanos,
    /// Measurement window of the results over time and of the SLO.
    #[serde(default = "default_window")]
    pub window: Nanos,
    /// Results also by stretches of so long: of everything and of each class, with what answered it; whole windows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stretch: Option<Nanos>,
    /// Strategy of `sim run`.
    #[serde(default = "default_strategy")]
    pub strategy: String,
    /// Strategies of `sim compare`.
    #[serde(default = "default_compare")]
    pub compare: Vec<String>,
    /// Where volumes without a tier start.
    #[serde(default)]
    pub initial_placement: InitialPlacement,
    /// Extent size of the volumes.
    #[serde(default = "default_extent")]
    pub extent: Bytes,
    /// Size of one piece of a copy: what a guest's request may have to wait behind.
    #[serde(default = "default_chunk")]
    pub copy_chunk: Bytes,
    /// Tiers, high end first. Every scenario has some, but for those that are evaluated by counting.
    #[serde(default)]
    pub tiers: Vec<TierConfig>,
    /// What is inside the SSDs of tiers, by the tier's name: erase blocks, garbage collection and wear. Tiers without are known by
    /// their caps and load curve.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub flash: BTreeMap<String, FlashConfig>,
    /// Groups of disks behind the devices of tiers, by the tier's name: striping, redundancy and its price, positioning.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub disks: BTreeMap<String, DisksConfig>,
    /// A cache in front of the tiers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheConfig>,
    /// Extents with a second copy on another device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mirrors: Option<MirrorsConfig>,
    /// Compute servers whose virtual machines have these volumes, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hosts: BTreeMap<String, HostConfig>,
    /// What is done when an objective breaks, beside what the strategy does; nothing without this table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<ResponseConfig>,
    /// In what the devices of tiers differ from what strategies are told of them, by the tier's name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub actual: BTreeMap<String, ActualConfig>,
    /// Service classes.
    #[serde(default)]
    pub classes: Vec<ClassConfig>,
    /// Volumes.
    #[serde(default)]
    pub volumes: Vec<VolumeConfig>,
    /// Traces to replay.
    #[serde(default)]
    pub traces: Vec<TraceConfig>,
    /// Closed-loop clients.
    #[serde(default)]
    pub clients: Vec<ClientConfig>,
    /// Load conditions whose requests are made up, in an open loop.
    #[serde(default)]
    pub generators: Vec<GeneratorConfig>,
    /// Measurements of load that volumes and their requests are made from.
    #[serde(default)]
    pub measurements: Vec<MeasurementsConfig>,
    /// A directory, from the scenario's, that the scenario is skipped without: for data that cannot be handed on.
    pub requires: Option<String>,
    /// Epochs, headroom, budget, rules.
    #[serde(default)]
    pub policy: PolicyConfig,
    /// How far to go without asking, by goal, as live. Without this table everything is carried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modes: Option<ModesConfig>,
    /// When moves may begin by themselves, as live.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hours: Option<HoursConfig>,
    /// The day and hour of the week at which the run begins, such as "Mon 08:00"; for `hours`.
    #[serde(default = "default_begins")]
    pub begins: String,
    /// When to worry, as live. Without this table predictions are believed and calibrations have no budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watch: Option<WatchConfig>,
    /// What operators do while it runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub operator: Vec<OperatorConfig>,
    /// What goes wrong between the array and its controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub faults: Option<FaultsConfig>,
    /// What was known when a live array was decided about: `terrace sim plan` decides again.
    pub recorded: Option<Recorded>,
    /// Evaluated by counting, not simulated: paper 1's measure of how extents are placed.
    pub counting: Option<CountingConfig>,
    /// Parameters of strategies, by name. Another name may be given to a strategy with other parameters by its key
    /// `uses`: `[strategies.literal] uses = "autotiering"`.
    #[serde(default)]
    pub strategies: StrategyTables,
}

impl Default for Scenario {
    /// A scenario with nothing in it, and the values that a file leaves out.
    fn default() -> Self {
        Self {
            name: String::new(),
            about: String::new(),
            seed: default_seed(),
            duration: None,
            warmup: Nanos::ZERO,
            window: default_window(),
            stretch: None,
            strategy: default_strategy(),
            compare: default_compare(),
            initial_placement: InitialPlacement::default(),
            extent: default_extent(),
            copy_chunk: default_chunk(),
            tiers: vec![],
            flash: BTreeMap::new(),
            disks: BTreeMap::new(),
            cache: None,
            mirrors: None,
            hosts: BTreeMap::new(),
            response: None,
            actual: BTreeMap::new(),
            classes: vec![],
            volumes: vec![],
            traces: vec![],
            clients: vec![],
            generators: vec![],
            measurements: vec![],
            requires: None,
            policy: PolicyConfig::default(),
            modes: None,
            hours: None,
            begins: default_begins(),
            watch: None,
            operator: vec![],
            faults: None,
            recorded: None,
            counting: None,
            strategies: BTreeMap::new(),
        }
    }
}

fn default_seed() -> u64 {
    1
}
fn default_window() -> Nanos {
    Nanos::from_secs(10)
}
fn default_strategy() -> String {
    planner::DEFAULT_STRATEGY.into()
}
fn default_compare() -> Vec<String> {
    [
        "noop",
        "static",
        "idt",
        "edt",
        "autotiering",
        planner::DEFAULT_STRATEGY,
    ]
    .map(String::from)
    .into()
}
fn default_extent() -> Bytes {
    Bytes::mib(64)
}
fn default_begins() -> String {
    "Mon 00:00".into()
}
fn default_chunk() -> Bytes {
    Bytes(256 << 10)
}

/// Where volumes without a tier start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum InitialPlacement {
    /// On the device with the largest share of free space.
    #[default]
    Spread,
    /// On the lowest tier with room.
    Lowest,
    /// On the highest tier with room.
    Highest,
    /// Extent by extent over all devices at random, by the space that each has left.
    Scattered,
}

/// A volume.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeConfig {
    /// Unique name.
    pub name: String,
    /// The VM that it belongs to; a VM of its own name if left out.
    pub vm: Option<String>,
    /// Service class; of none if left out: no objective, weight 1, shown as `default`.
    pub class: Option<String>,
    /// Provisioned size.
    pub size: Bytes,
    /// Tier that it starts on.
    pub tier: Option<String>,
    /// Device that it starts on.
    pub device: Option<String>,
    /// The compute server that its virtual machine runs on; the only one if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

/// How a trace is replayed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Replay {
    /// Every request at its time, whatever happens.
    Open,
    /// At its time, but with at most `outstanding` requests in flight: under overload the load closes.
    #[default]
    Window,
    /// Not at its times but at random ones (a Poisson process) at the rates of `rates_per_s`, in pieces whose order is drawn, with at most `outstanding` requests in
    /// flight. It never ends.
    Rates,
}

/// A trace.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TraceConfig {
    /// The file, from the scenario's directory.
    pub file: String,
    /// Format, where it cannot be told from the file.
    pub format: Option<String>,
    /// The volume that all its requests go to.
    pub volume: Option<String>,
    /// Or, by name of the trace's volume, the volume of the scenario.
    #[serde(default)]
    pub volumes: BTreeMap<String, String>,
    /// How it is replayed.
    #[serde(default)]
    pub replay: Replay,
    /// Requests in flight at most, for `replay = "window"` and `replay = "rates"`.
    #[serde(default = "default_outstanding")]
    pub outstanding: u32,
    /// Requests per second, slot by slot, for `replay = "rates"`; after the last slot the first one comes again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rates_per_s: Vec<f64>,
    /// Length of a slot of `rates_per_s`.
    #[serde(default = "default_slot")]
    pub slot: Nanos,
    /// Requests that are played one after the other before another piece of the trace is drawn, for `replay = "rates"`.
    #[serde(default = "default_piece")]
    pub piece: u32,
    /// Time runs so many times faster.
    #[serde(default = "default_speed")]
    pub speed: f64,
    /// When it starts.
    #[serde(default)]
    pub start: Nanos,
    /// How often it is replayed.
    #[serde(default = "default_repeat")]
    pub repeat: u32,
    /// Time from the start of one replay to the start of the next; the trace's own span if left out. Traces of one
    /// recording need one common period, or they drift apart.
    pub period: Option<Nanos>,
}

fn default_outstanding() -> u32 {
    32
}
fn default_slot() -> Nanos {
    Nanos::from_secs(1800)
}
fn default_piece() -> u32 {
    4096
}
fn default_speed() -> f64 {
    1.0
}
fn default_repeat() -> u32 {
    1
}

/// A closed-loop client.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClientConfig {
    /// The volume it works on.
    pub volume: String,
    /// A workload of paper 0's Table V.
    pub preset: Option<String>,
    /// Its habits, or what differs from the preset's.
    #[serde(default)]
    pub habits: Habits,
    /// Stretches of time with other habits.
    #[serde(default)]
    pub phases: Vec<Phase>,
    /// Repeated bursts.
    pub bursts: Option<Bursts>,
}

impl ClientConfig {
    /// The client without its volume.
    pub fn spec(&self) -> ClientSpec {
        ClientSpec {
            preset: self.preset.clone(),
            habits: self.habits.clone(),
            phases: self.phases.clone(),
            bursts: self.bursts,
        }
    }
}

/// One of the 31 load conditions of paper 1 as requests at times of their own: Poisson arrivals at the rate of the hour, pages by
/// their rates in it. It waits for no answer.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GeneratorConfig {
    /// The condition: `A` (its calibrated stand-in; `A2` and `A3` are others), or `B` to `G` with the cycle in which the hot
    /// pages move: `B-1h`, `B-3h`, `B-6h`, `B-12h`, `B-not-move`.
    pub condition: String,
    /// Volumes that the condition's 8679 pages are dealt to in turn, all of them of one size or larger than needed.
    pub volumes: Vec<String>,
    /// Size of a page; as a rule the size of an extent (10 MB in the paper).
    #[serde(default = "default_page")]
    pub page: Bytes,
    /// Size of the requests (published).
    #[serde(default = "default_request")]
    pub request: Bytes,
    /// Share of reads (published: half).
    #[serde(default = "default_half")]
    pub read_share: f64,
    /// Share of requests that follow one another within their page (published: half).
    #[serde(default = "default_half")]
    pub sequential_share: f64,
}

fn default_page() -> Bytes {
    Bytes::mib(10)
}
fn default_half() -> f64 {
    0.5
}

/// Volumes whose load was measured, slot by slot, and whose requests are made up: a closed-loop client each, with the
/// measured rate and share of writes in each slot. After its last slot a volume is silent.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MeasurementsConfig {
    /// The file, from the scenario's directory.
    pub file: String,
    /// Only these volumes; all if left out.
    #[serde(default)]
    pub volumes: Vec<String>,
    /// Time runs so many times faster, and volumes are as many times smaller; rates are as measured. So a copy takes the
    /// same share of a slot as it would.
    #[serde(default = "default_speed")]
    pub speed: f64,
    /// Size of the requests (assumed: accesses to pages were counted).
    #[serde(default = "default_request")]
    pub request: Bytes,
    /// Requests in flight at most (assumed).
    #[serde(default = "default_generated_outstanding")]
    pub outstanding: u32,
    /// Skew of popularity (assumed).
    #[serde(default)]
    pub skew: f64,
    /// Size of a volume as a multiple of its largest working set in one slot (assumed: sizes were not measured).
    #[serde(default = "default_size_factor")]
    pub size_factor: f64,
    /// No volume is smaller, before it is made smaller for `speed`.
    #[serde(default = "default_size_min")]
    pub size_min: Bytes,
    /// Classes that the volumes get in turn, in the file's order (assumed); none if left out.
    #[serde(default)]
    pub classes: Vec<String>,
}

fn default_request() -> Bytes {
    Bytes(8 << 10)
}
fn default_generated_outstanding() -> u32 {
    8
}
fn default_size_factor() -> f64 {
    2.0
}
fn default_size_min() -> Bytes {
    Bytes::gib(4)
}
