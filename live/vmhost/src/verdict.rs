//! Decision whether a disk may move, and how. Reports, plans, `why`, trials, printed commands and jobs all use it. A
//! job repeats it with fresh facts right before it acts.
//!
//! ```text
//!   Domain, Disk   its definition    ─┐
//!   Metadata       libvirt's records  ├─▶ Known::verdict(disk, by) ─▶ Layout of the copy, or Fixed
//!   DiskFacts      its image          │
//!   Build          its QEMU          ─┘
//! ```

use std::collections::BTreeMap;

use crate::builds::{self, Build, CopyInitiator};
use crate::{Disk, Domain, HostError, ImageInfo, Layout, StayReason};

/// Running domain, with all facts that decide whether its disks may move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningDomain {
    pub domain: Domain,
    /// Number that differs for each start of the domain.
    pub id: u32,
    /// Build of QEMU that it runs, or the reason for which it cannot be read.
    pub build: Result<Build, HostError>,
    /// Its metadata in libvirt, or the reason for which they cannot be read.
    pub metadata: Result<Metadata, HostError>,
    /// Facts of its inspected disks by target.
    pub disks: BTreeMap<String, DiskFacts>,
}

/// Metadata that libvirt stores for a domain next to its definition. Plain QEMU has none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Metadata {
    pub snapshots: bool,
    pub checkpoints: bool,
    /// Job on the whole domain in progress, such as a backup.
    pub job: Option<String>,
}

/// Facts about a disk besides its definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskFacts {
    /// Features of its image, or the reason for which they cannot be read.
    pub info: Result<ImageInfo, HostError>,
    /// Other user of its image as text, such as `domain b names its image too`.
    pub named_by: Option<String>,
    /// True if the agent can rename its image.
    pub renamable: bool,
    /// Reason of its storage for which only an operator moves it.
    pub storage: Option<StayReason>,
}

impl RunningDomain {
    /// Returns true if all facts that decide about its disks were read.
    pub fn is_known(&self) -> bool {
        let disks = self.domain.disks.iter();
        let mut disks = disks.filter(|d| d.fixed(&self.domain).is_none());
        let is_read = |d: &Disk| self.disks.get(&d.target).is_some_and(|f| f.info.is_ok());
        self.metadata.is_ok() && self.build.is_ok() && disks.all(is_read)
    }

    /// Returns the options that a disk's copy must have, if the copy is in qcow2 too; `None` for a raw image.
    ///
    /// # Errors
    /// The reason for which the disk stays in place.
    pub fn verdict(&self, disk: &Disk, by: CopyInitiator) -> Result<Option<Layout>, StayReason> {
        if let Some(why) = disk.fixed(&self.domain) {
            return Err(why);
        }
        let facts = self.disks.get(&disk.target);
        let facts = facts
            .ok_or_else(|| StayReason::ImageUnknown("the agent has not inspected it yet".into()))?;
        let layout = match &facts.info {
            Ok(info) => info.of_copy(disk.format.as_deref() == Some("qcow2"))?,
            Err(why) => return Err(StayReason::ImageUnknown(why.to_string())),
        };
        match &self.metadata {
            Ok(kept) if kept.snapshots => return Err(StayReason::Snapshots),
            Ok(kept) if kept.checkpoints => return Err(StayReason::Checkpoints),
            Ok(Metadata { job: Some(job), .. }) => return Err(StayReason::DomainJob(job.clone())),
            Ok(_) => {}
            Err(why) => return Err(StayReason::MetadataUnknown(why.to_string())),
        }
        if let Some(who) = &facts.named_by {
            return Err(StayReason::NamedBy(who.clone()));
        }
        let build = self.build.as_ref();
        let build = build.map_err(|why| StayReason::Build(why.to_string()))?;
        builds::check(build).map_err(|why| StayReason::Build(why.to_string()))?;
        match (by, &facts.storage) {
            // A printed command cannot pause the guest during a part of the copy.
            (CopyInitiator::Person, _) if builds::holds_at_start(disk) => Err(StayReason::Hold),
            (CopyInitiator::Person, _) => Ok(layout),
            (CopyInitiator::Libvirt | CopyInitiator::Us, Some(why)) => Err(why.clone()),
            // A known life is needed to detect a start from the new image before the pivot.
            _ if self.domain.id.unwrap_or(0) == 0 => Err(StayReason::Unseen),
            _ if !facts.renamable => Err(StayReason::Directory),
            _ => Ok(layout),
        }
    }
}

impl ImageInfo {
    /// Returns the options that a copy must have.
    ///
    /// # Errors
    /// The content that a copy would lose.
    pub fn of_copy(&self, is_qcow2: bool) -> Result<Option<Layout>, StayReason> {
        if let Some(file) = &self.backing {
            return Err(StayReason::Backing(file.clone()));
        }
        if self.snapshots > 0 {
            return Err(StayReason::InternalSnapshots(self.snapshots));
        }
        if !self.bitmaps.is_empty() {
            return Err(StayReason::Bitmaps(self.bitmaps.len()));
        }
        if let Some(file) = &self.data_file {
            return Err(StayReason::DataFile(file.clone()));
        }
        if self.encrypted {
            return Err(StayReason::Encrypted);
        }
        if self.corrupt {
            return Err(StayReason::Corrupt);
        }
        match &self.layout {
            _ if !is_qcow2 => Ok(None),
            Some(layout) => {
                let options = layout.create_options();
                options.map_err(|why| StayReason::Option(why.to_string()))?;
                Ok(Some(layout.clone()))
            }
            None => Err(StayReason::ImageUnknown("its options are unknown".into())),
        }
    }
}
