//! Virtual machines as they are, by the QMP sockets of plain QEMU: looked at, measured, and moved where there is a directory for what has to be
//! written down of that.
//!
//! QEMU serves one client on a socket at a time. The session is kept between looks, so the socket must be nobody else's.

mod hands;
mod machines;
mod monitor;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use manager::agent::{Deed, Snapshot, WantedExtents};
use manager::wire::{ArrayPolicy, Bound, MoveOrder};
use model::ClassObjective;
use units::Nanos;
use vmhost::{At, DomainStats, Inventory, Place, builds};

use crate::host::Host;
use crate::images;
use crate::kernel;
use crate::moves::{Around, Moves, Planned, with_moves};
use crate::places::{self, Moving, PlacesOf, TierOf, check_room, target_in};
use crate::yielding::Yielding;
use hands::QmpHands;
use machines::{Link, Machines, Read};

/// Time between two looks while something moves.
const LOOKS_APART: Duration = Duration::from_millis(900);

/// What is looked at.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QemuSettings {
    /// The directory of the sockets, `NAME.qmp` or `NAME.sock`.
    pub sockets: PathBuf,
    /// Tiers, high end first.
    pub tiers: Vec<TierOf>,
    /// Classes by volumes' names, in which a `*` stands for anything: the first that fits.
    pub classes: Vec<(String, String)>,
    /// What disks are moved with; without it moves are recommended only.
    pub moving: Option<Moving>,
}

impl QemuSettings {
    /// Whether they can be of such a host.
    ///
    /// # Errors
    /// Which tier cannot.
    pub fn check(&self) -> Result<(), String> {
        for tier in &self.tiers {
            for place in &tier.places {
                if let PlacesOf::Pool(name) = place {
                    return Err(format!(
                        "tier {}: {name:?} is a name, and only libvirt has pools with names: plain QEMU needs absolute directories",
                        tier.name
                    ));
                }
            }
        }
        Ok(())
    }
}

/// Virtual machines of plain QEMU.
pub struct QemuHost {
    settings: QemuSettings,
    tiers: Vec<String>,
    machines: Machines,
    read: BTreeMap<String, Read>,
    stats: Vec<DomainStats>,
    places: Vec<Place>,
    said: BTreeSet<String>,
    remarks: Vec<String>,
    moves: Option<Moves>,
    yielding: Yielding,
    last: Option<(Instant, Snapshot)>,
    began: Instant,
}

impl QemuHost {
    /// Nothing is asked yet.
    pub fn new(settings: QemuSettings) -> Self {
        Self {
            tiers: settings.tiers.iter().map(|t| t.name.clone()).collect(),
            machines: Machines::new(settings.sockets.clone()),
            settings,
            read: BTreeMap::new(),
            stats: vec![],
            places: vec![],
            said: BTreeSet::new(),
            remarks: vec![],
            moves: None,
            yielding: Yielding::default(),
            last: None,
            began: Instant::now(),
        }
    }

    fn inventory<'a>(&'a self, places: &'a [Place]) -> Inventory<'a> {
        Inventory {
            tiers: &self.tiers,
            places,
            pools: &[],
            domains: self.read.values().map(|r| &r.known).collect(),
            stats: &self.stats,
        }
    }

    /// Once for each text.
    fn remark(&mut self, text: String) {
        if self.said.insert(text.clone()) {
            self.remarks.push(text);
        }
    }

    /// Machines as they are now. One that cannot be reached is not known: what was known of it before may be of another time.
    fn look(&mut self) -> Result<(), String> {
        self.read.clear();
        for name in self.machines.find()? {
            match self.machines.link(&name).read(&name) {
                Ok(Some(read)) => {
                    self.read.insert(name, read);
                }
                Ok(None) => {}
                Err(why) => self.remark(format!("{name} cannot be looked at: {why}")),
            }
        }
        self.stats = self.read.values().map(|r| r.stats.clone()).collect();
        Ok(())
    }

