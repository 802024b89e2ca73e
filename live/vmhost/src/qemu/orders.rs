//! Arguments of QEMU's commands for a move.

use serde_json::{Value, json};

use super::{Machine, Options};
use crate::hash::{BEGINNING, hashed};
use crate::moving::Intent;
use crate::{Image, ImageLocation};

/// Names of job, nodes and filter of a move. They differ for each move, and derive from the intent, so a restarted
/// agent finds them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names(String);

/// Beginning of our names. Names of nodes have at most 31 characters.
const PREFIX: &str = "terrace-";

impl Names {
    /// Returns the names for a move.
    pub fn of(intent: &Intent) -> Self {
        let kept = intent.kept_as.as_deref().unwrap_or_default();
        let parts = [
            &intent.job.to_string(),
            &intent.target,
            &intent.from.to_string(),
            &intent.to.to_string(),
            kept,
        ];
        let bytes = parts.iter().flat_map(|p| p.bytes().chain([0]));
        let hash = hashed(BEGINNING, bytes);
        Self(format!("{PREFIX}{hash:016x}"))
    }

    pub fn job(&self) -> &str {
        &self.0
    }

    /// Returns the name of the job's filter.
    fn filter(&self) -> String {
        format!("{}-m", self.0)
    }

    fn format(&self, options: Options) -> String {
        format!("{}-{}", self.0, options.letters())
    }

    fn protocol(&self, options: Options) -> String {
        format!("{}-p", self.format(options))
    }

    /// Returns true if a node belongs to the target.
    pub(super) fn owns(&self, node: &str) -> bool {
        self.is_format(node) || self.is_protocol(node)
    }

    pub(super) fn is_format(&self, node: &str) -> bool {
        let rest = node.strip_prefix(&self.0).and_then(|r| r.strip_prefix('-'));
        rest.is_some_and(|letters| letters.len() == 2 && letters.is_ascii())
    }

    pub(super) fn is_protocol(&self, node: &str) -> bool {
        node.strip_suffix("-p").is_some_and(|n| self.is_format(n))
    }
}

/// Returns the nodes of the target, with the options of the disk's nodes: arguments of `blockdev-add`, in order. `None`
/// if the disk is unknown.
pub fn add_nodes(
    machine: &Machine,
    intent: &Intent,
    names: &Names,
    options: Options,
) -> Option<[Value; 2]> {
    let like = machine.tree(&intent.target)?.node;
    let cache = json!({ "direct": like.direct, "no-flush": like.no_flush });
    let discard = match options.unmap {
        Some(true) => "unmap",
        _ => "ignore",
    };
    let (format, protocol) = (names.format(options), names.protocol(options));
    let mut file = json!({ "node-name": protocol, "cache": cache, "discard": discard });
    let Image { at, format: driver } = &intent.to;
    match at {
        ImageLocation::File(path) => {
            file["driver"] = "file".into();
            file["filename"] = path.as_str().into();
            if let Some(aio) = options.aio {
                file["aio"] = aio.name().into();
            }
        }
        ImageLocation::Nbd { socket, export } => {
            file["driver"] = "nbd".into();
            file["server"] = json!({ "type": "unix", "path": socket });
            file["export"] = export.as_str().into();
        }
        ImageLocation::Block { .. } | ImageLocation::Network { .. } => return None,
    }
    // Zeroes become discards only if the target discards.
    let detect_zeroes = match (&*like.detect_zeroes, discard) {
        ("unmap", "ignore") => "on",
        (as_is, _) => as_is,
    };
    let image = json!({
        "driver": driver, "node-name": format, "file": protocol, "cache": cache, "discard": discard, "detect-zeroes": detect_zeroes,
    });
    Some([file, image])
}

/// Returns the copy with writes to both images: arguments of `blockdev-mirror`. A disk with a throttle filter must be
/// copied through the filter, and the node below the filter is replaced; QEMU offers no other way. `None` if the disk
/// is unknown.
pub fn mirror(
    machine: &Machine,
    intent: &Intent,
    names: &Names,
    options: Options,
) -> Option<Value> {
    let tree = machine.tree(&intent.target)?;
    let mut order = json!({
        "job-id": names.job(),
        "device": tree.top,
        "target": names.format(options),
        "sync": "full",
        "copy-mode": "write-blocking",
        "speed": intent.rate_bytes_per_s,
        "on-source-error": "report",
        "on-target-error": "stop",
        "auto-dismiss": false,
        "filter-node-name": names.filter(),
    });
    if tree.top != tree.format {
        order["replaces"] = tree.format.into();
    }
    Some(order)
}
