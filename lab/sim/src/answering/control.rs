//! Appliances and cache partitions that the controller orders. The state machines of `executor`, which an agent drives,
//! create appliances, route volumes through them, warm them up and remove them.

use std::collections::{BTreeMap, VecDeque};

use cache::WriteMode;
use config::scenario::ResponseConfig;
use executor::{
    ApplianceAction, ApplianceAnswer, ApplianceDeadlines, ApplianceId, ApplianceInput,
    ApplianceKind, ApplianceOutcome, ApplianceState, ApplianceStep, Appliances, WarmUp,
};
use manager::wire::{ApplianceOrder, ApplianceWindow, Remedies};
use model::Op;
use slo::warm::Warm;
use slo::{ApplianceEvent, ObjectiveRelation, WorkloadId};
use units::{Bytes, Nanos, VolumeId};

use super::promise;
use crate::Model;
use crate::agenda::{Agenda, Event};
use crate::engine::Simulation;
use crate::host::HOST;
use crate::result::{ApplianceRecord, RateRecord, RemedyRecord, ResponseSummary};
use crate::source::Issue;
use crate::world::{RequestResult, World};

/// Interval at which a draining appliance is checked for outstanding requests.
const DRAIN_LOOK_NS: u64 = 100_000_000;

/// Scheduled action.
#[derive(Debug, Clone, Copy, PartialEq)]
enum ScheduledAction {
    Created(ApplianceStep),
    Rerouted(ApplianceStep),
    /// The rerouting takes place but is reported as failed. This is the most difficult kind of failure.
    ReroutingFails(ApplianceStep),
    Returned(ApplianceStep),
    Drained(ApplianceStep),
    Destroyed(ApplianceStep),
    Refused(ApplianceStep),
    /// An appliance that was left behind is destroyed. The number is its index among the ordered appliances.
    Freed(usize),
    HostsLost,
}

/// Ordered appliance.
struct OrderedAppliance {
    order: ApplianceOrder,
    id: ApplianceId,
    volume: usize,
    server: u16,
    /// Number of the appliance on its server while it runs.
    up: Option<u32>,
    destroyed: bool,
    /// Last event of the appliance.
    event: Option<ApplianceEvent>,
    /// True if the controller has confirmed that it knows the end.
    forgotten: bool,
    record: ApplianceRecord,
}

/// Base of the random streams for reads of warm-ups: one stream per warm-up, separate from those of sources.
const WARM_READS: u64 = 0xAA_0000;

/// Warm-up in progress.
struct WarmRun {
    appliance: u32,
    volume: u32,
    /// Pages still to be read, in reverse order.
    pages: Vec<std::ops::Range<u32>>,
    /// Number of pages per read.
    pages_at_once: u32,
    gap_ns: u64,
    /// Completion times of outstanding reads, if they are known.
    done_ns: VecDeque<u64>,
    /// Number of outstanding reads with unknown completion times.
    on_their_way: usize,
    /// True if the warm-up continues when one of those reads completes.
    waits: bool,
    step: ApplianceStep,
}

/// State of the array's agent for remedies.
pub(crate) struct Control<'a> {
    model: &'a Model,
    config: &'a ResponseConfig,
    machines: Appliances,
    ordered: Vec<OrderedAppliance>,
    /// Scheduled actions, past and future, by the number of their event.
    due: Vec<ScheduledAction>,
    creations: u32,
    reroutings: u32,
    warming: Vec<Option<WarmRun>>,
    /// Partition of the cache, by volume.
    parts: BTreeMap<usize, u64>,
    /// Volumes with a new route, whose waiting requests continue.
    freed: Vec<usize>,
    /// Volumes with a guaranteed rate: volume, rate, and number of windows below the rate.
    rates: Vec<(usize, f64, u64)>,
}

