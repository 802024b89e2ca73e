//! Requests to the API of Proxmox VE.

use client::{Client, ClientError};
use serde_json::Value;
use thiserror::Error;
use vmhost::HostError;
use vmhost::proxmox::{
    Content, ListedVm, Progress, Storage, Task, TaskState, VmConfig, VmFacts, VmStatus, contents,
    pending_keys, replicated, snapshot_names, storages, task_state, tasks, vms,
};

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use crate::error::AgentError;

/// Lines of a task's log per request.
const LOG_LINES: usize = 500;

/// Requests for the log of one task at a look, which bounds the duration of the look. qemu-server
/// logs one line a second: a longer log takes several looks after a restart.
const LOG_REQUESTS: usize = 20;

/// Statuses of gateways, after which the effect of a change is unknown.
const GATEWAY_ERRORS: RangeInclusive<u16> = 502..=504;

/// First status of a failed connection between nodes (`AnyEvent::HTTP`, 595 to 599). Some of these
/// failures occur after the other node has carried out the request.
const TRANSPORT_ERRORS: u16 = 595;

/// Status of an answer for which no token, or a wrong one, was sent.
const UNAUTHORIZED: u16 = 401;

/// Reason for which a request has no result.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(super) enum ApiError {
    /// The API has refused it, and changed nothing.
    #[error("{why}")]
    Refused { status: u16, why: String },
    /// No complete answer: a change may have been made.
    #[error("{0}")]
    Silent(String),
}

impl From<ApiError> for AgentError {
    fn from(error: ApiError) -> Self {
        match error {
            ApiError::Refused { why, .. } => AgentError::Refused(why),
            ApiError::Silent(why) => AgentError::Silent(why),
        }
    }
}

pub(super) type ApiResult<T> = Result<T, ApiError>;
type Pairs<'a> = &'a [(&'a str, &'a str)];

pub(super) struct Api {
    client: Client,
}

fn not_understood(why: HostError) -> ApiError {
    ApiError::Silent(format!("an answer of Proxmox VE is not understood: {why}"))
}

/// Translates an error of the client into a text for an operator of this platform.
fn unanswered(error: &ClientError) -> ApiError {
    let text = match error {
        ClientError::Nobody { address, source } => {
            format!("Proxmox VE does not answer on {address}: {source}")
        }
        ClientError::Untrusted { address, .. } => format!(
            "the certificate of {address} is not trusted: check `ca` (/etc/pve/pve-root-ca.pem, valid for the name in `address`) or `fingerprint` in [proxmox]"
        ),
        ClientError::Silent { address, source } => format!("{address} does not respond: {source}"),
        other => other.to_string(),
    };
    ApiError::Silent(text)
}

/// Returns the text of a refusal. It is in the body as `message` and `errors`, and in the reason phrase.
fn refusal(status: u16, reason: Option<&str>, body: &[u8]) -> String {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let mut parts: Vec<String> = vec![];
    let message = body["message"].as_str().or(reason).map(str::trim);
    parts.extend(message.filter(|m| !m.is_empty()).map(str::to_owned));
    for (key, why) in body["errors"].as_object().into_iter().flatten() {
        let why = why.as_str().unwrap_or_default().trim();
        parts.push(format!("{key}: {why}"));
    }
    let text = match parts.is_empty() {
        true => format!("status {status}"),
        false => parts.join("; "),
    };
    match status {
        UNAUTHORIZED => {
            format!("the API token is not accepted ({text}): it is wrong, expired or removed")
        }
        _ => text,
    }
}

/// Returns the error for a response with a failure status.
fn failure(status: u16, why: String) -> ApiError {
    if GATEWAY_ERRORS.contains(&status) || status >= TRANSPORT_ERRORS {
        return ApiError::Silent(why);
    }
    ApiError::Refused { status, why }
}

impl Api {
    pub(super) fn new(client: Client) -> Self {
        Self { client }
    }

    fn call(
        &mut self,
        method: &str,
        path: &[&str],
        query: Pairs<'_>,
        form: Pairs<'_>,
    ) -> ApiResult<Value> {
        let mut full = vec!["api2", "json"];
        full.extend(path);
        let answer = self.client.call_form(method, &full, query, form);
        let answer = answer.map_err(|e| unanswered(&e))?;
        if !(200..300).contains(&answer.status) {
            let (status, reason) = (answer.status, answer.reason.as_deref());
            let why = refusal(status, reason, &answer.body);
            return Err(failure(status, why));
        }
        let body: Result<Value, _> = serde_json::from_slice(&answer.body);
        let body =
            body.map_err(|e| ApiError::Silent(format!("an answer of Proxmox VE is no JSON: {e}")))?;
        Ok(body["data"].clone())
    }