    fn look_at_places(&mut self) -> Result<(), String> {
        let inventory = self.inventory(&[]);
        let look = places::Look {
            tiers: &self.settings.tiers,
            before: &self.places,
            path_of_pool: &|name| Err(format!("there are no pools, and none is called {name:?}")),
            is_taken: &|image| inventory.images().any(|i| i == image),
        };
        let (places, remarks) = look.now()?;
        remarks.into_iter().for_each(|r| self.remark(r));
        self.places = places;
        Ok(())
    }

    /// Takes moves further.
    fn go_on(&mut self) {
        let Some(moves) = &mut self.moves else {
            return;
        };
        let mut hands = QmpHands {
            machines: &mut self.machines,
        };
        let (yielding, last) = (&self.yielding, self.last.as_ref().map(|l| &l.1));
        let around = Around {
            guest: &|volume| yielding.guest(volume),
            others: &|volume, device| yielding.others(last, volume, device),
        };
        moves.beat(&mut hands, &around, self.began.elapsed().as_nanos() as u64);
    }

    /// What keeps disks from being moved by us beside what they are; our own moves do not. There are no commands that move one by hand.
    fn say_what_is_bound(&self, snapshot: &mut Snapshot) {
        for v in &mut snapshot.volumes {
            v.command = None;
            let moving = self.moves.as_ref().map(|m| m.window(&v.name).is_some());
            let machine = v.name.rsplit_once(':').and_then(|(m, _)| self.read.get(m));
            let all = match moving {
                None => Some("moves are recommended only on this host".to_owned()),
                Some(_) => machine.and_then(Link::fault),
            };
            if moving == Some(true) {
                v.bound = None;
            } else if let (None, Some(why)) = (&v.bound, all) {
                v.bound = Some(Bound { why, by_hand: true });
            }
        }
    }

    fn start_move(&mut self, order: &MoveOrder) -> Result<(), String> {
        if self.settings.moving.is_none() {
            return Err(format!(
                "moves of {} are recommended only: there is no directory to write down what becomes of disks",
                order.volume
            ));
        }
        let planned = self.plan(order)?;
        let Some(moves) = &mut self.moves else {
            return Err("it was not looked at yet what is under way".into());
        };
        if moves.is_moving(&planned.uuid, &planned.target) {
            return Err("the disk is being moved already".into());
        }
        let mut hands = QmpHands {
            machines: &mut self.machines,
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
            .ok_or("there is no such disk in a running machine")?;
        if let Some(why) = disk.fixed(domain) {
            return Err(why.to_string());
        }
        let read = self.read.get(&domain.name);
        let read = read.ok_or("its machine does not run")?;
        builds::check(read.build)?;
        let from = disk.image(|_| None).ok_or("its image is not known")?;
        let place = self.places.iter().find(|p| p.name == order.device);
        let place = place.ok_or_else(|| format!("there is no device {}", order.device))?;
        if !place.connected {
            return Err(format!("{} cannot be reached", place.name));
        }
        let (capacity, physical) = inventory.sizes_of(&order.volume);
        let capacity = capacity.ok_or("the size of the disk is not known")?;
        let others = self.read.values().map(|r| &r.known.domain);
        let mut disks = others.flat_map(|d| d.disks.iter().map(move |disk| (d, disk)));
        let also = disks.find(|(d, other)| {
            let same = d.name == domain.name && other.target == disk.target;
            !same && other.source.at(|_| None).as_ref() == Some(&from.at)
        });
        if let Some((other, _)) = also {
            return Err(format!("machine {} has its image too", other.name));
        }
        let to = target_in(&self.settings.tiers, place, &order.volume, &from)?;
        if let At::Nbd { .. } = &to.at {
            if self.moves.as_ref().is_some_and(|m| m.knows(&to.at)) {
                return Err(format!(
                    "{} is known to a move that is not forgotten yet",
                    place.name
                ));
            }
            // QEMU stands still while it connects, so a server that does not answer must be found before.
            images::size_of_export(&to.at.to_string())?;
        }
        let (sizes, rate) = ((capacity, physical), order.rate_bytes_per_s);
        check_room(&self.settings.tiers, place, &to, sizes, rate)?;
        if let Some(path) = from.at.file()
            && !kernel::is_plain(Path::new(path))
        {
            return Err(format!(
                "{path} is a link, or reached by one: name the file itself"
            ));
        }
        let qcow2 = from.format == "qcow2" && to.format == "qcow2";
        Ok(Planned {
            uuid: domain.uuid.clone(),
            target: disk.target.clone(),
            bytes: capacity,
            cluster_bytes: read.cluster_bytes(&disk.target).filter(|_| qcow2),
            hold: builds::holds_at_start(disk),
            from,
            to,
        })
    }
}

impl Host for QemuHost {
    fn called(&self) -> &'static str {
        "QEMU"
    }