impl<'a> Control<'a> {
    pub(crate) fn new(model: &'a Model, agenda: &mut Agenda) -> Option<Self> {
        let config = &**model.remedies.as_ref()?;
        let mut control = Self {
            model,
            config,
            machines: Appliances::new(ApplianceDeadlines::default()),
            ordered: Vec::new(),
            due: Vec::new(),
            creations: 0,
            reroutings: 0,
            warming: Vec::new(),
            parts: BTreeMap::new(),
            freed: Vec::new(),
            rates: rates(model, config),
        };
        for at in &config.failures.hosts_lost {
            control.later(agenda, at.0, ScheduledAction::HostsLost);
        }
        Some(control)
    }

    fn later(&mut self, agenda: &mut Agenda, at_ns: u64, due: ScheduledAction) {
        agenda.at(at_ns, Event::Answer(self.due.len() as u32));
        self.due.push(due);
    }

    /// Starts the ordered remedies and ends all others.
    fn obey(&mut self, world: &mut World, agenda: &mut Agenda, now_ns: u64, remedies: &Remedies) {
        self.share_cache(world, remedies);
        self.share_flash(world, remedies);
        let now = Nanos(now_ns);
        for i in 0..self.ordered.len() {
            let id = self.ordered[i].order.id;
            if remedies.appliances_taken.contains(&id) {
                self.ordered[i].forgotten = true;
            } else if remedies.appliances.iter().all(|a| a.id != id) {
                let why = "the controller withdrew the order".into();
                self.machines
                    .handle(now, self.ordered[i].id, ApplianceInput::Remove { why });
            }
        }
        for order in &remedies.appliances {
            if self.ordered.iter().all(|o| o.order.id != order.id) {
                self.create(now_ns, order);
            }
        }
        self.settle(agenda, now_ns);
    }

    fn share_cache(&mut self, world: &mut World, remedies: &Remedies) {
        let Some(cache) = &mut world.cache else {
            return;
        };
        let volume = |name: &str| self.model.volumes.iter().position(|v| v.name == name);
        let wanted: BTreeMap<usize, u64> = remedies
            .cache_shares
            .iter()
            .filter_map(|s| Some((volume(&s.volume)?, s.bytes)))
            .collect();
        for v in self.parts.keys().filter(|v| !wanted.contains_key(v)) {
            cache.take_part_back(*v);
        }
        for (v, bytes) in wanted.iter().filter(|(v, b)| self.parts.get(v) != Some(b)) {
            cache.give_part(*v, Bytes(*bytes));
        }
        self.parts = wanted;
    }

    /// Gives the spare over-provisioned space of each drive to the tenants of those ordered volumes that are on the
    /// drive.
    fn share_flash(&self, world: &mut World, remedies: &Remedies) {
        let named = |v: &usize| {
            remedies
                .over_provisioned
                .contains(&self.model.volumes[*v].name)
        };
        let having: Vec<usize> = (0..self.model.volumes.len()).filter(named).collect();
        for (d, device) in world.devices.iter_mut().enumerate() {
            let Some(flash) = device.flash().filter(|f| f.is_isolated()) else {
                continue;
            };
            let mut has = vec![false; flash.tenants()];
            let here = |v: &&usize| match world.maps[**v].holders() {
                [(on, _)] => on.index() == d,
                _ => false,
            };
            for v in having.iter().filter(here) {
                if let Some(tenant) = flash.tenant_number(*v) {
                    has[tenant] = true;
                }
            }
            flash.give_spare(&has).expect("shares were checked");
        }
    }

