//! An order to move a disk: whether it can be carried out as everything is, and where to.

use std::path::Path;
use std::process::{Command, Stdio};

use manager::wire::MoveOrder;
use serde_json::Value;
use vmhost::{At, Disk, Domain, Image, Place, builds, listed, quoted};

use super::hands::LibvirtHands;
use super::{AT_ONCE, LibvirtHost, PlacesOf};
use crate::kernel;
use crate::moves::Planned;

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
        let planned = self.plan(order)?;
        let Some(moves) = &mut self.moves else {
            return Err("it was not looked at yet what is under way".into());
        };
        if moves.is_moving(&planned.uuid, &planned.target) {
            return Err("the disk is being moved already".into());
        }
        let mut hands = LibvirtHands {
            virsh: &self.virsh,
            pools: &self.pools,
            dir: moving.dir,
        };
        moves.begin(&mut hands, order, planned)
    }

    fn plan(&self, order: &MoveOrder) -> Result<Planned, String> {
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
            At::Nbd { .. } => {}
            At::File(_) => {
                let system = kernel::file_system(Path::new(&place.path))?;
                let free = system.size.saturating_sub(system.used);
                let needed = physical.unwrap_or(capacity).min(capacity) + SPARE;
                if free < needed {
                    return Err(format!(
                        "{} has {free} bytes free, and {needed} are needed",
                        place.name
                    ));
                }
            }
        }
        self.check_build()?;
        self.check_domain(domain, disk, &from)?;
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
        let version = builds::of_virsh(&answers[0])
            .ok_or("libvirt does not say which version of QEMU it runs")?;
        builds::check(version)
    }

    /// What a new image would not have, and who else names the old one.
    fn check_domain(&self, domain: &Domain, disk: &Disk, from: &Image) -> Result<(), String> {
        let uuid = quoted(&domain.uuid);
        let answers = self.virsh.ask(&[
            format!("snapshot-list --name {uuid}"),
            format!("checkpoint-list --name {uuid}"),
            format!("dominfo {uuid}"),
            format!("dumpxml --inactive {uuid}"),
            "list --all --uuid --id --name".into(),
        ])?;
        for (what, answer) in ["snapshots", "checkpoints"].iter().zip(&answers) {
            if !answer.trim().is_empty() {
                return Err(format!(
                    "its domain has {what}, which a new image would not have"
                ));
            }
        }
        let directory_of = |pool: &str| self.inventory(&[]).directory_of(pool);
        let persistent = answers[2]
            .lines()
            .any(|l| l.strip_prefix("Persistent:").map(str::trim) == Some("yes"));
        if persistent {
            let definition = Domain::of_xml(answers[3].trim()).map_err(|e| e.to_string())?;
            let of = definition.disks.iter().find(|d| d.target == disk.target);
            if of.and_then(|d| d.image(directory_of)).as_ref() != Some(from) {
                return Err("its domain's definition names another image than it uses".into());
            }
        }
        let all = listed(&answers[4]).map_err(|e| e.to_string())?;
        let others: Vec<_> = all.iter().filter(|l| l.uuid != domain.uuid).collect();
        for some in others.chunks(AT_ONCE) {
            let ask: Vec<String> = some
                .iter()
                .map(|l| format!("dumpxml {}", quoted(&l.uuid)))
                .collect();
            for (other, text) in some.iter().zip(self.virsh.ask(&ask)?) {
                // One that has gone since names nothing; one that cannot be read may.
                if text.trim().is_empty() {
                    continue;
                }
                let other = Domain::of_xml(text.trim())
                    .map_err(|e| format!("whether {} uses it too is not known: {e}", other.name))?;
                let mut at = other.disks.iter().filter_map(|d| d.source.at(directory_of));
                if at.any(|at| at == from.at) {
                    return Err(format!("domain {} names its image too", other.name));
                }
            }
        }
        Ok(())
    }
}

/// What a qcow2 image has that its copy would not have; the size of its clusters.
fn check_qcow2(image: &Image) -> Result<Option<u64>, String> {
    let said = qemu_img_info(&["-U", "-f", "qcow2", &image.at.to_string()])?;
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
    let said = qemu_img_info(&["-f", "raw", uri])?;
    let size = said["virtual-size"].as_u64();
    size.ok_or_else(|| format!("{uri}: qemu-img does not say its size"))
}

fn qemu_img_info(words: &[&str]) -> Result<Value, String> {
    let mut command = Command::new("qemu-img");
    command.args(["info", "--output=json"]).args(words);
    let output = command.stdin(Stdio::null()).output().map_err(|e| {
        format!("qemu-img cannot be started, which says what an image has beside its data: {e}")
    })?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        let why = why.lines().next().unwrap_or("it did not say why");
        return Err(format!("qemu-img: {why}"));
    }
    serde_json::from_slice(&output.stdout).map_err(|e| format!("qemu-img: {e}"))
}
