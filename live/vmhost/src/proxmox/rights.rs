//! Privileges of an API token: those that are needed, and those that are missing.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::HostError;
use crate::qemu::Field;

/// Privilege on a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Right {
    pub path: String,
    pub privilege: &'static str,
    /// Purpose of the privilege.
    pub purpose: &'static str,
}

/// Returns the privileges that are needed for the nodes and the storages of tiers. Without moves they are fewer.
pub fn needed(storages: &[String], nodes: &[String], moves: bool) -> Vec<Right> {
    let right = |path: String, privilege, purpose| Right {
        path,
        privilege,
        purpose,
    };
    let vms = || "/vms".to_owned();
    let mut all = vec![right(vms(), "VM.Audit", "to see VMs and their disks")];
    if moves {
        let purpose = "to move and limit disks, to see their sizes, and to remove old volumes";
        all.push(right(vms(), "VM.Config.Disk", purpose));
    }
    for storage in storages {
        let path = || format!("/storage/{storage}");
        all.push(right(path(), "Datastore.Audit", "to see space and volumes"));
        if moves {
            let purpose = "to create and remove volumes";
            all.push(right(path(), "Datastore.AllocateSpace", purpose));
        }
    }
    for node in nodes.iter().filter(|_| moves) {
        let path = format!("/nodes/{node}");
        all.push(right(path, "Sys.Audit", "to see the tasks of others"));
    }
    all
}

/// Returns the privileges that a token lacks, from `GET /access/permissions` for each path.
///
/// # Errors
/// The field that is wrong.
pub fn missing<'r>(
    rights: &'r [Right],
    answers: &BTreeMap<String, Value>,
) -> Result<Vec<&'r Right>, HostError> {
    let mut lacking = vec![];
    for right in rights {
        let answer = answers.get(&right.path).unwrap_or(&Value::Null);
        let of = Field::data("privileges of the token", answer).field(&right.path);
        let held = of.maybe(|f| f.field(right.privilege).maybe(Field::loose_number))?;
        // The value states whether the privilege also applies below the path.
        if held.flatten().is_none() {
            lacking.push(right);
        }
    }
    Ok(lacking)
}
