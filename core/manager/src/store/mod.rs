//! Interface of the controller's store, independent of its implementation and without SQL.
//!
//! A commit is atomic, and durable when it returns. The controller acknowledges nothing before its
//! commit. After a crash it needs only a few named values ([`Change::Put`]); everything else is
//! history.
//!
//! [`memory::MemoryStore`] keeps data in memory, for tests and simulations. The module `contract`,
//! behind the feature of that name, tests the requirements on every implementation.

#[cfg(any(test, feature = "contract"))]
pub mod contract;
pub mod memory;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::ManagerError;
use crate::view::{EventView, JobView, OutcomeView};

/// Change that the store must keep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "kebab-case")]
pub enum Change {
    /// Sets a named value, in JSON; replaces its old value.
    Put {
        /// Name, such as `host/alpha/executor`.
        key: String,
        /// JSON text.
        value: String,
    },
    /// Removes a named value.
    Remove {
        /// Name of the value.
        key: String,
    },
    /// Window of a host; replaces a window of the same host with the same end.
    Window(StoredWindow),
    /// Decision with all its inputs, which allow to repeat it; replaces a decision of the same host
    /// and number.
    Decision(Box<StoredDecision>),
    /// Event; replaces an event with the same number.
    Event(EventView),
    /// Present state of a job; replaces that of the same host and number.
    Job(Box<JobView>),
    /// Outcome of a move; replaces that of the same host and job.
    Outcome(OutcomeView),
}

/// Summary of a host's window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredWindow {
    pub host: String,
    /// Controller time of the end of the window, nanoseconds.
    pub at_ns: u64,
    /// Length of the window, nanoseconds.
    pub window_ns: u64,
    /// Volumes with a known load. The load of other volumes is unknown, which does not mean idle.
    pub volumes: Vec<VolumeSummary>,
    pub devices: Vec<DeviceSummary>,
}

/// Summary of a volume in a window. Means exclude injected delay; percentiles include it, as the
/// guest sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VolumeSummary {
    /// Name of the volume.
    pub volume: String,
    /// Device with most of the volume's data.
    pub device: String,
    /// Reads.
    pub reads: FlowSummary,
    /// Writes.
    pub writes: FlowSummary,
    /// 99th percentile of the latency of reads and writes, nanoseconds; 0 for an idle volume.
    pub p99_ns: u64,
    /// Latency by the statistic of the volume's objective, nanoseconds; 0 without an objective or
    /// for an idle volume.
    pub slo_ns: u64,
    /// Mean number of requests in flight, without injected delay, in thousandths.
    pub outstanding_milli: u64,
}

/// Summary of a volume's reads or writes in a window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FlowSummary {
    /// Number of requests.
    pub ios: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// Mean latency, nanoseconds.
    pub mean_ns: u64,
    /// Median of the latency, nanoseconds. Percentiles are midpoints of histogram buckets.
    pub p50_ns: u64,
    /// 95th percentile of the latency, nanoseconds.
    pub p95_ns: u64,
    /// 99th percentile of the latency, nanoseconds.
    pub p99_ns: u64,
    /// 99.9th percentile of the latency, nanoseconds.
    pub p999_ns: u64,
}

/// Summary of a device in a window.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceSummary {
    /// Name of the device.
    pub device: String,
    /// Used space, bytes.
    pub used_bytes: u64,
    /// Reads, including those of moves.
    pub reads: u64,
    /// Writes, including those of moves.
    pub writes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Share of time in which the device was busy, in thousandths.
    pub utilization_milli: u64,
}

/// Decision with its inputs and results, as JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredDecision {
    pub host: String,
    /// Number of the plan.
    pub generation: u64,
    /// Controller time of the decision, nanoseconds.
    pub at_ns: u64,
    /// Name of the strategy.
    pub strategy: String,
    pub parameters: serde_json::Value,
    pub seed: u64,
    /// `model::Facts`.
    pub facts: serde_json::Value,
    /// `model::Policy`.
    pub policy: serde_json::Value,
    /// State of the strategy before the decision.
    pub state: serde_json::Value,
    /// `model::Plan`.
    pub plan: serde_json::Value,
    /// `model::Report`.
    pub report: serde_json::Value,
}

