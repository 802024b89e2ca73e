//! Host of virtual machines over any [`Hypervisor`]: snapshots, moves and throttles. Moves require a directory for
//! their intents.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use manager::agent::{ActionError, AgentAction, Snapshot, VolumeSnapshot, WantedExtents};
use manager::wire::{ArrayPolicy, Bound, HandMove, MoveOrder, Throttle};
use model::{ClassObjective, LeaseHolder, LeaseStatus};
use units::Nanos;
use vmhost::{Disk, Domain, Image, ImageLocation, Inventory, Limits, Place, builds};
use volume::Lease;

use crate::controller;
use crate::error::{AgentError, Result};
use crate::host::Host;
use crate::moves::{DiskMove, MoveOperations, Moves};
use crate::places::{self, MoveSettings, TierOf, check_room, target_in};
use crate::throttles::Throttles;
use crate::yielding::GuestSlack;

/// Shortest time between two looks during a move.
const LOOKS_APART: Duration = Duration::from_millis(900);

/// Largest length of a warning in characters, and largest number of different warnings. Their texts may come from
/// guests.
const REMARK_MAX: usize = 500;
const REMARKS_MAX: usize = 10_000;

/// Settings of a host of virtual machines.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MachinesSettings {
    /// Tiers, high end first.
    pub tiers: Vec<TierOf>,
    /// Classes by patterns of volume names, in which `*` matches any characters. The first match applies.
    pub classes: Vec<(String, String)>,
    /// Settings of moves; without them moves are only recommended.
    pub moving: Option<MoveSettings>,
}

/// Limits of disks by name, or the reason for which the limits of a disk are unknown.
pub(crate) type AllLimits = BTreeMap<String, Result<Limits>>;

/// Disk to be copied, with its old and new image.
pub(crate) struct DiskCopy<'a> {
    pub domain: &'a Domain,
    pub disk: &'a Disk,
    pub from: &'a Image,
    pub to: &'a Image,
}

/// Access to the virtual machines of a host: state, moves and limits.
pub(crate) trait Hypervisor: Send {
    /// Name in messages to operators, such as "libvirt".
    fn called(&self) -> &'static str;

    /// Reads the present state of the machines. Returns warnings for the operator.
    ///
    /// # Errors
    /// The hypervisor does not answer; the error has the reason.
    fn look(&mut self) -> Result<Vec<String>>;

    /// Reads the data that moves need, before the first look. Returns warnings for the operator.
    fn prepare(&mut self) -> Vec<String>;

    /// Returns the state of the last look.
    fn inventory<'a>(&'a self, tiers: &'a [String], places: &'a [Place]) -> Inventory<'a>;

    /// Returns the directory of a pool.
    ///
    /// # Errors
    /// The pool has no directory, or does not exist.
    fn path_of_pool(&self, name: &str) -> Result<String>;

    /// Discards all data of a domain. The next look reads everything that decides whether its disks may move.
    fn forget(&mut self, domain: &str);

    /// Checks that the target of a copy may be used.
    ///
    /// # Errors
    /// The reason against the target.
    fn check_target(&self, copied: &DiskCopy<'_>) -> Result<()>;

    /// Prepares for steps of moves. It discards the data of the domains that move.
    fn moves_go_on(&mut self, _: &Moves) {}

    /// Returns the operations for moves.
    fn operations(&mut self) -> Box<dyn MoveOperations + '_>;

    /// Returns the limits of a running domain's disks, by name.
    ///
    /// # Errors
    /// The limits cannot be read; the error has the reason.
    fn limits(&mut self, domain: &Domain) -> Result<AllLimits>;

    /// Returns the life of a domain's process now; `None` if it does not run, or cannot be seen.
    fn life(&mut self, domain: &Domain) -> Option<u32>;

    /// Replaces the limits of a disk.
    ///
    /// # Errors
    /// The limits were not set, or may not be set; the error has the reason.
    fn limit(&mut self, domain: &Domain, target: &str, to: &Limits) -> Result<()>;

    /// Removes the temporary settings of this agent.
    fn end(&mut self) {}
}

/// Returns the error of an agent that cannot limit disks.
pub(crate) fn no_limits() -> AgentError {
    AgentError::Unsupported(
        "this agent cannot change limits: it has no directory to record the old limits".into(),
    )
}

/// Warnings for the operator. Each text is reported once.
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

    /// Returns the warnings that were not returned before.
    pub(crate) fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.new)
    }
}

/// Reports the reason for which each disk of a virtual machine stays in place: a move in progress, or an agent that
/// makes no moves.
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

/// Host of virtual machines over a hypervisor.
pub(crate) struct Machines<H> {
    hypervisor: H,
    settings: MachinesSettings,
    tiers: Vec<String>,
    places: Vec<Place>,
    remarks: Remarks,
    moves: Option<Moves>,
    throttles: Option<Throttles>,
    yielding: GuestSlack,
    lease: Lease,
    last: Option<(Instant, Snapshot)>,
    began: Instant,
}

