//! Problems of an array, for its operator.

use std::time::Duration;

use array::{CopyHealth, DeviceKind, Health, JoinError};
use units::Bytes;

use super::Keeper;
use super::look::{DeviceFault, dir_of};
use crate::control_server::{Problem, ProblemKind};
use crate::device::{FailureCount, OwnershipState};

/// Free space of a file system below which a copy of the map on it is nearly full. A map of a million extents has 32
/// MiB, and a dropped copy is written to a new file next to the old one.
const MAP_ROOM: u64 = 128 << 20;

/// Time after the last I/O error of a kind for which the errors count as a problem. Their number stays known.
const ERRORS_TIME: Duration = Duration::from_secs(300);

/// A device is nearly full if less than this fraction (one in `NEARLY`) of its slots, or of its file system's space,
/// is free.
const NEARLY: u64 = 20;

impl Keeper {
    /// Returns the present problems, most urgent first. Volumes with lost extents are reported elsewhere.
    pub fn problems(&self) -> Vec<Problem> {
        let mut all = vec![];
        let mut say = |kind, about: &str, what: String| {
            let what = format!("{about}: {what}");
            let about = about.to_owned();
            all.push(Problem { kind, about, what });
        };
        if let Some(why) = &self.map_failing {
            let what = format!(
                "the map cannot be written ({why}): writes to new extents, moves and changes fail until it can; allocated data is served. Check the disk of the map"
            );
            say(ProblemKind::MapFailing, "map", what);
        }
        for (id, lost) in &self.lost {
            let record = &self.records[id];
            if record.kind == DeviceKind::Gone {
                continue;
            }
            let name = &record.name;
            if lost.overwritten {
                let what = format!(
                    "{}. Terrace has stopped writing to it, and reads and writes of its data fail. Stop the other program. If the superblock is intact, `terrace device accept {name}` uses the device again; otherwise `terrace device replace {name}` replaces it",
                    lost.why
                );
                say(ProblemKind::DeviceOverwritten, &record.name, what);
                continue;
            }
            if let Some(why) = self.why_not_owned(*id) {
                let what = format!(
                    "{why}. Reads and writes of its data fail. To use the device here again, stop the other server and run `terrace device accept {name}`"
                );
                say(ProblemKind::RemoteNotOwned, name, what);
                continue;
            }
            let next = match &lost.refused {
                None => format!(
                    "the server retries, and uses the device again when it works and carries the expected stamp. Keep the device: `terrace device replace {name}` discards its data"
                ),
                Some(JoinError::Unflushed) => format!(
                    "`terrace device accept {name}` uses the device with its present data: the last writes before it failed may be missing. `terrace device replace {name}` discards all of its data"
                ),
                Some(JoinError::Generation { .. }) => format!(
                    "reconnect the right device: the server then uses it again. `terrace device accept {name}` uses this device, without the writes since its generation"
                ),
            };
            let what = format!("{}: reads and writes of its data fail; {next}", lost.why);
            say(ProblemKind::DeviceLost, &record.name, what);
        }
        for (id, device) in &self.devices {
            if let Some(OwnershipState::Paused(ago)) = device.owning() {
                let what = format!(
                    "the last heartbeat on the export was confirmed {} s ago, so another server may own it now. Reads and writes wait for the next confirmed heartbeat, and fail if it takes too long: check the remote server and the network",
                    ago.as_secs()
                );
                say(ProblemKind::RemoteNotOwned, &self.records[id].name, what);
            }
        }
        for volume in self.volumes.values() {
            if volume.health == Health::Damaged {
                let what = "its records in the map are damaged, and it is not served: `terrace volume check` describes the damage";
                say(ProblemKind::VolumeDamaged, &volume.name, what.into());
            }
        }
        for (volume, what) in self.source_problems() {
            say(ProblemKind::SourceLost, &volume, what);
        }
        for (_, place, health) in self.map.health() {
            let what = match health {
                CopyHealth::Member => continue,
                CopyHealth::Removed => "the file of this copy of the map was removed or replaced, and there is no other copy: the map is lost when the server stops. Save it with `terrace array backup FILE`, or add a copy with `terrace array copy --dir DIR`".to_owned(),
                CopyHealth::Damaged { why } => format!("the file of this copy of the map is damaged ({why}), and no other copy is intact: save each volume with `terrace volume save` before the server stops"),
                CopyHealth::Rebuilding { why } => format!("this copy of the map is being rebuilt: {why}"),
                CopyHealth::Dropped { why } => format!("this copy of the map is out of date: {why}; the server rebuilds it as soon as possible"),
            };
            say(ProblemKind::MapCopyLost, &place, what);
        }
        for (id, device) in &self.devices {
            let mut errors = device.errors();
            errors.retain(|e| e.last.elapsed() < ERRORS_TIME);
            let Some(last) = errors.iter().map(|e| e.last).max() else {
                continue;
            };
            let one =
                |e: &FailureCount| format!("{} of {} with {}", e.count, e.op, errno_name(e.errno));
            let list: Vec<String> = errors.iter().map(one).collect();
            let what = format!(
                "I/O errors since the device was opened: {}, the last one {} s ago",
                list.join(", "),
                last.elapsed().as_secs()
            );
            say(ProblemKind::DeviceErrors, &self.records[id].name, what);
        }
        for (id, device) in &self.devices {
            let name = &self.records[id].name;
            if let Some(why) = device.direct_refused() {
                let what = format!(
                    "it uses the page cache, because direct I/O is not possible: {why}. `terrace device direct {name} auto` accepts that"
                );
                say(ProblemKind::DeviceNotDirect, name, what);
            }
            match self.looked_at(*id) {
                None => {}
                Some(DeviceFault::NoReply(why)) => {
                    let what = format!(
                        "{why}: reads and writes of its data wait, and fail after a while; new extents go to other devices. When the device responds again, the server continues to use it; otherwise move its data (`terrace tier drain`, `terrace volume move`)"
                    );
                    say(ProblemKind::DeviceUnreachable, name, what);
                }
                Some(DeviceFault::Another(why)) => {
                    let what = format!(
                        "{why}: reads and writes of its data fail until the right device is back. Reconnect it, or stop the server and run `terrace device replace {name}`"
                    );
                    say(ProblemKind::DeviceUnreachable, name, what);
                }
                Some(DeviceFault::Deleted(path)) => {
                    let what = format!(
                        "its file {path} was deleted: the server can use it until it stops, and then its data is lost. Move the data now (`terrace tier drain`, `terrace volume move`)"
                    );
                    say(ProblemKind::DeviceFileGone, name, what);
                }
                Some(DeviceFault::Elsewhere(path)) => {
                    let what = format!(
                        "the open file is no longer at {path} (moved, unmounted or replaced): the next start will not find it, and its data cannot be read then. Put it back, or move the data now (`terrace tier drain`, `terrace volume move`)"
                    );
                    say(ProblemKind::DeviceFileGone, name, what);
                }
            }
        }
        let full = self.map.without_reserve();
        for (place, needed) in &full {
            let free = self.room(&dir_of(place)).map_or(Bytes(0), |r| Bytes(r.0));
            let what = format!(
                "the file system of this copy of the map is full ({free} free, {needed} needed): writes to new extents fail with ENOSPC, and new volumes and snapshots are refused; reads, overwrites, trims, deletions and moves still work. Free {needed} there"
            );
            say(ProblemKind::NoSpace, place, what);
        }
        for (_, place, _) in self.map.health() {
            let room = self.room(&dir_of(&place)).map(|r| Bytes(r.0));
            let Some(free) = room.filter(|r| r.0 < MAP_ROOM) else {
                continue;
            };
            if full.iter().any(|f| f.0 == place) {
                continue;
            }
            let what = format!(
                "the file system of this copy of the map has {free} left: when it is full, writes to new extents fail with ENOSPC. Free space there"
            );
            say(ProblemKind::NearlyFull, &place, what);
        }
        for id in self.devices.keys() {
            let record = &self.records[id];
            let (free, total) = (self.slots.free(*id), self.slots.total(*id));
            let extent = self.map.extent();
            if free == 0 {
                let what = "all of its space is allocated: new extents go to other tiers. Add a device, or move data to another tier".to_owned();
                say(ProblemKind::NoSpace, &record.name, what);
            } else if u64::from(free) * NEARLY < u64::from(total) {
                let left = Bytes(u64::from(free) * extent.0);
                let what = format!("{left} of its space is left");
                say(ProblemKind::NearlyFull, &record.name, what);
            }
            let of_file = record.kind == DeviceKind::File;
            let dir = of_file.then(|| dir_of(&record.path));
            if let Some((room, all)) = dir.and_then(|d| self.room(&d)) {
                let left = Bytes(room);
                if room < extent.0 {
                    let what = format!(
                        "its file system is full ({left} left): writes to new extents fail there and go to other tiers"
                    );
                    say(ProblemKind::NoSpace, &record.name, what);
                } else if room * NEARLY < all && room < u64::from(free) * extent.0 {
                    let what = format!(
                        "its file system has {left} left, less than the unallocated space of the device"
                    );
                    say(ProblemKind::NearlyFull, &record.name, what);
                }
            }
        }
        all.sort_by_key(|t| t.kind);
        all
    }
}