    fn create(&mut self, now_ns: u64, order: &ApplianceOrder) {
        let volumes = &self.model.volumes;
        let volume = volumes.iter().position(|v| v.name == order.volume);
        let servers = self.model.servers.as_ref().map_or(&[][..], |s| &s.names);
        let server = servers.iter().position(|s| *s == order.server);
        let (Some(volume), Some(server)) = (volume, server) else {
            unreachable!("the controller knows what it was sent");
        };
        let words = executor::ApplianceOrder {
            volume: VolumeId::from_index(volume),
            host: server as u16,
            kind: match self.config.appliance.writes {
                WriteMode::WriteThrough => ApplianceKind::CacheWriteThrough,
                _ => ApplianceKind::CacheWriteAround,
            },
            cpus: order.cpus,
            memory: Bytes(order.memory_bytes),
            warm: match order.warm {
                Warm::Zones { .. } => WarmUp::Planned,
                Warm::Cold { .. } => WarmUp::None,
            },
        };
        // The name is in use, because the previous appliance still exists. The next orders try again.
        let Ok(id) = self.machines.create(Nanos(now_ns), words) else {
            return;
        };
        self.ordered.push(OrderedAppliance {
            order: order.clone(),
            id,
            volume,
            server: server as u16,
            up: None,
            destroyed: false,
            event: None,
            forgotten: false,
            record: ApplianceRecord {
                volume: order.volume.clone(),
                host: order.server.clone(),
                cache_bytes: order.cache_bytes,
                ordered_s: Nanos(now_ns).as_secs_f64(),
                serving_s: None,
                ended_s: None,
                outcome: None,
                read_hits: 0,
                read_misses: 0,
            },
        });
    }

    fn of(&mut self, id: ApplianceId) -> &mut OrderedAppliance {
        let of = self.ordered.iter_mut().find(|o| o.id == id);
        of.expect("it was ordered")
    }

    fn under_way(&self, step: ApplianceStep) -> bool {
        self.machines.get(step.id).map(|a| a.step()) == Some(step)
    }

    /// Executes a scheduled action and starts the actions that follow from it.
    fn wake(&mut self, world: &mut World, agenda: &mut Agenda, now_ns: u64, number: u32) {
        let due = self.due[number as usize];
        self.carry_out(world, agenda, now_ns, due);
        self.settle(agenda, now_ns);
    }

    fn carry_out(
        &mut self,
        world: &mut World,
        agenda: &mut Agenda,
        now_ns: u64,
        due: ScheduledAction,
    ) {
        let failed = |why: &str| ApplianceAnswer::Failed { why: why.into() };
        let (step, answer) = match due {
            ScheduledAction::Created(step) => {
                if self.under_way(step) {
                    self.start(world, now_ns, step.id);
                }
                (step, ApplianceAnswer::Created)
            }
            ScheduledAction::Rerouted(step) => {
                if self.under_way(step) {
                    self.route(world, step.id);
                }
                (step, ApplianceAnswer::Rerouted)
            }
            ScheduledAction::ReroutingFails(step) => {
                self.route(world, step.id);
                (step, failed("the host did not reply"))
            }
            ScheduledAction::Returned(step) => {
                let volume = self.of(step.id).volume;
                world.servers_mut().route(volume, None);
                self.freed.push(volume);
                (step, ApplianceAnswer::Returned)
            }
            ScheduledAction::Drained(step) => {
                let up = self.of(step.id).up;
                let appliance = up.and_then(|n| world.servers_mut().appliance(n));
                let on_their_way = appliance.is_some_and(|a| a.inside > 0);
                let until = match on_their_way {
                    true => u64::MAX,
                    false => appliance.map_or(0, |a| a.busy_until_ns),
                };
                if until > now_ns {
                    let at_ns = until.min(now_ns + DRAIN_LOOK_NS).max(now_ns + 1);
                    return self.later(agenda, at_ns, ScheduledAction::Drained(step));
                }
                (step, ApplianceAnswer::Drained)
            }
            ScheduledAction::Destroyed(step) => {
                self.of(step.id).destroyed = true;
                self.stop(world, step.id);
                (step, ApplianceAnswer::Destroyed)
            }
            ScheduledAction::Refused(step) => (step, failed("the hypervisor rejected the request")),
            ScheduledAction::Freed(i) => {
                let id = self.ordered[i].id;
                self.ordered[i].destroyed = true;
                return self.stop(world, id);
            }
            ScheduledAction::HostsLost => {
                for i in 0..self.ordered.len() {
                    let id = self.ordered[i].id;
                    if self.ordered[i].up.is_some() {
                        self.stop(world, id);
                        let why = "power failure".into();
                        self.machines
                            .handle(Nanos(now_ns), id, ApplianceInput::Lost { why });
                    }
                }
                return;
            }
        };
        // The state machine ignores an answer that arrives after another step has started. Nothing else needs to be
        // done.
        let _ = self.machines.answer(Nanos(now_ns), step, answer);
    }

