//! A whole run: the request path and the management side, ten seconds at a time.

use slo::curve::Curve;
use slo::ladder::SpareOps;
use slo::load::{Backend as BackendFacts, Place, Resource};
use slo::zones::Zone;
use slo::{Knowledge, ResourceId, Responder, Site, Standing, Workload, WorkloadId};
use units::{Bytes, Nanos};

use super::backend::{ArrayModel, pool};
use super::control::Control;
use super::model::{
    CurvePair, ResponseModel, ResponseMove, ResponseResult, ResponseSeries, Uses, ZonesKnown,
};
use super::monitor::{Monitor, exact_lru};
use super::world::{Path, Wake, World};

/// Use of a resource up to which the performance model takes it to be quick.
const USE_MAX: f64 = 0.8;
/// Length of the windows that an estimated curve counts: the current one and that before it. An exact one counts the same.
const WINDOW: Nanos = Nanos::from_secs(300);
/// Cache sizes of drawn curves, in half gibibytes.
const CURVE_SIZES: u64 = 32;

pub(super) struct Known<'a> {
    pub(super) monitors: &'a [Monitor],
    pub(super) zones_known: ZonesKnown,
    pub(super) ops: Option<SpareOps>,
}

impl Knowledge for Known<'_> {
    fn curve(&self, workload: WorkloadId) -> Option<Curve> {
        self.monitors[workload.index()].curve()
    }

    fn zones(&self, workload: WorkloadId) -> Vec<Zone> {
        let ago = match self.zones_known {
            ZonesKnown::Latest => 0,
            ZonesKnown::BeforeViolation => 2,
        };
        self.monitors[workload.index()].zones(ago)
    }

    fn zones_before(&self, workload: WorkloadId) -> Vec<Zone> {
        self.monitors[workload.index()].zones(2)
    }

    fn spare_flash(&self, workload: WorkloadId) -> Option<SpareOps> {
        self.ops.filter(|o| o.workload == workload)
    }
}

/// Runs a scenario. The same model gives the same result.
pub fn respond(model: &ResponseModel) -> ResponseResult {
    let mut world = World::new(model);
    let responder = model
        .responder
        .clone()
        .map(|c| Responder::new(c, site(model)));
    let mut control = Control::new(model, responder, &mut world);
    let n = model.workloads.len();
    let mut series: Vec<ResponseSeries> = model
        .workloads
        .iter()
        .map(|w| empty(&w.name, model))
        .collect();
    let mut curves = Vec::new();
    let mut log_begins: Vec<Vec<(Nanos, usize)>> = vec![Vec::new(); n];
    if !model.curves_at.is_empty() {
        world
            .monitors
            .iter_mut()
            .for_each(|m| m.log = Some(Vec::new()));
    }
    let mut since = 0;
    loop {
        match world.run() {
            Wake::End => break,
            Wake::Control => control.wake(&mut world),
            Wake::Warmed(workload) => control.warmed(&mut world, workload),
            Wake::Sample => {
                sample(model, &mut world, &mut series, since);
                since = world.now;
                let now = Nanos(world.now);
                for (begins, monitor) in log_begins.iter_mut().zip(&world.monitors) {
                    if let Some(log) = &monitor.log {
                        begins.push((now, log.len()));
                    }
                }
                if model.curves_at.contains(&now) {
                    draw(model, &world, &series, &log_begins, &mut curves);
                }
                if model.curves_at.iter().all(|at| *at <= now) {
                    world.monitors.iter_mut().for_each(|m| m.log = None);
                }
                let samples: Vec<_> = series
                    .iter()
                    .map(|s| s.samples[s.samples.len() - 1].clone())
                    .collect();
                let known = Known {
                    monitors: &world.monitors,
                    zones_known: model.zones_known,
                    ops: model.ops,
                };
                let responder = control.responder.as_mut();
                let orders = responder
                    .map(|r| r.tell(now, &samples, &known))
                    .unwrap_or_default();
                control.order(&mut world, orders);
                control.tick(&mut world);
            }
        }
    }
    for (w, series) in series.iter_mut().enumerate() {
        series.unserved = world.waiting(w);
        series.left_out = world.left_out(w);
        let spans = model.spans.len();
        let latencies = &world.latencies[w * spans..(w + 1) * spans];
        let p99 = |h: &algo::Histogram| (h.count() > 0).then(|| h.quantile_ns(0.99) as f64 / 1e3);
        series.p99_us = latencies.iter().map(p99).collect();
    }
    let moved = |(workload, c): &(usize, super::mover::Copied)| ResponseMove {
        workload: *workload,
        objects: c.objects,
        mirrored: c.mirrored,
        again: c.again,
    };
    let away = |w: &usize| world.paths[*w] != Path::Backend;
    ResponseResult {
        series,
        events: std::mem::take(&mut control.events),
        decisions: control
            .responder
            .as_ref()
            .map(|r| r.decisions().to_vec())
            .unwrap_or_default(),
        curves,
        requests: world.requests,
        routed_away: (0..n).filter(away).collect(),
        moves: world.copies.iter().map(moved).collect(),
        stale: world.stale,
    }
}

