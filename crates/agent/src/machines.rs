//! A host of virtual machines, whatever tells of them: looked at, and moved where there is a directory for what has to be written down of that.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use manager::agent::{ActionError, AgentAction, Snapshot, VolumeSnapshot, WantedExtents};
use manager::wire::{ArrayPolicy, Bound, HandMove, MoveOrder, Throttle};
use model::{ClassObjective, LeaseHolder, LeaseStatus};
use units::Nanos;
use vmhost::{At, Disk, Domain, Image, Inventory, Limits, Place, builds};
use volume::Lease;

use crate::controller;
use crate::host::Host;
use crate::moves::{MoveOperations, Moves, Planned};
use crate::places::{self, Moving, TierOf, check_room, target_in};
use crate::throttles::Throttles;
use crate::yielding::Yielding;

/// Time between two looks while something moves.
const LOOKS_APART: Duration = Duration::from_millis(900);

/// Characters of a warning, and how many different ones are made: a machine may say anything.
const REMARK_MAX: usize = 500;
const REMARKS_MAX: usize = 10_000;

/// What is looked after on a host of virtual machines.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MachinesSettings {
    /// Tiers, high end first.
    pub tiers: Vec<TierOf>,
    /// Classes by volumes' names, in which a `*` stands for anything: the first that fits.
    pub classes: Vec<(String, String)>,
    /// What disks are moved with; without it moves are recommended only.
    pub moving: Option<Moving>,
}

/// What disks are limited to, by name, or why nobody can say.
pub(crate) type AllLimits = BTreeMap<String, Result<Limits, String>>;

/// A disk that is to be copied, and where.
pub(crate) struct Copied<'a> {
    pub domain: &'a Domain,
    pub disk: &'a Disk,
    pub from: &'a Image,
    pub to: &'a Image,
}

/// What tells of a host's virtual machines, and does something to them.
pub(crate) trait Hypervisor: Send {
    /// What it is called in what operators are told.
    fn called(&self) -> &'static str;

    /// Takes in the machines as they are now; what an operator should know of that.
    ///
    /// # Errors
    /// Why it does not answer.
    fn look(&mut self) -> Result<Vec<String>, String>;

    /// Takes in what moves need to be looked at, the first thing that is asked; what an operator should know of that.
    fn prepare(&mut self) -> Vec<String>;

    /// What the last look has found.
    fn inventory<'a>(&'a self, tiers: &'a [String], places: &'a [Place]) -> Inventory<'a>;

    /// Where a pool is.
    ///
    /// # Errors
    /// It is nowhere.
    fn path_of_pool(&self, name: &str) -> Result<String, String>;

    /// Takes nothing of a domain for known any more: the next look reads all that decides whether
    /// its disks may move.
    fn forget(&mut self, domain: &str);

    /// Looks at what stands against a target.
    ///
    /// # Errors
    /// What it is.
    fn check_target(&self, copied: &Copied<'_>) -> Result<(), String>;

    /// Takes note of the moves before anything is done about them: of what they concern nothing that was known before is taken for known.
    fn moves_go_on(&mut self, _: &Moves) {}

    /// What does something for moves.
    fn operations(&mut self) -> Box<dyn MoveOperations + '_>;

    /// What the disks of a domain that runs are limited to, by name.
    ///
    /// # Errors
    /// Why nobody can say.
    fn limits(&mut self, domain: &Domain) -> Result<AllLimits, String>;

    /// The life of a domain's process as it is now; none of one that does not run, or cannot be seen.
    fn life(&mut self, domain: &Domain) -> Option<u32>;

    /// Limits a disk to this, in place of what it is limited to.
    ///
    /// # Errors
    /// Why it is not, or may not be.
    fn limit(&mut self, domain: &Domain, target: &str, to: &Limits) -> Result<(), String>;

    /// Gives back what it was lent.
    fn end(&mut self) {}
}

/// Warnings for the operator, each once.
#[derive(Default)]
pub(crate) struct Remarks {
    said: BTreeSet<String>,
    new: Vec<String>,
}

