//! Controller that has the lease of a host's virtual machines. It is stored in a file in the directory of the intents,
//! which one agent at a time uses.

use std::path::{Path, PathBuf};

use model::{LeaseHolder, LeaseStatus};
use serde::{Deserialize, Serialize};
use units::Nanos;
use volume::{LEASE_MAX, Lease, LeaseClaim};

use crate::error::Result;
use crate::moves::{read_kept, save_durably};

/// Name of the file.
pub(crate) const FILE: &str = "controller.json";

/// Version of the file's form.
const FORM: u32 = 1;

#[derive(Serialize, Deserialize)]
struct LeaseFile {
    form: u32,
    holder: LeaseHolder,
    /// Time from a renewal, or from the start of an agent, to the end of the lease.
    lasting_ns: u64,
}

fn path(dir: &Path) -> PathBuf {
    dir.join(FILE)
}

/// Returns the stored lease, with its full duration from now on.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn read(dir: &Path, now_ns: u64) -> Result<Lease> {
    let path = path(dir);
    if !path.exists() {
        return Ok(Lease::default());
    }
    let so = "it names the controller that gives orders here: remove it if no controller does";
    let kept: LeaseFile = read_kept(&path, FORM, so)?;
    let lasting_ns = kept.lasting_ns.min(LEASE_MAX.0);
    Ok(Lease::found(kept.holder, now_ns.saturating_add(lasting_ns)))
}

/// Claims the lease for a controller. A new holder is written to the directory of intents, if there is one.
///
/// # Errors
/// The new holder cannot be stored; the lease is unchanged.
pub(crate) fn claim(
    lease: &mut Lease,
    now_ns: u64,
    (by, lasting): (&LeaseHolder, Nanos),
    dir: Option<&Path>,
) -> Result<LeaseStatus> {
    let mut next = lease.clone();
    let claim = next.claim(now_ns, by, lasting);
    if let (LeaseClaim::Taken, Some(dir)) = (claim, dir) {
        write(dir, by, lasting)?;
    }
    *lease = next;
    Ok(lease.status(now_ns).expect("it was just claimed"))
}

/// Writes a new holder to disk, durably.
///
/// # Errors
/// The file cannot be written. It probably still has the old holder.
fn write(dir: &Path, holder: &LeaseHolder, lasting: Nanos) -> Result<()> {
    let kept = LeaseFile {
        form: FORM,
        holder: holder.clone(),
        lasting_ns: lasting.0,
    };
    save_durably(&path(dir), &kept)
}

/// Returns the stored holder as text for a message of a second agent.
pub(crate) fn holder(dir: &Path) -> Option<String> {
    let text = std::fs::read_to_string(path(dir)).ok()?;
    let kept: LeaseFile = serde_json::from_str(&text).ok()?;
    Some(kept.holder.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::ControllerId;

    #[test]
    fn lease_holder_outlasts_its_agent_and_excludes_other_controllers() {
        let dir = tempfile::tempdir().unwrap();
        let of = |store| LeaseHolder {
            id: ControllerId {
                store,
                epoch: 1,
                start: store,
            },
            name: format!("{store}.sock"),
        };
        assert!(read(dir.path(), 0).unwrap().status(0).is_none());
        write(dir.path(), &of(1), Nanos(30)).unwrap();
        let mut lease = read(dir.path(), 5).unwrap();
        assert_eq!(lease.claim(34, &of(2), Nanos(30)), LeaseClaim::Refused);
        assert_eq!(lease.claim(35, &of(2), Nanos(30)), LeaseClaim::Taken);
        assert!(holder(dir.path()).unwrap().contains("1.sock"));
        std::fs::write(dir.path().join(FILE), "{").unwrap();
        assert!(read(dir.path(), 0).is_err_and(|why| why.to_string().contains(FILE)));
    }
}