/// Returns the name of an errno of disks and file systems, or the number of any other one.
pub(crate) fn errno_name(errno: i32) -> String {
    use rustix::io::Errno;
    let names = [
        (Errno::IO, "EIO"),
        (Errno::NOSPC, "ENOSPC"),
        (Errno::DQUOT, "EDQUOT"),
        (Errno::FBIG, "EFBIG"),
        (Errno::ROFS, "EROFS"),
        (Errno::NODEV, "ENODEV"),
        (Errno::NXIO, "ENXIO"),
        (Errno::BADF, "EBADF"),
        (Errno::INVAL, "EINVAL"),
        (Errno::ACCESS, "EACCES"),
        (Errno::PERM, "EPERM"),
        (Errno::STALE, "ESTALE"),
        (Errno::TIMEDOUT, "ETIMEDOUT"),
        (Errno::NOTCONN, "ENOTCONN"),
        (Errno::OPNOTSUPP, "EOPNOTSUPP"),
        (Errno::NOMEM, "ENOMEM"),
        (Errno::REMOTEIO, "EREMOTEIO"),
    ];
    let known = names.iter().find(|(e, _)| e.raw_os_error() == errno);
    known.map_or_else(|| format!("errno {errno}"), |(_, name)| (*name).to_owned())
}
