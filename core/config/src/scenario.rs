//! Scenario file: array, volumes, load, policy and strategies of a simulation, in TOML.
//!
//! The types hold the file's content, with names as text. The simulator resolves names to ids.

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

/// Scenario: array, volumes, load, policy and strategies of a simulation.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Short name of the scenario. Default: the name of the file.
    #[serde(default)]
    pub name: String,
    /// Description of the scenario for readers.
    #[serde(default)]
    pub about: String,
    /// Seed of all random numbers. Default: 1.
    #[serde(default = "default_seed")]
    pub seed: u64,
    /// Length of the run in simulated time. Left out, the run ends with its traces; loads that never end require
    /// it.
    pub duration: Option<Nanos>,
    /// Time at the start of the run that is excluded from the results. Default: 0.
    #[serde(default)]
    pub warmup: Nanos,
    /// Measurement window, for results over time and for violations. Default: 10 seconds.
    #[serde(default = "default_window")]
    pub window: Nanos,
    /// Length of the stretches for which additional results are written, in total and by class, with the remedies
    /// in force. A multiple of `window`; no stretches if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stretch: Option<Nanos>,
    /// Strategy of `terrace sim run`. Default: terrace.
    #[serde(default = "default_strategy")]
    pub strategy: String,
    /// Strategies of `terrace sim compare`.
    #[serde(default = "default_compare")]
    pub compare: Vec<String>,
    /// Initial placement of volumes without `tier` and `device`. Default: spread.
    #[serde(default)]
    pub initial_placement: InitialPlacement,
    /// Size of an extent. A move copies whole extents. Default: 64 MiB.
    #[serde(default = "default_extent")]
    pub extent: Bytes,
    /// Size of one piece of a copy, at most an extent. A request of a guest may wait for one piece. Default: 256
    /// KiB.
    #[serde(default = "default_chunk")]
    pub copy_chunk: Bytes,
    /// Tiers of the array, the fastest first. At least one is required, except with `counting`.
    #[serde(default)]
    pub tiers: Vec<TierConfig>,
    /// Inside of the SSDs of a tier, by name of the tier: erase blocks, garbage collection and wear. A tier without
    /// an entry is modelled by its caps and load curve.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub flash: BTreeMap<String, FlashConfig>,
    /// Groups of disks behind the devices of a tier, by name of the tier: striping, redundancy and positioning
    /// time.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub disks: BTreeMap<String, DisksConfig>,
    /// Cache in front of the tiers. Without this table there is no cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheConfig>,
    /// Mirrors of hot extents that are mostly read. Without this table nothing is mirrored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mirrors: Option<MirrorsConfig>,
    /// Compute servers that run the virtual machines of the volumes, by name. Remedies of kind `appliance` need
    /// them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hosts: BTreeMap<String, HostConfig>,
    /// Remedies for violations, in addition to the moves of the strategy. Without this table there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<ResponseConfig>,
    /// Factors by which the devices of a tier differ from the description that strategies get, by name of the tier.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub actual: BTreeMap<String, ActualConfig>,
    /// Service classes. A volume without a class has no objective and weight 1.
    #[serde(default)]
    pub classes: Vec<ClassConfig>,
    /// Volumes of the array.
    #[serde(default)]
    pub volumes: Vec<VolumeConfig>,
    /// Traces to replay.
    #[serde(default)]
    pub traces: Vec<TraceConfig>,
    /// Closed-loop clients: each request waits for an earlier one to complete.
    #[serde(default)]
    pub clients: Vec<ClientConfig>,
    /// Synthetic load conditions of paper 1, in an open loop: requests do not wait for others.
    #[serde(default)]
    pub generators: Vec<GeneratorConfig>,
    /// Measured loads per time slot, from which volumes and closed-loop clients are generated.
    #[serde(default)]
    pub measurements: Vec<MeasurementsConfig>,
    /// Directory, relative to the scenario, without which the scenario is skipped: for data that cannot be
    /// distributed.
    pub requires: Option<String>,
    /// Decision intervals, limits, gates and placement rules.
    #[serde(default)]
    pub policy: PolicyConfig,
    /// Treatment of moves for each goal, as live. Without this table all planned moves start by themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modes: Option<ModesConfig>,
    /// Hours in which moves may start by themselves, as live. Without this table they may start at any time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hours: Option<HoursConfig>,
    /// Weekday and time (UTC) at the start of the run, for `hours`. Default: "Mon 00:00".
    #[serde(default = "default_begins")]
    pub begins: String,
    /// Limits beyond which the controller reports a problem, as live. Without this table, predictions are always
    /// accepted and calibration has no budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watch: Option<WatchConfig>,
    /// Actions of operators during the run, in order of time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub operator: Vec<OperatorConfig>,
    /// Faults of the agent and of its messages to the controller. Without this table there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub faults: Option<FaultsConfig>,
    /// Inputs of a recorded decision of a live array, for `terrace sim plan`.
    pub recorded: Option<Recorded>,
    /// Evaluation by counting instead of simulation: the measure of paper 1 for the placement of extents.
    pub counting: Option<CountingConfig>,
    /// Parameters of strategies, by name of the strategy. The key `uses` gives another name to a strategy with
    /// other parameters: `[strategies.literal] uses = "autotiering"`.
    #[serde(default)]
    pub strategies: StrategyTables,
}

