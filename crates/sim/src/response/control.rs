//! The management side of a run: the responder, the life cycles of its appliances, and what carries their actions out.

use std::collections::{BTreeMap, VecDeque};

use executor::{
    ApplianceAction, ApplianceDeadlines, ApplianceId, ApplianceInput, ApplianceKind,
    ApplianceOrder, ApplianceOutcome, ApplianceState, Appliances, WarmUp,
};
use slo::ladder::Deed;
use slo::warm::Warm;
use slo::{ApplianceEvent, Order, Responder, WorkloadId};
use units::{Bytes, Nanos, VolumeId};

use super::model::{ResponseEvent, ResponseFault, ResponseModel};
use super::nodes::{Node, Writes};
use super::world::{Path, Placed, WarmRun, World};

/// What is carried out at a time.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Due {
    Created(ApplianceId),
    CreationFails(ApplianceId),
    Rerouted(ApplianceId),
    ReroutingFails(ApplianceId),
    Returned(ApplianceId),
    Drained(ApplianceId),
    Destroyed(ApplianceId),
    HostLost,
    Forecast(usize),
}

/// What an appliance is for, as far as the driver needs it.
struct Wanted {
    workload: usize,
    host: u16,
    cache: Bytes,
    warm: Warm,
    node: Option<usize>,
    /// The last that the responder was told.
    told: Option<ApplianceEvent>,
}

pub(super) struct Control<'a> {
    model: &'a ResponseModel,
    pub(super) responder: Option<Responder>,
    appliances: Appliances,
    wanted: Vec<Wanted>,
    due: BTreeMap<(u64, u64), Due>,
    numbered: u64,
    creations: u32,
    reroutings: u32,
    pub(super) events: Vec<ResponseEvent>,
}

/// How often requests under way in an appliance are looked for while it drains.
const DRAIN_LOOK_NS: u64 = 100_000_000;

impl<'a> Control<'a> {
    pub(super) fn new(
        model: &'a ResponseModel,
        responder: Option<Responder>,
        world: &mut World,
    ) -> Self {
        let mut control = Self {
            model,
            responder,
            appliances: Appliances::new(ApplianceDeadlines::default()),
            wanted: Vec::new(),
            due: BTreeMap::new(),
            numbered: 0,
            creations: 0,
            reroutings: 0,
            events: Vec::new(),
        };
        for (i, (at, _)) in model.forecasts.iter().enumerate() {
            control.later(world, at.0, Due::Forecast(i));
        }
        for fault in &model.faults {
            if let ResponseFault::HostLost(at) = fault {
                control.later(world, at.0, Due::HostLost);
            }
        }
        control
    }

    fn later(&mut self, world: &mut World, at: u64, due: Due) {
        self.due.insert((at, self.numbered), due);
        self.numbered += 1;
        world.wake_at(at);
    }

    fn note(&mut self, world: &World, what: String) {
        let at_s = world.now as f64 / 1e9;
        self.events.push(ResponseEvent { at_s, what });
    }

    fn name(&self, workload: usize) -> &str {
        &self.model.workloads[workload].name
    }

    /// Carries out what is due.
    pub(super) fn wake(&mut self, world: &mut World) {
        while let Some((&(at, number), _)) = self.due.first_key_value() {
            if at > world.now {
                break;
            }
            let due = self.due.remove(&(at, number)).expect("it was just seen");
            self.carry_out(world, due);
            self.settle(world);
        }
    }

    /// Deadlines, after a sample.
    pub(super) fn tick(&mut self, world: &mut World) {
        self.appliances.tick(Nanos(world.now));
        self.settle(world);
    }

    fn carry_out(&mut self, world: &mut World, due: Due) {
        let now = Nanos(world.now);
        let tell =
            |control: &mut Self, id: ApplianceId, input| control.appliances.handle(now, id, input);
        let failed = |why: &str| ApplianceInput::Failed { why: why.into() };
        match due {
            Due::Created(id) => {
                self.place(world, id);
                tell(self, id, ApplianceInput::Created);
            }
            Due::CreationFails(id) => tell(self, id, failed("the hypervisor refused")),
            Due::Rerouted(id) => {
                let rerouting = self.state(id) == Some(ApplianceState::Rerouting);
                if let (true, Some(n)) = (rerouting, self.wanted[id.0 as usize].node) {
                    world.paths[self.wanted[id.0 as usize].workload] = Path::Node(n);
                }
                tell(self, id, ApplianceInput::Rerouted);
            }
            Due::ReroutingFails(id) => {
                // The worst kind: it took place, and is said to have failed.
                if let Some(n) = self.wanted[id.0 as usize].node {
                    world.paths[self.wanted[id.0 as usize].workload] = Path::Node(n);
                }
                tell(self, id, failed("no answer"));
            }
            Due::Returned(id) => {
                let w = self.wanted[id.0 as usize].workload;
                world.paths[w] = Path::Backend;
                world.issue(w);
                tell(self, id, ApplianceInput::Returned);
            }
            Due::Drained(id) => {
                let inside = |n: usize| world.nodes[n].as_ref().map_or(0, |p| p.inside);
                if self.wanted[id.0 as usize]
                    .node
                    .is_some_and(|n| inside(n) > 0)
                {
                    let at = world.now + DRAIN_LOOK_NS;
                    self.later(world, at, Due::Drained(id));
                } else {
                    tell(self, id, ApplianceInput::Drained);
                }
            }
            Due::Destroyed(id) => {
                if let Some(n) = self.wanted[id.0 as usize].node.take() {
                    world.nodes[n] = None;
                    world.nodes_of[self.wanted[id.0 as usize].workload].retain(|m| *m != n);
                }
                tell(self, id, ApplianceInput::Destroyed);
            }
            Due::HostLost => self.lose_hosts(world),
            Due::Forecast(i) => {
                let forecast = &self.model.forecasts[i].1;
                let orders = self.responder.as_mut().map(|r| r.foresee(now, forecast));
                self.order(world, orders.unwrap_or_default());
            }
        }
    }

