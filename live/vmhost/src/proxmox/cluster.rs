//! Cluster of Proxmox VE as an array: its VMs, storages and tasks, and the decision which disks may move.

use std::collections::{BTreeMap, BTreeSet};

use manager::agent::{DeviceSnapshot, Snapshot, VolumeSnapshot};
use manager::wire::{Bound, DeviceIoCounts, HandMove, Placed};

use super::{Content, Drive, ListedVm, Storage, Task, VmConfig, VmStatus};
use crate::builds::{self, Build, Version};
use crate::hash::{BEGINNING, hashed};
use crate::inventory::counts;
use crate::{BlockStats, Direction, HostError, StayReason, quoted, volume_name};

/// Tier with the names of its storages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TierStorages {
    pub name: String,
    pub storages: Vec<String>,
}

/// Facts that decide whether the disks of a VM may move, besides its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VmFacts {
    pub config: VmConfig,
    /// Keys with a change that takes effect at the next start.
    pub pending: BTreeSet<String>,
    /// Names of its snapshots.
    pub snapshots: Vec<String>,
}

/// Running VM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vm {
    pub listed: ListedVm,
    /// Its state, or the reason for which it cannot be read.
    pub status: Result<VmStatus, HostError>,
    /// Its configuration, or the reason for which it cannot be read.
    pub facts: Result<VmFacts, HostError>,
}

impl Vm {
    /// Returns the number of its present start; 0 if it is unknown.
    pub fn life(&self) -> u32 {
        let pid = self.status.as_ref().ok().and_then(|s| s.pid);
        let node = self.listed.node.bytes();
        pid.map_or(0, |pid| {
            let hash = hashed(BEGINNING, node.chain(pid.to_le_bytes()));
            (hash ^ (hash >> 32)) as u32 | 1
        })
    }
}

/// Storage of a tier, as one device; a local storage is one device for each node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Name of the device: `STORAGE`, or `NODE/STORAGE` for a local one.
    pub name: String,
    pub tier: String,
    pub storage: Storage,
    /// Only node that reaches it; `None` for a shared storage.
    pub node: Option<String>,
}

/// Disk of a running VM on a storage of a tier.
#[derive(Debug, Clone, Copy)]
pub struct Disk<'a> {
    pub vm: &'a Vm,
    /// Key in the configuration, such as `scsi0`.
    pub key: &'a str,
    pub drive: &'a Drive,
    pub place: &'a Place,
    content: Option<&'a Content>,
}

/// State of a cluster, just read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cluster {
    /// Names of tiers, the fastest first.
    pub tiers: Vec<String>,
    pub places: Vec<Place>,
    pub vms: Vec<Vm>,
    /// Volumes by identifier, for each place by name.
    pub contents: BTreeMap<String, BTreeMap<String, Content>>,
    /// Guests with a replication job, or the reason for which they are unknown.
    pub replicated: Option<Result<BTreeSet<u32>, HostError>>,
    /// Running tasks of other programs that may touch disks.
    pub tasks: Vec<Task>,
}

/// Advice about a build. The agent cannot see the program that a VM of a cluster runs, so a qualification does not
/// apply.
const ADVICE: &str =
    "upgrade pve-qemu-kvm and restart the VM, or shut the VM down and move the disk then";

/// First version whose mirrors are tested without a pause of the guest. For older versions, `builds` requires a pause
/// and a mirror that writes to both images; Proxmox VE offers neither.
const UNPAUSED: Version = Version::new(8, 0, 0);

