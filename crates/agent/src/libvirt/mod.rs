//! Virtual machines as they are, by libvirt: looked at, and moved where there is a directory for what has to be written down of that.

mod hands;
mod order;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use manager::agent::{Deed, Snapshot, WantedExtents};
use manager::wire::{ArrayPolicy, Bound};
use model::ClassObjective;
use units::Nanos;
use vmhost::{
    Domain, DomainStats, Fixed, Guess, Inventory, Known, Listed, Place, Pool, builds, domain_stats,
    guessed, listed, quoted,
};

use crate::host::Host;
use crate::kernel;
use crate::moves::{Around, Moves, with_moves};
use crate::places::{self, Moving, TierOf};
use crate::virsh::Virsh;
use crate::yielding::Yielding;
use hands::LibvirtHands;

/// Pools, and domains of which nothing seems to have changed, are read anew after this time.
const POOLS_AGE: Duration = Duration::from_secs(60);
const DOMAIN_AGE: Duration = Duration::from_secs(60);
/// Time between two looks while something moves.
const LOOKS_APART: Duration = Duration::from_millis(900);
/// Domains that one process is asked for.
const AT_ONCE: usize = 64;

/// What is looked at.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LibvirtSettings {
    /// The hypervisor, such as `qemu:///system`; virsh's own default if none.
    pub uri: Option<String>,
    /// Tiers, high end first.
    pub tiers: Vec<TierOf>,
    /// Classes by volumes' names, in which a `*` stands for anything: the first that fits.
    pub classes: Vec<(String, String)>,
    /// What disks are moved with; without it moves are recommended only.
    pub moving: Option<Moving>,
}

/// A domain, and when its XML was read.
struct Read {
    known: Known,
    at: Instant,
    /// Its disks then, by the statistics.
    disks: Vec<(String, Option<String>)>,
}

/// Where images may be, for who has not said what the tiers are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundPlace {
    /// The pool's name, or the directory.
    pub name: String,
    /// Its path.
    pub path: String,
    /// Its file system's number: places with the same one share space and device.
    pub device: u64,
    /// What its device is taken to be.
    pub guess: Guess,
}

/// A volume that stays where it is, or is none, and why.
pub type Stays = (String, String);

/// Virtual machines under libvirt.
pub struct LibvirtHost {
    virsh: Virsh,
    settings: LibvirtSettings,
    tiers: Vec<String>,
    pools: Vec<Pool>,
    pools_at: Option<Instant>,
    domains: BTreeMap<String, Read>,
    places: Vec<Place>,
    stats: Vec<DomainStats>,
    said: BTreeSet<String>,
    remarks: Vec<String>,
    moves: Option<Moves>,
    yielding: Yielding,
    last: Option<(Instant, Snapshot)>,
    /// That of the QEMU that libvirt runs.
    version: Option<builds::Build>,
    began: Instant,
}

impl LibvirtHost {
    /// Nothing is asked yet.
    pub fn new(settings: LibvirtSettings) -> Self {
        Self {
            virsh: Virsh {
                uri: settings.uri.clone(),
                lock: None,
            },
            tiers: settings.tiers.iter().map(|t| t.name.clone()).collect(),
            settings,
            pools: vec![],
            pools_at: None,
            domains: BTreeMap::new(),
            places: vec![],
            stats: vec![],
            said: BTreeSet::new(),
            remarks: vec![],
            moves: None,
            yielding: Yielding::default(),
            last: None,
            version: None,
            began: Instant::now(),
        }
    }

    /// Looks at all there is, and says where images are: in pools of files, or in other directories; the fastest first.
    ///
    /// # Errors
    /// Why libvirt does not answer.
    pub fn find_places(&mut self) -> Result<Vec<FoundPlace>, String> {
        self.look()?;
        let mut paths: BTreeMap<String, String> = BTreeMap::new();
        for pool in &self.pools {
            let directory = pool.directory();
            paths.extend(directory.map(|path| (path.to_owned(), pool.name.clone())));
        }
        for path in self.inventory(&[]).images() {
            let in_pool = |pool: &String| path.starts_with(&format!("{pool}/"));
            if !paths.keys().any(in_pool)
                && let Some(directory) = Path::new(&path).parent().and_then(Path::to_str)
            {
                paths.insert(directory.to_owned(), directory.to_owned());
            }
        }
        let found = paths.into_iter().filter_map(|(path, name)| {
            let device = kernel::file_system(Path::new(&path)).ok()?.device;
            Some(FoundPlace {
                name,
                path,
                device,
                guess: guessed(kernel::medium(device)),
            })
        });
        let mut found: Vec<FoundPlace> = found.collect();
        found.sort_by(|a, b| (a.guess.rank, &a.name).cmp(&(b.guess.rank, &b.name)));
        Ok(found)
    }

