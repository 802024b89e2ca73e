//! What a server tells the one that takes over, beside open files. Understood in full, or not at all.
//!
//! Files come in the order in which they are named here: of each copy of the map one, of each device its file and that with the lock on it,
//! then the sockets that are listened on, then those of connections.

use std::path::PathBuf;

use array::CopyId;
use serde::{Deserialize, Serialize};

use crate::control::CONTROL;
use crate::worker::HandedSession;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Whose it is: the array's id.
    pub array: String,
    /// Commits in the map: as many have to be found there.
    pub commits: u64,
    /// Copies of the map.
    pub copies: Vec<CopyOf>,
    pub devices: Vec<DeviceOf>,
    /// Sockets that are listened on, by what they are for.
    pub listening: Vec<String>,
    pub connections: Vec<ConnectionOf>,
    /// Volumes, by number, and how many extents of them it is said where they are: behind the bytes of connections.
    pub places: Vec<(u32, u64)>,
    /// What operators have set for volumes.
    pub volumes: Vec<VolumeOf>,
    /// What operators have set for tiers.
    pub tiers: Vec<TierOf>,
    /// End of the controller's lease, in nanoseconds of the monotonic clock; its holder is in the
    /// map.
    pub lease_until_ns: Option<u64>,
    /// Connections that end with the server: with TLS, of guests by vhost-user, and those that are being negotiated.
    pub left: usize,
}

/// What the process that takes over is to serve, which is to be what the other one does; said with "begin".
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wishes {
    /// Sockets that guests connect to, by what they are for.
    #[serde(rename = "doors")]
    pub listeners: Vec<String>,
    /// Where there is a socket for each volume's guests by vhost-user.
    pub vhost_user: Option<PathBuf>,
    /// The volumes; all that are whole, if none is named.
    pub volumes: Vec<String>,
}

impl Wishes {
    /// Whether they are what there is.
    ///
    /// # Errors
    /// What is not.
    pub fn are(mut self, mut there: Self) -> Result<(), String> {
        there.listeners.retain(|listener| listener != CONTROL);
        self.listeners.sort_unstable();
        there.listeners.sort_unstable();
        if self.listeners != there.listeners {
            return Err(format!(
                "cannot change the listen addresses from {} to {} in a take-over: restart the server",
                there.listeners.join(", "),
                self.listeners.join(", ")
            ));
        }
        if self.vhost_user != there.vhost_user {
            let of = |dir: Option<PathBuf>| {
                dir.map_or("none".into(), |dir| format!("{}", dir.display()))
            };
            return Err(format!(
                "cannot change the directory of vhost-user sockets from {} to {} in a take-over: restart the server",
                of(there.vhost_user),
                of(self.vhost_user)
            ));
        }
        if self.volumes.is_empty() {
            return Ok(());
        }
        let among = |name: &&String, all: &[String]| !all.contains(name);
        if let Some(name) = self.volumes.iter().find(|n| among(n, &there.volumes)) {
            return Err(format!(
                "the running server does not serve volume {name:?}: restart the server to change its list of volumes"
            ));
        }
        match there.volumes.iter().find(|n| among(n, &self.volumes)) {
            None => Ok(()),
            Some(name) => Err(format!(
                "the running server serves volume {name:?}, which the new server would not: restart the server to change its list of volumes"
            )),
        }
    }
}

/// A copy of the map.
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
    /// Its number.
    pub id: u16,
    /// Whether it is used past the page cache, and why, in words, if that was decided.
    pub direct: Option<(bool, String)>,
}

/// A connection, and how many of the bytes that come along are its.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConnectionOf {
    /// What was agreed.
    pub session: HandedSession,
    /// Bytes that have come.
    pub received: u64,
    /// Bytes that are to be sent.
    pub unsent: u64,
}

/// What was set for a volume.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeOf {
    /// Its number.
    pub id: u32,
    pub own: LimitsOf,
    /// Those that hold beside them for a time, and until when, in nanoseconds of the monotonic clock.
    pub for_a_time: Option<(LimitsOf, u64)>,
    pub weight: f64,
}

/// What was set for a tier.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TierOf {
    /// Its number.
    pub id: u16,
    pub limits: LimitsOf,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitsOf {
    /// Requests per second.
    pub iops: Option<f64>,
    /// Bytes per second.
    pub bandwidth: Option<u64>,
}

impl LimitsOf {
    /// As it is said.
    pub fn of(limits: volume::Limits) -> Self {
        Self {
            iops: limits.iops.map(|i| i.0),
            bandwidth: limits.bandwidth.map(|b| b.0),
        }
    }

    /// As it is used.
    pub fn limits(self) -> volume::Limits {
        volume::Limits {
            iops: self.iops.map(units::Iops),
            bandwidth: self.bandwidth.map(units::BytesPerSec),
        }
    }
}