impl Cluster {
    /// Finds the places of tiers among the storages of nodes. Returns them with warnings for the operator.
    pub fn find_places(
        tiers: &[TierStorages],
        storages: &BTreeMap<String, Vec<Storage>>,
    ) -> (Vec<Place>, Vec<String>) {
        let mut places: Vec<Place> = vec![];
        let mut warnings = vec![];
        for tier in tiers {
            for name in &tier.storages {
                let mut found = false;
                for (node, all) in storages {
                    let Some(storage) = all.iter().find(|s| s.name == *name) else {
                        continue;
                    };
                    found = true;
                    if !storage.images {
                        warnings.push(format!(
                            "tier {}: storage {name} is not used, because its content does not include disk images",
                            tier.name
                        ));
                        break;
                    }
                    let of_node = (!storage.shared).then(|| node.clone());
                    let of = Place {
                        name: match &of_node {
                            Some(node) => format!("{node}/{name}"),
                            None => name.clone(),
                        },
                        tier: tier.name.clone(),
                        storage: storage.clone(),
                        node: of_node,
                    };
                    match places.iter_mut().find(|p| p.name == of.name) {
                        // A node may have lost the connection to a shared storage.
                        Some(before) if !before.storage.active && storage.active => *before = of,
                        Some(_) => {}
                        None => places.push(of),
                    }
                }
                if !found {
                    warnings.push(format!(
                        "tier {}: no node lists storage {name}: check its name, and the token's Datastore.Audit on /storage/{name}",
                        tier.name
                    ));
                }
            }
        }
        (places, warnings)
    }

