//! Virtual machines as they are, by libvirt.

mod check;
mod events;
mod histograms;
mod operations;
mod running;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use manager::settings::MachinesConfig;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use vmhost::builds::CopyInitiator;
use vmhost::stored::{StoredVolume, volume_at};
use vmhost::{
    DiskKind, Domain, DomainStats, HostError, Image, ImageLocation, Inventory, Limits,
    ListedDomain, Place, Pool, RunningDomain, StayReason, directory_of, domain_stats, listed,
    quoted,
};

use crate::error::{AgentError, Result, in_context};
use crate::host::Host;
use crate::images::{self, Users};
use crate::machines::{AllLimits, DiskCopy, Hypervisor, Machines, MachinesSettings};
use crate::moves::{MoveOperations, Moves};
use crate::platform::{KeyFault, Keys};
use crate::storage;
use crate::survey::{Candidate, MachinesSurvey, SurveyRequest};
use crate::virsh::{Answer, Virsh};
use events::Events;
use histograms::Histograms;
use operations::LibvirtOperations;
use running::RunningProcesses;

/// Time after which pools, and domains without a sign of change, are read again.
const POOLS_AGE: Duration = Duration::from_secs(60);
const DOMAIN_AGE: Duration = Duration::from_secs(60);
/// The use of volumes of LVM and ZFS is read again after this time.
const STORED_AGE: Duration = Duration::from_secs(10);
/// Time until a failed read is repeated. It limits the cost of a lasting failure.
const UNKNOWN_AGE: Duration = Duration::from_secs(5);
/// Largest number of domains in one call of virsh.
const AT_ONCE: usize = 64;

/// A domain, and when its XML was read.
struct Read {
    known: RunningDomain,
    at: Instant,
    /// Disks of the domain in the statistics at that time.
    disks: Vec<(String, Option<String>)>,
}

/// Virtual machines of a host, under libvirt.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct LibvirtKeys {
    /// URI of the hypervisor, such as "qemu:///system"; the default of virsh if omitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    uri: Option<String>,
    /// Enables latency histograms of QEMU, through libvirt's monitor command, which percentiles
    /// need. libvirt marks the domain as tainted.
    #[serde(default)]
    latency_histograms: bool,
    #[serde(flatten)]
    common: MachinesConfig,
}

impl Keys for LibvirtKeys {
    const NAME: &'static str = "libvirt";

    fn title(&self) -> String {
        "virtual machines under libvirt".into()
    }

    fn open(self, _: &Path, settings: MachinesSettings) -> Result<Box<dyn Host>, KeyFault> {
        let libvirt = Libvirt::new(self.uri).with_histograms(self.latency_histograms);
        Ok(Box::new(Machines::new(libvirt, settings)))
    }

    fn candidates(wanted: &SurveyRequest) -> Result<Vec<Candidate>> {
        let uris = match &wanted.host {
            Some(uri) if uri.contains("://") && !uri.starts_with("http") => vec![uri.clone()],
            Some(_) => vec![],
            None => uris_of_this_machine(),
        };
        let candidate = |uri: String| Candidate {
            platform: Self::NAME,
            table: json!({ "uri": uri }),
            title: uri.clone(),
            survey: Box::new(MachinesSurvey(Libvirt::new(Some(uri)))),
        };
        Ok(uris.into_iter().map(candidate).collect())
    }
}

/// URIs of libvirt on this machine whose daemon runs. A connection to another one would start it, and a daemon without running
/// domains ends by itself.
fn uris_of_this_machine() -> Vec<String> {
    let session = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let session = session.map(|dir| (dir.join("libvirt"), "qemu:///session"));
    let all = [(PathBuf::from("/run"), "qemu:///system")]
        .into_iter()
        .chain(session);
    let running = all.filter(|(dir, _)| DAEMONS.iter().any(|name| runs(dir, name)));
    running.map(|(_, uri)| uri.to_owned()).collect()
}

