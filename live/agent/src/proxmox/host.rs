//! Proxmox VE cluster as a host of virtual machines: its state, reports and orders.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use manager::agent::{ActionError, AgentAction, Snapshot, VolumeSnapshot, WantedExtents};
use manager::wire::{ArrayPolicy, MoveOrder, Throttle};
use model::{ClassObjective, LeaseHolder, LeaseStatus};
use units::Nanos;
use vmhost::proxmox::{Cluster, Content, ListedVm, Storage, TierStorages, Vm, VmFacts};
use vmhost::{HostError, needed_bytes};
use volume::Lease;

use super::api::{Api, ApiError, ApiResult};
use super::moves::Moves;
use super::throttles::Throttles;
use crate::controller;
use crate::error::{AgentError, Result};
use crate::host::Host;
use crate::machines::{MachinesSettings, Remarks, no_limits, report_bounds};
use crate::places;
use crate::yielding::GuestSlack;

/// Shortest time between two looks during a move.
const LOOKS_APART: Duration = Duration::from_secs(2);

/// Configurations and contents of storages are read again after this time, or when a VM is started.
const FACTS_AGE: Duration = Duration::from_secs(60);

/// Time until a failed read is repeated.
const FAILED_AGE: Duration = Duration::from_secs(5);

type CachedResult<T> = (Instant, ApiResult<T>);

fn is_fresh<T>((at, what): &CachedResult<T>) -> bool {
    let age = if what.is_ok() { FACTS_AGE } else { FAILED_AGE };
    at.elapsed() < age
}

/// Proxmox VE cluster.
pub(super) struct Proxmox {
    api: Api,
    /// Nodes of the configuration; all if empty.
    nodes: Vec<String>,
    tiers: Vec<TierStorages>,
    settings: MachinesSettings,
    cluster: Cluster,
    /// All VMs at the last look, running or not.
    vms: Vec<ListedVm>,
    /// Storages by node, as the node listed them last.
    storages: BTreeMap<String, Vec<Storage>>,
    /// Facts by VM, valid for one start of the VM, which the number identifies.
    facts: BTreeMap<u32, (u32, CachedResult<VmFacts>)>,
    /// Contents of storages by place.
    contents: BTreeMap<String, CachedResult<BTreeMap<String, Content>>>,
    remarks: Remarks,
    moves: Option<Moves>,
    throttles: Option<Throttles>,
    yielding: GuestSlack,
    lease: Lease,
    last: Option<(Instant, Snapshot)>,
    began: Instant,
}

impl Proxmox {
    /// Creates the host. It sends no queries yet.
    pub(super) fn new(
        api: Api,
        nodes: Vec<String>,
        tiers: Vec<TierStorages>,
        settings: MachinesSettings,
    ) -> Self {
        Self {
            api,
            nodes,
            tiers,
            settings,
            cluster: Cluster::default(),
            vms: vec![],
            storages: BTreeMap::new(),
            facts: BTreeMap::new(),
            contents: BTreeMap::new(),
            remarks: Remarks::default(),
            moves: None,
            throttles: None,
            yielding: GuestSlack::default(),
            lease: Lease::default(),
            last: None,
            began: Instant::now(),
        }
    }

    fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    /// Returns the number of disks on storages of tiers at the last look.
    pub(super) fn disks(&self) -> usize {
        self.cluster.disks().filter(Result::is_ok).count()
    }

    /// Returns disks that are no volumes, with the reason, at the last look.
    pub(super) fn left_out(&self) -> Vec<(String, String)> {
        self.cluster.left_out()
    }