    fn start(&mut self, world: &mut World, now_ns: u64, id: ApplianceId) {
        let (model, config) = (self.model, &self.config.appliance);
        let ordered = self.of(id);
        let place = (ordered.volume as u32, ordered.server);
        let cache = Bytes(ordered.order.cache_bytes);
        let up = world
            .servers_mut()
            .start(model, config, place, cache, now_ns);
        ordered.up = Some(up);
    }

    fn route(&mut self, world: &mut World, id: ApplianceId) {
        let ordered = self.of(id);
        if ordered.up.is_some() {
            world.servers_mut().route(ordered.volume, ordered.up);
            let volume = ordered.volume;
            self.freed.push(volume);
        }
    }

    fn stop(&mut self, world: &mut World, id: ApplianceId) {
        let ordered = self.of(id);
        let Some(up) = ordered.up.take() else {
            return;
        };
        ordered.record.take_counts(world, up);
        world.servers_mut().stop(up);
    }

    /// Starts the actions that the state machines request, and records the events of appliances.
    fn settle(&mut self, agenda: &mut Agenda, now_ns: u64) {
        let times = self.config.appliance;
        let failures = &self.config.failures;
        let mut actions = Vec::new();
        while let Some(action) = self.machines.poll_action() {
            actions.push(action);
        }
        for action in actions {
            let (after, due) = match action {
                ApplianceAction::Create(step) => {
                    self.creations += 1;
                    let fails = failures.creations.contains(&(self.creations - 1));
                    let due = [ScheduledAction::Created, ScheduledAction::Refused]
                        [usize::from(fails)](step);
                    (times.create, due)
                }
                ApplianceAction::Reroute(step) => {
                    self.reroutings += 1;
                    let fails = failures.reroutings.contains(&(self.reroutings - 1));
                    let due = [ScheduledAction::Rerouted, ScheduledAction::ReroutingFails]
                        [usize::from(fails)](step);
                    (times.reroute, due)
                }
                ApplianceAction::Return(step) => (times.reroute, ScheduledAction::Returned(step)),
                ApplianceAction::Drain(step) => {
                    (Nanos(DRAIN_LOOK_NS), ScheduledAction::Drained(step))
                }
                ApplianceAction::Destroy(step) => {
                    let by = Nanos(now_ns) + times.destroy;
                    let fails = failures.destroying_until.is_some_and(|until| by < until);
                    let due = [ScheduledAction::Destroyed, ScheduledAction::Refused]
                        [usize::from(fails)](step);
                    (times.destroy, due)
                }
                ApplianceAction::Warm(step) => {
                    self.warm(agenda, now_ns, step);
                    continue;
                }
                ApplianceAction::StopWarming(step) => {
                    let of = |run: &&mut Option<WarmRun>| {
                        run.as_ref().is_some_and(|r| r.step.id == step.id)
                    };
                    self.warming
                        .iter_mut()
                        .filter(of)
                        .for_each(|run| *run = None);
                    continue;
                }
            };
            self.later(agenda, now_ns + after.0, due);
        }
        for i in self.note(now_ns) {
            if let Some(until) = failures.destroying_until {
                self.later(agenda, until.0.max(now_ns + 1), ScheduledAction::Freed(i));
            }
        }
    }