/// Reads a part of a stored decision; `part` is its name, in the plural.
///
/// # Errors
/// [`ManagerError::Removed`] and [`ManagerError::Part`].
pub(crate) fn read<T: DeserializeOwned>(
    part: &'static str,
    value: &serde_json::Value,
) -> Result<T, ManagerError> {
    if value.is_null() {
        return Err(ManagerError::Removed { part });
    }
    serde_json::from_value(value.clone()).map_err(|why| ManagerError::Part { part, why })
}

/// Query for the history of a volume: windows with an end from `from_ns` to `to_ns`, both
/// inclusive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryQuery {
    pub host: String,
    pub volume: String,
    /// First end, as controller time in nanoseconds.
    pub from_ns: u64,
    /// Last end, as controller time in nanoseconds.
    pub to_ns: u64,
}

/// Point of a volume's history: a window as reported, or a longer window that summarizes several
/// old ones.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HistoryPoint {
    /// Controller time of the end of the window, nanoseconds.
    pub at_ns: u64,
    /// Length of the window, nanoseconds.
    pub window_ns: u64,
    /// Measurements of the volume.
    pub summary: VolumeSummary,
}

/// Reason for the failure of a store operation.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StoreError {
    /// The store has no space or no permission, or its disk has failed. No change of the commit is
    /// kept.
    #[error("the store cannot be written: {why}")]
    Write { why: String },
    /// The store cannot be read, or its content is invalid.
    #[error("the store cannot be read: {why}")]
    Read { why: String },
    /// The file of the store was deleted, moved or replaced while in use.
    #[error(
        "the store {path} is not the file that the controller uses: it was {how} while in use. \
         Put it back, or restart the controller, which then uses the present file"
    )]
    Replaced { path: String, how: &'static str },
    /// Another controller uses the store.
    #[error("the store {path} is in use by another controller")]
    InUse { path: String },
    /// Another version of Terrace has written the store.
    #[error("the store has layout {found}, this version of terrace reads layout {known}")]
    Layout {
        found: i64,
        /// Layout of this version.
        known: i64,
    },
}

/// Store for the state and the history of a controller.
pub trait Store {
    /// Checks that committed data can be read again. Call it about once a second.
    fn check(&mut self) -> Result<(), StoreError> {
        Ok(())
    }
    /// Returns all named values, in the order of their names.
    fn values(&mut self) -> Result<Vec<(String, String)>, StoreError>;
    /// Commits all changes durably, or none.
    fn commit(&mut self, changes: &[Change]) -> Result<(), StoreError>;
    /// Returns the history of a volume, oldest first.
    fn history(&mut self, query: &HistoryQuery) -> Result<Vec<HistoryPoint>, StoreError>;
    /// Returns the windows of a host as reported, with an end from `from_ns` to `to_ns`, both
    /// inclusive, oldest first. The result is in memory at once: query hours, not weeks.
    fn windows(
        &mut self,
        host: &str,
        from_ns: u64,
        to_ns: u64,
    ) -> Result<Vec<StoredWindow>, StoreError>;
    /// Returns a decision; without a number, the one with the highest number. Facts, policy and
    /// state of old decisions may have been removed, and are then null.
    fn decision(
        &mut self,
        host: &str,
        generation: Option<u64>,
    ) -> Result<Option<StoredDecision>, StoreError>;
    /// Returns events with numbers above `after`, or the newest ones without it; oldest first, at
    /// most `limit`.
    fn events(&mut self, after: Option<u64>, limit: usize) -> Result<Vec<EventView>, StoreError>;
    /// Returns jobs, newest first: by time of the plan, then by number, then by host.
    fn jobs(&mut self, limit: usize) -> Result<Vec<JobView>, StoreError>;
    /// Returns outcomes, newest first: by end of the move, then by job, then by host.
    fn outcomes(&mut self, limit: usize) -> Result<Vec<OutcomeView>, StoreError>;
    /// Summarizes old data and removes older data, a bounded amount of work per call.
    fn tidy(&mut self, now_ns: u64) -> Result<TidyResult, StoreError>;
}

/// Result of one round of tidying.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TidyResult {
    /// All old data has been processed.
    All,
    /// More old data remains.
    Some,
}