impl Default for Scenario {
    /// Returns an empty scenario with the default values.
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

/// Initial placement of volumes without `tier` and `device`.
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
    /// Extent by extent over all devices at random, in proportion to their free space.
    Scattered,
}

/// Volume: a virtual disk that a guest sees.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeConfig {
    /// Unique name of the volume.
    pub name: String,
    /// Virtual machine that uses the volume. Default: one with the name of the volume.
    pub vm: Option<String>,
    /// Service class. Without one, the volume has no objective and weight 1; its class is shown as `default`.
    pub class: Option<String>,
    /// Provisioned size.
    pub size: Bytes,
    /// Initial tier. Left out, `initial_placement` decides.
    pub tier: Option<String>,
    /// Initial device. Left out, `tier` or `initial_placement` decides.
    pub device: Option<String>,
    /// Compute server that runs the volume's virtual machine. Optional if only one server exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

/// Method of replaying a trace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Replay {
    /// Each request at its recorded time, regardless of the number in flight.
    Open,
    /// Each request at its recorded time, with at most `outstanding` requests in flight. Under overload, requests
    /// wait for others to complete.
    #[default]
    Window,
    /// Requests at random times (a Poisson process) with the rates of `rates_per_s`. Pieces of the trace are
    /// replayed in random order, with at most `outstanding` requests in flight. The load never ends.
    Rates,
}

/// Trace of block requests to replay.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TraceConfig {
    /// Trace file, relative to the scenario.
    pub file: String,
    /// Format of the trace. Default: detected from the file.
    pub format: Option<String>,
    /// Volume of the scenario that receives all requests. Use either this key or `volumes`.
    pub volume: Option<String>,
    /// Volume of the scenario for each volume of the trace, as in `{ "0" = "db" }`.
    #[serde(default)]
    pub volumes: BTreeMap<String, String>,
    /// Method of replaying. Default: window.
    #[serde(default)]
    pub replay: Replay,
    /// Largest number of requests in flight, for `replay = "window"` and `replay = "rates"`. Default: 32.
    #[serde(default = "default_outstanding")]
    pub outstanding: u32,
    /// Requests per second in each time slot, for `replay = "rates"`. The list repeats after its last slot.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rates_per_s: Vec<f64>,
    /// Length of a slot of `rates_per_s`. Default: 30 minutes.
    #[serde(default = "default_slot")]
    pub slot: Nanos,
    /// Number of consecutive requests in a piece of the trace, for `replay = "rates"`. Default: 4096.
    #[serde(default = "default_piece")]
    pub piece: u32,
    /// Factor by which the replay is faster than the recording. Default: 1.
    #[serde(default = "default_speed")]
    pub speed: f64,
    /// Time in the run at which the replay starts. Default: 0.
    #[serde(default)]
    pub start: Nanos,
    /// Number of replays. Default: 1.
    #[serde(default = "default_repeat")]
    pub repeat: u32,
    /// Time from the start of one replay to the start of the next. Default: the length of the trace. Give traces of
    /// one recording the same period, or they drift apart.
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