    /// Records the events of appliances. Returns the appliances that were left behind since the last call.
    fn note(&mut self, now_ns: u64) -> Vec<usize> {
        let at_s = Nanos(now_ns).as_secs_f64();
        let mut left = Vec::new();
        for (i, ordered) in self.ordered.iter_mut().enumerate() {
            let was_left = matches!(ordered.event, Some(ApplianceEvent::LeftBehind { .. }));
            if was_left && !ordered.destroyed {
                continue;
            }
            let Some(appliance) = self.machines.get(ordered.id) else {
                continue;
            };
            let Some(event) = event_of(&appliance.state, ordered.destroyed) else {
                continue;
            };
            if ordered.event.as_ref() == Some(&event) {
                continue;
            }
            let record = &mut ordered.record;
            let outcome = match &event {
                ApplianceEvent::Serving => {
                    record.serving_s.get_or_insert(at_s);
                    None
                }
                ApplianceEvent::Failed { why } => Some(format!("failed: {why}")),
                ApplianceEvent::LeftBehind { why } => {
                    left.push(i);
                    Some(format!("left behind: {why}"))
                }
                ApplianceEvent::Removed => Some("removed".into()),
                ApplianceEvent::Returning | ApplianceEvent::Stranded => None,
            };
            if outcome.is_some() && !was_left {
                (record.ended_s, record.outcome) = (Some(at_s), outcome);
            }
            ordered.event = Some(event);
        }
        left
    }

    fn warm(&mut self, agenda: &mut Agenda, now_ns: u64, step: ApplianceStep) {
        let page = self.config.appliance.page.0;
        let pages_at_once = self.config.appliance.warm_pages();
        let fill = self.config.appliance.fill_max;
        let ordered = self.of(step.id);
        let (Some(up), volume) = (ordered.up, ordered.volume) else {
            return;
        };
        let Warm::Zones {
            zones,
            zone,
            rate_per_s,
        } = ordered.order.warm.clone()
        else {
            return;
        };
        let size = self.model.volumes[volume].size.0;
        let pages = |z: &u64| {
            let first = z.saturating_mul(zone.0).min(size);
            let end = first.saturating_add(zone.0).min(size);
            (first / page) as u32..end.div_ceil(page) as u32
        };
        let mut pages: Vec<_> = zones.iter().map(pages).filter(|p| !p.is_empty()).collect();
        pages.reverse();
        let gap = |rate: f64| (1e9 / rate.max(0.001)) as u64;
        // A warm-up reads no faster than the appliance can fill. Without a rate, each read starts when the previous one
        // completes.
        let read_bytes = page as f64 * f64::from(pages_at_once);
        let filled = fill.map(|r| r.0 as f64 / read_bytes);
        let gap_ns = rate_per_s.map_or(0, gap).max(filled.map_or(0, gap));
        self.warming.push(Some(WarmRun {
            appliance: up,
            volume: volume as u32,
            pages,
            pages_at_once,
            gap_ns,
            done_ns: VecDeque::new(),
            on_their_way: 0,
            waits: false,
            step,
        }));
        let run = self.warming.len() as u32 - 1;
        agenda.at(now_ns, Event::WarmUp(run));
    }

