//! Who counts which device's requests by latency, by one query alone: for who has a monitor only in passing.

use serde_json::Value;

use super::machine::{Counted, counters};
use super::value::At as Field;
use crate::{BlockStats, HostError};

/// A device of a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountedDevice {
    /// What `block-latency-histogram-set` calls it.
    pub id: String,
    /// Who counts.
    pub by: Counted,
    /// Its counters, and of the same moment what was counted by our bounds.
    pub stats: BlockStats,
}

impl CountedDevice {
    /// Whether it is the device of this name.
    pub fn is(&self, alias: &str) -> bool {
        let id = self.id.strip_suffix("/virtio-backend").unwrap_or(&self.id);
        id.rsplit('/').next() == Some(alias)
    }
}

/// From an answer to `query-blockstats`; what no device has is left out.
///
/// # Errors
/// What is missing or wrong, with its place.
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
