//! Orders, carried out: appliances are begun and removed, other answers done and taken back.

use executor::{ApplianceId, ApplianceInput, ApplianceKind, ApplianceOrder, WarmUp};
use slo::ladder::{OPS_EFFECT, RungAction};
use slo::warm::Warm;
use slo::{MoveEvent, ResponseOrder, WorkloadId};
use units::{Bytes, Nanos, VolumeId};

use super::{Control, Due, Wanted, World};
use crate::response::keeps::FillBudget;
use crate::response::mover::PIECE;
use crate::response::nodes::{Node, Writes};
use crate::response::world::{Path, Placed, WarmRun};

impl Control<'_> {
    /// Carries the responder's orders out.
    pub(in crate::response) fn order(&mut self, world: &mut World, orders: Vec<ResponseOrder>) {
        for order in orders {
            match order {
                ResponseOrder::CreateAppliance {
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
                    let text = warm.in_words();
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
                        warming: None,
                        node: None,
                        destroyed: false,
                        reported: None,
                    });
                }
                ResponseOrder::RemoveAppliance { workload, why } => {
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
                ResponseOrder::Carry { action } => self.act_on(world, &action),
                ResponseOrder::TakeBack { action } => self.take_back(world, &action),
                ResponseOrder::Unthrottle { workload } => self.unthrottle(world, workload.index()),
            }
        }
        self.settle(world);
    }

    pub(super) fn place(&mut self, world: &mut World, id: ApplianceId) {
        let wanted = &mut self.wanted[id.0 as usize];
        let workload = &self.model.workloads[wanted.workload];
        let appliance = &self.model.appliance;
        let node = Node::new(
            workload.objects,
            workload.object_bytes,
            appliance.keeps.holds(wanted.cache),
            appliance.keeps.holds(appliance.ssd),
            appliance.writes,
        );
        let hops = if wanted.host == workload.host.0 {
            0
        } else {
            2 * appliance.hop.0
        };
        let budget = FillBudget::new(appliance.fill_max, world.now);
        let n = world.nodes.len();
        world
            .nodes
            .push(Some(Placed::new(node, hops, budget, workload.objects)));
        world.nodes_of[wanted.workload].push(n);
        wanted.node = Some(n);
    }

    /// Requests of its volume go through it, if it is there.
    pub(super) fn reroute(&mut self, world: &mut World, id: ApplianceId) {
        let wanted = &self.wanted[id.0 as usize];
        if let Some(n) = wanted.node {
            world.paths[wanted.workload] = Path::Node(n);
        }
    }

    pub(super) fn unplace(&mut self, world: &mut World, id: ApplianceId) {
        let wanted = &mut self.wanted[id.0 as usize];
        wanted.destroyed = true;
        if let Some(n) = wanted.node.take() {
            world.nodes[n] = None;
            world.nodes_of[wanted.workload].retain(|m| *m != n);
        }
    }

    pub(super) fn warm(&mut self, world: &mut World, id: ApplianceId) {
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
        let gap = |rate: f64| (1e9 / rate.max(0.001)) as u64;
        let bytes = f64::from(self.model.workloads[wanted.workload].object_bytes);
        // It reads no faster than the appliance takes in.
        let filled = self.model.appliance.fill_max.map(|r| r.0 as f64 / bytes);
        let gap_ns = rate_per_s.map_or(0, gap).max(filled.map_or(0, gap));
        world.warm(wanted.workload, Some(WarmRun { zones, gap_ns }));
    }

    fn act_on(&mut self, world: &mut World, action: &RungAction) {
        let what = match action {
            RungAction::Throttle {
                workload,
                rate_per_s,
            } => {
                world.throttle(workload.index(), Some(*rate_per_s));
                let name = self.name(workload.index());
                format!("{name} held to {rate_per_s:.0} requests/s")
            }
            RungAction::GiveMemory { workload, size } => {
                world.give_memory(workload.index(), *size);
                let name = self.name(workload.index());
                format!("{name} given {size} of the array's memory")
            }
            RungAction::GiveOps { workload, .. } => {
                let at = world.now + OPS_EFFECT.0;
                self.later(world, at, Due::OpsHelp(workload.index()));
                format!("{} given the spare flash", self.name(workload.index()))
            }
            RungAction::Move { workload, to } => {
                let w = workload.index();
                world.begin_copy(w);
                self.piece(world, w);
                let model = &self.model.workloads[w];
                let stored = Bytes(u64::from(model.objects) * u64::from(model.object_bytes));
                format!("{} is being copied to {to}: {stored}", self.name(w))
            }
            RungAction::Mirror(_) | RungAction::ToDevice(_) => {
                unreachable!("there is one array of one device")
            }
            RungAction::Appliance { .. } => unreachable!("an appliance has an order of its own"),
        };
        self.note(world, what);
    }

    fn take_back(&mut self, world: &mut World, action: &RungAction) {
        let what = match action {
            RungAction::GiveMemory { workload, size } => {
                world.take_memory_back(workload.index());
                let name = self.name(workload.index());
                format!("{name} gives {size} of the array's memory back")
            }
            RungAction::GiveOps { workload, .. } => {
                let w = workload.index();
                self.due.retain(|_, due| *due != Due::OpsHelp(w));
                // At once, though garbage collection would take its time for this, too: the worst case.
                if let Some(ops) = self.model.ops {
                    world.set_waf(w, ops.waf);
                }
                format!("{} gives the spare flash back", self.name(w))
            }
            RungAction::Throttle { workload, .. } => {
                return self.unthrottle(world, workload.index());
            }
            RungAction::Move { .. }
            | RungAction::ToDevice(_)
            | RungAction::Mirror(_)
            | RungAction::Appliance { .. } => {
                unreachable!("moves stay, nothing has a second copy, appliances are removed")
            }
        };
        self.note(world, what);
    }

    fn unthrottle(&mut self, world: &mut World, w: usize) {
        self.note(world, format!("{} let go", self.name(w)));
        world.throttle(w, None);
    }

    /// Garbage collection has worked through the old blocks.
    pub(super) fn ops_help(&mut self, world: &mut World, w: usize) {
        let Some(ops) = self.model.ops else {
            return;
        };
        world.set_waf(w, ops.waf_with_spare);
        let (name, before, after) = (self.name(w), ops.waf, ops.waf_with_spare);
        let what = format!("flash writes {after:.1} instead of {before:.1} times what {name} does");
        self.note(world, what);
    }

    /// The next piece of a copy, no sooner than the copy's rate allows.
    pub(super) fn piece(&mut self, world: &mut World, w: usize) {
        let Some(elsewhere) = self.model.elsewhere.as_ref() else {
            return;
        };
        if !world.is_copying(w) {
            return;
        }
        if let Some(written) = world.copy_piece(w) {
            let piece = Bytes(u64::from(PIECE) * u64::from(self.model.workloads[w].object_bytes));
            let paced = world.now + elsewhere.copy_rate.time_for(piece).0;
            self.later(world, written.max(paced), Due::Piece(w));
            return;
        }
        let name = self.name(w);
        let what = match world.copies.last() {
            Some((_, c)) => format!(
                "{name} is on {}: {} objects copied, {} of them twice",
                elsewhere.name,
                c.objects - c.again,
                c.again
            ),
            None => return,
        };
        self.note(world, what);
        self.tell_moved(world, w, &MoveEvent::Done);
    }

    pub(super) fn moves_fail(&mut self, world: &mut World) {
        for w in 0..self.model.workloads.len() {
            if world.is_copying(w) {
                world.give_up_copy(w);
                let why = String::from("the other backend is full");
                self.note(world, format!("the copy of {} failed: {why}", self.name(w)));
                self.tell_moved(world, w, &MoveEvent::Failed { why });
            }
        }
    }

    fn tell_moved(&mut self, world: &mut World, w: usize, event: &MoveEvent) {
        let (now, workload) = (Nanos(world.now), WorkloadId(w as u16));
        let responder = self.responder.as_mut();
        let orders = responder.map(|r| r.moved(now, workload, event));
        self.order(world, orders.unwrap_or_default());
    }
}
