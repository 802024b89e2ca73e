//! The port of the store: what a controller keeps, whoever keeps it. No SQL on this side of it.
//!
//! A commit is all or nothing, and durable when it returns: the controller says nothing to anybody that it has not committed. What
//! it needs to go on after a kill is a handful of named values ([`Change::Put`]); everything else is history.
//!
//! [`memory::MemoryStore`] keeps it for as long as a test or a simulation lasts. What every implementation has to do is in
//! `contract`, behind the feature of that name.

#[cfg(any(test, feature = "contract"))]
pub mod contract;
pub mod memory;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::view::{EventView, JobView, OutcomeView};

/// Something to keep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "kebab-case")]
pub enum Change {
    /// A named value, JSON; replaces an older one.
    Put {
        /// Its name, such as `host/alpha/executor`.
        key: String,
        /// JSON text.
        value: String,
    },
    /// A named value is not needed any more.
    Remove {
        /// Its name.
        key: String,
    },
    /// A window of a host; replaces one of the same host with the same end.
    Window(StoredWindow),
    /// A decision with all that it was made from, so that it can be made again; replaces one of the same host and number.
    Decision(Box<StoredDecision>),
    /// Something that happened; replaces one with the same number.
    Event(EventView),
    /// A job, as it is now; replaces what is known of the same host and number.
    Job(Box<JobView>),
    /// What came of a move; replaces what is known of the same host and job.
    Outcome(OutcomeView),
}

/// A window of a host, summed up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredWindow {
    pub host: String,
    /// End of the window, the controller's time.
    pub at_ns: u64,
    /// Its length.
    pub window_ns: u64,
    /// Volumes whose load is known. A volume that is not here is unknown, not idle.
    pub volumes: Vec<VolumeSummary>,
    pub devices: Vec<DeviceSummary>,
}

/// A volume in a window. Latencies are without what was injected on purpose, but for the percentiles, which are the guest's.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VolumeSummary {
    /// Its name.
    pub volume: String,
    /// The device with most of it.
    pub device: String,
    /// Reads.
    pub reads: FlowSummary,
    /// Writes.
    pub writes: FlowSummary,
    /// 99th percentile over both directions; 0 for an idle volume.
    pub p99_ns: u64,
    /// The statistic of its objective, whichever that is; 0 without one or when idle.
    pub slo_ns: u64,
    /// Requests in flight ([`crate::wire::Load::in_flight`]), thousandths.
    pub outstanding_milli: u64,
}

/// A direction of a volume in a window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FlowSummary {
    /// Requests.
    pub ios: u64,
    /// Bytes.
    pub bytes: u64,
    /// Mean latency.
    pub mean_ns: u64,
    /// Percentiles: middles of histogram buckets.
    pub p50_ns: u64,
    /// 95th.
    pub p95_ns: u64,
    /// 99th.
    pub p99_ns: u64,
    /// 99.9th.
    pub p999_ns: u64,
}

/// A device in a window.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceSummary {
    /// Its name.
    pub device: String,
    /// Bytes that are taken.
    pub used_bytes: u64,
    /// Reads, moves included.
    pub reads: u64,
    /// Writes, moves included.
    pub writes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Share of its time in use, thousandths.
    pub utilization_milli: u64,
}

/// A decision: inputs and outputs, as JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredDecision {
    pub host: String,
    /// Number of the plan.
    pub generation: u64,
    /// When, the controller's time.
    pub at_ns: u64,
    /// The strategy's name.
    pub strategy: String,
    pub parameters: serde_json::Value,
    pub seed: u64,
    /// `model::Facts`.
    pub facts: serde_json::Value,
    /// `model::Policy`.
    pub policy: serde_json::Value,
    /// The strategy's state before.
    pub state: serde_json::Value,
    /// `model::Plan`.
    pub plan: serde_json::Value,
    /// `model::Report`.
    pub report: serde_json::Value,
}

