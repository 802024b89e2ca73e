//! The decision whether a disk may move, and how. Reports, plans, `why`, trials, printed commands
//! and jobs all take it from here; a job takes it again, of fresh facts, right before it acts.
//!
//! ```text
//!   Domain, Disk   its definition    ─┐
//!   Metadata       libvirt's records  ├─▶ Known::verdict(disk, by) ─▶ Layout of the copy, or Fixed
//!   DiskFacts      its image          │
//!   Build          its QEMU          ─┘
//! ```

use std::collections::BTreeMap;

use crate::builds::{self, Build, By};
use crate::{Disk, Domain, Fixed, ImageInfo, Layout};

/// A running domain, and all that decides whether its disks may move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    pub domain: Domain,
    /// Another number for each time that it is started.
    pub id: u32,
    /// The build of QEMU that it runs on, or why it cannot be read.
    pub build: Result<Build, String>,
    /// Its metadata in libvirt, or why they cannot be read.
    pub metadata: Result<Metadata, String>,
    /// Its disks by target, as far as anybody has looked at their images.
    pub disks: BTreeMap<String, DiskFacts>,
}

/// Metadata that libvirt stores for a domain next to its definition. Plain QEMU has none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Metadata {
    pub snapshots: bool,
    pub checkpoints: bool,
    /// The job of the whole domain that is under way, such as a backup.
    pub job: Option<String>,
}

/// Facts on a disk beyond its definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskFacts {
    /// Features of its image, or why they cannot be read.
    pub info: Result<ImageInfo, String>,
    /// The other user of its image, in words such as `domain b names its image too`.
    pub named_by: Option<String>,
    /// True if the agent can rename its image.
    pub renamable: bool,
    /// The reason of its storage for which only an operator moves it.
    pub storage: Option<Fixed>,
}

impl Known {
    /// Returns true if all facts that decide about its disks were read.
    pub fn is_known(&self) -> bool {
        let disks = self.domain.disks.iter();
        let mut disks = disks.filter(|d| d.fixed(&self.domain).is_none());
        let is_read = |d: &Disk| self.disks.get(&d.target).is_some_and(|f| f.info.is_ok());
        self.metadata.is_ok() && self.build.is_ok() && disks.all(is_read)
    }

    /// The options of the image that a disk's copy has to have, if the copy is in qcow2 too; none
    /// of a raw image.
    ///
    /// # Errors
    /// Why the disk stays where it is.
    pub fn verdict(&self, disk: &Disk, by: By) -> Result<Option<Layout>, Fixed> {
        if let Some(why) = disk.fixed(&self.domain) {
            return Err(why);
        }
        let facts = self.disks.get(&disk.target);
        let facts = facts
            .ok_or_else(|| Fixed::ImageUnknown("the agent has not inspected it yet".into()))?;
        let layout = match &facts.info {
            Ok(info) => info.of_copy(disk.format.as_deref() == Some("qcow2"))?,
            Err(why) => return Err(Fixed::ImageUnknown(why.clone())),
        };
        match &self.metadata {
            Ok(kept) if kept.snapshots => return Err(Fixed::Snapshots),
            Ok(kept) if kept.checkpoints => return Err(Fixed::Checkpoints),
            Ok(Metadata { job: Some(job), .. }) => return Err(Fixed::DomainJob(job.clone())),
            Ok(_) => {}
            Err(why) => return Err(Fixed::MetadataUnknown(why.clone())),
        }
        if let Some(who) = &facts.named_by {
            return Err(Fixed::NamedBy(who.clone()));
        }
        let build = self.build.as_ref().map_err(Clone::clone);
        build
            .and_then(|b| builds::check(b).map_err(|why| why.to_string()))
            .map_err(Fixed::Build)?;
        match (by, &facts.storage) {
            // A printed command cannot pause the guest for a part of the copy.
            (By::Person, _) if builds::holds_at_start(disk) => Err(Fixed::Hold),
            (By::Person, _) => Ok(layout),
            (By::Libvirt | By::Us, Some(why)) => Err(why.clone()),
            // A start from the new image before the pivot is told from others by that.
            _ if self.domain.id.unwrap_or(0) == 0 => Err(Fixed::Unseen),
            _ if !facts.renamable => Err(Fixed::Directory),
            _ => Ok(layout),
        }
    }
}

impl ImageInfo {
    /// The options that a copy has to have.
    ///
    /// # Errors
    /// The content that a copy would lose.
    pub fn of_copy(&self, is_qcow2: bool) -> Result<Option<Layout>, Fixed> {
        if let Some(file) = &self.backing {
            return Err(Fixed::Backing(file.clone()));
        }
        if self.snapshots > 0 {
            return Err(Fixed::InternalSnapshots(self.snapshots));
        }
        if !self.bitmaps.is_empty() {
            return Err(Fixed::Bitmaps(self.bitmaps.len()));
        }
        if let Some(file) = &self.data_file {
            return Err(Fixed::DataFile(file.clone()));
        }
        if self.encrypted {
            return Err(Fixed::Encrypted);
        }
        if self.corrupt {
            return Err(Fixed::Corrupt);
        }
        match &self.layout {
            _ if !is_qcow2 => Ok(None),
            Some(layout) => {
                layout.create_options().map_err(Fixed::Option)?;
                Ok(Some(layout.clone()))
            }
            None => Err(Fixed::ImageUnknown("its options are unknown".into())),
        }
    }
}
