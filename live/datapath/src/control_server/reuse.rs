//! Reuse of one volume's pages.

use serde::{Deserialize, Serialize};

use super::{ControlAnswer, ControlServer, Result};
use crate::reuse::ReuseCounts;

/// Reuse of a volume's pages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReuseSample {
    pub volume: String,
    /// Counters; none if the volume is not served or not measured, or had no request yet.
    pub counts: Option<ReuseCounts>,
}

impl ControlServer {
    pub(super) fn reuse(&self, name: &str) -> Result<ControlAnswer> {
        let record = self.volume(name)?;
        let counts = self.ask_stages(record.id, |v| Ok(v.stages.measure.reuse()));
        let counts = counts.ok().flatten();
        Ok(ControlAnswer::Reuse(ReuseSample {
            volume: record.name,
            counts,
        }))
    }
}
