//! Temporary limits of disks. A limit in a VM's configuration does not expire, has no owner, and survives the VM and
//! the agent. The old and the new limit are therefore written to a file before the configuration is changed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use manager::agent::Snapshot;
use manager::limited::TimedThrottle;
use manager::wire::Throttle;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use vmhost::proxmox::{LimitOptions, ListedVm, same_limits};

use super::api::Api;
use crate::error::{AgentError, Result, file_error};
use crate::moves::{boot, read_kept, remove_durably, save_durably};
use crate::throttles::{ENDING, no_boot};

const FORM: u32 = 1;

/// Limit of a disk, and the limit that it had before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct TemporaryLimit {
    form: u32,
    volume: String,
    vmid: u32,
    disk: String,
    /// Boot ID of the agent's host, by whose clock the limit ends.
    boot: String,
    before: LimitOptions,
    /// Limits that may be in force, the newest last.
    set: Vec<LimitOptions>,
    #[serde(flatten)]
    limited: TimedThrottle,
}

impl TemporaryLimit {
    /// Returns true if the limits are the old ones or were set by this agent.
    fn is_ours(&self, now: &LimitOptions) -> bool {
        same_limits(&self.before, now) || self.set.iter().any(|set| same_limits(set, now))
    }
}

/// Temporary limits, in the directory of the moves.
pub(super) struct Throttles {
    dir: PathBuf,
    boot: String,
    /// Limits by volume.
    lent: BTreeMap<String, TemporaryLimit>,
    /// Volumes whose limits were seen in force.
    seen: BTreeSet<String>,
}

impl Throttles {
    /// Reads the temporary limits of a directory that this agent uses.
    ///
    /// # Errors
    /// A file cannot be read, so its limits could not be restored.
    pub(super) fn open(dir: &Path) -> Result<Self> {
        let boot = boot().ok_or_else(no_boot)?;
        let mut lent = BTreeMap::new();
        for entry in fs::read_dir(dir).map_err(file_error("", dir))? {
            let path = entry.map_err(file_error("", dir))?.path();
            if path.to_string_lossy().ends_with(ENDING) {
                let so = "it records the limits of a disk, which could not be restored";
                let mut found: TemporaryLimit = read_kept(&path, FORM, so)?;
                if found.boot != boot {
                    // The clock of its end has restarted with the host.
                    found.limited.until_ns = 0;
                    found.boot.clone_from(&boot);
                }
                lent.insert(found.volume.clone(), found);
            }
        }
        Ok(Self {
            dir: dir.into(),
            boot,
            lent,
            seen: BTreeSet::new(),
        })
    }

    fn file(&self, lent: &TemporaryLimit) -> PathBuf {
        self.dir
            .join(format!("{}-{}{ENDING}", lent.vmid, lent.disk))
    }

    fn save(&mut self, lent: TemporaryLimit) -> Result<()> {
        save_durably(&self.file(&lent), &lent)?;
        self.lent.insert(lent.volume.clone(), lent);
        Ok(())
    }

    /// Adds the limits to a snapshot.
    pub(super) fn tell(&self, snapshot: &mut Snapshot) {
        let now_ns = now_ns();
        for v in &mut snapshot.volumes {
            let lent = self
                .lent
                .get(&v.name)
                .filter(|_| self.seen.contains(&v.name));
            v.throttle = lent.and_then(|l| l.limited.left(now_ns));
        }
    }

    /// Limits a disk. It replaces an earlier temporary limit.
    ///
    /// # Errors
    /// The limit was not set; the error has the reason.
    pub(super) fn begin(
        &mut self,
        api: &mut Api,
        (node, vmid, disk): (&str, u32, &str),
        volume: &str,
        to: Throttle,
    ) -> Result<()> {
        let config = api.config(node, vmid)?;
        let pending = api.pending(node, vmid)?;
        if let Some(lock) = &config.lock {
            return Err(AgentError::InUse(format!("its VM is locked ({lock})")));
        }
        if pending.contains(disk) {
            return Err(AgentError::Refused(
                "a change of this drive waits for the next start of its VM".into(),
            ));
        }
        let none = || AgentError::Changed("its VM has no such drive".into());
        let drive = config.drives.get(disk).ok_or_else(none)?;
        let now = drive.limit_options();
        let earlier = self.lent.get(volume).filter(|l| l.is_ours(&now));
        let before = earlier.map_or(&now, |l| &l.before).clone();
        let unlimited = drive.with_limits(&before);
        let unlimited = vmhost::proxmox::Drive::parse(disk, &unlimited)?;
        let set = unlimited.lowered_limits(to.iops, to.bandwidth_bytes_per_s);
        let set = set.map_err(|why| AgentError::Unsupported(why.to_string()))?;
        let mut all = earlier.map_or(vec![], |l| l.set.clone());
        all.push(set.clone());
        let mut lent = TemporaryLimit {
            form: FORM,
            volume: volume.into(),
            vmid,
            disk: disk.into(),
            boot: self.boot.clone(),
            before,
            set: all,
            limited: TimedThrottle::of(to, now_ns()),
        };
        self.seen.remove(volume);
        self.save(lent.clone())?;
        let changed = match same_limits(&now, &set) {
            true => Ok(()),
            false => put(
                api,
                (node, vmid, disk),
                &config.digest,
                &drive.with_limits(&set),
            ),
        };
        if let Err(why) = changed {
            // The change may be in force nevertheless: restore the old limit at the next look.
            lent.limited.until_ns = 0;
            self.save(lent)?;
            return Err(why);
        }
        lent.set = vec![set];
        self.save(lent)?;
        self.seen.insert(volume.into());
        Ok(())
    }