    /// Issues the next read of a warm-up.
    fn warm_up(&mut self, world: &mut World, agenda: &mut Agenda, now_ns: u64, number: u32) {
        let outstanding = self.config.appliance.warm_outstanding as usize;
        let stream = algo::mix(self.model.seed, WARM_READS + u64::from(number));
        let Some(run) = &mut self.warming[number as usize] else {
            return;
        };
        while run.done_ns.front().is_some_and(|d| *d <= now_ns) {
            run.done_ns.pop_front();
        }
        let mut next_ns = now_ns + run.gap_ns.max(1);
        let in_flight = run.done_ns.len() + run.on_their_way;
        let room = in_flight < outstanding;
        let next = if room { run.next_read(world) } else { None };
        match (room, next) {
            (true, Some((offset, length))) => {
                let issue = Issue {
                    volume: run.volume,
                    op: Op::Read,
                    offset,
                    length,
                    arrival_ns: now_ns,
                    bits: algo::mix(stream, offset),
                };
                match world.warm_read((number, run.appliance), &issue, now_ns, agenda) {
                    RequestResult::At(done_ns) => run.done_ns.push_back(done_ns),
                    RequestResult::OnItsWay(_) => run.on_their_way += 1,
                    RequestResult::Held => {}
                }
            }
            _ if run.on_their_way > 0 => {
                run.waits = true;
                return;
            }
            (true, None) => {
                let last_ns = run.done_ns.back().copied().unwrap_or(now_ns);
                if last_ns <= now_ns {
                    let step = run.step;
                    self.warming[number as usize] = None;
                    let warmed = ApplianceAnswer::Warmed;
                    let _ = self.machines.answer(Nanos(now_ns), step, warmed);
                    return self.settle(agenda, now_ns);
                }
                next_ns = last_ns;
            }
            (false, _) => next_ns = next_ns.max(run.done_ns[0]),
        }
        agenda.at(next_ns, Event::WarmUp(number));
    }

    /// Completes a read of a warm-up.
    fn warm_answered(&mut self, agenda: &mut Agenda, now_ns: u64, number: u32) {
        if let Some(run) = &mut self.warming[number as usize] {
            run.on_their_way -= 1;
            if std::mem::take(&mut run.waits) {
                agenda.at(now_ns, Event::WarmUp(number));
            }
        }
    }

    /// Returns the states of appliances for the controller's report.
    fn windows(&self) -> Vec<ApplianceWindow> {
        let known = self.ordered.iter().filter(|o| !o.forgotten);
        known
            .map(|o| ApplianceWindow {
                id: o.order.id,
                event: o.event.clone(),
            })
            .collect()
    }

    fn records(&mut self, world: &World) -> Vec<ApplianceRecord> {
        for ordered in &mut self.ordered {
            if let Some(up) = ordered.up {
                ordered.record.take_counts(world, up);
            }
        }
        self.ordered.drain(..).map(|o| o.record).collect()
    }

    fn rate_records(&self) -> Vec<RateRecord> {
        let window_s = self.model.window.as_secs_f64();
        let record = |(v, rate_min_per_s, windows): &(usize, f64, u64)| RateRecord {
            volume: self.model.volumes[*v].name.clone(),
            rate_min_per_s: *rate_min_per_s,
            violated_s: *windows as f64 * window_s,
        };
        self.rates.iter().map(record).collect()
    }
}

/// Returns the volumes with a guaranteed rate, with zero windows below it.
fn rates(model: &Model, config: &ResponseConfig) -> Vec<(usize, f64, u64)> {
    let promised = |(v, volume)| Some((v, promise(model, config, volume).rate_min_per_s?, 0));
    let volumes = model.volumes.iter().enumerate();
    volumes.filter_map(promised).collect()
}

/// Returns the event that the responder receives for an appliance's state; `None` during its creation. `destroyed` is
/// true if the appliance is known to be destroyed.
fn event_of(state: &ApplianceState, destroyed: bool) -> Option<ApplianceEvent> {
    Some(match state {
        ApplianceState::Creating | ApplianceState::Rerouting => return None,
        ApplianceState::Warming | ApplianceState::Serving => ApplianceEvent::Serving,
        ApplianceState::Returning | ApplianceState::Draining | ApplianceState::Removing => {
            ApplianceEvent::Returning
        }
        ApplianceState::Stranded => ApplianceEvent::Stranded,
        ApplianceState::Ended { outcome, .. } => match outcome {
            ApplianceOutcome::Failed { why } if !destroyed => {
                ApplianceEvent::LeftBehind { why: why.clone() }
            }
            ApplianceOutcome::Failed { why } => ApplianceEvent::Failed { why: why.clone() },
            ApplianceOutcome::Removed { .. } => ApplianceEvent::Removed,
        },
    })
}