impl<H: Hypervisor> Machines<H> {
    /// Creates the host. It sends no queries yet.
    pub(crate) fn new(hypervisor: H, settings: MachinesSettings) -> Self {
        Self {
            hypervisor,
            tiers: settings.tiers.iter().map(|t| t.name.clone()).collect(),
            settings,
            places: vec![],
            remarks: Remarks::default(),
            moves: None,
            throttles: None,
            yielding: GuestSlack::default(),
            lease: Lease::default(),
            last: None,
            began: Instant::now(),
        }
    }

    /// Reads the present state of the machines.
    fn look(&mut self) -> Result<()> {
        let warnings = self.hypervisor.look()?;
        self.remarks.add(warnings);
        Ok(())
    }

    /// Reads the present state of the tiers' places.
    ///
    /// # Errors
    /// A place that was never available.
    fn look_at_places(&mut self) -> Result<()> {
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

    /// Advances the moves.
    fn go_on(&mut self) {
        let Some(moves) = &mut self.moves else {
            return;
        };
        self.hypervisor.moves_go_on(moves);
        let now_ns = self.began.elapsed().as_nanos() as u64;
        moves.beat(&mut *self.hypervisor.operations(), &self.yielding, now_ns);
    }

    fn throttle(&mut self, volume: &str, to: Option<Throttle>) -> Result<()> {
        let Some(throttles) = &mut self.throttles else {
            return Err(no_limits());
        };
        let Some(to) = to else {
            throttles.end(volume)?;
            self.give_limits_back();
            return Ok(());
        };
        let inventory = self.hypervisor.inventory(&self.tiers, &self.places);
        let (known, disk) = inventory
            .disk_of(volume)
            .ok_or_else(|| AgentError::Changed("no running domain has this disk".into()))?;
        let build = known.build.as_ref();
        let build = build.map_err(|why| AgentError::Unknown(why.to_string()))?;
        builds::check_limits(build).map_err(|why| AgentError::Unsupported(why.to_string()))?;
        let (domain, disk) = (known.domain.clone(), disk.clone());
        throttles.begin(&mut self.hypervisor, (&domain, &disk), volume, to)
    }

    /// Restores limits whose throttles have expired.
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

    /// Checks an order against the present state. Returns the disk to move and its target.
    fn plan(&self, order: &MoveOrder) -> Result<DiskMove, ActionError> {
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
        let is_old = matches!(
            to.at,
            ImageLocation::Nbd { .. } | ImageLocation::Block { .. }
        );
        if is_old && self.moves.as_ref().is_some_and(|m| m.knows(&to.at)) {
            return Err(format!("{} still belongs to an earlier move", place.name).into());
        }
        let (sizes, rate) = ((capacity, physical), order.rate_bytes_per_s);
        check_room(tiers, place, &target, sizes, rate)?;
        let copied = DiskCopy {
            domain,
            disk,
            from: &from,
            to,
        };
        self.hypervisor.check_target(&copied)?;
        Ok(DiskMove {
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

    fn snapshot(&mut self) -> Result<Snapshot> {
        if let Some(moving) = &self.settings.moving
            && self.moves.is_none()
        {
            let moves = Moves::open(&moving.dir, moving.keep_source)?;
            self.throttles = Some(Throttles::open(&moving.dir)?);
            let now_ns = self.began.elapsed().as_nanos() as u64;
            self.lease = controller::read(&moving.dir, now_ns)?;
            self.moves = Some(moves);
        }
        // During a move the agent takes snapshots more often than the state is read.
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
        // Advance the moves first, including moves that an earlier agent began.
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
            // Keep the last state of a machine that does not answer while one of its disks moves.
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

    fn look_at_extents(&mut self, _: Vec<WantedExtents>, _: &mut Snapshot) -> Result<()> {
        Ok(()) // hypervisors report no extents
    }

    fn claim(&mut self, by: &LeaseHolder, lasting: Nanos) -> Result<LeaseStatus> {
        let now_ns = self.began.elapsed().as_nanos() as u64;
        let dir = self.settings.moving.as_ref().map(|m| m.dir.as_path());
        controller::claim(&mut self.lease, now_ns, (by, lasting), dir)
    }

    fn hold_to(&mut self, _: &ArrayPolicy) -> Result<()> {
        Ok(()) // operators send no orders to a hypervisor through this agent
    }

    fn promise(&mut self, objectives: &[ClassObjective], lasting: Nanos) -> Result<()> {
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
            AgentAction::LendCache { .. } => {
                return Err("a host of virtual machines has no cache".into());
            }
            AgentAction::Mirror { .. } | AgentAction::StopMirror { .. } => {
                return Err(
                    "a host of virtual machines does not support mirrors of extents".into(),
                );
            }
            AgentAction::UseNode { .. } | AgentAction::StopNode { .. } => {
                return Err("a host of virtual machines has no cache for an L2 cache".into());
            }
            AgentAction::Inject { .. } => {
                return Err("a host of virtual machines cannot delay requests".into());
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
