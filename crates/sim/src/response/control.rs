//! The management side of a run: the responder, the life cycles of its appliances, and what carries their actions out.

use std::collections::{BTreeMap, VecDeque};

use executor::{
    ApplianceAction, ApplianceDeadlines, ApplianceId, ApplianceInput, ApplianceOutcome,
    ApplianceState, Appliances,
};
use slo::warm::Warm;
use slo::{ApplianceEvent, Responder, WorkloadId};
use units::{Bytes, Nanos};

use super::model::{ResponseEvent, ResponseFault, ResponseModel};
use super::nodes::Node;
use super::run::Known;
use super::world::{Path, Placed, World};

mod carry;

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
    DestroyingFails(ApplianceId),
    /// What was left behind is gone after all.
    Freed(ApplianceId),
    /// The spare flash has its effect for a workload.
    OpsHelp(usize),
    /// A piece of a workload's copy is on the other backend.
    Piece(usize),
    MovesFail,
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
    destroyed: bool,
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
            match fault {
                ResponseFault::HostLost(at) => control.later(world, at.0, Due::HostLost),
                ResponseFault::MoveFails(at) => control.later(world, at.0, Due::MovesFail),
                _ => {}
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
                self.unplace(world, id);
                tell(self, id, ApplianceInput::Destroyed);
            }
            Due::DestroyingFails(id) => tell(self, id, failed("the hypervisor refused")),
            Due::Freed(id) => {
                self.unplace(world, id);
                let w = self.wanted[id.0 as usize].workload;
                let what = format!("what was left of the appliance of {} is gone", self.name(w));
                self.note(world, what);
                if let Some(responder) = &mut self.responder {
                    responder.freed(WorkloadId(w as u16));
                }
            }
            Due::OpsHelp(w) => self.ops_help(world, w),
            Due::Piece(w) => self.piece(world, w),
            Due::MovesFail => self.moves_fail(world),
            Due::HostLost => self.lose_hosts(world),
            Due::Forecast(i) => {
                let forecast = &self.model.forecasts[i].1;
                let known = Known {
                    monitors: &world.monitors,
                    told: self.model.zones_told,
                };
                let responder = self.responder.as_mut();
                let orders = responder.map(|r| r.foresee(now, forecast, &known));
                self.order(world, orders.unwrap_or_default());
            }
        }
    }

    fn unplace(&mut self, world: &mut World, id: ApplianceId) {
        let wanted = &mut self.wanted[id.0 as usize];
        wanted.destroyed = true;
        if let Some(n) = wanted.node.take() {
            world.nodes[n] = None;
            world.nodes_of[wanted.workload].retain(|m| *m != n);
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
        world
            .nodes
            .push(Some(Placed::new(node, hops, workload.objects)));
        world.nodes_of[wanted.workload].push(n);
        wanted.node = Some(n);
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
                ApplianceAction::Destroy(id) => {
                    let by = Nanos(world.now) + times.destroy;
                    let due = match self.destroying_fails_until() {
                        Some(until) if by < until => Due::DestroyingFails(id),
                        _ => Due::Destroyed(id),
                    };
                    (times.destroy, due)
                }
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

    fn destroying_fails_until(&self) -> Option<Nanos> {
        let mut faults = self.model.faults.iter();
        faults.find_map(|f| match f {
            ResponseFault::DestroyingFailsUntil(until) => Some(*until),
            _ => None,
        })
    }

    fn tell_responder(&mut self, world: &mut World) {
        let now = Nanos(world.now);
        for i in 0..self.wanted.len() {
            // The last word about it, also when it is gone after all.
            if let Some(ApplianceEvent::LeftBehind { .. }) = self.wanted[i].told {
                continue;
            }
            // One that is forgotten has long ended, and that was told.
            let Some(state) = self.state(ApplianceId(i as u32)) else {
                continue;
            };
            let event = match state {
                ApplianceState::Warming | ApplianceState::Serving => ApplianceEvent::Serving,
                ApplianceState::Ended { outcome, .. } => match outcome {
                    ApplianceOutcome::Failed { why } if !self.wanted[i].destroyed => {
                        ApplianceEvent::LeftBehind { why }
                    }
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
                ApplianceEvent::LeftBehind { why } => {
                    Some(format!("appliance of {name} is left behind: {why}"))
                }
                ApplianceEvent::Removed => Some(format!("appliance of {name} is gone")),
            };
            if let Some(what) = what {
                self.note(world, what);
            }
            if let Some(responder) = &mut self.responder {
                responder.appliance(now, WorkloadId(w as u16), &event);
            }
            if let (ApplianceEvent::LeftBehind { .. }, Some(until)) =
                (&event, self.destroying_fails_until())
            {
                let at = until.0.max(world.now);
                self.later(world, at, Due::Freed(ApplianceId(i as u32)));
            }
            self.wanted[i].told = Some(event);
        }
    }
}