    /// Returns the disks on storages of tiers, and other disks with the reason. Empty CD-ROM drives are omitted.
    pub fn disks(&self) -> impl Iterator<Item = Result<Disk<'_>, (String, String)>> {
        let drives = self.vms.iter().flat_map(move |vm| {
            let facts = vm.facts.iter();
            facts.flat_map(move |f| f.config.drives.iter().map(move |(k, d)| (vm, k, d)))
        });
        drives
            .filter(|(.., d)| d.file != "none")
            .map(|(vm, key, drive)| {
                let place = self.place_of(vm, drive);
                let place = place.map_err(|why| (name(vm, key), why.to_string()))?;
                let contents = self.contents.get(&place.name);
                Ok(Disk {
                    vm,
                    key,
                    drive,
                    place,
                    content: contents.and_then(|c| c.get(&drive.file)),
                })
            })
    }

    fn place_of(&self, vm: &Vm, drive: &Drive) -> Result<&Place, StayReason> {
        let other = |why: String| Err(StayReason::Other(why));
        if drive.is_cloud_init() {
            return other("it is a cloud-init drive, which Proxmox VE generates anew".into());
        }
        if drive.is_cdrom() {
            return other("it is a CD-ROM drive".into());
        }
        let Some((storage, _)) = drive.volume() else {
            let file = &drive.file;
            return other(format!(
                "{file} is a device of its node that is passed through"
            ));
        };
        let here = |p: &&Place| {
            let node = p.node.as_ref();
            p.storage.name == storage && node.is_none_or(|node| *node == vm.listed.node)
        };
        let place = self.places.iter().find(here);
        place.ok_or_else(|| StayReason::Other(format!("storage {storage} is not in a tier")))
    }

    /// Returns the disk of a volume.
    pub fn disk(&self, volume: &str) -> Option<Disk<'_>> {
        let mut disks = self.disks().filter_map(Result::ok);
        disks.find(|d| d.name() == volume)
    }

    /// Returns true if a VM on this node can reach the place.
    pub fn reaches(vm_node: &str, place: &Place) -> bool {
        place.node.as_ref().is_none_or(|node| node == vm_node)
    }

    /// Returns the reason for which a disk stays in place; `None` if it may move.
    pub fn stays(&self, disk: &Disk<'_>) -> Option<StayReason> {
        let Disk { vm, key, drive, .. } = *disk;
        let other = |why: String| Some(StayReason::Other(why));
        let status = match &vm.status {
            Ok(status) => status,
            Err(why) => return other(format!("the state of its VM is unknown: {why}")),
        };
        let facts = match &vm.facts {
            Ok(facts) => facts,
            Err(why) => return other(format!("the configuration of its VM is unknown: {why}")),
        };
        if !status.runs {
            return other("its VM does not run".into());
        }
        if key.starts_with("tpmstate") {
            return other(
                "the state of a TPM cannot move while its VM runs: shut the VM down first".into(),
            );
        }
        match facts
            .config
            .lock
            .as_ref()
            .or(status.lock.as_ref())
            .map(String::as_str)
        {
            Some("backup") => return other("a backup of its VM is under way".into()),
            Some(lock) => return other(format!("its VM is locked ({lock})")),
            None => {}
        }
        if facts.pending.contains(key) {
            return other(
                "a change of this drive waits for the next start of its VM, which would return to the old volume: restart the VM, or revert the change".into(),
            );
        }
        if !facts.snapshots.is_empty() {
            return other(format!(
                "its VM has snapshots ({}), which need the old volume: delete them",
                facts.snapshots.join(", ")
            ));
        }
        if facts.config.protection {
            return other("its VM is protected, and the old volume could not be removed".into());
        }
        let id = vm.listed.vmid;
        let replicates = drive.option("replicate") != Some("0");
        match &self.replicated {
            Some(Ok(jobs)) if !(replicates && jobs.contains(&id)) => {}
            Some(Ok(_)) => return other("a replication job copies its VM".into()),
            Some(Err(why)) => return other(format!("replication jobs are unknown: {why}")),
            None => return other("replication jobs are unknown".into()),
        }
        let ha = [&vm.listed.ha, &status.ha];
        let unsafe_state = ha.into_iter().flatten().find(|s| !is_safe(s));
        if let Some(state) = unsafe_state {
            return other(format!("the HA manager has its VM in state {state:?}"));
        }
        if let Some(task) = self.tasks.iter().find(|t| t.vmid == Some(id)) {
            return other(format!("a task of its VM is running ({})", task.kind));
        }
        if drive
            .option("snapshot")
            .is_some_and(|s| matches!(s, "1" | "on" | "yes" | "true"))
        {
            return Some(StayReason::Transient);
        }
        if !is_owner(id, drive) {
            return other("its volume belongs to another VM, or has an unknown name".into());
        }
        let drives = facts.config.drives.iter();
        let mut same = drives.filter(|(k, d)| *k != key && d.file == drive.file);
        if let Some((twin, _)) = same.next() {
            return other(format!("drive {twin} has the same volume"));
        }
        if disk.size().is_none() {
            return other("its size is unknown".into());
        }
        let Some(version) = &status.qemu else {
            return Some(StayReason::Running(
                "the version of its running QEMU is unknown".into(),
            ));
        };
        let build = builds::of_program(&format!("QEMU emulator version {version}"));
        let Some(build) = build else {
            let why = format!("the version of its QEMU is unknown: {version:?}");
            return Some(StayReason::Running(why));
        };
        refusal(&build).map(StayReason::Running)
    }

    /// Returns disks that are not volumes, with the reason.
    pub fn left_out(&self) -> Vec<(String, String)> {
        self.disks().filter_map(Result::err).collect()
    }

    /// Returns the array; `class_of` returns the class of a volume.
    pub fn snapshot(&self, class_of: impl Fn(&str) -> String) -> Snapshot {
        let disks: Vec<Disk<'_>> = self.disks().filter_map(Result::ok).collect();
        let volume = |disk: &Disk<'_>| {
            let name = disk.name();
            let stays = self.stays(disk);
            VolumeSnapshot {
                class: class_of(&name),
                size_bytes: disk.size().unwrap_or(0),
                home: disk.place.tier.clone(),
                placed: vec![Placed {
                    device: disk.place.name.clone(),
                    bytes: disk.used().unwrap_or(0),
                }],
                node: Some(disk.vm.listed.node.clone()),
                movable: true,
                by_hand: Some(disk.by_hand(stays.as_ref())),
                bound: stays.map(|why| Bound {
                    by_hand: why.is_for_people(),
                    why: why.to_string(),
                }),
                throttle: None,
                moving: None,
                last_move: None,
                counts: disk.stats().and_then(|s| counts(disk.vm.life(), s)),
                cache: None,
                can_mirror: false,
                mirror: None,
                reuse: None,
                extents: None,
                name,
            }
        };
        Snapshot {
            tiers: self.tiers.clone(),
            devices: self.places.iter().map(|p| device(p, &disks)).collect(),
            volumes: disks.iter().map(volume).collect(),
            problems: vec![],
            second: None,
        }
    }
}

impl<'a> Disk<'a> {
    /// Returns the name as a volume. Names of VMs are not unique, but their IDs are.
    pub fn name(&self) -> String {
        name(self.vm, self.key)
    }