fn empty(name: &str, model: &ResponseModel) -> ResponseSeries {
    ResponseSeries {
        name: name.into(),
        samples: Vec::new(),
        standings: Vec::new(),
        served: 0,
        unserved: 0,
        left_out: 0,
        caught_up: vec![None; model.marks.len()],
        p99_us: Vec::new(),
        zones: Vec::new(),
        curves: Vec::new(),
    }
}

fn sample(model: &ResponseModel, world: &mut World, series: &mut [ResponseSeries], since: u64) {
    let lasting = Nanos(world.now - since);
    let now = Nanos(world.now);
    for (w, series) in series.iter_mut().enumerate() {
        let promise = model.workloads[w].objective;
        let queue = world.queue(w, since, promise.objective());
        let disks = model.array.data_disks;
        let sample = world.monitors[w].sample(lasting, disks, queue);
        series.served += sample.completed();
        series.standings.push(Standing::of(&promise, &sample));
        series.samples.push(sample);
        // What has not arrived by now belongs to no mark before now.
        let next = world.next_arrival(w).unwrap_or(u64::MAX);
        for (mark, caught) in model.marks.iter().zip(&mut series.caught_up) {
            if caught.is_none() && now >= *mark && next >= mark.0 {
                *caught = Some(now);
            }
        }
        if series.samples.len().is_multiple_of(30) {
            series.zones.push((now, world.monitors[w].zones(0)));
            series.curves.push((now, world.monitors[w].curve()));
        }
    }
}

fn draw(
    model: &ResponseModel,
    world: &World,
    series: &[ResponseSeries],
    begins: &[Vec<(Nanos, usize)>],
    curves: &mut Vec<CurvePair>,
) {
    let now = Nanos(world.now);
    for (w, monitor) in world.monitors.iter().enumerate() {
        let (Some(curve), Some(log)) = (monitor.curve(), &monitor.log) else {
            continue;
        };
        let workload = &model.workloads[w];
        let window = (now.0.saturating_sub(1) / WINDOW.0).saturating_sub(1) * WINDOW.0;
        let from = begins[w].iter().find(|(at, _)| at.0 >= window);
        let sizes: Vec<Bytes> = (1..=CURVE_SIZES).map(|i| Bytes::mib(512 * i)).collect();
        let each = u64::from(workload.object_bytes) * u64::from(monitor.sampled());
        let objects: Vec<u64> = sizes.iter().map(|s| s.0 / each).collect();
        let exact = exact_lru(log, from.map_or(0, |f| f.1), &objects);
        let last = series[w].samples.last();
        let points = sizes.iter().zip(exact).map(|(s, e)| (*s, curve.at(*s), e));
        curves.push(CurvePair {
            at: now,
            workload: w,
            points: points.collect(),
            working_set: last.and_then(|s| s.working_set).unwrap_or(Bytes::ZERO),
        });
    }
}

/// What the responder knows of the scenario: nothing that it could not know in a real one.
fn site(model: &ResponseModel) -> Site {
    const DISKS: ResourceId = ResourceId(0);
    const LINK: ResourceId = ResourceId(1);
    const CONTROLLER: ResourceId = ResourceId(2);
    let workload = |w: &super::model::ResponseWorkload| Workload {
        name: w.name.clone(),
        objective: w.objective,
        host: w.host,
        attachment: w.attachment,
        stored: Bytes(u64::from(w.objects) * u64::from(w.object_bytes)),
        resources: match w.uses {
            Uses::TheGroup => vec![DISKS, LINK, CONTROLLER],
            Uses::OwnDisks => vec![CONTROLLER],
        },
        pool: pool(w.object_bytes),
    };
    Site {
        workloads: model.workloads.iter().map(workload).collect(),
        hosts: model.hosts.clone(),
        backend: backend_facts(&model.array),
        elsewhere: model.elsewhere.clone(),
    }
}

/// An array as the performance model knows it.
pub fn backend_facts(array: &ArrayModel) -> BackendFacts {
    let resource = |name: &str, place| Resource {
        name: name.into(),
        place,
    };
    BackendFacts {
        resources: vec![
            resource("disks", Place::BehindMemory),
            resource("link", Place::InFront),
        ],
        memory: array.memory.into(),
        use_max: USE_MAX,
    }
}