    /// Volumes that could not be moved as they are, and disks that are no volumes, with the reason; as of the last look.
    pub fn stays(&self) -> (Vec<Stays>, Vec<Stays>) {
        let inventory = self.inventory(&self.places);
        let fixed = inventory.fixed().into_iter();
        let fixed = fixed.map(|(name, why): (String, Fixed)| (name, why.to_string()));
        (fixed.collect(), inventory.left_out())
    }

    /// What moves a volume to a device by hand, by the last look; none where nobody knows.
    pub fn command(&self, volume: &str, device: &str) -> Option<String> {
        let place = self.places.iter().find(|p| p.name == device)?;
        self.inventory(&self.places).command(volume, place)
    }

    fn inventory<'a>(&'a self, places: &'a [Place]) -> Inventory<'a> {
        Inventory {
            tiers: &self.tiers,
            places,
            pools: &self.pools,
            domains: self.domains.values().map(|r| &r.known).collect(),
            stats: &self.stats,
        }
    }

    /// What of a host keeps all of its disks from being moved by us; our own moves do not.
    fn say_what_is_bound(&mut self, snapshot: &mut Snapshot) {
        if self.version.is_none() {
            let answers = self.virsh.ask(&["version".into()]);
            self.version = answers.ok().and_then(|a| builds::of_virsh(a[0].some()?));
        }
        let build = match self.version {
            Some(build) => builds::check(build).err(),
            None => Some("libvirt does not say which version of QEMU it runs".into()),
        };
        let all = match &self.moves {
            None => Some("moves are recommended only on this host".to_owned()),
            Some(_) => build,
        };
        for v in &mut snapshot.volumes {
            let ours = self
                .moves
                .as_ref()
                .is_some_and(|m| m.window(&v.name).is_some());
            if ours {
                v.bound = None;
            } else if let (None, Some(why)) = (&v.bound, &all) {
                v.bound = Some(Bound {
                    why: why.clone(),
                    by_hand: true,
                });
            }
        }
    }

    /// Takes moves further. Their domains are read anew afterwards.
    fn go_on(&mut self) {
        let (Some(moves), Some(moving)) = (&mut self.moves, &self.settings.moving) else {
            return;
        };
        let mut hands = LibvirtHands {
            virsh: &self.virsh,
            pools: &self.pools,
            dir: moving.dir.clone(),
        };
        let (yielding, last) = (&self.yielding, self.last.as_ref().map(|l| &l.1));
        let around = Around {
            guest: &|volume| yielding.guest(volume),
            others: &|volume, device| yielding.others(last, volume, device),
        };
        self.domains.retain(|uuid, _| !moves.concerns(uuid));
        moves.beat(&mut hands, &around, self.began.elapsed().as_nanos() as u64);
    }

    /// Domains, pools and counters as they are now.
    fn look(&mut self) -> Result<(), String> {
        let now = Instant::now();
        let due = |at: Option<Instant>, age| at.is_none_or(|at| now.duration_since(at) >= age);
        let mut ask = vec![
            "list --uuid --id --name".to_owned(),
            "domstats --block --raw --nowait --list-active".to_owned(),
        ];
        let pools_due = due(self.pools_at, POOLS_AGE);
        if pools_due {
            ask.push("pool-list --name".into());
        }
        let answers = self.virsh.ask(&ask)?;
        let listed = listed(answers[0].text()?).map_err(|e| e.to_string())?;
        self.stats = domain_stats(answers[1].text()?).map_err(|e| e.to_string())?;
        if pools_due {
            self.read_pools(answers[2].text()?)?;
            self.pools_at = Some(now);
        }
        let running: Vec<Listed> = listed.into_iter().filter(|l| l.id.is_some()).collect();
        self.domains
            .retain(|uuid, _| running.iter().any(|l| l.uuid == *uuid));
        let stale: Vec<&Listed> = running
            .iter()
            .filter(|l| {
                let read = self.domains.get(&l.uuid);
                read.is_none_or(|r| {
                    let same = (Some(r.known.id), &r.known.domain.name) == (l.id, &l.name);
                    // Somebody's block job may end without any other sign.
                    let copied = r.known.domain.disks.iter().any(|d| d.mirror.is_some());
                    let due = copied || due(Some(r.at), DOMAIN_AGE);
                    !same || due || r.disks != disks(&self.stats, &l.name)
                })
            })
            .collect();
        for some in stale.chunks(AT_ONCE) {
            let ask: Vec<String> = some
                .iter()
                .map(|l| format!("dumpxml {}", quoted(&l.uuid)))
                .collect();
            for (l, xml) in some.iter().zip(self.virsh.ask(&ask)?) {
                self.read_domain(l, xml.some().unwrap_or(""), now);
            }
        }
        Ok(())
    }

