//! An order to move a disk: whether it can be carried out as everything is, and where to.

use std::path::Path;
use std::process::{Command, Stdio};

use manager::wire::MoveOrder;
use serde_json::Value;
use vmhost::{At, Disk, Domain, Image, Place, builds, quoted};

use super::hands::LibvirtHands;
use super::{LibvirtHost, PlacesOf};
use crate::kernel;
use crate::moves::{LOOKS_FREE, Planned};
use crate::process::run;

/// What must remain free beside an image, for its own metadata and everybody else's.
const SPARE: u64 = 64 << 20;

impl LibvirtHost {
    /// Begins to move a disk.
    ///
    /// # Errors
    /// Why that is not done. Nothing was changed then.
    pub(super) fn start_move(&mut self, order: &MoveOrder) -> Result<(), String> {
        let Some(moving) = self.settings.moving.clone() else {
            return Err(format!(
                "moves of {} are recommended only: there is no directory to write down what becomes of disks",
                order.volume
            ));
        };
        let pools = self.pools.clone();
        let virsh = self.virsh.clone();
        let mut hands = LibvirtHands {
            virsh: &virsh,
            pools: &pools,
            dir: moving.dir,
        };
        let planned = self.plan(&hands, order)?;
        let Some(moves) = &mut self.moves else {
            return Err("it was not looked at yet what is under way".into());
        };
        if moves.is_moving(&planned.uuid, &planned.target) {
            return Err("the disk is being moved already".into());
        }
        moves.begin(&mut hands, order, planned)
    }

    fn plan(&self, hands: &LibvirtHands<'_>, order: &MoveOrder) -> Result<Planned, String> {
        if order.extents.is_some() {
            return Err("only whole disks are moved".into());
        }
        let inventory = self.inventory(&self.places);
        let (domain, disk) = inventory
            .disk_of(&order.volume)
            .ok_or("there is no such disk in a running domain")?;
        match disk.fixed(domain) {
            None => {}
            Some(why) => return Err(why.to_string()),
        }
        let directory_of = |pool: &str| inventory.directory_of(pool);
        let from = disk.image(directory_of).ok_or("its image is not known")?;
        let place = self.places.iter().find(|p| p.name == order.device);
        let place = place.ok_or_else(|| format!("there is no device {}", order.device))?;
        if !place.connected {
            return Err(format!("{} cannot be reached", place.name));
        }
        let (capacity, physical) = inventory.sizes_of(&order.volume);
        let capacity = capacity.ok_or("the size of the disk is not known")?;
        let to = self.target(place, &order.volume, &from)?;
        match &to.at {
            At::Nbd { .. } if place.size != capacity => {
                return Err(format!(
                    "{} has {} bytes and the disk {capacity}: they must be the same",
                    place.name, place.size
                ));
            }
            At::Nbd { .. } if place.used > 0 => {
                return Err(format!("{} is taken by another disk", place.name));
            }
            At::Nbd { .. } => {
                if self.moves.as_ref().is_some_and(|m| m.knows(&to.at)) {
                    return Err(format!(
                        "{} is known to a move that is not forgotten yet",
                        place.name
                    ));
                }
                let tier = self.settings.tiers.iter().find(|t| t.name == place.tier);
                if !tier.is_some_and(|t| t.overwrite) {
                    check_empty(&place.path)?;
                }
            }
            At::File(_) => {
                let system = kernel::file_system(Path::new(&place.path))?;
                let free = system.size.saturating_sub(system.used);
                let spare = SPARE.max(order.rate_bytes_per_s.saturating_mul(2 * LOOKS_FREE));
                let needed = physical.unwrap_or(capacity).min(capacity) + spare;
                if free < needed {
                    return Err(format!(
                        "{} has {free} bytes free, and {needed} are needed",
                        place.name
                    ));
                }
            }
        }
        self.check_build()?;
        if let Some(path) = from.at.file()
            && !kernel::is_plain(Path::new(path))
        {
            return Err(format!(
                "{path} is a link, or reached by one: name the file itself"
            ));
        }
        self.check_domain(hands, domain, disk, (&from, &to))?;
        let cluster_bytes = match from.format.as_str() {
            "qcow2" => check_qcow2(&from)?,
            _ => None,
        };
        Ok(Planned {
            uuid: domain.uuid.clone(),
            target: disk.target.clone(),
            bytes: capacity,
            cluster_bytes: cluster_bytes.filter(|_| to.format == "qcow2"),
            hold: builds::holds_at_start(disk),
            from,
            to,
        })
    }

