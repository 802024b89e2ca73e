//! An order to move a disk: whether it can be carried out as everything is, and where to.

use std::path::Path;

use manager::wire::MoveOrder;
use vmhost::{At, Disk, Domain, Image, builds, quoted};

use super::LibvirtHost;
use super::hands::LibvirtHands;
use crate::images::check_qcow2;
use crate::kernel;
use crate::moves::Planned;
use crate::places::{check_room, target_in};

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
        let to = target_in(&self.settings.tiers, place, &order.volume, &from)?;
        if matches!(to.at, At::Nbd { .. }) && self.moves.as_ref().is_some_and(|m| m.knows(&to.at)) {
            return Err(format!(
                "{} is known to a move that is not forgotten yet",
                place.name
            ));
        }
        let sizes = (capacity, physical);
        check_room(
            &self.settings.tiers,
            place,
            &to,
            sizes,
            order.rate_bytes_per_s,
        )?;
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