    /// Reads the present state of the cluster.
    ///
    /// # Errors
    /// The API does not answer.
    pub(super) fn look(&mut self) -> Result<()> {
        self.vms = self.api.vms()?;
        let nodes = match self.nodes.is_empty() {
            true => self.api.nodes()?,
            false => self.nodes.clone(),
        };
        let own = self.moves.as_ref().map(Moves::tasks).unwrap_or_default();
        let mut silent: BTreeMap<&str, String> = BTreeMap::new();
        let mut tasks = vec![];
        for node in &nodes {
            match self.api.storages(node) {
                Ok(mut storages) => {
                    // An inactive storage reports no sizes: keep the last ones.
                    let before = self.storages.remove(node).unwrap_or_default();
                    for now in storages.iter_mut().filter(|s| !s.active && s.total == 0) {
                        if let Some(old) = before.iter().find(|old| old.name == now.name) {
                            (now.total, now.used, now.free) = (old.total, old.used, old.free);
                        }
                    }
                    self.storages.insert(node.clone(), storages);
                }
                Err(why) => {
                    let storages = self.storages.get_mut(node).into_iter().flatten();
                    storages
                        .filter(|s| !s.shared)
                        .for_each(|s| s.active = false);
                    silent.insert(node, why.to_string());
                    continue;
                }
            }
            match self.api.running_tasks(node) {
                Ok(all) => tasks.extend(
                    all.into_iter()
                        .filter(|t| t.works() && !own.contains(&t.upid)),
                ),
                Err(why) => {
                    silent.insert(node, why.to_string());
                }
            }
        }
        self.storages.retain(|node, _| nodes.contains(node));
        let (places, warnings) = Cluster::find_places(&self.tiers, &self.storages);
        self.remarks.add(warnings);
        let silence = silent
            .iter()
            .map(|(node, why)| format!("node {node} does not respond: {why}"));
        self.remarks.add(silence);
        let mut vms = vec![];
        let listed = self
            .vms
            .iter()
            .filter(|vm| vm.runs && nodes.contains(&vm.node));
        for vm in listed {
            let silence = silent.get(vm.node.as_str());
            let status = match silence {
                Some(why) => Err(HostError::unread(why)),
                None => {
                    let status = self.api.status(&vm.node, vm.vmid);
                    status.map_err(HostError::unread)
                }
            };
            vms.push(Vm {
                listed: vm.clone(),
                status,
                facts: Err(HostError::unread("the agent has not read it yet")),
            });
        }
        for vm in &mut vms {
            let (id, life) = (vm.listed.vmid, vm.life());
            let known = self.facts.get(&id);
            let fresh = known.is_some_and(|(of, known)| *of == life && is_fresh(known));
            if !fresh {
                let facts = match &vm.status {
                    Ok(_) => self.api.facts(&vm.listed.node, id),
                    Err(why) => Err(ApiError::Silent(why.to_string())),
                };
                self.facts.insert(id, (life, (Instant::now(), facts)));
            }
            vm.facts = self.facts[&id].1.1.clone().map_err(HostError::unread);
        }
        self.facts
            .retain(|id, _| vms.iter().any(|vm| vm.listed.vmid == *id));
        for place in &places {
            let fresh = self.contents.get(&place.name).is_some_and(is_fresh);
            if fresh || !place.storage.active {
                continue;
            }
            // Any node that has a shared storage lists it.
            let has = |node: &&String| {
                let mut storages = self.storages.get(*node).into_iter().flatten();
                storages.any(|s| s.name == place.storage.name && s.active)
            };
            let node = place.node.as_ref().or_else(|| nodes.iter().find(has));
            let Some(node) = node else { continue };
            let read = self.api.contents(node, &place.storage.name);
            if let Err(error) = &read {
                self.remarks.add([format!(
                    "cannot list the volumes of {}: {error}",
                    place.name
                )]);
            }
            self.contents
                .insert(place.name.clone(), (Instant::now(), read));
        }
        let contents = self.contents.iter();
        let contents = contents.filter_map(|(name, (_, c))| Some((name.clone(), c.clone().ok()?)));
        let replicated = self.api.replicated();
        self.cluster = Cluster {
            tiers: self.tiers.iter().map(|t| t.name.clone()).collect(),
            places,
            vms,
            contents: contents.collect(),
            replicated: Some(replicated.map_err(HostError::unread)),
            tasks,
        };
        Ok(())
    }