impl Remarks {
    pub(crate) fn add(&mut self, texts: impl IntoIterator<Item = String>) {
        for text in texts {
            let text: String = text.chars().take(REMARK_MAX).collect();
            if self.said.len() < REMARKS_MAX && self.said.insert(text.clone()) {
                self.new.push(text);
            }
        }
    }

    /// Returns those that were not returned before.
    pub(crate) fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.new)
    }
}

/// Reports for each disk of virtual machines what keeps it where it is: a move of its agent, or an agent that makes no moves.
pub(crate) fn report_bounds(snapshot: &mut Snapshot, makes_moves: bool) {
    for v in &mut snapshot.volumes {
        if v.moving.is_some() {
            v.bound = None;
            v.by_hand = Some(HandMove::None {
                why: "its agent is moving it".into(),
            });
        } else if v.bound.is_none() && !makes_moves {
            v.bound = Some(Bound {
                why: "this host only recommends moves".into(),
                by_hand: true,
            });
        }
    }
}

/// Virtual machines, as a hypervisor tells of them.
pub(crate) struct Machines<H> {
    hypervisor: H,
    settings: MachinesSettings,
    tiers: Vec<String>,
    places: Vec<Place>,
    remarks: Remarks,
    moves: Option<Moves>,
    throttles: Option<Throttles>,
    yielding: Yielding,
    lease: Lease,
    last: Option<(Instant, Snapshot)>,
    began: Instant,
}

impl<H: Hypervisor> Machines<H> {
    /// Nothing is asked yet.
    pub(crate) fn new(hypervisor: H, settings: MachinesSettings) -> Self {
        Self {
            hypervisor,
            tiers: settings.tiers.iter().map(|t| t.name.clone()).collect(),
            settings,
            places: vec![],
            remarks: Remarks::default(),
            moves: None,
            throttles: None,
            yielding: Yielding::default(),
            lease: Lease::default(),
            last: None,
            began: Instant::now(),
        }
    }

    /// Machines as they are now.
    fn look(&mut self) -> Result<(), String> {
        let warnings = self.hypervisor.look()?;
        self.remarks.add(warnings);
        Ok(())
    }

    /// Places of tiers as they are now.
    ///
    /// # Errors
    /// One that never was there.
    fn look_at_places(&mut self) -> Result<(), String> {
        let look = places::Look {
            tiers: &self.settings.tiers,
            before: &self.places,
            path_of_pool: &|name| self.hypervisor.path_of_pool(name),
            images: &self.hypervisor.inventory(&[], &[]).images().collect(),
        };
        let (places, warnings) = look.now()?;
        self.remarks.add(warnings);
        self.places = places;
        Ok(())
    }

    /// Takes moves further.
    fn go_on(&mut self) {
        let Some(moves) = &mut self.moves else {
            return;
        };
        self.hypervisor.moves_go_on(moves);
        let now_ns = self.began.elapsed().as_nanos() as u64;
        moves.beat(&mut *self.hypervisor.operations(), &self.yielding, now_ns);
    }

    fn throttle(&mut self, volume: &str, to: Option<Throttle>) -> Result<(), String> {
        let Some(throttles) = &mut self.throttles else {
            return Err(
                "this agent cannot change limits: it has no directory to record the old limits"
                    .into(),
            );
        };
        let Some(to) = to else {
            throttles.end(volume)?;
            self.give_limits_back();
            return Ok(());
        };
        let inventory = self.hypervisor.inventory(&self.tiers, &self.places);
        let (known, disk) = inventory
            .disk_of(volume)
            .ok_or("no running domain has this disk")?;
        let build = known.build.as_ref().map_err(Clone::clone);
        build.and_then(builds::check_limits)?;
        let (domain, disk) = (known.domain.clone(), disk.clone());
        throttles.begin(&mut self.hypervisor, (&domain, &disk), volume, to)
    }

