//! What is wrong with an array, for its operator.

use std::path::Path;

use array::{CopyHealth, DeviceKind, Health};
use rustix::fs::statvfs;

use super::Keeper;
use crate::desk::{Trouble, TroubleKind};

/// A copy of the map on a file system with less room than this is nearly full: a map of a million extents has 32 MiB, and is written anew
/// beside itself when it was dropped.
const MAP_ROOM: u64 = 128 << 20;

/// With less than this commits are about to fail.
const MAP_ROOM_LEAST: u64 = 4 << 20;

/// A device with less than one part in so many of its slots, or of its file system's room, is nearly full.
const NEARLY: u64 = 20;

impl Keeper {
    /// What is wrong now, most urgent first; volumes that lost extents are found elsewhere.
    pub fn troubles(&self) -> Vec<Trouble> {
        let mut all = vec![];
        let mut say = |kind, about: &str, what: String| {
            let what = format!("{about}: {what}");
            let about = about.to_owned();
            all.push(Trouble { kind, about, what });
        };
        if let Some(why) = &self.map_failing {
            let what = format!(
                "the map cannot be written ({why}): no new extents, no moves, no changes until it can; what has its place is served"
            );
            say(TroubleKind::MapFailing, "map", what);
        }
        for (id, lost) in &self.lost {
            let record = &self.records[id];
            if record.kind == DeviceKind::Gone {
                continue;
            }
            let name = &record.name;
            let back = match lost.in_use {
                false => format!(
                    "it is taken back when it is there again; `terrace device replace {name}` gives it up"
                ),
                true => format!(
                    "when it works again `terrace device accept {name}` takes it back, `terrace device replace {name}` gives it up"
                ),
            };
            let what = format!(
                "{}: reads and writes of what is on it fail; {back}",
                lost.why
            );
            say(TroubleKind::DeviceLost, &record.name, what);
        }
        for volume in self.volumes.values() {
            if volume.health == Health::Damaged {
                let what = "records of it in the map are damaged, and it is not served: `terrace volume check` says how";
                say(TroubleKind::VolumeDamaged, &volume.name, what.into());
            }
        }
        for (_, place, health) in self.map.health() {
            let what = match health {
                CopyHealth::Member => continue,
                CopyHealth::Removed => "the file of this copy of the map was removed or replaced, and there is no other one: the map is gone when the server ends; `terrace array backup FILE` saves it, `terrace array copy --dir DIR` makes another one".to_owned(),
                CopyHealth::Rebuilding => "this copy of the map is not up to date: it is being made anew".to_owned(),
                CopyHealth::Dropped { why } => format!("this copy of the map is not up to date: {why}; it is made anew as soon as it can be"),
            };
            say(TroubleKind::MapCopyLost, &place, what);
        }
        for (id, device) in &self.devices {
            let errors = device.errors();
            if errors.is_empty() {
                continue;
            }
            let one = |((op, errno), n): &((&str, i32), u64)| {
                format!("{n} of {op} with {}", errno_name(*errno))
            };
            let list: Vec<String> = errors.iter().map(one).collect();
            let what = format!("I/O has failed since it was opened: {}", list.join(", "));
            say(TroubleKind::DeviceErrors, &self.records[id].name, what);
        }
        for (_, place, _) in self.map.health() {
            let dir = Path::new(&place).parent().filter(|d| *d != Path::new(""));
            let Some(room) = room(dir.unwrap_or(Path::new("."))) else {
                continue;
            };
            let (kind, how) = match room.0 {
                free if free < MAP_ROOM_LEAST => (TroubleKind::NoSpace, "no room"),
                free if free < MAP_ROOM => (TroubleKind::NearlyFull, "little room"),
                _ => continue,
            };
            let free = units::Bytes(room.0);
            let what = format!(
                "the file system of this copy of the map has {how} left ({free}): changes of the map fail without it"
            );
            say(kind, &place, what);
        }
        for id in self.devices.keys() {
            let record = &self.records[id];
            let (free, total) = (self.slots.free(*id), self.slots.total(*id));
            let extent = self.map.extent();
            if free == 0 {
                let what = "all of its space is taken: new extents go to other tiers".to_owned();
                say(TroubleKind::NoSpace, &record.name, what);
            } else if u64::from(free) * NEARLY < u64::from(total) {
                let left = units::Bytes(u64::from(free) * extent.0);
                let what = format!("{left} of its space is left");
                say(TroubleKind::NearlyFull, &record.name, what);
            }
            let of_file = record.kind == DeviceKind::File;
            let dir = Path::new(&record.path).parent().filter(|_| of_file);
            if let Some((room, all)) = dir.and_then(room) {
                let left = units::Bytes(room);
                if room < extent.0 {
                    let what = format!(
                        "its file system is full ({left} left): writes to new extents fail there and go to other tiers"
                    );
                    say(TroubleKind::NoSpace, &record.name, what);
                } else if room * NEARLY < all && room < u64::from(free) * extent.0 {
                    let what = format!(
                        "its file system has {left} left, less than the space that it was promised"
                    );
                    say(TroubleKind::NearlyFull, &record.name, what);
                }
            }
        }
        all.sort_by_key(|t| t.kind);
        all
    }
}

/// Bytes that are free for us in a file system, and all of it.
fn room(dir: &Path) -> Option<(u64, u64)> {
    let stat = statvfs(dir).ok()?;
    Some((stat.f_bavail * stat.f_frsize, stat.f_blocks * stat.f_frsize))
}

/// The name of an errno that disks and file systems give; its number, if it is another.
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
        (Errno::NOMEM, "ENOMEM"),
        (Errno::REMOTEIO, "EREMOTEIO"),
    ];
    let known = names.iter().find(|(e, _)| e.raw_os_error() == errno);
    known.map_or_else(|| format!("errno {errno}"), |(_, name)| (*name).to_owned())
}