    fn lose_hosts(&mut self, world: &mut World) {
        let now = Nanos(world.now);
        self.note(world, "the hosts of all appliances are lost".into());
        for i in 0..self.wanted.len() {
            if let Some(n) = self.wanted[i].node.take() {
                world.nodes[n] = None;
                world.nodes_of[self.wanted[i].workload].retain(|m| *m != n);
                let why = "no power".into();
                let id = ApplianceId(i as u32);
                self.appliances
                    .handle(now, id, ApplianceInput::Lost { why });
            }
        }
    }

    fn state(&self, id: ApplianceId) -> Option<ApplianceState> {
        self.appliances.get(id).map(|a| a.state.clone())
    }

    fn place(&mut self, world: &mut World, id: ApplianceId) {
        if self.state(id) != Some(ApplianceState::Creating) {
            return;
        }
        let wanted = &mut self.wanted[id.0 as usize];
        let workload = &self.model.workloads[wanted.workload];
        let appliance = &self.model.appliance;
        let node = Node::new(
            workload.objects,
            workload.object_bytes,
            wanted.cache.0,
            appliance.ssd.0,
            appliance.writes,
        );
        let hops = if wanted.host == workload.host.0 {
            0
        } else {
            2 * appliance.hop.0
        };
        let n = world.nodes.len();
        world.nodes.push(Some(Placed::new(node, hops)));
        world.nodes_of[wanted.workload].push(n);
        wanted.node = Some(n);
    }

    /// Carries the responder's orders out.
    pub(super) fn order(&mut self, world: &mut World, orders: Vec<Order>) {
        for order in orders {
            match order {
                Order::CreateAppliance {
                    workload,
                    host,
                    cpus,
                    memory,
                    cache,
                    way,
                    warm,
                } => {
                    let w = workload.index();
                    let kind = match self.model.appliance.writes {
                        Writes::Around => ApplianceKind::CacheWriteAround,
                        Writes::Through => ApplianceKind::CacheWriteThrough,
                    };
                    let text = match &warm {
                        Warm::Cold { why } => format!("cold: {why}"),
                        Warm::Zones {
                            zones, rate_per_s, ..
                        } => match rate_per_s {
                            Some(rate) => {
                                format!("warm-up of {} zones at {rate:.0}/s", zones.len())
                            }
                            None => format!("warm-up of {} zones at once", zones.len()),
                        },
                    };
                    let planned = match warm {
                        Warm::Zones { .. } => WarmUp::Planned,
                        Warm::Cold { .. } => WarmUp::None,
                    };
                    let name = self.name(w);
                    let what = format!(
                        "appliance for {name} ordered on host {}: cache {cache} of {memory}, {way}, {text}",
                        host.0
                    );
                    self.note(world, what);
                    let order = ApplianceOrder {
                        volume: VolumeId(w as u32),
                        host: host.0,
                        kind,
                        cpus,
                        memory,
                        warm: planned,
                    };
                    if let Err(taken) = self.appliances.create(Nanos(world.now), order) {
                        self.note(world, format!("refused: {taken}"));
                        continue;
                    }
                    self.wanted.push(Wanted {
                        workload: w,
                        host: host.0,
                        cache,
                        warm,
                        node: None,
                        told: None,
                    });
                }
                Order::RemoveAppliance { workload, why } => {
                    let what = format!("appliance of {} to go: {why}", self.name(workload.index()));
                    self.note(world, what);
                    let mut all = self.appliances.all().iter();
                    let open =
                        all.find(|a| !a.ended() && a.order.volume.index() == workload.index());
                    if let Some(id) = open.map(|a| a.id) {
                        let input = ApplianceInput::Remove { why };
                        self.appliances.handle(Nanos(world.now), id, input);
                    }
                }
                Order::Carry { deed } => self.deed(world, &deed),
                Order::Unthrottle { workload } => {
                    let what = format!("{} let go", self.name(workload.index()));
                    self.note(world, what);
                    world.throttle(workload.index(), None);
                }
            }
        }
        self.settle(world);
    }