    /// Gives limits back whose time is over.
    fn give_limits_back(&mut self) {
        let Some(throttles) = &mut self.throttles else {
            return;
        };
        let inventory = self.hypervisor.inventory(&[], &[]);
        let domains = inventory.domains.iter().map(|known| known.domain.clone());
        let domains: Vec<Domain> = domains.collect();
        let (news, faults) = throttles.beat(&mut self.hypervisor, &domains);
        self.remarks.new.extend(news);
        self.remarks.add(faults);
    }

    fn tell_limits(&self, snapshot: &mut Snapshot) {
        if let Some(throttles) = &self.throttles {
            throttles.tell(snapshot);
        }
    }

    fn start_move(&mut self, order: &MoveOrder) -> Result<(), ActionError> {
        if self.settings.moving.is_none() {
            return Err(ActionError::permanent(format!(
                "moves of {} are only recommended: the agent has no directory to record moves",
                order.volume
            )));
        }
        if let Some((domain, _)) = order.volume.rsplit_once(':') {
            self.hypervisor.forget(domain);
        }
        self.look()?;
        let planned = self.plan(order)?;
        let Some(moves) = &mut self.moves else {
            return Err("the agent has not checked the running jobs yet".into());
        };
        Ok(moves.begin(&mut *self.hypervisor.operations(), order, planned)?)
    }

    /// Whether an order can be carried out as everything is, and where to.
    fn plan(&self, order: &MoveOrder) -> Result<Planned, ActionError> {
        if order.extents.is_some() {
            return Err(ActionError::permanent("only whole disks can move"));
        }
        let inventory = self.hypervisor.inventory(&self.tiers, &self.places);
        let (known, disk) = inventory
            .disk_of(&order.volume)
            .ok_or("no running domain has this disk")?;
        let domain = &known.domain;
        let verdict = known.verdict(disk, inventory.by);
        let layout = verdict.map_err(|why| ActionError::permanent(why.to_string()))?;
        let from = disk.image(|pool| inventory.directory_of(pool));
        let from = from.ok_or("its image is unknown")?;
        let place = self.places.iter().find(|p| p.name == order.device);
        let place = place.ok_or_else(|| format!("no device {}", order.device))?;
        if !place.connected {
            return Err(format!("{} cannot be reached", place.name).into());
        }
        let (capacity, physical) = inventory.sizes_of(&order.volume);
        let capacity = capacity.ok_or("the size of the disk is unknown")?;
        let tiers = &self.settings.tiers;
        let target = target_in(tiers, place, &order.volume, &from, capacity)?;
        let to = &target.image;
        let is_old = matches!(to.at, At::Nbd { .. } | At::Block { .. });
        if is_old && self.moves.as_ref().is_some_and(|m| m.knows(&to.at)) {
            return Err(format!("{} still belongs to an earlier move", place.name).into());
        }
        let (sizes, rate) = ((capacity, physical), order.rate_bytes_per_s);
        check_room(tiers, place, &target, sizes, rate)?;
        let copied = Copied {
            domain,
            disk,
            from: &from,
            to,
        };
        self.hypervisor.check_target(&copied)?;
        Ok(Planned {
            uuid: domain.uuid.clone(),
            target: disk.target.clone(),
            bytes: capacity,
            layout: layout.filter(|_| to.format == "qcow2"),
            hold: builds::holds_at_start(disk),
            life: domain.id.unwrap_or(0),
            from,
            to: target.image,
            within: target.within,
        })
    }
}