    /// Sends a query, and repeats it once, because a kept connection may break at any time.
    fn get(&mut self, path: &[&str], query: Pairs<'_>) -> ApiResult<Value> {
        match self.call("GET", path, query, &[]) {
            Err(ApiError::Silent(_)) => self.call("GET", path, query, &[]),
            other => other,
        }
    }

    /// Returns the names of the cluster's nodes.
    pub(super) fn nodes(&mut self) -> ApiResult<Vec<String>> {
        let data = self.get(&["nodes"], &[])?;
        let nodes = data.as_array().into_iter().flatten();
        let mut names: Vec<String> = nodes
            .filter_map(|n| n["node"].as_str().map(str::to_owned))
            .collect();
        names.sort();
        Ok(names)
    }

    pub(super) fn vms(&mut self) -> ApiResult<Vec<ListedVm>> {
        let data = self.get(&["cluster", "resources"], &[("type", "vm")])?;
        vms(&data).map_err(not_understood)
    }

    pub(super) fn replicated(&mut self) -> ApiResult<BTreeSet<u32>> {
        let data = self.get(&["cluster", "replication"], &[])?;
        replicated(&data).map_err(not_understood)
    }

    pub(super) fn storages(&mut self, node: &str) -> ApiResult<Vec<Storage>> {
        let data = self.get(&["nodes", node, "storage"], &[])?;
        storages(&data).map_err(not_understood)
    }

    pub(super) fn contents(
        &mut self,
        node: &str,
        storage: &str,
    ) -> ApiResult<BTreeMap<String, Content>> {
        let path = ["nodes", node, "storage", storage, "content"];
        let data = self.get(&path, &[("content", "images")])?;
        contents(&data).map_err(not_understood)
    }

    /// Returns the running tasks of a node.
    pub(super) fn running_tasks(&mut self, node: &str) -> ApiResult<Vec<Task>> {
        let data = self.get(&["nodes", node, "tasks"], &[("source", "active")])?;
        // The list also has tasks that have just ended.
        let running = data.as_array().into_iter().flatten();
        let running = running.filter(|t| t.get("endtime").is_none_or(Value::is_null));
        let running: Vec<Value> = running.cloned().collect();
        tasks(&Value::from(running)).map_err(not_understood)
    }

    /// Returns the moves of a VM's disks on a node, running and ended, the newest first.
    pub(super) fn moves(&mut self, node: &str, vmid: u32) -> ApiResult<Vec<Task>> {
        let vmid = vmid.to_string();
        let query = [
            ("vmid", vmid.as_str()),
            ("typefilter", "qmmove"),
            ("source", "all"),
        ];
        let data = self.get(&["nodes", node, "tasks"], &query)?;
        tasks(&data).map_err(not_understood)
    }

    pub(super) fn status(&mut self, node: &str, vmid: u32) -> ApiResult<VmStatus> {
        let vmid = vmid.to_string();
        let data = self.get(&["nodes", node, "qemu", &vmid, "status", "current"], &[])?;
        VmStatus::read(&data).map_err(not_understood)
    }

    pub(super) fn config(&mut self, node: &str, vmid: u32) -> ApiResult<VmConfig> {
        let vmid = vmid.to_string();
        // Without `current` the values include pending changes.
        let data = self.get(
            &["nodes", node, "qemu", &vmid, "config"],
            &[("current", "1")],
        )?;
        VmConfig::read(&data).map_err(not_understood)
    }

    pub(super) fn pending(&mut self, node: &str, vmid: u32) -> ApiResult<BTreeSet<String>> {
        let vmid = vmid.to_string();
        let data = self.get(&["nodes", node, "qemu", &vmid, "pending"], &[])?;
        pending_keys(&data).map_err(not_understood)
    }

    pub(super) fn facts(&mut self, node: &str, vmid: u32) -> ApiResult<VmFacts> {
        let id = vmid.to_string();
        // Read the configuration first: its digest must not be newer than the rest.
        let config = self.config(node, vmid)?;
        let pending = self.pending(node, vmid)?;
        let data = self.get(&["nodes", node, "qemu", &id, "snapshot"], &[])?;
        Ok(VmFacts {
            config,
            pending,
            snapshots: snapshot_names(&data).map_err(not_understood)?,
        })
    }

    /// Changes a configuration, provided that it still has this digest.
    pub(super) fn change(
        &mut self,
        node: &str,
        vmid: u32,
        digest: &str,
        key: &str,
        value: &str,
    ) -> ApiResult<()> {
        let vmid = vmid.to_string();
        let path = ["nodes", node, "qemu", &vmid, "config"];
        self.call("PUT", &path, &[], &[(key, value), ("digest", digest)])
            .map(|_| ())
    }