    /// Marks the limits of a disk for restoration at the next look.
    ///
    /// # Errors
    /// The mark cannot be recorded.
    pub(super) fn end(&mut self, volume: &str) -> Result<()> {
        let Some(mut lent) = self.lent.get(volume).cloned() else {
            return Ok(());
        };
        lent.limited.until_ns = 0;
        self.save(lent)
    }

    /// Marks all limits for restoration.
    pub(super) fn end_all(&mut self) {
        for lent in self.lent.values_mut() {
            lent.limited.until_ns = 0;
        }
    }

    /// Restores expired limits. Returns problems for the operator.
    pub(super) fn beat(&mut self, api: &mut Api, vms: &[ListedVm]) -> Vec<String> {
        let mut problems = vec![];
        for lent in self.lent.values().cloned().collect::<Vec<_>>() {
            let vm = vms.iter().find(|vm| vm.vmid == lent.vmid);
            match self.look_after(api, vm, &lent) {
                Ok(news) => problems.extend(news),
                Err(why) => {
                    let volume = &lent.volume;
                    problems.push(format!("the limits of {volume} were not restored: {why}"));
                }
            }
        }
        problems
    }

    fn look_after(
        &mut self,
        api: &mut Api,
        vm: Option<&ListedVm>,
        lent: &TemporaryLimit,
    ) -> Result<Option<String>> {
        let over = lent.limited.until_ns <= now_ns();
        if !over && self.seen.contains(&lent.volume) {
            return Ok(None);
        }
        let Some(vm) = vm else {
            return Ok(None); // the VM may return, with its limits
        };
        let config = api.config(&vm.node, lent.vmid)?;
        let Some(drive) = config.drives.get(&lent.disk) else {
            return self.forget(lent).map(|()| None);
        };
        let now = drive.limit_options();
        if !over {
            if lent.set.last().is_some_and(|set| same_limits(set, &now)) {
                self.seen.insert(lent.volume.clone());
            }
            return Ok(None);
        }
        let mut news = None;
        if !lent.is_ours(&now) {
            let volume = &lent.volume;
            let text = format!("another program has changed the limits of {volume}: they are kept");
            news = Some(text);
        } else if !same_limits(&lent.before, &now) {
            let text = drive.with_limits(&lent.before);
            put(
                api,
                (&vm.node, lent.vmid, &lent.disk),
                &config.digest,
                &text,
            )?;
        }
        self.forget(lent).map(|()| news)
    }

    fn forget(&mut self, lent: &TemporaryLimit) -> Result<()> {
        remove_durably(&self.file(lent))?;
        self.lent.remove(&lent.volume);
        self.seen.remove(&lent.volume);
        Ok(())
    }
}

/// Changes a drive at once. A change that would take effect only at the next start is reverted (qemu-server,
/// `vmconfig_update_disk`: options other than limits differ from those of the running drive).
fn put(
    api: &mut Api,
    (node, vmid, disk): (&str, u32, &str),
    digest: &str,
    text: &str,
) -> Result<()> {
    api.change(node, vmid, digest, disk, text)?;
    if !api.pending(node, vmid)?.contains(disk) {
        return Ok(());
    }
    let digest = api.config(node, vmid)?.digest;
    api.change(node, vmid, &digest, "revert", disk)?;
    Err(AgentError::Refused(
        "Proxmox VE would change its limits only at the next start of the VM".into(),
    ))
}

/// Returns the time since the start of the agent's host, including suspended time.
fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