    /// One that cannot be read is not known; what was known of it before may be of another time.
    fn read_domain(&mut self, l: &Listed, xml: &str, now: Instant) {
        self.domains.remove(&l.uuid);
        if xml.trim().is_empty() {
            return; // it has ended since it was listed
        }
        match Domain::of_xml(xml.trim()) {
            Ok(domain) => {
                let disks = disks(&self.stats, &domain.name);
                let id = l.id.unwrap_or(0);
                let known = Known { domain, id };
                let read = Read {
                    known,
                    at: now,
                    disks,
                };
                self.domains.insert(l.uuid.clone(), read);
            }
            Err(why) => self.remark(format!("{} cannot be read: {why}", l.name)),
        }
    }

    fn read_pools(&mut self, names: &str) -> Result<(), String> {
        let names: Vec<&str> = names
            .lines()
            .map(str::trim)
            .filter(|n| !n.is_empty())
            .collect();
        let ask: Vec<String> = names
            .iter()
            .map(|name| format!("pool-dumpxml {}", quoted(name)))
            .collect();
        self.pools.clear();
        if ask.is_empty() {
            return Ok(());
        }
        for (name, xml) in names.iter().zip(self.virsh.ask(&ask)?) {
            let xml = xml.some().unwrap_or("");
            match Pool::of_xml(xml) {
                Ok(pool) => self.pools.push(pool),
                Err(_) if xml.is_empty() => {} // it has gone
                Err(why) => self.remark(format!("pool {name} cannot be read: {why}")),
            }
        }
        Ok(())
    }

    /// Once for each text.
    fn remark(&mut self, text: String) {
        if self.said.insert(text.clone()) {
            self.remarks.push(text);
        }
    }

    /// Places of tiers as they are now.
    ///
    /// # Errors
    /// One that never was there.
    fn look_at_places(&mut self) -> Result<(), String> {
        let inventory = self.inventory(&[]);
        let look = places::Look {
            tiers: &self.settings.tiers,
            before: &self.places,
            path_of_pool: &|name| self.path_of_pool(name),
            is_taken: &|image| inventory.images().any(|i| i == image),
        };
        let (places, remarks) = look.now()?;
        remarks.into_iter().for_each(|r| self.remark(r));
        self.places = places;
        Ok(())
    }

    fn path_of_pool(&self, name: &str) -> Result<String, String> {
        let pool = self.pools.iter().find(|p| p.name == name);
        let pool = pool.ok_or_else(|| format!("there is no active pool {name:?}"))?;
        let directory = pool.directory().ok_or_else(|| {
            let kind = &pool.kind;
            format!("pool {name:?} is of the kind {kind:?}: only pools of files are known yet")
        })?;
        Ok(directory.into())
    }
}

/// The disks that statistics name for a domain.
fn disks(stats: &[DomainStats], domain: &str) -> Vec<(String, Option<String>)> {
    let of = stats.iter().find(|s| s.domain == domain);
    let blocks = of.into_iter().flat_map(|s| &s.blocks);
    blocks.map(|b| (b.target.clone(), b.path.clone())).collect()
}

impl Host for LibvirtHost {
    fn called(&self) -> &'static str {
        "libvirt"
    }

    fn snapshot(&mut self) -> Result<Snapshot, String> {
        if let Some(moving) = &self.settings.moving
            && self.moves.is_none()
        {
            let moves = Moves::open(&moving.dir, moving.keep_source)?;
            self.virsh.lock = Some(moves.lock());
            self.moves = Some(moves);
        }
        // While something moves an agent looks more often than there is anything new.
        let fresh = |(at, _): &&(Instant, Snapshot)| at.elapsed() < LOOKS_APART;
        if let (Some(moves), Some((_, last))) = (&self.moves, self.last.as_ref().filter(fresh))
            && moves.is_busy()
        {
            return Ok(with_moves(last.clone(), moves));
        }
        if self.last.is_none() {
            self.look()?; // pools say where images are
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
            Deed::Inject { .. } => Err("nothing is delayed on a host under libvirt".into()),
        }
    }
}