    fn deed(&mut self, world: &mut World, deed: &Deed) {
        let what = match deed {
            Deed::Throttle {
                workload,
                rate_per_s,
            } => {
                world.throttle(workload.index(), Some(*rate_per_s));
                let name = self.name(workload.index());
                format!("{name} held to {rate_per_s:.0} requests/s")
            }
            other => format!("not carried out in this simulation: {other:?}"),
        };
        self.note(world, what);
    }

    /// A warm-up has nothing left to read.
    pub(super) fn warmed(&mut self, world: &mut World, workload: usize) {
        let warming = |a: &&executor::Appliance| {
            a.state == ApplianceState::Warming && a.order.volume.index() == workload
        };
        let id = self.appliances.all().iter().find(warming).map(|a| a.id);
        if let Some(id) = id {
            self.appliances
                .handle(Nanos(world.now), id, ApplianceInput::Warmed);
            self.note(world, format!("warm-up of {} done", self.name(workload)));
        }
        self.settle(world);
    }

    /// Begins what the state machines ask for, and tells the responder what became of appliances.
    fn settle(&mut self, world: &mut World) {
        let mut actions = VecDeque::new();
        while let Some(action) = self.appliances.poll_action() {
            actions.push_back(action);
        }
        let times = self.model.appliance;
        for action in actions {
            let (at, due) = match action {
                ApplianceAction::Create(id) => {
                    self.creations += 1;
                    let fails = ResponseFault::CreationFails(self.creations - 1);
                    let due = if self.model.faults.contains(&fails) {
                        Due::CreationFails(id)
                    } else {
                        Due::Created(id)
                    };
                    (times.create, due)
                }
                ApplianceAction::Reroute(id) => {
                    self.reroutings += 1;
                    let fails = ResponseFault::ReroutingFails(self.reroutings - 1);
                    let due = if self.model.faults.contains(&fails) {
                        Due::ReroutingFails(id)
                    } else {
                        Due::Rerouted(id)
                    };
                    (times.reroute, due)
                }
                ApplianceAction::Return(id) => (times.reroute, Due::Returned(id)),
                ApplianceAction::Drain(id) => (Nanos(DRAIN_LOOK_NS), Due::Drained(id)),
                ApplianceAction::Destroy(id) => (times.destroy, Due::Destroyed(id)),
                ApplianceAction::Warm(id) => {
                    self.warm(world, id);
                    continue;
                }
                ApplianceAction::StopWarming(id) => {
                    world.warm(self.wanted[id.0 as usize].workload, None);
                    continue;
                }
            };
            let at = world.now + at.0;
            self.later(world, at, due);
        }
        self.tell_responder(world);
    }

    fn warm(&mut self, world: &mut World, id: ApplianceId) {
        let wanted = &self.wanted[id.0 as usize];
        let Warm::Zones {
            zones, rate_per_s, ..
        } = &wanted.warm
        else {
            return;
        };
        let objects = self.model.workloads[wanted.workload].objects;
        let each = world.monitors[wanted.workload].zone_objects();
        let zone = |z: &u64| {
            let first = (*z as u32).saturating_mul(each).min(objects);
            (first, each.min(objects - first))
        };
        let mut zones: Vec<(u32, u32)> = zones.iter().map(zone).filter(|z| z.1 > 0).collect();
        // The last is taken first.
        zones.reverse();
        let gap_ns = rate_per_s.map_or(0, |r| (1e9 / r.max(0.001)) as u64);
        world.warm(wanted.workload, Some(WarmRun { zones, gap_ns }));
    }

    fn tell_responder(&mut self, world: &World) {
        let now = Nanos(world.now);
        for i in 0..self.wanted.len() {
            let state = self.appliances.all()[i].state.clone();
            let event = match state {
                ApplianceState::Warming | ApplianceState::Serving => ApplianceEvent::Serving,
                ApplianceState::Ended { outcome, .. } => match outcome {
                    ApplianceOutcome::Failed { why } => ApplianceEvent::Failed { why },
                    ApplianceOutcome::Removed { .. } => ApplianceEvent::Removed,
                },
                ApplianceState::Returning | ApplianceState::Draining | ApplianceState::Removing => {
                    ApplianceEvent::Returning
                }
                ApplianceState::Stranded => ApplianceEvent::Stranded,
                ApplianceState::Creating | ApplianceState::Rerouting => continue,
            };
            if self.wanted[i].told.as_ref() == Some(&event) {
                continue;
            }
            let w = self.wanted[i].workload;
            let name = self.name(w);
            let what = match &event {
                ApplianceEvent::Serving => Some(format!("{name} goes through its appliance")),
                // What began it was noted.
                ApplianceEvent::Returning => None,
                ApplianceEvent::Stranded => Some(format!("appliance of {name} is stranded")),
                ApplianceEvent::Failed { why } => {
                    Some(format!("appliance of {name} failed: {why}"))
                }
                ApplianceEvent::Removed => Some(format!("appliance of {name} is gone")),
            };
            if let Some(what) = what {
                self.note(world, what);
            }
            if let Some(responder) = &mut self.responder {
                responder.appliance(now, WorkloadId(w as u16), &event);
            }
            self.wanted[i].told = Some(event);
        }
    }
}
