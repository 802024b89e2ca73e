//! What second copies of extents are made of, as an answer to a broken objective.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, BytesPerSec};

/// Bounds of second copies.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CopiesConfig {
    /// Share of an extent's requests that read, at least: a write goes to both copies.
    pub read_share: f64,
    /// Share of a device that stays free, at least a tenth.
    pub free: f64,
    /// Bytes of one volume's second copies, at most.
    pub most: Bytes,
    /// At most so fast they are made.
    pub bandwidth: BytesPerSec,
}

impl Default for CopiesConfig {
    fn default() -> Self {
        Self {
            read_share: 0.9,
            free: 0.1,
            most: Bytes::gib(64),
            bandwidth: BytesPerSec(200 << 20),
        }
    }
}

impl CopiesConfig {
    /// What cannot be.
    ///
    /// # Errors
    /// The key, and why.
    pub fn check(&self) -> Result<(), (&'static str, &'static str)> {
        let share = |v: f64| (0.0..=1.0).contains(&v);
        if !share(self.read_share) {
            return Err(("copies.read_share", "is a share: 0 to 1"));
        }
        if !(0.1..=1.0).contains(&self.free) {
            return Err((
                "copies.free",
                "is a share, 0.1 to 1: second copies leave a tenth of their device",
            ));
        }
        match self.bandwidth.0 >= 1 << 20 {
            true => Ok(()),
            false => Err(("copies.bandwidth", "is at least 1 MiB/s")),
        }
    }
}
