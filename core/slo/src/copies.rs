//! Limits of mirrors as a remedy for a violation.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, BytesPerSec};

/// Limits of mirrors as a remedy.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CopiesConfig {
    /// Smallest share of reads in the requests of a mirrored extent, 0 to 1; writes go to both copies. Default:
    /// 0.9.
    pub read_share: f64,
    /// Share of the target device that mirrors leave free, 0.1 to 1. Default: 0.1.
    pub free: f64,
    /// Largest total size of one volume's mirrors. Default: 64 GiB.
    pub most: Bytes,
    /// Largest copy rate of a mirror, at least 1 MiB/s. Default: 200 MiB/s.
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
    /// Checks the limits.
    ///
    /// # Errors
    /// The invalid key, and the reason.
    pub fn check(&self) -> Result<(), (&'static str, &'static str)> {
        let share = |v: f64| (0.0..=1.0).contains(&v);
        if !share(self.read_share) {
            return Err(("copies.read_share", "must be a share from 0 to 1"));
        }
        if !(0.1..=1.0).contains(&self.free) {
            return Err((
                "copies.free",
                "must be a share from 0.1 to 1: mirrors leave a tenth of their device free",
            ));
        }
        match self.bandwidth.0 >= 1 << 20 {
            true => Ok(()),
            false => Err(("copies.bandwidth", "must be at least 1 MiB/s")),
        }
    }
}
