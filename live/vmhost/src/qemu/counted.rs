//! Latency histograms of devices from one query, for callers that use a monitor only for single commands.

use serde_json::Value;

use super::machine::{HistogramOwner, counters};
use super::value::PathValue as Field;
use crate::{BlockStats, HostError};

/// Device of a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountedDevice {
    /// Name of the device for `block-latency-histogram-set`.
    pub id: String,
    /// Owner of the histogram.
    pub by: HistogramOwner,
    /// Its counters, and at the same moment the histogram, if it has our bounds.
    pub stats: BlockStats,
}

impl CountedDevice {
    /// Returns true if the device has this name.
    pub fn is(&self, alias: &str) -> bool {
        let id = self.id.strip_suffix("/virtio-backend").unwrap_or(&self.id);
        id.rsplit('/').next() == Some(alias)
    }
}

/// Parses an answer to `query-blockstats`. Entries without a device are omitted.
///
/// # Errors
/// The missing or wrong field, with its path.
pub fn counted_devices(answer: &Value) -> Result<Vec<CountedDevice>, HostError> {
    let mut found = vec![];
    for entry in Field::root("query-blockstats", answer).items()? {
        let Some(id) = entry.field("qdev").maybe(Field::text)? else {
            continue;
        };
        let mut block = BlockStats::default();
        let by = counters(&entry.field("stats"), &mut block)?;
        found.push(CountedDevice {
            id: id.into(),
            by,
            stats: block,
        });
    }
    Ok(found)
}