/// Names of libvirt's daemon and of its modular daemon for QEMU.
const DAEMONS: [&str; 2] = ["libvirtd", "virtqemud"];

/// True if the process in a daemon's pid file runs that daemon.
fn runs(dir: &Path, name: &str) -> bool {
    let pid = std::fs::read_to_string(dir.join(format!("{name}.pid"))).unwrap_or_default();
    let Ok(pid) = pid.trim().parse::<u32>() else {
        return false;
    };
    let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    comm.trim() == name
}

/// Virtual machines under libvirt.
pub(crate) struct Libvirt {
    virsh: Virsh,
    pools: Vec<Pool>,
    pools_at: Option<Instant>,
    /// Volumes of LVM and ZFS that domains use.
    stored: Vec<StoredVolume>,
    stored_at: Option<Instant>,
    domains: BTreeMap<String, Read>,
    stats: Vec<DomainStats>,
    /// Images that each domain uses, in its running and its persistent definition.
    users: Users,
    users_at: Option<Instant>,
    events: Events,
    /// Latency histograms, if they are enabled.
    histograms: Option<Histograms>,
    running: RunningProcesses,
}

impl Libvirt {
    /// Creates a hypervisor for a URI such as `qemu:///system`, or for the default of virsh. It does not connect yet.
    pub(crate) fn new(uri: Option<String>) -> Self {
        Self {
            virsh: Virsh { uri, orders: None },
            pools: vec![],
            pools_at: None,
            stored: vec![],
            stored_at: None,
            domains: BTreeMap::new(),
            stats: vec![],
            users: Users::default(),
            users_at: None,
            events: Events::default(),
            histograms: None,
            running: RunningProcesses::default(),
        }
    }

    /// Enables latency histograms of QEMU, which mark domains as tainted.
    pub(crate) fn with_histograms(self, wanted: bool) -> Self {
        Self {
            histograms: wanted.then(Histograms::default),
            ..self
        }
    }

