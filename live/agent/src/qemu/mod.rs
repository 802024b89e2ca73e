//! Virtual machines of plain QEMU, through QMP sockets.
//!
//! QEMU serves one client on a socket at a time. The session is kept between looks, so no other program may use the
//! socket.

mod free;
mod links;
mod monitor;
mod operations;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use manager::settings::MachinesConfig;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use vmhost::builds::CopyInitiator;
use vmhost::{Domain, DomainStats, ImageLocation, Inventory, Limits, Place, RunningDomain};

use crate::error::{AgentError, Result};
use crate::host::Host;
use crate::images::{self, Users, is_same};
use crate::machines::{AllLimits, DiskCopy, Hypervisor, Machines, MachinesSettings};
use crate::moves::MoveOperations;
use crate::places::{PlacesOf, TierOf};
use crate::platform::{KeyFault, Keys};
use crate::survey::{Candidate, MachinesSurvey, Survey, SurveyRequest, SurveyResult};
use links::{Links, Read};
pub(crate) use monitor::Monitor;
use operations::QmpOperations;

/// Virtual machines of a host, by the QMP sockets of plain QEMU.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct QemuKeys {
    /// Directory of QMP sockets, relative to that of the file. NAME.qmp or NAME.sock belongs to the
    /// machine NAME. No other program may use these sockets.
    sockets: String,
    #[serde(flatten)]
    common: MachinesConfig,
}

impl Keys for QemuKeys {
    const NAME: &'static str = "qemu";

    fn title(&self) -> String {
        format!("virtual machines of QEMU in {}", self.sockets)
    }

    fn open(self, base: &Path, settings: MachinesSettings) -> Result<Box<dyn Host>, KeyFault> {
        check_tiers(&settings.tiers).map_err(|e| ("tiers.pools", e.to_string()))?;
        let qemu = Qemu::new(base.join(self.sockets));
        Ok(Box::new(Machines::new(qemu, settings)))
    }

    fn candidates(wanted: &SurveyRequest) -> Result<Vec<Candidate>> {
        let (sockets, dir) = match wanted.host.as_deref() {
            Some(dir) if free::is_owned(dir) => {
                return Err(AgentError::Setting(format!(
                    "{dir} has the monitors of libvirt or Proxmox VE, which are theirs alone: name the host by its URI or address"
                )));
            }
            Some(dir) if dir.starts_with('/') => (vec![], PathBuf::from(dir)),
            None | Some(Self::NAME) => match free::sockets() {
                none if none.is_empty() => return Ok(vec![]),
                sockets => (sockets, wanted.links.clone()),
            },
            Some(_) => return Ok(vec![]),
        };
        let table = json!({ "sockets": dir });
        let survey = QemuSurvey {
            sockets,
            machines: MachinesSurvey(Qemu::observer(dir.clone())),
            dir,
        };
        Ok(vec![Candidate {
            platform: Self::NAME,
            table,
            title: Self::NAME.into(),
            survey: Box::new(survey),
        }])
    }
}

/// Survey of machines in a directory of sockets, or of unused sockets to which it creates links there.
struct QemuSurvey {
    sockets: Vec<free::Socket>,
    dir: PathBuf,
    machines: MachinesSurvey<Qemu>,
}

impl Survey for QemuSurvey {
    fn find(&mut self) -> Result<SurveyResult> {
        free::link(&self.sockets, &self.dir)?;
        let found = self.machines.find();
        // Release the sockets for the next observer.
        self.machines.0 = Qemu::observer(self.dir.clone());
        found
    }

    fn left_out(&mut self, tiers: &[TierOf]) -> Result<Vec<(String, String)>> {
        let left_out = self.machines.left_out(tiers);
        self.machines.0 = Qemu::observer(self.dir.clone());
        left_out
    }
}

/// Checks that the tiers' places exist for plain QEMU, which has no named pools.
///
/// # Errors
/// The first place that is not supported.
fn check_tiers(tiers: &[TierOf]) -> Result<()> {
    for tier in tiers {
        for place in &tier.places {
            let why = match place {
                PlacesOf::Pool(name) => {
                    format!(
                        "{name:?} is the name of a pool, which only libvirt has: name an absolute directory for plain QEMU"
                    )
                }
                PlacesOf::Device(_) | PlacesOf::Storage(_) => {
                    format!("{place} is supported under libvirt only: name a directory")
                }
                PlacesOf::Directory(_) | PlacesOf::Export(_) => continue,
            };
            return Err(AgentError::Setting(format!("tier {}: {why}", tier.name)));
        }
    }
    Ok(())
}

/// Virtual machines of plain QEMU.
pub(crate) struct Qemu {
    links: Links,
    /// True if this session enables latency histograms.
    counts: bool,
    read: BTreeMap<String, Read>,
    stats: Vec<DomainStats>,
}