    /// Discards the facts that decide whether a VM's disks may move, so the next look reads them again.
    fn forget(&mut self, vmid: Option<u32>) {
        match vmid {
            Some(vmid) => {
                self.facts.remove(&vmid);
            }
            None => self.facts.clear(),
        }
        self.contents.clear();
    }

    fn open_records(&mut self) -> Result<()> {
        let Some(moving) = self
            .settings
            .moving
            .as_ref()
            .filter(|_| self.moves.is_none())
        else {
            return Ok(());
        };
        let moves = Moves::open(&moving.dir, moving.keep_source)?;
        self.throttles = Some(Throttles::open(&moving.dir)?);
        self.lease = controller::read(&moving.dir, self.began.elapsed().as_nanos() as u64)?;
        self.moves = Some(moves);
        Ok(())
    }

    fn tell(&self, snapshot: &mut Snapshot) {
        if let Some(moves) = &self.moves {
            moves.tell(snapshot);
        }
        if let Some(throttles) = &self.throttles {
            throttles.tell(snapshot);
        }
    }

    fn start_move(&mut self, order: &MoveOrder) -> Result<(), ActionError> {
        let volume = &order.volume;
        if self.moves.is_none() {
            let why = format!("moves of {volume} are only recommended: moves are not enabled");
            return Err(ActionError::permanent(why));
        }
        if order.extents.is_some() {
            return Err(ActionError::permanent("only whole disks can move"));
        }
        let vmid = self.cluster.disk(volume).map(|d| d.vm.listed.vmid);
        self.forget(vmid);
        self.look()?;
        let disk = self
            .cluster
            .disk(volume)
            .ok_or("no running VM has this disk")?;
        if let Some(why) = self.cluster.stays(&disk) {
            return Err(ActionError::permanent(why.to_string()));
        }
        let places = &self.cluster.places;
        let to = places.iter().find(|p| p.name == order.device);
        let to = to.ok_or_else(|| format!("no device {}", order.device))?;
        if !Cluster::reaches(&disk.vm.listed.node, to) {
            let why = format!(
                "{} cannot be reached from node {}",
                to.name, disk.vm.listed.node
            );
            return Err(ActionError::permanent(why));
        }
        if to.name == disk.place.name {
            return Err("the disk is on this storage already".into());
        }
        if !to.storage.active {
            return Err(format!("{} is not active", to.name).into());
        }
        // Storages without files have raw volumes only.
        let size = disk.size().ok_or("the size of the disk is unknown")?;
        let (free, needed) = (to.storage.free, needed_bytes("raw", size, None));
        if free < needed {
            let why = format!("{}: {free} bytes free, {needed} bytes needed", to.name);
            return Err(why.into());
        }
        let tiers = self.settings.tiers.iter();
        let mut tiers = tiers.filter(|t| t.name == to.tier);
        let format = tiers.find_map(|t| t.format.as_deref());
        let moves = self.moves.as_mut().expect("it was just checked");
        Ok(moves.begin(&mut self.api, order, (&disk, to), format, &self.yielding)?)
    }

    fn throttle(&mut self, volume: &str, to: Option<Throttle>) -> Result<()> {
        let throttles = self.throttles.as_mut().ok_or_else(no_limits)?;
        let Some(to) = to else {
            throttles.end(volume)?;
            let problems = throttles.beat(&mut self.api, &self.vms);
            self.remarks.add(problems);
            return Ok(());
        };
        let disk = self.cluster.disk(volume);
        let none = || AgentError::Changed("no running VM has this disk".into());
        let disk = disk.ok_or_else(none)?;
        let ListedVm { node, vmid, .. } = &disk.vm.listed;
        throttles.begin(&mut self.api, (node, *vmid, disk.key), volume, to)
    }
}

