//! Users of a block device, for error messages. The kernel decides whether a device is in use
//! (EBUSY); this module only names the user.
//!
//! A device is also in use through its partitions, and a partition through its disk. This module
//! inspects:
//!
//! ```text
//!   /proc/self/mountinfo                  mounted file systems
//!   /proc/swaps                           swap space
//!   /sys/dev/block/MAJOR:MINOR/holders/   device-mapper (LVM, LUKS, multipath), RAID
//! ```

use std::fs::{read_dir, read_to_string};
use std::path::{Path, PathBuf};

/// Returns a clause such as "/dev/sdb1 is mounted at /mnt (ext4)". `None` means that another
/// process may have the device open exclusively. `proc` and `sys` are the mount points of these
/// file systems.
pub(super) fn user_of(proc: &Path, sys: &Path, (major, minor): (u32, u32)) -> Option<String> {
    let device = sys.join(format!("dev/block/{major}:{minor}"));
    let mounts = read_to_string(proc.join("self/mountinfo")).unwrap_or_default();
    let swaps = read_to_string(proc.join("swaps")).unwrap_or_default();
    with_relatives(&device).iter().find_map(|directory| {
        let part = Part::read(directory)?;
        let mounted = || mounts.lines().find_map(|line| part.mounted_by(line));
        let swapped = || {
            let first = |line: &str| line.split_whitespace().next() == Some(&part.path);
            let is_swap = swaps.lines().any(first);
            is_swap.then(|| format!("{} is swap space", part.path))
        };
        mounted().or_else(swapped).or_else(|| part.held(directory))
    })
}

/// Returns the directories of a device, of its partitions, and of the disk that contains it.
fn with_relatives(device: &Path) -> Vec<PathBuf> {
    // In sysfs the device is a symbolic link. The disk is the parent of its target.
    let device = device.canonicalize().unwrap_or_else(|_| device.to_owned());
    let is_partition = |directory: &Path| directory.join("partition").exists();
    let inside = read_dir(&device).into_iter().flatten().flatten();
    let mut partitions: Vec<PathBuf> = inside.map(|entry| entry.path()).collect();
    partitions.retain(|directory| is_partition(directory));
    partitions.sort();
    let disk = device.parent().filter(|_| is_partition(&device));
    let disk = disk.map(Path::to_owned);
    std::iter::once(device.clone())
        .chain(partitions)
        .chain(disk)
        .collect()
}

/// A disk or a partition.
struct Part {
    /// Major and minor number as the kernel writes them, such as `8:17`.
    number: String,
    /// Path of its node.
    path: String,
}

impl Part {
    fn read(directory: &Path) -> Option<Self> {
        let number = read_to_string(directory.join("dev")).ok()?;
        let facts = read_to_string(directory.join("uevent")).ok()?;
        let name = facts.lines().find_map(|l| l.strip_prefix("DEVNAME="))?;
        Some(Self {
            number: number.trim().into(),
            path: format!("/dev/{name}"),
        })
    }

    /// Matches a line of `mountinfo` (proc_pid_mountinfo(5)). A file system on several devices has
    /// its own number there, and names one device as its source.
    fn mounted_by(&self, line: &str) -> Option<String> {
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(2);
        let (number, at) = (before.next()?, before.nth(1)?);
        let mut after = after.split(' ');
        let (kind, source) = (after.next()?, after.next()?);
        let is_it = number == self.number || source == self.path;
        is_it.then(|| {
            let at = at.replace("\\040", " ");
            format!("{} is mounted at {at} ({kind})", self.path)
        })
    }

    fn held(&self, directory: &Path) -> Option<String> {
        let holders = read_dir(directory.join("holders")).ok()?;
        let mut holders: Vec<PathBuf> = holders.flatten().map(|entry| entry.path()).collect();
        holders.sort();
        let holder = holders.first()?;
        let name = holder.file_name()?.to_string_lossy();
        let read = |path: &str| read_to_string(holder.join(path)).ok();
        let by = match read("dm/name") {
            Some(mapped) => {
                // Each user of the device mapper has its own prefix.
                let uuid = read("dm/uuid").unwrap_or_default();
                let what = match uuid.split_once('-').map(|(prefix, _)| prefix) {
                    Some("LVM") => "LVM volume",
                    Some("CRYPT") => "encrypted device",
                    Some("mpath") => "multipath device",
                    _ => "device-mapper device",
                };
                format!("{what} {} ({name})", mapped.trim())
            }
            None if holder.join("md").exists() => format!("RAID array {name}"),
            None => format!("device {name}"),
        };
        Some(format!("{} is part of {by}", self.path))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir_all, write};

    use super::*;