impl Qemu {
    /// Creates the hypervisor for sockets `NAME.qmp` or `NAME.sock` in a directory. It does not connect yet.
    pub(crate) fn new(sockets: PathBuf) -> Self {
        Self {
            links: Links::new(sockets),
            counts: true,
            read: BTreeMap::new(),
            stats: vec![],
        }
    }
}

impl Qemu {
    /// Creates a hypervisor that only queries: it does not enable latency histograms.
    fn observer(sockets: PathBuf) -> Self {
        let mut qemu = Self::new(sockets);
        qemu.counts = false;
        qemu
    }
}

impl Hypervisor for Qemu {
    fn called(&self) -> &'static str {
        "QEMU"
    }

    /// Data of a machine that does not answer is dropped, because it may be outdated.
    fn look(&mut self) -> Result<Vec<String>> {
        let mut warnings = vec![];
        self.read.clear();
        for name in self.links.find()? {
            match self.links.link(&name).read(&name, self.counts) {
                Ok(Some(read)) => {
                    self.read.insert(name, read);
                }
                Ok(None) => {}
                Err(why) => warnings.push(format!("cannot inspect {name}: {why}")),
            }
        }
        self.stats = self.read.values().map(|r| r.stats.clone()).collect();
        let mut users = Users::default();
        for read in self.read.values() {
            users.add(&read.known.domain, |_| None);
        }
        for read in self.read.values_mut() {
            let RunningDomain { domain, disks, .. } = &mut read.known;
            for disk in &domain.disks {
                if let (Some(facts), Some(at)) =
                    (disks.get_mut(&disk.target), disk.source.at(|_| None))
                {
                    facts.named_by = users.other(domain, &disk.target, &at);
                }
            }
        }
        Ok(warnings)
    }

    fn prepare(&mut self) -> Vec<String> {
        let failed = self.links.find().err();
        failed.map(|e| e.to_string()).into_iter().collect()
    }

    fn inventory<'a>(&'a self, tiers: &'a [String], places: &'a [Place]) -> Inventory<'a> {
        Inventory {
            tiers,
            places,
            pools: &[],
            stored: &[],
            domains: self.read.values().map(|r| &r.known).collect(),
            stats: &self.stats,
            by: CopyInitiator::Us,
        }
    }

    fn path_of_pool(&self, name: &str) -> Result<String> {
        Err(AgentError::Unsupported(format!(
            "plain QEMU has no pools, so no pool {name:?}"
        )))
    }

    /// Each look reads all data, so there is none to discard.
    fn forget(&mut self, _: &str) {}

    fn check_target(&self, copied: &DiskCopy<'_>) -> Result<()> {
        let DiskCopy {
            domain, disk, to, ..
        } = *copied;
        let own = domain.disks.iter().filter(|d| d.target != disk.target);
        let mut own = own.filter_map(|d| d.source.at(|_| None));
        if own.any(|other| is_same(&other, &to.at)) {
            return Err(AgentError::InUse(
                "another disk of its machine has its target".into(),
            ));
        }
        if let ImageLocation::Nbd { .. } = &to.at {
            // QEMU blocks while it connects, so check before that the server answers.
            images::size_of_export(&to.at.to_string())?;
        }
        Ok(())
    }

    fn operations(&mut self) -> Box<dyn MoveOperations + '_> {
        Box::new(QmpOperations {
            links: &mut self.links,
        })
    }

    fn limits(&mut self, domain: &Domain) -> Result<AllLimits> {
        let limits = self.links.machine(domain)?.limits().into_iter();
        Ok(limits.map(|(target, l)| (target, Ok(l))).collect())
    }

    fn life(&mut self, domain: &Domain) -> Option<u32> {
        self.links.machine(domain).ok()?;
        self.links.link(&domain.name).life()
    }

    fn limit(&mut self, domain: &Domain, target: &str, to: &Limits) -> Result<()> {
        let machine = self.links.machine(domain)?;
        let gone = || AgentError::Changed("the disk no longer exists".into());
        let device = machine.device_of(target).ok_or_else(gone)?;
        let link = self.links.link(&domain.name);
        link.order("block_set_io_throttle", to.qemu_arguments(device))?;
        Ok(())
    }

    fn end(&mut self) {
        self.links.give_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pool_names_are_refused() {
        let check = |tier: &str| check_tiers(&[tier.parse().unwrap()]);
        check("fast=/a,nbd+unix:///x?socket=/s").unwrap();
        let why = check("fast=/a,images").unwrap_err().to_string();
        assert!(
            why.starts_with("tier fast: \"images\" is the name"),
            "{why}"
        );
        let why = check("fast=/a,lvm:vg0").unwrap_err().to_string();
        assert!(
            why.contains("lvm:vg0 is supported under libvirt only"),
            "{why}"
        );
    }
}
