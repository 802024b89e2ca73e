//! Why a server does not own a remote device, for its operator.

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

/// Names another server, if it is known.
fn by(other: &Option<OtherServer>) -> String {
    other
        .as_ref()
        .map_or_else(String::new, |o| format!(" ({o})"))
}

/// Reason why a server is not the owner of a remote device, or not any more.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refusal {
    /// Its owner runs.
    #[error(
        "another server owns the export and runs: {0}. Two servers on one export overwrite each other's data: stop that server first"
    )]
    Live(OtherServer),
    /// Its owner does not run, and belongs to another array directory.
    #[error(
        "the export belongs to another server, which sends no heartbeats: {0}. If that server has ended for good, take the export over with --force-remote"
    )]
    LeftBehind(OtherServer),
    /// Its claim cannot be read.
    #[error(
        "the claim of the export's owner is damaged. If no other server uses the export, take it over with --force-remote"
    )]
    Damaged,
    /// Another server starts at the same time.
    #[error(
        "another server claims the export at the same time{}: run one server only, and start again if it does not run", by(.0)
    )]
    Contended(Option<OtherServer>),
    /// Another server took the device over.
    #[error("another server took the export over{}", by(.0))]
    TakenOver(Option<OtherServer>),
    /// The remote server does not answer, or not soon enough.
    #[error("the export does not answer within a second: it is not known who owns it")]
    NoAnswer,
}

impl From<Claim> for OtherServer {
    fn from(claim: Claim) -> Self {
        Self(Box::new(claim))
    }
}