    /// The image that a disk gets in a place.
    fn target(&self, place: &Place, volume: &str, from: &Image) -> Result<Image, String> {
        let tier = self.settings.tiers.iter().find(|t| t.name == place.tier);
        let mut places = tier.into_iter().flat_map(|t| &t.places);
        let export = places.find_map(|p| match p {
            PlacesOf::Export { socket, export } => {
                let at = At::Nbd {
                    socket: socket.clone(),
                    export: export.clone(),
                };
                (at.to_string() == place.path).then_some(at)
            }
            _ => None,
        });
        if let Some(at) = export {
            return Ok(Image {
                at,
                format: "raw".into(),
            });
        }
        let format = tier.and_then(|t| t.format.as_ref());
        let format = format.unwrap_or(&from.format).clone();
        let file = from
            .at
            .file()
            .and_then(|p| Path::new(p).file_name()?.to_str());
        let stem = file.and_then(|name| {
            let mut endings = ["raw", "qcow2", "img"].iter();
            endings.find_map(|e| name.strip_suffix(&format!(".{e}")))
        });
        let name = match (file, stem) {
            (Some(_), Some(stem)) if format != from.format => format!("{stem}.{format}"),
            (Some(file), _) => file.to_owned(),
            // An export's name says nothing.
            (None, _) => format!("{}.{format}", volume.replace([':', '/'], "-")),
        };
        if name.starts_with('.') {
            return Err(format!("{} gives no name to its copy", from.at));
        }
        // What is kept of an earlier move has another name; anything else there is somebody's.
        let free = (1..=99).map(|n| match (n, name.rsplit_once('.')) {
            (1, _) => name.clone(),
            (n, Some((stem, ending))) => format!("{stem}-{n}.{ending}"),
            (n, None) => format!("{name}-{n}"),
        });
        let mut free = free.map(|name| format!("{}/{name}", place.path));
        let path = free.find(|path| Path::new(path).symlink_metadata().is_err());
        let path = path.ok_or_else(|| format!("{} is full of files named {name}", place.path))?;
        Ok(Image {
            at: At::File(path),
            format,
        })
    }

    /// A build of QEMU that is known to damage what it mirrors, or that nobody knows, copies nothing for us.
    fn check_build(&self) -> Result<(), String> {
        let answers = self.virsh.ask(&["version".into()])?;
        let version = builds::of_virsh(answers[0].text()?)
            .ok_or("libvirt does not say which version of QEMU it runs")?;
        builds::check(version)
    }

