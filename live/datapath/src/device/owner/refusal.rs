//! Reasons why a server does not own a remote device, in words for its operator.

use std::time::SystemTime;

use thiserror::Error;

use super::claim::Claim;

/// Another server, as its claim names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherServer(Box<Claim>);

impl std::fmt::Display for OtherServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let age = now.map_or(0, |n| n.as_secs().saturating_sub(self.0.written_s));
        let Claim {
            host, pid, array, ..
        } = &*self.0;
        write!(
            f,
            "process {pid} on host {host:?}, array {array}, last heartbeat {age} s ago"
        )
    }
}

/// Names the other server in parentheses; empty if it is unknown.
fn by(other: &Option<OtherServer>) -> String {
    other
        .as_ref()
        .map_or_else(String::new, |o| format!(" ({o})"))
}

/// Reason why a server is not, or no longer, the owner of a remote device.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refusal {
    /// The owner runs.
    #[error(
        "another server owns the export and runs: {0}. Two servers on one export overwrite each other's data: stop that server first"
    )]
    Live(OtherServer),
    /// The owner sends no heartbeats and belongs to another array directory.
    #[error(
        "the export belongs to another server, which sends no heartbeats: {0}. If that server has ended for good, take the export over with --force-remote"
    )]
    LeftBehind(OtherServer),
    /// The owner's claim cannot be read.
    #[error(
        "the claim of the export's owner is damaged. If no other server uses the export, take it over with --force-remote"
    )]
    Damaged,
    /// Another server is starting at the same time.
    #[error(
        "another server is claiming the export at the same time{}: run one server only, and start it again if no server runs", by(.0)
    )]
    Contended(Option<OtherServer>),
    /// Another server took the device over.
    #[error("another server took the export over{}", by(.0))]
    TakenOver(Option<OtherServer>),
    /// The remote server does not answer in time.
    #[error(
        "the export does not answer within 1 s, so its owner is unknown: check the remote server and the network"
    )]
    NoReply,
}

impl From<Claim> for OtherServer {
    fn from(claim: Claim) -> Self {
        Self(Box::new(claim))
    }
}