    fn libvirt_operations(&self) -> LibvirtOperations<'_> {
        LibvirtOperations {
            virsh: &self.virsh,
            pools: &self.pools,
            running: &self.running,
        }
    }

    /// Reads the definition of a domain. The old data is dropped even if the read fails, because it may be outdated.
    ///
    /// # Errors
    /// The definition cannot be read; the text of the error is a warning for the operator.
    fn read_domain(&mut self, l: &ListedDomain, xml: &Answer, now: Instant) -> Result<()> {
        self.domains.remove(&l.uuid);
        let Some(xml) = xml.some() else {
            return Ok(()); // it has ended since it was listed
        };
        let domain = Domain::of_xml(xml);
        let domain = domain.map_err(in_context(format_args!("cannot read {}", l.name)))?;
        let domain = self.running.with_life(domain);
        let disks = disks(&self.stats, &domain.name);
        let id = l.id.unwrap_or(0);
        let known = RunningDomain {
            domain,
            id,
            build: self.running.build_of(&l.uuid).map_err(HostError::unread),
            metadata: Err(HostError::unread("the agent has not inspected it yet")),
            disks: BTreeMap::new(),
        };
        let read = Read {
            known,
            at: now,
            disks,
        };
        self.domains.insert(l.uuid.clone(), read);
        Ok(())
    }

    /// Reads the facts that decide whether disks may move, apart from the definitions of the domains.
    ///
    /// # Errors
    /// libvirt does not answer, so these facts are unknown.
    fn read_facts(&mut self, uuids: &[String], now: Instant) -> Result<()> {
        let due = |at: Instant| now.duration_since(at) >= DOMAIN_AGE;
        if self.users_at.is_none_or(due) {
            let all = self.libvirt_operations().everybody();
            match all {
                Ok(all) => {
                    self.users = Users::default();
                    for domain in all {
                        let directory_of = |pool: &str| directory_of(&self.pools, pool);
                        self.users.add(&domain, directory_of);
                    }
                    self.users_at = Some(now);
                }
                // A domain may have ended meanwhile, so the previous users remain valid. A job checks the users again
                // before it acts.
                Err(_) if !self.users.is_empty() => {}
                Err(why) => return Err(why),
            }
        }
        let metadata = self.libvirt_operations().metadata(uuids)?;
        let mut images = vec![];
        for uuid in uuids {
            let Some(read) = self.domains.get(uuid) else {
                continue;
            };
            let disks = read.known.domain.disks.iter();
            for disk in disks.filter(|d| d.kind == DiskKind::Disk) {
                if let Some(image) = disk.image(|pool| directory_of(&self.pools, pool)) {
                    images.push((uuid, disk.target.clone(), image));
                }
            }
        }
        let read: Vec<Image> = images.iter().map(|(.., image)| image.clone()).collect();
        for ((uuid, target, image), mut facts) in images.into_iter().zip(images::facts(&read)) {
            let Some(read) = self.domains.get_mut(uuid) else {
                continue;
            };
            facts.named_by = self.users.other(&read.known.domain, &target, &image.at);
            read.known.disks.insert(target, facts);
        }
        for (uuid, metadata) in uuids.iter().zip(metadata) {
            if let Some(read) = self.domains.get_mut(uuid) {
                read.known.metadata = metadata.map_err(HostError::unread);
            }
        }
        Ok(())
    }

    /// Reads the volumes of LVM and ZFS that domains use. Returns the warnings of failed programs.
    fn read_stored(&mut self, now: Instant) -> Vec<String> {
        let disks = self.domains.values().flat_map(|r| &r.known.domain.disks);
        let disks = disks.filter(|d| d.kind == DiskKind::Disk);
        let at = disks.filter_map(|d| d.source.at(|pool| directory_of(&self.pools, pool)));
        let paths = at.filter_map(|at| Some(at.device()?.to_owned())).collect();
        let (volumes, warnings) = storage::volumes_of(&paths);
        (self.stored, self.stored_at) = (volumes, Some(now));
        warnings
    }

    /// Records for disks on volumes the reason for which the agent does not move them, if there is one.
    fn judge_volumes(&mut self) {
        let root = rustix::process::geteuid().is_root();
        for read in self.domains.values_mut() {
            for disk in &read.known.domain.disks {
                let at = disk.source.at(|pool| directory_of(&self.pools, pool));
                let path = at.as_ref().and_then(ImageLocation::device);
                let volume = path.and_then(|path| Some((path, volume_at(&self.stored, path)?)));
                if let (Some((path, volume)), Some(facts)) =
                    (volume, read.known.disks.get_mut(&disk.target))
                {
                    let rights = (!root).then_some(StayReason::VolumeRights);
                    facts.storage = volume.fault(path).or(rights);
                }
            }
        }
    }

    /// Reads the pools. Returns warnings about pools that cannot be read.
    fn read_pools(&mut self) -> Result<Vec<String>> {
        let mut warnings = vec![];
        // Use a separate process of virsh: an error would make other empty answers ambiguous.
        let answers = self.virsh.ask(&["pool-list --name".into()])?;
        let names = match &answers[0] {
            Answer::Failed(why) if has_no_storage_driver(why) => "",
            answer => answer.text()?,
        };
        let names: Vec<&str> = names
            .lines()
            .map(str::trim)
            .filter(|n| !n.is_empty())
            .collect();
        let ask: Vec<String> = names
            .iter()
            .map(|name| format!("pool-dumpxml {}", quoted(name)))
            .collect();
        self.pools.clear();
        // Without pools, start no virsh.
        let answers = match ask.is_empty() {
            true => vec![],
            false => self.virsh.ask(&ask)?,
        };
        for (name, xml) in names.iter().zip(answers) {
            match xml.some().map(Pool::of_xml) {
                Some(Ok(pool)) => self.pools.push(pool),
                None => {} // the pool no longer exists
                Some(Err(why)) => warnings.push(format!("cannot read pool {name}: {why}")),
            }
        }
        self.pools_at = Some(Instant::now());
        Ok(warnings)
    }
}