    /// A host without devices.
    fn host() -> tempfile::TempDir {
        let host = tempfile::tempdir().unwrap();
        create_dir_all(host.path().join("proc/self")).unwrap();
        host
    }

    /// Adds a device to a host, in `directory` below `/sys/devices`.
    fn add(host: &Path, directory: &str, number: &str) -> PathBuf {
        let device = host.join("sys/devices").join(directory);
        create_dir_all(device.join("holders")).unwrap();
        let name = device.file_name().unwrap().to_str().unwrap();
        write(device.join("dev"), format!("{number}\n")).unwrap();
        write(device.join("uevent"), format!("MAJOR=8\nDEVNAME={name}\n")).unwrap();
        if directory.contains('/') {
            write(device.join("partition"), "1\n").unwrap();
        }
        let all = host.join("sys/dev/block");
        create_dir_all(&all).unwrap();
        std::os::unix::fs::symlink(&device, all.join(number)).unwrap();
        device
    }

    fn found(host: &Path, number: (u32, u32)) -> Option<String> {
        user_of(&host.join("proc"), &host.join("sys"), number)
    }

    #[test]
    fn holder_of_the_device_mapper_or_raid_is_named() {
        let host = host();
        let host = host.path();
        for (minor, name, holder, files, expected) in [
            (
                0,
                "sda",
                "dm-0",
                &[("dm/name", "vg0-data"), ("dm/uuid", "LVM-8Yx2")][..],
                "/dev/sda is part of LVM volume vg0-data (dm-0)",
            ),
            (
                16,
                "sdb",
                "dm-1",
                &[("dm/name", "secret"), ("dm/uuid", "CRYPT-LUKS2-1f")],
                "/dev/sdb is part of encrypted device secret (dm-1)",
            ),
            (
                32,
                "sdc",
                "dm-2",
                &[("dm/name", "test"), ("dm/uuid", "")],
                "/dev/sdc is part of device-mapper device test (dm-2)",
            ),
            (
                48,
                "sdd",
                "md127",
                &[("md/level", "raid1")],
                "/dev/sdd is part of RAID array md127",
            ),
            (
                64,
                "sde",
                "bcache0",
                &[("dev", "252:0")],
                "/dev/sde is part of device bcache0",
            ),
        ] {
            let holder = add(host, name, &format!("8:{minor}"))
                .join("holders")
                .join(holder);
            for (file, text) in files {
                create_dir_all(holder.join(file).parent().unwrap()).unwrap();
                write(holder.join(file), format!("{text}\n")).unwrap();
            }
            assert_eq!(found(host, (8, minor)).as_deref(), Some(expected));
        }
    }

    #[test]
    fn mounts_of_a_device_its_partition_or_its_disk_are_named() {
        let host = host();
        let host = host.path();
        add(host, "sda", "8:0");
        add(host, "sda/sda1", "8:1");
        add(host, "sdb", "8:16");
        add(host, "sdc", "8:32");
        let mounts = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/root rw\n\
             30 22 0:41 / /my\\040data rw - btrfs /dev/sdb rw\n\
             31 22 0:42 / /dev/shm rw - tmpfs tmpfs rw\n";
        write(host.join("proc/self/mountinfo"), mounts).unwrap();
        let root = Some("/dev/sda1 is mounted at / (ext4)".to_owned());
        assert_eq!(found(host, (8, 1)), root);
        assert_eq!(found(host, (8, 0)), root, "the disk of the partition");
        let data = Some("/dev/sdb is mounted at /my data (btrfs)".to_owned());
        assert_eq!(found(host, (8, 16)), data, "by its source");
        assert_eq!(found(host, (8, 32)), None);
        assert_eq!(found(host, (8, 48)), None, "there is no such device");
    }

    #[test]
    fn partition_of_a_disk_in_use_names_the_disk() {
        let host = host();
        let host = host.path();
        let disk = add(host, "sda", "8:0");
        add(host, "sda/sda1", "8:1");
        create_dir_all(disk.join("holders/md0/md")).unwrap();
        let expected = "/dev/sda is part of RAID array md0";
        assert_eq!(found(host, (8, 1)).as_deref(), Some(expected));
    }

    #[test]
    fn swap_space_is_named() {
        let host = host();
        let host = host.path();
        add(host, "sda", "8:0");
        add(host, "sda/sda2", "8:2");
        let swaps = "Filename\tType\tSize\tUsed\tPriority\n/dev/sda2  partition\t8\t0\t-2\n";
        write(host.join("proc/swaps"), swaps).unwrap();
        let expected = "/dev/sda2 is swap space";
        assert_eq!(found(host, (8, 2)).as_deref(), Some(expected));
        assert_eq!(found(host, (8, 0)).as_deref(), Some(expected));
    }
}