    fn snapshot(&mut self) -> Result<Snapshot, String> {
        self.settings.check()?;
        if let Some(moving) = &self.settings.moving
            && self.moves.is_none()
        {
            self.moves = Some(Moves::open(&moving.dir, moving.keep_source)?);
        }
        // While something moves an agent looks more often than there is anything new.
        let fresh = |(at, _): &&(Instant, Snapshot)| at.elapsed() < LOOKS_APART;
        if let (Some(moves), Some((_, last))) = (&self.moves, self.last.as_ref().filter(fresh))
            && moves.is_busy()
        {
            return Ok(with_moves(last.clone(), moves));
        }
        // What was begun before comes first, at a start too.
        self.go_on();
        self.look()?;
        self.look_at_places()?;
        let inventory = self.inventory(&self.places);
        let class_of = |name: &str| places::class_of(&self.settings.classes, name);
        let mut snapshot = inventory.snapshot(class_of);
        for (name, why) in inventory.left_out() {
            self.remark(format!("{name} is not looked after: {why}"));
        }
        self.say_what_is_bound(&mut snapshot);
        let before = self.last.as_ref().map(|l| &l.1);
        self.yielding.look(before, &snapshot);
        if let Some(moves) = &mut self.moves {
            for v in &snapshot.volumes {
                let (requests, mean_ns) = self.yielding.guest(&v.name);
                moves.observe(&v.name, requests, mean_ns);
            }
        }
        self.last = Some((Instant::now(), snapshot.clone()));
        Ok(match &self.moves {
            Some(moves) => with_moves(snapshot, moves),
            None => snapshot,
        })
    }

    fn remarks(&mut self) -> Vec<String> {
        std::mem::take(&mut self.remarks)
    }

    fn look_at_extents(&mut self, _: Vec<WantedExtents>, _: &mut Snapshot) -> Result<(), String> {
        Ok(()) // nothing is known of extents
    }

    fn hold_to(&mut self, _: &ArrayPolicy) -> Result<(), String> {
        Ok(()) // its operators do not ask here
    }

    fn promise(&mut self, objectives: &[ClassObjective], lasting: Nanos) -> Result<(), String> {
        self.yielding.promise(objectives, lasting);
        Ok(())
    }

    fn carry_out(&mut self, deed: &Deed) -> Result<(), String> {
        match deed {
            Deed::StartMove(order) => self.start_move(order),
            Deed::CancelMove { volume } => match &mut self.moves {
                Some(moves) => moves.cancel(volume),
                None => Ok(()),
            },
            Deed::Inject { .. } => Err("nothing is delayed on a host of plain QEMU".into()),
        }
    }

    fn end(&mut self) {
        self.machines.give_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_pools_are_refused() {
        let settings = |tier: &str| QemuSettings {
            tiers: vec![tier.parse().unwrap()],
            ..QemuSettings::default()
        };
        let fine = settings("fast=/a,nbd+unix:///x?socket=/s");
        assert_eq!(fine.check(), Ok(()));
        let why = settings("fast=/a,images").check().unwrap_err();
        assert!(why.starts_with("tier fast: \"images\" is a name"), "{why}");
    }
}