/// Returns true if libvirt has no storage driver, which distributions package separately. There are no pools then.
fn has_no_storage_driver(why: &str) -> bool {
    let call = [
        "virConnectNumOfStoragePools",
        "virConnectListAllStoragePools",
    ];
    why.contains("not supported by the connection driver") && call.iter().any(|c| why.contains(c))
}

/// Returns the disks of a domain in the statistics.
fn disks(stats: &[DomainStats], domain: &str) -> Vec<(String, Option<String>)> {
    let of = stats.iter().find(|s| s.domain == domain);
    let blocks = of.into_iter().flat_map(|s| &s.blocks);
    blocks.map(|b| (b.target.clone(), b.path.clone())).collect()
}

impl Hypervisor for Libvirt {
    fn called(&self) -> &'static str {
        "libvirt"
    }

    fn look(&mut self) -> Result<Vec<String>> {
        let mut warnings = vec![];
        match self.events.happened(&self.virsh) {
            None => self.domains.clear(),
            Some(names) => {
                let changed = |r: &Read| names.contains(&r.known.domain.name);
                self.domains.retain(|_, r| !changed(r));
            }
        }
        let now = Instant::now();
        let due = |at: Option<Instant>, age| at.is_none_or(|at| now.duration_since(at) >= age);
        let ask = [
            "list --uuid --id --name".to_owned(),
            "domstats --block --raw --nowait --list-active".to_owned(),
        ];
        let answers = self.virsh.ask(&ask)?;
        let listed = listed(answers[0].text()?)?;
        self.stats = domain_stats(answers[1].text()?)?;
        if due(self.pools_at, POOLS_AGE) {
            warnings.extend(self.read_pools()?);
        }
        let running: Vec<ListedDomain> = listed.into_iter().filter(|l| l.id.is_some()).collect();
        self.domains
            .retain(|uuid, _| running.iter().any(|l| l.uuid == *uuid));
        let stale: Vec<&ListedDomain> = running
            .iter()
            .filter(|l| {
                let read = self.domains.get(&l.uuid);
                read.is_none_or(|r| {
                    let same = (Some(r.known.id), &r.known.domain.name) == (l.id, &l.name);
                    // A block job of another program may end without any other sign.
                    let copied = r.known.domain.disks.iter().any(|d| d.mirror.is_some());
                    let age = match r.known.is_known() {
                        true => DOMAIN_AGE,
                        false => UNKNOWN_AGE,
                    };
                    let due = copied || due(Some(r.at), age);
                    !same || due || r.disks != disks(&self.stats, &l.name)
                })
            })
            .collect();
        let changed = !stale.is_empty();
        if changed {
            self.running.look();
        }
        for some in stale.chunks(AT_ONCE) {
            let ask: Vec<String> = some
                .iter()
                .map(|l| format!("dumpxml {}", quoted(&l.uuid)))
                .collect();
            for (l, xml) in some.iter().zip(self.virsh.ask(&ask)?) {
                let read = self.read_domain(l, &xml, now);
                warnings.extend(read.err().map(|e| e.to_string()));
            }
        }
        let uuids: Vec<String> = stale.iter().map(|l| l.uuid.clone()).collect();
        if changed || due(self.stored_at, STORED_AGE) {
            warnings.extend(self.read_stored(now));
        }
        if !uuids.is_empty() {
            let read = self.read_facts(&uuids, now);
            warnings.extend(read.err().map(|e| e.to_string()));
        }
        self.judge_volumes();
        if let Some(histograms) = &mut self.histograms {
            let domains: Vec<&Domain> = self.domains.values().map(|r| &r.known.domain).collect();
            let looked = histograms.look(&self.virsh, &domains, &mut self.stats);
            warnings.extend(looked.err().map(|e| e.to_string()));
        }
        Ok(warnings)
    }

    /// Reads the pools, because the images of moves are located through them.
    fn prepare(&mut self) -> Vec<String> {
        self.read_pools().unwrap_or_else(|e| vec![e.to_string()])
    }

    fn inventory<'a>(&'a self, tiers: &'a [String], places: &'a [Place]) -> Inventory<'a> {
        Inventory {
            tiers,
            places,
            pools: &self.pools,
            stored: &self.stored,
            domains: self.domains.values().map(|r| &r.known).collect(),
            stats: &self.stats,
            by: CopyInitiator::Libvirt,
        }
    }

    fn path_of_pool(&self, name: &str) -> Result<String> {
        let pool = self.pools.iter().find(|p| p.name == name);
        let pool = pool.ok_or_else(|| AgentError::Unknown(format!("no active pool {name:?}")))?;
        let directory = pool.directory().ok_or_else(|| {
            let kind = &pool.kind;
            AgentError::Setting(format!(
                "pool {name:?} has type {kind:?}: only pools of files are supported; name others as \
                 lvm:GROUP, zfs:DATASET, rbd:POOL or iscsi:TARGET"
            ))
        })?;
        Ok(directory.into())
    }

    fn forget(&mut self, domain: &str) {
        self.domains.retain(|_, r| r.known.domain.name != domain);
        (self.users_at, self.stored_at) = (None, None);
    }

    fn check_target(&self, copied: &DiskCopy<'_>) -> Result<()> {
        self.libvirt_operations().check_target(copied)
    }

    fn moves_go_on(&mut self, moves: &Moves) {
        self.virsh.orders.get_or_insert_with(|| moves.orders());
        self.domains.retain(|uuid, _| !moves.concerns(uuid));
    }

    fn operations(&mut self) -> Box<dyn MoveOperations + '_> {
        Box::new(self.libvirt_operations())
    }

    fn limits(&mut self, domain: &Domain) -> Result<AllLimits> {
        let disks = domain.disks.iter().filter(|d| d.kind == DiskKind::Disk);
        let targets: Vec<&String> = disks.map(|d| &d.target).collect();
        let ask = targets.iter().map(|target| {
            let (uuid, target) = (quoted(&domain.uuid), quoted(target));
            format!("blkdeviotune {uuid} {target} --live")
        });
        let answers = self.virsh.ask(&ask.collect::<Vec<_>>())?;
        let read = |(target, answer): (&&String, &Answer)| {
            let limits = answer.text().and_then(|t| Ok(Limits::of_virsh(t)?));
            ((*target).clone(), limits)
        };
        Ok(targets.iter().zip(&answers).map(read).collect())
    }

    fn life(&mut self, domain: &Domain) -> Option<u32> {
        self.running.life(&domain.uuid)
    }

    fn limit(&mut self, domain: &Domain, target: &str, to: &Limits) -> Result<()> {
        let limits = to.virsh_words();
        let mut words = vec!["blkdeviotune", &domain.uuid, target, "--live"];
        words.extend(limits.iter().map(String::as_str));
        self.virsh.order(&words)?;
        Ok(())
    }

    fn end(&mut self) {
        self.events.end();
        if self.histograms.is_some() {
            let domains: Vec<&Domain> = self.domains.values().map(|r| &r.known.domain).collect();
            Histograms::give_back(&self.virsh, &domains);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_storage_driver_is_no_error() {
        // libvirt 11.3 without libvirt-daemon-driver-storage.
        let missing = "Failed to get the number of active pools : this function is not supported by the connection driver: virConnectNumOfStoragePools";
        assert!(has_no_storage_driver(missing));
        let lost =
            "Failed to get the number of active pools : internal error: client socket is closed";
        assert!(!has_no_storage_driver(lost));
    }
}
