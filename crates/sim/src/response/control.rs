//! The management side of a run: the responder, the life cycles of its appliances, and what carries their actions out.

use std::collections::{BTreeMap, VecDeque};

use executor::{
    ApplianceAction, ApplianceAnswer, ApplianceDeadlines, ApplianceId, ApplianceInput,
    ApplianceState, ApplianceStep, Appliances,
};
use slo::warm::Warm;
use slo::{ApplianceEvent, Responder, WorkloadId};
use units::{Bytes, Nanos};

use super::model::{ResponseEvent, ResponseFault, ResponseModel};
use super::run::Known;
use super::world::{Path, World};
use crate::answering::event_of;

mod carry;

/// What is carried out at a time.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Due {
    Created(ApplianceStep),
    Rerouted(ApplianceStep),
    ReroutingFails(ApplianceStep),
    Returned(ApplianceStep),
    Drained(ApplianceStep),
    Destroyed(ApplianceStep),
    /// The hypervisor does not do it.
    Refused(ApplianceStep),
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
    /// The attempt at warming it up, once there is one.
    warming: Option<ApplianceStep>,
    node: Option<usize>,
    destroyed: bool,
    /// What the responder heard of it last.
    reported: Option<ApplianceEvent>,
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
        // An answer that comes when something else was begun is not heard, and nothing more is to be done about it.
        let tell = |control: &mut Self, step: ApplianceStep, answer| {
            let _ = control.appliances.answer(now, step, answer);
        };
        let failed = |why: &str| ApplianceAnswer::Failed { why: why.into() };
        match due {
            Due::Created(step) => {
                if self.under_way(step) {
                    self.place(world, step.id);
                }
                tell(self, step, ApplianceAnswer::Created);
            }
            Due::Rerouted(step) => {
                if self.under_way(step) {
                    self.reroute(world, step.id);
                }
                tell(self, step, ApplianceAnswer::Rerouted);
            }
            Due::ReroutingFails(step) => {
                // The worst kind: it took place, and is said to have failed.
                self.reroute(world, step.id);
                tell(self, step, failed("no answer"));
            }
            Due::Returned(step) => {
                let w = self.wanted[step.id.0 as usize].workload;
                world.paths[w] = Path::Backend;
                world.issue(w);
                tell(self, step, ApplianceAnswer::Returned);
            }
            Due::Drained(step) => {
                let inside = |n: usize| world.nodes[n].as_ref().map_or(0, |p| p.inside);
                let node = self.wanted[step.id.0 as usize].node;
                if node.is_some_and(|n| inside(n) > 0) {
                    let at = world.now + DRAIN_LOOK_NS;
                    self.later(world, at, Due::Drained(step));
                } else {
                    tell(self, step, ApplianceAnswer::Drained);
                }
            }
            Due::Destroyed(step) => {
                self.unplace(world, step.id);
                tell(self, step, ApplianceAnswer::Destroyed);
            }
            Due::Refused(step) => tell(self, step, failed("the hypervisor refused")),
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
                    zones_known: self.model.zones_known,
                    ops: self.model.ops,
                };
                let responder = self.responder.as_mut();
                let orders = responder.map(|r| r.foresee(now, forecast, &known));
                self.order(world, orders.unwrap_or_default());
            }
        }
    }

    fn lose_hosts(&mut self, world: &mut World) {
        let now = Nanos(world.now);
        world.lost_at = world.now;
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

    fn under_way(&self, step: ApplianceStep) -> bool {
        self.appliances.get(step.id).map(|a| a.step()) == Some(step)
    }

    fn state(&self, id: ApplianceId) -> Option<ApplianceState> {
        self.appliances.get(id).map(|a| a.state.clone())
    }

    /// A warm-up has nothing left to read.
    pub(super) fn warmed(&mut self, world: &mut World, workload: usize) {
        let of = |w: &&Wanted| w.workload == workload && w.warming.is_some();
        let step = self.wanted.iter().rev().find(of).and_then(|w| w.warming);
        let answer = |step| {
            let warmed = ApplianceAnswer::Warmed;
            self.appliances.answer(Nanos(world.now), step, warmed)
        };
        if let Some(Ok(())) = step.map(answer) {
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
                ApplianceAction::Create(step) => {
                    self.creations += 1;
                    let fails = ResponseFault::CreationFails(self.creations - 1);
                    let due = if self.model.faults.contains(&fails) {
                        Due::Refused(step)
                    } else {
                        Due::Created(step)
                    };
                    (times.create, due)
                }
                ApplianceAction::Reroute(step) => {
                    self.reroutings += 1;
                    let fails = ResponseFault::ReroutingFails(self.reroutings - 1);
                    let due = if self.model.faults.contains(&fails) {
                        Due::ReroutingFails(step)
                    } else {
                        Due::Rerouted(step)
                    };
                    (times.reroute, due)
                }
                ApplianceAction::Return(step) => (times.reroute, Due::Returned(step)),
                ApplianceAction::Drain(step) => (Nanos(DRAIN_LOOK_NS), Due::Drained(step)),
                ApplianceAction::Destroy(step) => {
                    let by = Nanos(world.now) + times.destroy;
                    let due = match self.destroying_fails_until() {
                        Some(until) if by < until => Due::Refused(step),
                        _ => Due::Destroyed(step),
                    };
                    (times.destroy, due)
                }
                ApplianceAction::Warm(step) => {
                    self.wanted[step.id.0 as usize].warming = Some(step);
                    self.warm(world, step.id);
                    continue;
                }
                ApplianceAction::StopWarming(step) => {
                    world.warm(self.wanted[step.id.0 as usize].workload, None);
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
            if let Some(ApplianceEvent::LeftBehind { .. }) = self.wanted[i].reported {
                continue;
            }
            // One that is forgotten has long ended, and that was reported.
            let Some(state) = self.state(ApplianceId(i as u32)) else {
                continue;
            };
            let Some(event) = event_of(&state, self.wanted[i].destroyed) else {
                continue;
            };
            if self.wanted[i].reported.as_ref() == Some(&event) {
                continue;
            }
            let w = self.wanted[i].workload;
            let what = event.in_words(self.name(w));
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
            self.wanted[i].reported = Some(event);
        }
    }
}