    /// Starts a task that removes an unused volume, provided that the configuration still has this digest. It is a task
    /// because storages may take long.
    pub(super) fn remove_unused(
        &mut self,
        node: &str,
        vmid: u32,
        digest: &str,
        key: &str,
    ) -> ApiResult<()> {
        let vmid = vmid.to_string();
        let path = ["nodes", node, "qemu", &vmid, "config"];
        self.call("POST", &path, &[], &[("delete", key), ("digest", digest)])
            .map(|_| ())
    }

    /// Starts a move of a disk, and returns its task.
    pub(super) fn move_disk(&mut self, of: &MoveRequest<'_>) -> ApiResult<String> {
        let vmid = of.vmid.to_string();
        // In KiB per second; zero would be no limit.
        let limit = (of.rate_bytes_per_s / 1024).max(1).to_string();
        let mut form = vec![
            ("disk", of.disk),
            ("storage", of.storage),
            ("delete", "0"),
            ("digest", of.digest),
            ("bwlimit", limit.as_str()),
        ];
        form.extend(of.format.map(|f| ("format", f)));
        let path = ["nodes", of.node, "qemu", &vmid, "move_disk"];
        let data = self.call("POST", &path, &[], &form)?;
        let task = data.as_str().filter(|t| t.starts_with("UPID:"));
        let task =
            task.ok_or_else(|| ApiError::Silent("the answer to a move names no task".into()));
        task.map(str::to_owned)
    }

    /// Returns the state of a task; `None` if its node does not know the task.
    pub(super) fn task(&mut self, node: &str, upid: &str) -> ApiResult<Option<TaskState>> {
        match self.get(&["nodes", node, "tasks", upid, "status"], &[]) {
            Ok(data) => task_state(&data).map(Some).map_err(not_understood),
            // pve-manager, `API2/Tasks.pm`, `read_task_status`.
            Err(ApiError::Refused { status: 400, why }) if why.contains("no such task") => Ok(None),
            Err(why) => Err(why),
        }
    }

    /// Reads new lines of a task's log. Returns true if they reached its end: until then `progress` is
    /// that of an earlier time.
    pub(super) fn log(
        &mut self,
        node: &str,
        upid: &str,
        progress: &mut Progress,
    ) -> ApiResult<bool> {
        for _ in 0..LOG_REQUESTS {
            let (start, limit) = (progress.lines.to_string(), LOG_LINES.to_string());
            let query = [("start", start.as_str()), ("limit", limit.as_str())];
            let data = self.get(&["nodes", node, "tasks", upid, "log"], &query)?;
            if progress.read_more(&data).map_err(not_understood)? < LOG_LINES {
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub(super) fn stop(&mut self, node: &str, upid: &str) -> ApiResult<()> {
        self.call("DELETE", &["nodes", node, "tasks", upid], &[], &[])
            .map(|_| ())
    }

    /// Returns the privileges of the token on a path.
    pub(super) fn permissions(&mut self, path: &str) -> ApiResult<Value> {
        self.get(&["access", "permissions"], &[("path", path)])
    }
}

/// Move to be started.
pub(super) struct MoveRequest<'a> {
    pub node: &'a str,
    pub vmid: u32,
    pub disk: &'a str,
    pub storage: &'a str,
    pub format: Option<&'a str>,
    pub digest: &'a str,
    pub rate_bytes_per_s: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxmox_refusal_includes_all_texts() {
        let of = |status, reason, body: &str| refusal(status, reason, body.as_bytes());
        let body = r#"{"data":null,"message":"VM is locked (backup)\n"}"#;
        assert_eq!(of(500, None, body), "VM is locked (backup)");
        let phrase = Some("can't lock file");
        assert_eq!(of(500, phrase, r#"{"data":null}"#), "can't lock file");
        let body = r#"{"data":null,"message":"Parameter verification failed.\n","errors":{"disk":"no such disk\n"}}"#;
        assert_eq!(
            of(400, None, body),
            "Parameter verification failed.; disk: no such disk"
        );
        assert_eq!(of(503, None, "<html>"), "status 503");
        assert!(of(401, Some("authentication failure"), "").contains("expired or removed"));
    }

    #[test]
    fn gateway_and_connection_statuses_are_not_refusals() {
        let is_silent = |status| matches!(failure(status, String::new()), ApiError::Silent(_));
        for status in [502, 503, 504, 595, 596, 597, 598, 599] {
            assert!(is_silent(status), "{status}");
        }
        for status in [400, 401, 403, 500, 501, 505, 594] {
            assert!(!is_silent(status), "{status}");
        }
    }
}
