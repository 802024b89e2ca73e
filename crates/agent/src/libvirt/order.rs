//! An order to move a disk: whether it can be carried out as everything is, and where to.

use manager::wire::MoveOrder;
use vmhost::{Disk, Domain, Image, builds, listed, quoted};

use super::hands::LibvirtHands;
use super::{AT_ONCE, LibvirtHost};
use crate::images::check_qcow2;
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
        let to = target_in(&self.settings.tiers, place, &order.volume, &from)?;
        check_room(place, &to, capacity, physical)?;
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
