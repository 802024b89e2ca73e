//! State that a server sends to the process that takes over, in addition to open files. The receiver understands it
//! completely or refuses it.
//!
//! Files follow in the order of their names here: one for each copy of the map; for each device its file and the file
//! with its lock; listening sockets; sockets of connections.

use std::path::PathBuf;

use array::CopyId;
use serde::{Deserialize, Serialize};

use crate::control::CONTROL;
use crate::error::DatapathError;
use crate::worker::HandedSession;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Id of the array.
    pub array: String,
    /// Number of commits in the map, which the new process must find there.
    pub commits: u64,
    /// Copies of the map.
    pub copies: Vec<CopyOf>,
    pub devices: Vec<DeviceOf>,
    /// Names of the listening sockets.
    pub listening: Vec<String>,
    pub connections: Vec<ConnectionOf>,
    /// Volumes by number, each with the number of its extents whose places are sent. The places follow the bytes of
    /// the connections.
    pub places: Vec<(u32, u64)>,
    /// Settings of operators for volumes.
    pub volumes: Vec<VolumeOf>,
    /// Settings of operators for tiers.
    pub tiers: Vec<TierOf>,
    /// End of the controller's lease, in nanoseconds of the monotonic clock; its holder is in the
    /// map.
    pub lease_until_ns: Option<u64>,
    /// Number of connections that end with the server: those with TLS or vhost-user, and those in negotiation.
    pub left: usize,
}

/// Configuration of the process that takes over, sent with "begin". It must match that of the old process.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wishes {
    /// Names of the sockets where guests connect.
    #[serde(rename = "doors")]
    pub listeners: Vec<String>,
    /// Directory of the vhost-user sockets, if enabled.
    pub vhost_user: Option<PathBuf>,
    /// Names of the volumes to serve. Empty: all complete volumes.
    pub volumes: Vec<String>,
}

impl Wishes {
    /// Checks that the configuration matches the one of the running server, `there`.
    ///
    /// # Errors
    /// [`DatapathError::Refused`] with the first difference.
    pub fn are(mut self, mut there: Self) -> Result<(), DatapathError> {
        there.listeners.retain(|listener| listener != CONTROL);
        self.listeners.sort_unstable();
        there.listeners.sort_unstable();
        if self.listeners != there.listeners {
            return Err(DatapathError::Refused(format!(
                "cannot change the listen addresses from {} to {} in a take-over: restart the server",
                there.listeners.join(", "),
                self.listeners.join(", ")
            )));
        }
        if self.vhost_user != there.vhost_user {
            let of = |dir: Option<PathBuf>| {
                dir.map_or("none".into(), |dir| format!("{}", dir.display()))
            };
            return Err(DatapathError::Refused(format!(
                "cannot change the directory of vhost-user sockets from {} to {} in a take-over: restart the server",
                of(there.vhost_user),
                of(self.vhost_user)
            )));
        }
        if self.volumes.is_empty() {
            return Ok(());
        }
        let among = |name: &&String, all: &[String]| !all.contains(name);
        if let Some(name) = self.volumes.iter().find(|n| among(n, &there.volumes)) {
            return Err(DatapathError::Refused(format!(
                "the running server does not serve volume {name:?}: restart the server to change its list of volumes"
            )));
        }
        match there.volumes.iter().find(|n| among(n, &self.volumes)) {
            None => Ok(()),
            Some(name) => Err(DatapathError::Refused(format!(
                "the running server serves volume {name:?}, which the new server would not: restart the server to change its list of volumes"
            ))),
        }
    }
}

/// Copy of the map.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CopyOf {
    pub second: bool,
    pub path: String,
}

impl CopyOf {
    pub fn copy(&self) -> CopyId {
        match self.second {
            true => CopyId::Second,
            false => CopyId::First,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceOf {
    /// Number of the device.
    pub id: u16,
    /// Decision for or against direct I/O with its reason, if it was made.
    pub direct: Option<(bool, String)>,
}

/// Connection, with the lengths of its data in the bytes that follow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConnectionOf {
    /// Negotiated session.
    pub session: HandedSession,
    /// Number of received bytes that are not processed yet.
    pub received: u64,
    /// Number of bytes to send.
    pub unsent: u64,
}

/// Settings of a volume.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeOf {
    /// Number of the volume.
    pub id: u32,
    pub own: LimitsOf,
    /// Temporary limits, with their end in nanoseconds of the monotonic clock.
    pub for_a_time: Option<(LimitsOf, u64)>,
    pub weight: f64,
}

/// Settings of a tier.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TierOf {
    /// Number of the tier.
    pub id: u16,
    pub limits: LimitsOf,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitsOf {
    /// Limit of requests per second.
    pub iops: Option<f64>,
    /// Limit of bytes per second.
    pub bandwidth: Option<u64>,
}

impl LimitsOf {
    /// Converts limits to their transmitted form.
    pub fn of(limits: volume::Limits) -> Self {
        Self {
            iops: limits.iops.map(|i| i.0),
            bandwidth: limits.bandwidth.map(|b| b.0),
        }
    }

    /// Converts limits to the form that the data path uses.
    pub fn limits(self) -> volume::Limits {
        volume::Limits {
            iops: self.iops.map(units::Iops),
            bandwidth: self.bandwidth.map(units::BytesPerSec),
        }
    }
}