    /// Returns the bytes that the guest sees.
    pub fn size(&self) -> Option<u64> {
        let listed = self.content.and_then(|c| c.size);
        listed.or_else(|| self.drive.size())
    }

    /// Returns the bytes that it occupies.
    pub fn used(&self) -> Option<u64> {
        self.content.and_then(|c| c.used).or_else(|| self.size())
    }

    /// Returns the format of its volume, if it is known.
    pub fn format(&self) -> Option<&'a str> {
        self.content.map(|c| c.format.as_str())
    }

    fn stats(&self) -> Option<&'a BlockStats> {
        self.vm.status.as_ref().ok()?.blocks.get(self.key)
    }

    /// Returns the command that moves it, on any node of the cluster.
    fn by_hand(&self, stays: Option<&StayReason>) -> HandMove {
        if let Some(why) = stays {
            let offline = match why.is_for_people() {
                true => ": shut its VM down and move the disk then",
                false => "",
            };
            return HandMove::None {
                why: format!("{why}{offline}"),
            };
        }
        let ListedVm { vmid, node, .. } = &self.vm.listed;
        let (node, key) = (quoted(node), self.key);
        HandMove::Command {
            text: format!(
                "pvesh create /nodes/{node}/qemu/{vmid}/move_disk --disk {key} --storage '{{place}}' --delete 0"
            ),
            needed_bytes: self.size().unwrap_or(0),
            storages: vec![],
        }
    }
}

/// Returns the reason for which a build may not copy disks in a cluster, which cannot pause a guest for a copy.
fn refusal(build: &Build) -> Option<String> {
    if build.version < UNPAUSED {
        return Some(format!(
            "copies by QEMU {build}, as by all versions before 8.0, need a pause of the guest, which Proxmox VE does not offer: {ADVICE}"
        ));
    }
    let why = builds::check(build).err()?;
    Some(format!("{}: {ADVICE}", why.cause))
}

fn name(vm: &Vm, key: &str) -> String {
    let ListedVm { vmid, name, .. } = &vm.listed;
    volume_name(&format!("{name}-{vmid}"), key)
}

/// Returns true for states in which the HA manager leaves a VM alone (pve-ha-manager, `HA/Manager.pm`).
fn is_safe(state: &str) -> bool {
    matches!(state, "started" | "ignored")
}

/// Returns true if the VM owns the volume, according to the volume's name (qemu-server, `vm_is_volid_owner`).
fn is_owner(vmid: u32, drive: &Drive) -> bool {
    let volume = drive.volume().map_or("", |(_, name)| name);
    let file = volume.rsplit('/').next().unwrap_or(volume);
    file.starts_with(&format!("vm-{vmid}-"))
}

fn device(place: &Place, disks: &[Disk<'_>]) -> DeviceSnapshot {
    let mut since_ns = BEGINNING;
    let mut io = DeviceIoCounts::default();
    for disk in disks.iter().filter(|d| d.place.name == place.name) {
        // Counters of disks. The sum restarts when the set of disks changes.
        let id = disk.vm.listed.vmid.to_le_bytes().into_iter();
        let life = disk.vm.life().to_le_bytes();
        since_ns = hashed(since_ns, id.chain(disk.key.bytes()).chain(life));
        let both = |d: Option<Direction>| d.map_or((0, 0), |d| (d.requests, d.bytes));
        let (reads, read_bytes) = both(disk.stats().and_then(|s| s.reads));
        let (writes, write_bytes) = both(disk.stats().and_then(|s| s.writes));
        io.reads += reads;
        io.writes += writes;
        io.read_bytes += read_bytes;
        io.write_bytes += write_bytes;
    }
    let Storage {
        total, used, free, ..
    } = place.storage;
    DeviceSnapshot {
        name: place.name.clone(),
        tier: place.tier.clone(),
        size_bytes: total,
        // A storage may reserve some space.
        used_bytes: used.max(total.saturating_sub(free)),
        emulate: None,
        connected: place.storage.active,
        place: Some(place.storage.name.clone()),
        node: place.node.clone(),
        since_ns,
        io,
        errors: vec![],
    }
}