impl<H: Hypervisor> Host for Machines<H> {
    fn called(&self) -> &'static str {
        self.hypervisor.called()
    }

    fn snapshot(&mut self) -> Result<Snapshot, String> {
        if let Some(moving) = &self.settings.moving
            && self.moves.is_none()
        {
            let moves = Moves::open(&moving.dir, moving.keep_source)?;
            self.throttles = Some(Throttles::open(&moving.dir)?);
            let now_ns = self.began.elapsed().as_nanos() as u64;
            self.lease = controller::read(&moving.dir, now_ns)?;
            self.moves = Some(moves);
        }
        // While something moves an agent looks more often than there is anything new.
        let fresh = |(at, _): &&(Instant, Snapshot)| at.elapsed() < LOOKS_APART;
        if let (Some(moves), Some((_, last))) = (&self.moves, self.last.as_ref().filter(fresh))
            && moves.is_busy()
        {
            let mut last = last.clone();
            moves.tell(&mut last);
            self.tell_limits(&mut last);
            return Ok(last);
        }
        if self.last.is_none() {
            let warnings = self.hypervisor.prepare();
            self.remarks.add(warnings);
        }
        // What was begun before comes first, at a start too.
        self.go_on();
        self.look()?;
        self.give_limits_back();
        self.look_at_places()?;
        let inventory = self.hypervisor.inventory(&self.tiers, &self.places);
        let class_of = |name: &str| places::class_of(&self.settings.classes, name);
        let mut snapshot = inventory.snapshot(class_of);
        let left_out = inventory.left_out().into_iter();
        let left_out: Vec<String> = left_out
            .map(|(name, why)| format!("{name} is not managed: {why}"))
            .collect();
        self.remarks.add(left_out);
        if let Some(moves) = &self.moves {
            // Of a machine that does not answer now what it was is kept while a disk of it moves.
            let before = self.last.iter().flat_map(|(_, s)| &s.volumes);
            let moved = before.filter(|v| moves.window(&v.name).is_some());
            for v in moved {
                if !snapshot.volumes.iter().any(|now| now.name == v.name) {
                    snapshot.volumes.push(VolumeSnapshot {
                        movable: false,
                        ..v.clone()
                    });
                }
            }
            moves.tell(&mut snapshot);
        }
        self.tell_limits(&mut snapshot);
        report_bounds(&mut snapshot, self.moves.is_some());
        let before = self.last.as_ref().map(|l| &l.1);
        self.yielding.look(before, &snapshot);
        self.last = Some((Instant::now(), snapshot.clone()));
        Ok(snapshot)
    }

    fn warnings(&mut self) -> Vec<String> {
        self.remarks.take()
    }

    fn look_at_extents(&mut self, _: Vec<WantedExtents>, _: &mut Snapshot) -> Result<(), String> {
        Ok(()) // nothing is known of extents
    }

    fn claim(&mut self, by: &LeaseHolder, lasting: Nanos) -> Result<LeaseStatus, String> {
        let now_ns = self.began.elapsed().as_nanos() as u64;
        let dir = self.settings.moving.as_ref().map(|m| m.dir.as_path());
        controller::claim(&mut self.lease, now_ns, (by, lasting), dir)
    }

    fn hold_to(&mut self, _: &ArrayPolicy) -> Result<(), String> {
        Ok(()) // its operators do not ask here
    }

    fn promise(&mut self, objectives: &[ClassObjective], lasting: Nanos) -> Result<(), String> {
        self.yielding.promise(objectives, lasting);
        Ok(())
    }

    fn carry_out(&mut self, action: &AgentAction) -> Result<(), ActionError> {
        let done = match action {
            AgentAction::StartMove(order) => return self.start_move(order),
            AgentAction::CancelMove { volume } => match &mut self.moves {
                Some(moves) => moves.cancel(volume),
                None => Ok(()),
            },
            AgentAction::Throttle { volume, to } => self.throttle(volume, *to),
            AgentAction::LendCache { .. } => Err("a host of virtual machines has no cache".into()),
            AgentAction::Mirror { .. } | AgentAction::StopMirror { .. } => {
                Err("a host of virtual machines does not support mirrors of extents".into())
            }
            AgentAction::UseNode { .. } | AgentAction::StopNode { .. } => {
                Err("a host of virtual machines has no cache for an L2 cache".into())
            }
            AgentAction::Inject { .. } => {
                Err("a host of virtual machines cannot delay requests".to_owned())
            }
        };
        Ok(done?)
    }

    fn end(&mut self) {
        if let Some(throttles) = &mut self.throttles {
            throttles.end_all();
        }
        self.give_limits_back();
        self.hypervisor.end();
    }
}