impl Host for Proxmox {
    fn called(&self) -> &'static str {
        "Proxmox VE"
    }

    fn snapshot(&mut self) -> Result<Snapshot> {
        self.open_records()?;
        if let (Some(moves), Some((at, last))) = (&self.moves, &self.last)
            && moves.is_busy()
            && at.elapsed() < LOOKS_APART
        {
            let mut last = last.clone();
            self.tell(&mut last);
            return Ok(last);
        }
        let before: BTreeSet<String> = self.moves.iter().flat_map(Moves::tasks).collect();
        self.look()?;
        if let Some(moves) = &mut self.moves {
            moves.beat(&mut self.api, Some(&self.vms));
            let now: BTreeSet<String> = moves.tasks().into_iter().collect();
            if before != now {
                // A move has ended: read its disk again, because it is on another storage now.
                self.forget(None);
                self.look()?;
            }
        }
        if let Some(throttles) = &mut self.throttles {
            let problems = throttles.beat(&mut self.api, &self.vms);
            self.remarks.add(problems);
        }
        let classes = &self.settings.classes;
        let mut snapshot = self
            .cluster
            .snapshot(|name| places::class_of(classes, name));
        let left_out = self.cluster.left_out().into_iter();
        let left_out = left_out.map(|(name, why)| format!("{name} is not managed: {why}"));
        self.remarks.add(left_out);
        if let Some(moves) = &self.moves {
            // Keep the last state of a disk that is missing from the list while it moves.
            let before = self.last.iter().flat_map(|(_, s)| &s.volumes);
            for v in before.filter(|v| moves.window(&v.name).is_some()) {
                if !snapshot.volumes.iter().any(|now| now.name == v.name) {
                    snapshot.volumes.push(VolumeSnapshot {
                        movable: false,
                        ..v.clone()
                    });
                }
            }
        }
        self.tell(&mut snapshot);
        report_bounds(&mut snapshot, self.moves.is_some());
        let before = self.last.as_ref().map(|l| &l.1);
        self.yielding.look(before, &snapshot);
        if let Some(moves) = &mut self.moves {
            moves.yield_to(&self.yielding);
        }
        self.last = Some((Instant::now(), snapshot.clone()));
        Ok(snapshot)
    }

    fn warnings(&mut self) -> Vec<String> {
        self.remarks.take()
    }

    fn look_at_extents(&mut self, _: Vec<WantedExtents>, _: &mut Snapshot) -> Result<()> {
        Ok(()) // Proxmox VE reports no extents
    }

    fn claim(&mut self, by: &LeaseHolder, lasting: Nanos) -> Result<LeaseStatus> {
        let now_ns = self.now_ns();
        let dir = self.settings.moving.as_ref().map(|m| m.dir.as_path());
        controller::claim(&mut self.lease, now_ns, (by, lasting), dir)
    }

    fn hold_to(&mut self, _: &ArrayPolicy) -> Result<()> {
        Ok(()) // operators send no orders to Proxmox VE through this agent
    }

    fn promise(&mut self, objectives: &[ClassObjective], lasting: Nanos) -> Result<()> {
        self.yielding.promise(objectives, lasting);
        Ok(())
    }

    fn carry_out(&mut self, action: &AgentAction) -> Result<(), ActionError> {
        let done = match action {
            AgentAction::StartMove(order) => return self.start_move(order),
            AgentAction::CancelMove { volume } => match &mut self.moves {
                Some(moves) => moves.cancel(volume, "cancelled"),
                None => Ok(()),
            },
            AgentAction::Throttle { volume, to } => self.throttle(volume, *to),
            AgentAction::LendCache { .. }
            | AgentAction::Mirror { .. }
            | AgentAction::StopMirror { .. }
            | AgentAction::UseNode { .. }
            | AgentAction::StopNode { .. }
            | AgentAction::Inject { .. } => {
                let why = "a host of virtual machines has neither caches nor mirrors of extents";
                return Err(why.into());
            }
        };
        Ok(done?)
    }

    fn end(&mut self) {
        if let Some(throttles) = &mut self.throttles {
            throttles.end_all();
            for problem in throttles.beat(&mut self.api, &self.vms) {
                tracing::warn!(problem, "limits of disks");
            }
        }
    }
}