impl WarmRun {
    /// Takes the next range of missing pages, in bytes.
    fn next_read(&mut self, world: &World) -> Option<(u64, u64)> {
        let servers = world.servers.as_ref()?;
        while let Some(pages) = self.pages.last_mut() {
            while pages.start < pages.end {
                let next = pages
                    .end
                    .min(pages.start.saturating_add(self.pages_at_once));
                let read = std::mem::replace(&mut pages.start, next)..next;
                if let Some(bytes) = servers.lacks(self.appliance, read) {
                    return Some(bytes);
                }
            }
            self.pages.pop();
        }
        None
    }
}

impl ApplianceRecord {
    fn take_counts(&mut self, world: &World, up: u32) {
        let servers = world.servers.as_ref();
        if let Some(appliance) = servers.and_then(|s| s.appliance(up)) {
            (self.read_hits, self.read_misses) = (appliance.hits, appliance.misses);
        }
    }
}

impl Simulation<'_> {
    fn with_control(&mut self, does: impl FnOnce(&mut Control<'_>, &mut World, &mut Agenda)) {
        if let Some(control) = &mut self.control {
            does(control, &mut self.world, &mut self.agenda);
        }
    }

    /// Starts the remedies that are ordered and ends the others.
    pub(crate) fn answer(&mut self, now_ns: u64, remedies: &Remedies) {
        self.with_control(|control, world, agenda| control.obey(world, agenda, now_ns, remedies));
        self.order_mirrors(now_ns, remedies);
    }

    /// Executes a scheduled action of an appliance.
    pub(crate) fn answer_due(&mut self, now_ns: u64, number: u32) {
        self.with_control(|control, world, agenda| control.wake(world, agenda, now_ns, number));
        let control = self.control.as_mut();
        let freed = control.map(|c| std::mem::take(&mut c.freed));
        for v in freed.into_iter().flatten() {
            self.retry_held(now_ns, v);
        }
    }

    /// Issues the next read of a warm-up.
    pub(crate) fn warm_up(&mut self, now_ns: u64, run: u32) {
        self.with_control(|control, world, agenda| control.warm_up(world, agenda, now_ns, run));
    }

    /// Completes a read of a warm-up whose reply was in transit.
    pub(crate) fn warm_answered(&mut self, now_ns: u64, run: u32) {
        self.with_control(|control, _, agenda| control.warm_answered(agenda, now_ns, run));
    }

    /// Checks deadlines and returns the states of appliances for the report.
    pub(crate) fn appliance_windows(&mut self, now_ns: u64) -> Vec<ApplianceWindow> {
        self.with_control(|control, _, agenda| {
            control.machines.tick(Nanos(now_ns));
            control.settle(agenda, now_ns);
        });
        self.control.as_ref().map_or(vec![], Control::windows)
    }

    /// Counts the volumes that were below their guaranteed rate in the evaluated window.
    pub(crate) fn note_rates(&mut self) {
        let controller = &self.host.controller;
        for (v, _, windows) in self.control.iter_mut().flat_map(|c| &mut c.rates) {
            let standing = controller.standing(HOST, WorkloadId(*v as u16));
            *windows += u64::from(standing == Some(ObjectiveRelation::TooSlow));
        }
    }

    /// Returns the summary of remedies. Called once, at the end.
    pub(crate) fn response_summary(&mut self) -> Option<ResponseSummary> {
        let mut control = self.control.take()?;
        let names: Vec<&str> = self.model.volumes.iter().map(|v| v.name.as_str()).collect();
        let decisions = self.host.controller.responses(HOST).iter();
        Some(ResponseSummary {
            remedies: decisions.map(|d| RemedyRecord::of(d, &names)).collect(),
            appliances: control.records(&self.world),
            rates: control.rate_records(),
        })
    }
}