/// A part of a stored decision.
///
/// # Errors
/// It is not kept any more, or not understood.
pub(crate) fn read<T: DeserializeOwned>(
    what: &str,
    value: &serde_json::Value,
) -> Result<T, String> {
    if value.is_null() {
        return Err(format!("the {what} of this decision are not kept any more"));
    }
    serde_json::from_value(value.clone())
        .map_err(|e| format!("the {what} of this decision are not understood: {e}"))
}

/// What the store is asked for a volume's past: windows that end from `from_ns` to `to_ns`, both included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryQuery {
    pub host: String,
    pub volume: String,
    /// The first end, the controller's time.
    pub from_ns: u64,
    /// The last end.
    pub to_ns: u64,
}

/// A volume's past: raw windows, and longer ones where they were rolled up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HistoryPoint {
    /// End of the window.
    pub at_ns: u64,
    /// Its length.
    pub window_ns: u64,
    /// What was measured.
    pub summary: VolumeSummary,
}

/// Why the store did not do it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StoreError {
    /// No space, no permission, a broken disk: nothing of the commit is there.
    #[error("the store cannot be written: {why}")]
    Write { why: String },
    /// It cannot be read, or what is in it makes no sense.
    #[error("the store cannot be read: {why}")]
    Read { why: String },
    /// Its file was deleted, moved or replaced while it was in use.
    #[error(
        "the store {path} is not the file that the controller uses: it was {how} while in use. Put it back, or restart the controller, which then begins with the file that is there"
    )]
    Replaced { path: String, how: &'static str },
    /// Another controller has it.
    #[error("the store {path} is in use by another controller")]
    InUse { path: String },
    /// It was written by another version.
    #[error("the store has layout {found}, this version of terrace knows layout {known}")]
    Layout {
        found: i64,
        /// Ours.
        known: i64,
    },
}

/// What keeps a controller's state and history.
pub trait Store {
    /// Looks whether what is committed will be found again; to be called about once a second.
    fn check(&mut self) -> Result<(), StoreError> {
        Ok(())
    }
    /// All named values, in order of their names.
    fn values(&mut self) -> Result<Vec<(String, String)>, StoreError>;
    /// All of it, durably, or none.
    fn commit(&mut self, changes: &[Change]) -> Result<(), StoreError>;
    /// A volume's past, oldest first.
    fn history(&mut self, query: &HistoryQuery) -> Result<Vec<HistoryPoint>, StoreError>;
    /// Raw windows of a host that end from `from_ns` to `to_ns`, both included, oldest first: a replayable past. All of them are
    /// in memory at once, so ask for hours, not for weeks.
    fn windows(
        &mut self,
        host: &str,
        from_ns: u64,
        to_ns: u64,
    ) -> Result<Vec<StoredWindow>, StoreError>;
    /// A decision; without a number the one with the highest. Facts, policy and state of an old one may be forgotten: null.
    fn decision(
        &mut self,
        host: &str,
        generation: Option<u64>,
    ) -> Result<Option<StoredDecision>, StoreError>;
    /// Events with numbers above `after`, or the newest without it; oldest first, at most `limit`.
    fn events(&mut self, after: Option<u64>, limit: usize) -> Result<Vec<EventView>, StoreError>;
    /// Jobs, newest first: by when they were planned, then by number, then by host.
    fn jobs(&mut self, limit: usize) -> Result<Vec<JobView>, StoreError>;
    /// Outcomes, newest first: by when their moves ended, then by job, then by host.
    fn outcomes(&mut self, limit: usize) -> Result<Vec<OutcomeView>, StoreError>;
    /// Rolls up what is old and forgets what is older; a bounded amount of work at a time. Whether there is more to do.
    fn tidy(&mut self, now_ns: u64) -> Result<Tidied, StoreError>;
}

/// What one round of tidying left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tidied {
    /// Nothing more to do.
    All,
    /// There is more.
    Some,
}
