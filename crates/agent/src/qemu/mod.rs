//! Virtual machines as they are, by the QMP sockets of plain QEMU.
//!
//! QEMU serves one client on a socket at a time. The session is kept between looks, so the socket must be nobody else's.

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
use vmhost::builds::By;
use vmhost::{At, Domain, DomainStats, Inventory, Known, Limits, Place};

use crate::host::Host;
use crate::images::{self, Users, is_same};
use crate::machines::{AllLimits, Copied, Hypervisor, Machines, MachinesSettings};
use crate::moves::{MoveOperations, Refusal};
use crate::places::{PlacesOf, TierOf};
use crate::platform::{KeyFault, Keys};
use crate::survey::{Candidate, Found, MachinesSurvey, Survey, Wanted};
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
        check_tiers(&settings.tiers).map_err(|why| ("tiers.pools", why))?;
        let qemu = Qemu::new(base.join(self.sockets));
        Ok(Box::new(Machines::new(qemu, settings)))
    }

    fn candidates(wanted: &Wanted) -> Result<Vec<Candidate>, String> {
        let (sockets, dir) = match wanted.host.as_deref() {
            Some(dir) if free::is_owned(dir) => {
                return Err(format!(
                    "{dir} has the monitors of libvirt or Proxmox VE, which are theirs alone: name the host by its URI or address"
                ));
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

/// Survey of machines in a directory of sockets, or of free sockets to which it makes links there.
struct QemuSurvey {
    sockets: Vec<free::Socket>,
    dir: PathBuf,
    machines: MachinesSurvey<Qemu>,
}

impl Survey for QemuSurvey {
    fn find(&mut self) -> Result<Found, String> {
        free::link(&self.sockets, &self.dir)?;
        let found = self.machines.find();
        // The next observer needs the sockets.
        self.machines.0 = Qemu::observer(self.dir.clone());
        found
    }

    fn left_out(&mut self, tiers: &[TierOf]) -> Result<Vec<(String, String)>, String> {
        let left_out = self.machines.left_out(tiers);
        self.machines.0 = Qemu::observer(self.dir.clone());
        left_out
    }
}

/// Whether tiers can be of such a host: it has no pools with names.
///
/// # Errors
/// Which tier cannot.
fn check_tiers(tiers: &[TierOf]) -> Result<(), String> {
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
            return Err(format!("tier {}: {why}", tier.name));
        }
    }
    Ok(())
}

/// Virtual machines of plain QEMU.
pub(crate) struct Qemu {
    links: Links,
    /// True if QEMU counts latencies for this session.
    counts: bool,
    read: BTreeMap<String, Read>,
    stats: Vec<DomainStats>,
}

impl Qemu {
    /// Those with sockets `NAME.qmp` or `NAME.sock` in a directory; nothing is asked yet.
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
    /// One that only asks: it does not have QEMU count latencies.
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

    /// One that cannot be reached is not known: what was known of it before may be of another time.
    fn look(&mut self) -> Result<Vec<String>, String> {
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
            let Known { domain, disks, .. } = &mut read.known;
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
        self.links.find().err().into_iter().collect()
    }

    fn inventory<'a>(&'a self, tiers: &'a [String], places: &'a [Place]) -> Inventory<'a> {
        Inventory {
            tiers,
            places,
            pools: &[],
            stored: &[],
            domains: self.read.values().map(|r| &r.known).collect(),
            stats: &self.stats,
            by: By::Us,
        }
    }

    fn path_of_pool(&self, name: &str) -> Result<String, String> {
        Err(format!("plain QEMU has no pools, so no pool {name:?}"))
    }

    /// All of it is read at each look.
    fn forget(&mut self, _: &str) {}

    fn check_target(&self, copied: &Copied<'_>) -> Result<(), String> {
        let Copied {
            domain, disk, to, ..
        } = *copied;
        let own = domain.disks.iter().filter(|d| d.target != disk.target);
        let mut own = own.filter_map(|d| d.source.at(|_| None));
        if own.any(|other| is_same(&other, &to.at)) {
            return Err("another disk of its machine has its target".into());
        }
        if let At::Nbd { .. } = &to.at {
            // QEMU stands still while it connects, so a server that does not answer must be found before.
            images::size_of_export(&to.at.to_string())?;
        }
        Ok(())
    }

    fn operations(&mut self) -> Box<dyn MoveOperations + '_> {
        Box::new(QmpOperations {
            links: &mut self.links,
        })
    }

    fn limits(&mut self, domain: &Domain) -> Result<AllLimits, String> {
        let limits = self.links.machine(domain)?.limits().into_iter();
        Ok(limits.map(|(target, l)| (target, Ok(l))).collect())
    }

    fn life(&mut self, domain: &Domain) -> Option<u32> {
        self.links.machine(domain).ok()?;
        self.links.link(&domain.name).life()
    }

    fn limit(&mut self, domain: &Domain, target: &str, to: &Limits) -> Result<(), String> {
        let machine = self.links.machine(domain)?;
        let device = machine
            .device_of(target)
            .ok_or("the disk no longer exists")?;
        let link = self.links.link(&domain.name);
        let said = link.order("block_set_io_throttle", to.qemu_arguments(device));
        said.map(|_| ()).map_err(Refusal::why)
    }

    fn end(&mut self) {
        self.links.give_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_pools_are_refused() {
        let check = |tier: &str| check_tiers(&[tier.parse().unwrap()]);
        assert_eq!(check("fast=/a,nbd+unix:///x?socket=/s"), Ok(()));
        let why = check("fast=/a,images").unwrap_err();
        assert!(
            why.starts_with("tier fast: \"images\" is the name"),
            "{why}"
        );
        let why = check("fast=/a,lvm:vg0").unwrap_err();
        assert!(
            why.contains("lvm:vg0 is supported under libvirt only"),
            "{why}"
        );
    }
}