/// Closed-loop client: a load in which each request waits for an earlier one to complete.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClientConfig {
    /// Volume that receives the requests.
    pub volume: String,
    /// Name of a workload of paper 0, Table V. Default: none; `habits` then describes the load.
    pub preset: Option<String>,
    /// Properties of the load. Keys that are left out have the preset's value.
    #[serde(default)]
    pub habits: Habits,
    /// Phases with other habits, repeated in a cycle. Default: none.
    #[serde(default)]
    pub phases: Vec<Phase>,
    /// Periodic bursts. Default: none.
    pub bursts: Option<Bursts>,
}

impl ClientConfig {
    /// Returns the client without its volume.
    pub fn spec(&self) -> ClientSpec {
        ClientSpec {
            preset: self.preset.clone(),
            habits: self.habits.clone(),
            phases: self.phases.clone(),
            bursts: self.bursts,
        }
    }
}

/// Synthetic load: one of the 31 load conditions of paper 1, in an open loop. Requests arrive in a Poisson process
/// with the rate of the hour; pages are chosen by their rates in that hour.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GeneratorConfig {
    /// Name of the condition: `A`, `A2` or `A3` (calibrated substitutes), or `B` to `G` with the cycle in which the
    /// hot pages move: `B-1h`, `B-3h`, `B-6h`, `B-12h`, `B-not-move`.
    pub condition: String,
    /// Volumes over which the condition's 8679 pages are distributed in turn. All must have the same size or be
    /// larger than needed.
    pub volumes: Vec<String>,
    /// Size of a page, usually that of an extent. Default: 10 MiB; the paper uses 10 MB.
    #[serde(default = "default_page")]
    pub page: Bytes,
    /// Size of each request. Default: 8 KiB, as published.
    #[serde(default = "default_request")]
    pub request: Bytes,
    /// Share of reads in the requests, 0 to 1. Default: 0.5, as published.
    #[serde(default = "default_half")]
    pub read_share: f64,
    /// Share of requests that continue after the previous one in their page, 0 to 1. Default: 0.5, as published.
    #[serde(default = "default_half")]
    pub sequential_share: f64,
}

fn default_page() -> Bytes {
    Bytes::mib(10)
}
fn default_half() -> f64 {
    0.5
}

/// Volumes whose load was measured per time slot. For each, a closed-loop client generates requests with the
/// measured rate and share of writes. A volume is idle after its last slot.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MeasurementsConfig {
    /// File with the measurements, relative to the scenario.
    pub file: String,
    /// Volumes to use. Empty, the default, means all volumes of the file.
    #[serde(default)]
    pub volumes: Vec<String>,
    /// Factor by which time is faster and volumes are smaller; rates are unchanged. A copy thus takes the same
    /// share of a slot. Default: 1.
    #[serde(default = "default_speed")]
    pub speed: f64,
    /// Size of the requests, an assumption: the measurement counted accesses to pages. Default: 8 KiB.
    #[serde(default = "default_request")]
    pub request: Bytes,
    /// Largest number of requests in flight per volume, an assumption. Default: 8.
    #[serde(default = "default_generated_outstanding")]
    pub outstanding: u32,
    /// Skew of page popularity (Zipf theta), an assumption. Default: 0, which is uniform.
    #[serde(default)]
    pub skew: f64,
    /// Size of a volume as a multiple of its largest working set in a slot, an assumption: sizes were not measured.
    /// Default: 2.
    #[serde(default = "default_size_factor")]
    pub size_factor: f64,
    /// Smallest size of a volume, before it is divided by `speed`. Default: 4 GiB.
    #[serde(default = "default_size_min")]
    pub size_min: Bytes,
    /// Service classes that are assigned to the volumes in turn, in the file's order. Default: no class.
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