    /// What a new image would not have, and who else names the old one or the new one.
    fn check_domain(
        &self,
        hands: &LibvirtHands<'_>,
        domain: &Domain,
        disk: &Disk,
        (from, to): (&Image, &Image),
    ) -> Result<(), String> {
        let uuid = quoted(&domain.uuid);
        for what in ["snapshot", "checkpoint"] {
            let ask = [format!("{what}-list --name {uuid}")];
            let answer = self.virsh.ask(&ask)?;
            let found = answer[0].text();
            let found = found.map_err(|e| format!("whether it has {what}s is not known: {e}"))?;
            if !found.is_empty() {
                return Err(format!(
                    "its domain has {what}s, which a new image would not have"
                ));
            }
        }
        let directory_of = |pool: &str| self.inventory(&[]).directory_of(pool);
        let same = |a: &At, b: &At| match (a.file(), b.file()) {
            (Some(a), Some(b)) => a == b || kernel::same_file(Path::new(a), Path::new(b)),
            (None, None) => a.to_string() == b.to_string() || same_export(a, b),
            _ => false,
        };
        for other in hands.everybody()? {
            let own = other.uuid == domain.uuid;
            for d in &other.disks {
                let Some(at) = d.source.at(directory_of) else {
                    continue;
                };
                let itself = own && d.target == disk.target;
                if itself && d.image(directory_of).as_ref() != Some(from) {
                    return Err("its domain's definition names another image than it uses".into());
                }
                for (image, which) in [(from, "its image"), (to, "its target")] {
                    let named = same(&at, &image.at);
                    if named && !(itself && which == "its image") {
                        return Err(format!("domain {} names {which} too", other.name));
                    }
                }
            }
            let paths = [from.at.file(), to.at.file()];
            let mut below = other.below.iter();
            if below.any(|b| paths.contains(&Some(b.as_str()))) {
                return Err(format!("an image of domain {} is on top of it", other.name));
            }
        }
        Ok(())
    }
}

/// Whether two exports are one, by whatever paths of the socket.
fn same_export(a: &At, b: &At) -> bool {
    match (a, b) {
        (
            At::Nbd { socket, export },
            At::Nbd {
                socket: other,
                export: name,
            },
        ) => export == name && kernel::same_file(Path::new(socket), Path::new(other)),
        _ => false,
    }
}

/// Whether an export has nothing in it, as far as its server tells.
fn check_empty(uri: &str) -> Result<(), String> {
    let said = qemu_img(&["map", "--output=json", "-f", "raw", uri])?;
    let parts = said.as_array().ok_or("qemu-img map says no list")?;
    match parts.iter().all(|p| p["zero"] == true) {
        true => Ok(()),
        false => Err(format!(
            "{uri} is not empty; it is written over if its tier says `overwrite = true`"
        )),
    }
}

/// What a qcow2 image has that its copy would not have; the size of its clusters.
fn check_qcow2(image: &Image) -> Result<Option<u64>, String> {
    let said = qemu_img(&[
        "info",
        "--output=json",
        "-U",
        "-f",
        "qcow2",
        &image.at.to_string(),
    ])?;
    let data = &said["format-specific"]["data"];
    let lists = [
        ("internal snapshots", &said["snapshots"]),
        ("bitmaps", &data["bitmaps"]),
    ];
    for (what, list) in lists {
        if list.as_array().is_some_and(|l| !l.is_empty()) {
            return Err(format!(
                "its image has {what}, which a new one would not have"
            ));
        }
    }
    for (what, value) in [
        ("another image below it", &said["backing-filename"]),
        ("its data in another file", &data["data-file"]),
        ("encryption", &data["encrypt"]),
    ] {
        if !value.is_null() {
            return Err(format!(
                "its image has {what}, which no move was tested with"
            ));
        }
    }
    Ok(said["cluster-size"].as_u64())
}

/// Bytes of an NBD export.
pub(super) fn size_of_export(uri: &str) -> Result<u64, String> {
    let said = qemu_img(&["info", "--output=json", "-f", "raw", uri])?;
    let size = said["virtual-size"].as_u64();
    size.ok_or_else(|| format!("{uri}: qemu-img does not say its size"))
}

fn qemu_img(words: &[&str]) -> Result<Value, String> {
    let mut command = Command::new("qemu-img");
    command.args(words).stdin(Stdio::null());
    let said = run(command, "qemu-img")?;
    if !said.success {
        return Err(format!("qemu-img: {}", said.error("it did not say why")));
    }
    serde_json::from_str(&said.out).map_err(|e| format!("qemu-img: {e}"))
}
