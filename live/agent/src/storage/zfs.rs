//! Volumes of ZFS, through the program `zfs`.
//!
//! A volume is removed by its name, after its GUID was compared. `zfs destroy` without `-r` refuses a volume with
//! snapshots or clones, and an open volume.

use std::path::Path;
use std::time::{Duration, Instant};

use vmhost::moving::ImageId;
use vmhost::stored::zfs::{
    VOLUMES_ARGUMENTS, snapshots, snapshots_arguments, space, space_arguments, volumes,
};
use vmhost::stored::{Space, Storage, StoredVolume, VolumeId, volume_at};

use super::programs::said;
use super::{ImageDescription, ImageStorage, exists, has_dependents, is_another};
use crate::error::{AgentError, Result};

/// Directory of the devices of volumes.
const DEVICES: &str = "/dev/zvol/";
/// Unit to which sizes are rounded up: a multiple of every block size of a volume.
pub(super) const ROUND: u64 = 1 << 20;
/// Longest wait for the device of a new volume.
const DEVICE_TIME: Duration = Duration::from_secs(10);

/// Access to the program `zfs`.
pub(super) struct Zfs;

impl Zfs {
    /// Lists all volumes, without their snapshots.
    pub(super) fn list(&self) -> Result<Vec<StoredVolume>> {
        Ok(volumes(&said("zfs", &VOLUMES_ARGUMENTS)?)?)
    }

    /// Returns the space of a dataset.
    pub(super) fn space(&self, dataset: &str) -> Result<Space> {
        Ok(space(&said("zfs", &space_arguments(dataset))?)?)
    }

    /// Reads the snapshots of volumes. If they cannot be read, each volume counts as having some.
    pub(super) fn read_snapshots(&self, of: &mut [&mut StoredVolume]) -> Result<()> {
        if of.is_empty() {
            return Ok(());
        }
        let name = |v: &StoredVolume| v.name.trim_start_matches("zfs:").to_owned();
        let names: Vec<String> = of.iter().map(|v| name(v)).collect();
        let words: Vec<&str> = names.iter().map(String::as_str).collect();
        let listing = said("zfs", &snapshots_arguments(&words));
        for (volume, name) in of.iter_mut().zip(&names) {
            volume.snapshots = match &listing {
                Ok(listing) => snapshots(listing, name),
                Err(_) => vec!["unknown snapshots".into()],
            };
        }
        listing.map(|_| ())
    }

    fn at(&self, path: &str) -> Result<Option<StoredVolume>> {
        let mut volume = volume_at(&self.list()?, path).cloned();
        if let Some(volume) = &mut volume {
            self.read_snapshots(&mut [volume])?;
        }
        Ok(volume)
    }
}

/// Returns the name of the volume with this device.
fn name(path: &str) -> Result<&str> {
    let name = path.strip_prefix(DEVICES).filter(|n| n.contains('/'));
    name.ok_or_else(|| AgentError::Unsuitable(format!("{path} is not /dev/zvol/DATASET/NAME")))
}

fn is_it(volume: &StoredVolume, id: Option<&ImageId>) -> bool {
    matches!(id, Some(ImageId::Volume(known)) if *known == volume.id)
        && matches!(volume.id, VolumeId::Zfs(_))
}

impl ImageStorage for Zfs {
    fn describe(&self, path: &str) -> Result<Option<ImageDescription>> {
        Ok(self.at(path)?.map(|volume| ImageDescription {
            id: ImageId::Volume(volume.id),
            path: path.into(),
            dependents: volume.snapshots,
        }))
    }

    /// `zfs create` refuses a name that exists. The space of the volume is reserved.
    fn create(&self, _: Option<&Storage>, path: &str, bytes: u64) -> Result<ImageId> {
        let size = bytes.next_multiple_of(ROUND).to_string();
        said("zfs", &["create", "-V", &size, name(path)?])?;
        let made = self.describe(path)?;
        let missing = || AgentError::Refused(format!("zfs did not create {path}"));
        let made = made.ok_or_else(missing)?;
        let until = Instant::now() + DEVICE_TIME;
        while !Path::new(path).exists() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(made.id)
    }

    fn rename(&self, id: Option<&ImageId>, from: &str, to: &str) -> Result<()> {
        let volumes = self.list()?;
        match (volume_at(&volumes, from), volume_at(&volumes, to)) {
            (_, Some(there)) if is_it(there, id) => Ok(()),
            (Some(volume), None) if is_it(volume, id) => {
                said("zfs", &["rename", name(from)?, name(to)?]).map(|_| ())
            }
            (_, Some(_)) => Err(exists(to)),
            (_, None) => Err(is_another(from)),
        }
    }

    fn remove(&self, id: &ImageId, path: &str) -> Result<()> {
        let Some(volume) = self.at(path)? else {
            return Ok(());
        };
        if !is_it(&volume, Some(id)) {
            return Err(is_another(path));
        }
        if !volume.snapshots.is_empty() {
            return Err(has_dependents(path, &volume.snapshots));
        }
        said("zfs", &["destroy", name(path)?]).map(|_| ())
    }

    fn free(&self, _: &str) -> Option<u64> {
        None
    }
}
