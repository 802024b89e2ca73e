//! How one volume's pages are used again.

use serde::{Deserialize, Serialize};

use super::{ControlAnswer, ControlServer, Result};
use crate::reuse::ReuseCounts;

/// How the pages of a volume are used again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReuseSample {
    pub volume: String,
    /// What was counted; none where the volume is not served or not measured, or nobody has read or written yet.
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
