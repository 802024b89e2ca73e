//! Surveys of hosts without a configuration: named by an operator, or found on this machine.
//!
//! ```text
//!   Wanted ─▶ Platform::candidates ─▶ Candidate: table of a configuration, Survey ─▶ places of images, disks left out
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::Value;
use vmhost::{Guess, Medium, Transport, guessed};

use crate::error::Result;
use crate::kernel;
use crate::machines::Hypervisor;
use crate::places::{self, TierOf};
use crate::platform::PLATFORMS;

/// Host that an operator wants to observe.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SurveyRequest {
    /// URI of libvirt, directory of QMP sockets, or address of Proxmox VE. Without it, the hosts of this machine are
    /// searched.
    pub host: Option<String>,
    /// File with an API token of Proxmox VE.
    pub token: Option<PathBuf>,
    /// PEM file of the CA of Proxmox VE.
    pub ca: Option<PathBuf>,
    /// Fingerprint of the certificate, instead of `ca`.
    pub fingerprint: Option<String>,
    /// Directory for links to QMP sockets that are found; it is created if there are any.
    pub links: PathBuf,
}

/// Place of images.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundPlace {
    /// Name of the pool or storage, or the path of the directory.
    pub name: String,
    /// Name in the `pools` of a tier.
    pub path: String,
    /// File system, volume group or pool that provides its space, possibly for several places; `None` if it is unknown.
    pub shares: Option<String>,
    /// Number of images of running machines in it.
    pub images: usize,
    /// Kind of storage as text, if the place is not a directory.
    pub kind: Option<String>,
    /// Assumed kind of device.
    pub guess: Guess,
}

/// Places of images, the fastest first, and the number of disks of running machines.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct SurveyResult {
    pub places: Vec<FoundPlace>,
    pub disks: usize,
}

/// Observation of a host before it has a configuration. Apart from links in [`SurveyRequest::links`] it changes nothing.
pub trait Survey {
    /// Finds places of images.
    ///
    /// # Errors
    /// The host does not answer.
    fn find(&mut self) -> Result<SurveyResult>;

    /// Finds disks that are not volumes of these tiers, with the reason.
    ///
    /// # Errors
    /// The host does not answer, or a place of a tier does not exist.
    fn left_out(&mut self, tiers: &[TierOf]) -> Result<Vec<(String, String)>>;
}

/// Host that can be observed.
pub struct Candidate {
    /// Name of its platform.
    pub platform: &'static str,
    /// The platform's own keys in a configuration.
    pub table: Value,
    /// Name of the host in messages. It is also an argument of `terrace trial`, except for a directory of sockets,
    /// which is named `qemu`.
    pub title: String,
    pub survey: Box<dyn Survey>,
}

/// Returns the wanted host, or the hosts of this machine.
///
/// # Errors
/// The wanted host cannot be used.
pub fn candidates(wanted: &SurveyRequest) -> Result<Vec<Candidate>> {
    let mut all = vec![];
    for platform in PLATFORMS {
        all.extend(platform.candidates(wanted)?);
    }
    Ok(all)
}

/// Survey of a host of virtual machines.
pub(crate) struct MachinesSurvey<H>(pub H);

impl<H: Hypervisor> Survey for MachinesSurvey<H> {
    fn find(&mut self) -> Result<SurveyResult> {
        self.0.look()?;
        let inventory = self.0.inventory(&[], &[]);
        let images: Vec<String> = inventory.images().map(|(path, _)| path).collect();
        let mut directories: BTreeMap<String, String> = BTreeMap::new();
        for pool in inventory.pools {
            let directory = pool.directory();
            directories.extend(directory.map(|path| (path.to_owned(), pool.name.clone())));
        }
        let mut storages = BTreeSet::new();
        for path in &images {
            let in_pool = |pool: &String| path.starts_with(&format!("{pool}/"));
            if !path.starts_with('/') {
                let storage = path.rsplit_once('/').map(|(storage, _)| storage);
                storages.extend(storage.filter(|s| !s.starts_with("nbd+unix:")));
            } else if !path.starts_with("/dev/")
                && !directories.keys().any(in_pool)
                && let Some(directory) = Path::new(path).parent().and_then(Path::to_str)
            {
                directories.insert(directory.to_owned(), directory.to_owned());
            }
        }
        let mut places: Vec<FoundPlace> = vec![];
        for (path, name) in directories {
            // A pool without its directory has no images.
            if let Ok(system) = kernel::file_system(Path::new(&path)) {
                let below = format!("{path}/");
                places.push(FoundPlace {
                    name,
                    images: images.iter().filter(|i| i.starts_with(&below)).count(),
                    path,
                    shares: Some(format!("file system {}", system.device)),
                    kind: None,
                    guess: guessed(kernel::medium(system.device)),
                });
            }
        }
        for storage in storages {
            let mut volumes = inventory.stored.iter();
            let volume = volumes.find(|v| v.name.starts_with(&format!("{storage}/")));
            let path = volume.and_then(|v| v.paths.first());
            let device = path.and_then(|p| kernel::block_device(Path::new(p)).ok());
            let medium = device.map_or(NETWORK, |d| kernel::medium(d.number));
            places.push(FoundPlace {
                name: storage.into(),
                path: storage.into(),
                shares: storage.split('/').next().map(str::to_owned),
                images: images
                    .iter()
                    .filter(|i| i.starts_with(&format!("{storage}/")))
                    .count(),
                kind: Some(medium.to_string()),
                guess: guessed(medium),
            });
        }
        places.sort_by(|a, b| (a.guess.rank, &a.name).cmp(&(b.guess.rank, &b.name)));
        let disks = images.len();
        Ok(SurveyResult { places, disks })
    }

    fn left_out(&mut self, tiers: &[TierOf]) -> Result<Vec<(String, String)>> {
        self.0.look()?;
        let look = places::Look {
            tiers,
            before: &[],
            path_of_pool: &|name| self.0.path_of_pool(name),
            images: &self.0.inventory(&[], &[]).images().collect(),
        };
        let (places, _) = look.now()?;
        Ok(self.0.inventory(&[], &places).left_out())
    }
}

/// Medium of storage behind a network.
pub(crate) const NETWORK: Medium = Medium {
    transport: Transport::Network,
    rotational: None,
};
