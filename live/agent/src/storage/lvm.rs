//! Logical volumes, thick and thin, through the programs of LVM.
//!
//! A volume is removed by its UUID: `lvremove --select` compares it under LVM's lock of the group,
//! and refuses a volume that is open.

use vmhost::moving::ImageId;
use vmhost::stored::lvm::{group_arguments, group_space, pool_arguments, pool_space};
use vmhost::stored::lvm::{volumes, volumes_arguments};
use vmhost::stored::{Space, Storage, StoredVolume, VolumeId, volume_at};

use super::programs::{report, said};
use super::{ImageDescription, ImageStorage, has_dependents, is_another};
use crate::error::{AgentError, Result};

/// LVM with the configuration of the host.
pub(super) const LVM: Lvm<'static> = Lvm {
    options: &[],
    creation: &[],
};

/// Access to the programs of LVM.
pub(super) struct Lvm<'o> {
    /// Options of every program.
    options: &'o [&'o str],
    /// Options of `lvcreate`.
    creation: &'o [&'o str],
}

impl Lvm<'_> {
    /// Lists all logical volumes with a device.
    pub(super) fn list(&self) -> Result<Vec<StoredVolume>> {
        let words = volumes_arguments();
        Ok(volumes(&self.report("lvs", &words)?)?)
    }

    /// Returns the space of a group or of a thin pool, and the size of the group's extents.
    pub(super) fn space(&self, group: &str, pool: Option<&str>) -> Result<(Space, u64)> {
        let (space, extent) = group_space(&self.report("vgs", &group_arguments(group))?)?;
        match pool {
            None => Ok((space, extent)),
            Some(pool) => Ok((self.pool_space(group, pool)?, extent)),
        }
    }

    fn pool_space(&self, group: &str, pool: &str) -> Result<Space> {
        let report = self.report("lvs", &pool_arguments(group, pool))?;
        Ok(pool_space(&report)?)
    }

    fn report(&self, program: &'static str, words: &[String]) -> Result<serde_json::Value> {
        let words = self
            .options
            .iter()
            .copied()
            .chain(words.iter().map(String::as_str));
        report(program, &words.collect::<Vec<_>>())
    }

    fn order(&self, program: &'static str, words: &[&str]) -> Result<()> {
        let words: Vec<&str> = self.options.iter().chain(words).copied().collect();
        said(program, &words).map(|_| ())
    }

    fn found(&self, id: &str) -> Result<Option<StoredVolume>> {
        let is_it = |v: &StoredVolume| matches!(&v.id, VolumeId::Lvm(uuid) if uuid == id);
        Ok(self.list()?.into_iter().find(is_it))
    }
}

/// Returns true for names that the kernel gives to disks and partitions, which are not logical volumes.
pub(super) fn is_kernel_name(path: &str) -> bool {
    let name = path.strip_prefix("/dev/").unwrap_or("");
    !name.contains('/') && !name.starts_with("dm-")
}

/// Returns group and name in a path such as `/dev/GROUP/NAME`.
fn names(path: &str) -> Result<(&str, &str)> {
    let names = path.strip_prefix("/dev/").and_then(|p| p.split_once('/'));
    let names = names.filter(|(group, name)| *group != "mapper" && !name.contains('/'));
    names.ok_or_else(|| AgentError::Unsuitable(format!("{path} is not /dev/GROUP/NAME")))
}

fn described(volume: &StoredVolume) -> ImageDescription {
    ImageDescription {
        id: ImageId::Volume(volume.id.clone()),
        path: volume.paths[0].clone(),
        dependents: volume.snapshots.clone(),
    }
}

fn uuid(id: Option<&ImageId>) -> Result<&str> {
    match id {
        Some(ImageId::Volume(VolumeId::Lvm(uuid))) => Ok(uuid),
        other => Err(AgentError::Unsuitable(format!(
            "{other:?} is no UUID of LVM"
        ))),
    }
}

impl ImageStorage for Lvm<'_> {
    fn describe(&self, path: &str) -> Result<Option<ImageDescription>> {
        if is_kernel_name(path) {
            return Ok(None);
        }
        Ok(volume_at(&self.list()?, path).map(described))
    }

    /// `lvcreate` refuses a name that exists, and rounds up to the extents of the group.
    fn create(&self, within: Option<&Storage>, path: &str, bytes: u64) -> Result<ImageId> {
        let (group, name) = names(path)?;
        let size = format!("{bytes}b");
        let pool = match within {
            Some(Storage::Lvm {
                group: of,
                pool: Some(pool),
            }) => Some(format!("{of}/{pool}")),
            _ => None,
        };
        let mut words = vec!["--yes", "--name", name];
        words.extend(self.creation);
        match &pool {
            Some(pool) => words.extend(["--virtualsize", &size, "--thinpool", pool]),
            None => words.extend(["--size", &size, group]),
        }
        self.order("lvcreate", &words)?;
        let made = self.describe(path)?;
        let missing = || AgentError::Refused(format!("lvcreate did not create {path}"));
        let made = made.ok_or_else(missing)?;
        Ok(made.id)
    }

    fn rename(&self, id: Option<&ImageId>, from: &str, to: &str) -> Result<()> {
        let (group, name) = names(to)?;
        let volume = self
            .found(uuid(id)?)?
            .ok_or_else(|| AgentError::Changed(format!("{from} is gone")))?;
        let has = |path: &str| volume.paths.iter().any(|p| p == path);
        if has(to) {
            return Ok(());
        }
        if !has(from) {
            return Err(is_another(from));
        }
        let (_, old) = names(&volume.paths[0])?;
        self.order("lvrename", &[group, old, name])
    }

    fn remove(&self, id: &ImageId, path: &str) -> Result<()> {
        let uuid = uuid(Some(id))?;
        let Some(volume) = self.found(uuid)? else {
            return Ok(());
        };
        if !volume.paths.iter().any(|p| p == path) {
            return Err(is_another(path));
        }
        if !volume.snapshots.is_empty() {
            return Err(has_dependents(path, &volume.snapshots));
        }
        let (group, _) = names(&volume.paths[0])?;
        // Without the second condition `--yes` would remove snapshots, too.
        let select = format!("lv_uuid=\"{uuid}\" && lv_role!={{origin}}");
        self.order("lvremove", &["--yes", "--select", &select, group])?;
        match self.found(uuid)? {
            None => Ok(()),
            Some(_) => Err(AgentError::Refused(format!(
                "lvremove did not remove {path}"
            ))),
        }
    }

    fn free(&self, path: &str) -> Option<u64> {
        let volumes = self.list().ok()?;
        // The name of a thin volume contains that of its pool.
        let mut names = volume_at(&volumes, path)?
            .name
            .trim_start_matches("lvm:")
            .split('/');
        let (group, pool, _) = (names.next()?, names.next()?, names.next()?);
        let space = self.pool_space(group, pool).ok()?;
        Some(space.size.saturating_sub(space.used))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::process::Command;

    use super::*;

    /// A volume group on a loop device, whose volumes have no devices: LVM changes its metadata
    /// without device-mapper.
    struct Group {
        name: String,
        device: String,
        _dir: tempfile::TempDir,
    }

    impl Group {
        fn new() -> Option<Self> {
            for program in ["lvs", "losetup"] {
                if !testkit::needs::programs(&[program]) {
                    return None;
                }
            }
            if !rustix::process::geteuid().is_root()
                || !std::path::Path::new("/dev/loop-control").exists()
            {
                testkit::needs::skipped("loop");
                return None;
            }
            let dir = tempfile::tempdir().unwrap();
            let image = dir.path().join("pv");
            File::create(&image).unwrap().set_len(128 << 20).unwrap();
            let output = Command::new("losetup")
                .args(["-f", "--show"])
                .arg(&image)
                .output()
                .unwrap();
            assert!(output.status.success(), "{output:?}");
            let group = Self {
                name: format!("terrace-test-{}", std::process::id()),
                device: String::from_utf8(output.stdout).unwrap().trim().into(),
                _dir: dir,
            };
            group.with(|lvm| {
                lvm.order("pvcreate", &[&group.device]).unwrap();
                lvm.order("vgcreate", &[&group.name, &group.device])
                    .unwrap();
            });
            Some(group)
        }

        fn with<T>(&self, of: impl FnOnce(&Lvm<'_>) -> T) -> T {
            // Only the loop device is scanned, because the host may have its own groups.
            let filter = format!(
                "devices {{ filter=[\"a|^{}$|\",\"r|.*|\"] }} backup {{ backup=0 archive=0 }}",
                self.device
            );
            of(&Lvm {
                options: &["--driverloaded", "n", "--config", &filter],
                creation: &["--activate", "n", "--zero", "n", "--wipesignatures", "n"],
            })
        }
    }

    impl Drop for Group {
        fn drop(&mut self) {
            let _ = Command::new("losetup").args(["-d", &self.device]).status();
        }
    }

    #[test]
    fn volume_is_created_renamed_and_removed_by_its_uuid_only() {
        let Some(group) = Group::new() else {
            return;
        };
        let path = |name: &str| format!("/dev/{}/{name}", group.name);
        group.with(|lvm| {
            assert_eq!(lvm.describe(&path("web")).unwrap(), None);
            let web = lvm.create(None, &path("web"), 5 << 20).unwrap();
            let found = lvm.describe(&path("web")).unwrap().unwrap();
            assert_eq!(found.id, web);
            assert_eq!(lvm.list().unwrap()[0].size, 8 << 20, "in extents of 4 MiB");
            let mapped = format!("/dev/mapper/{}-web", group.name.replace('-', "--"));
            assert_eq!(lvm.describe(&mapped).unwrap().unwrap(), found);
            let (space, extent) = lvm.space(&group.name, None).unwrap();
            assert_eq!(
                (space.size >> 20, space.used >> 20, extent >> 20),
                (124, 8, 4)
            );
            assert_eq!(lvm.free(&path("web")), None, "its space is reserved");
            let why = lvm.create(None, &path("web"), 5 << 20).unwrap_err();
            let why = why.to_string();
            assert!(why.contains("already exists"), "{why}");
            // Another volume gets the same name.
            lvm.rename(Some(&web), &path("web"), &path("web.moved-1"))
                .unwrap();
            lvm.rename(Some(&web), &path("web"), &path("web.moved-1"))
                .unwrap();
            let other = lvm.create(None, &path("web"), 4 << 20).unwrap();
            let why = lvm.remove(&web, &path("web")).unwrap_err().to_string();
            assert!(why.contains("another image has replaced"), "{why}");
            let why = lvm
                .rename(Some(&other), &path("web"), &path("web.moved-1"))
                .unwrap_err()
                .to_string();
            assert!(why.contains("already exists"), "{why}");
            lvm.remove(&web, &path("web.moved-1")).unwrap();
            lvm.remove(&web, &path("web.moved-1")).unwrap();
            assert_eq!(lvm.describe(&path("web")).unwrap().unwrap().id, other);
            assert_eq!(lvm.list().unwrap().len(), 1);
        });
    }

    #[test]
    fn paths_of_other_storage_kinds_are_refused() {
        for path in [
            "/dev/sda",
            "/dev/mapper/vg0-a",
            "/srv/a",
            "/dev/disk/by-id/a",
        ] {
            let why = LVM.create(None, path, 1).unwrap_err().to_string();
            assert!(why.contains("is not /dev/GROUP/NAME"), "{why}");
        }
        let file = ImageId::File(vmhost::moving::FileId {
            device: 1,
            inode: 2,
        });
        let why = LVM.remove(&file, "/dev/vg0/a").unwrap_err().to_string();
        assert!(why.contains("is no UUID"), "{why}");
    }
}
