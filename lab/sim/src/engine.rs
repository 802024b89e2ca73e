//! Event loop of a run.
//!
//! The loop has two queues. The large one holds the next event of every trace and every client slot, and is processed
//! in a tight loop. The small one holds rare events: windows, epochs, calibration steps, copies, and completions on
//! moving volumes. The loop runs all requests up to the next rare event, and then handles that event.

#[cfg(test)]
mod tests;

use std::ops::ControlFlow;

use algo::EventHeap;
use manager::controller::Controller;
use model::Report;
use planner::assign::{self, Problem};
use planner::{AnyStrategy, AssignmentTaken};
use thiserror::Error;
use units::{Bytes, DeviceId, Nanos};
use volume::{Selection, Slack, VolumeMap};

use crate::Model;
use crate::agenda::{Agenda, Event};
use crate::answering::{Control, responder};
use crate::cache_stage::CacheStage;
use crate::device::SimDevice;
use crate::evidence::{Evidence, EvidenceCollector, EvidenceOptions};
use crate::host::{HOST, Host};
use crate::intervals::Intervals;
use crate::mirroring::Mirrors;
use crate::moving::ActiveMove;
use crate::optimum::AssignmentRecord;
use crate::requests::ServedRequest;
use crate::result::{DeviceSeries, Manifest, RUN_SCHEMA, RunResult, Series};
use crate::running::host_settings;
use crate::session::Session;
use crate::source::{Issue, NEVER, Source, sources};
use crate::world::{HeldRequest, RequestResult, Waits, World, main_device};

/// Results that a run keeps in addition to the summary.
#[derive(Debug, Clone, Copy)]
pub struct RunOptions {
    /// Keeps results over time.
    pub series: bool,
    /// Keeps the reports of all placement decisions.
    pub decisions: bool,
    /// Exact solver for the assignment problem of a decision, if this build has one. It returns the optimal value in
    /// steps of the score (1e-9), or `None` without a solution.
    pub optimum: Option<fn(&Problem) -> Option<i64>>,
}

/// Progress of a run.
#[derive(Debug, Clone, Copy)]
pub struct RunProgress {
    /// Simulated time.
    pub now: Nanos,
    /// Simulated length of the whole run.
    pub duration: Nanos,
    /// Requests issued so far.
    pub requests: u64,
}

/// Reason that a run ended early.
#[derive(Debug, Error)]
pub enum RunError {
    /// A decision failed: the plan broke a rule, or the strategy failed.
    #[error("{0}")]
    Decision(String),
    /// The caller ended the run ([`run_while`]).
    #[error("the run was stopped")]
    Stopped,
}

/// Callbacks of a run, at the end of each measurement window.
struct Callbacks<'a> {
    progress: &'a mut dyn FnMut(RunProgress) -> ControlFlow<()>,
    /// Receives the logged requests.
    requests: &'a mut dyn FnMut(&[ServedRequest]),
}

/// Simulation in progress.
pub(crate) struct Simulation<'a> {
    pub(crate) model: &'a Model,
    pub(crate) world: World,
    pub(crate) agenda: Agenda,
    pub(crate) host: Host<'a>,
    pub(crate) copies: u64,
    pub(crate) used: Vec<Bytes>,
    pub(crate) reserved: Vec<Bytes>,
    /// Control of appliances and other remedies, if the scenario has any.
    pub(crate) control: Option<Control<'a>>,
    /// Mirrored extents, if the scenario has any.
    pub(crate) mirroring: Option<Mirrors>,
    /// Move in progress, by volume.
    pub(crate) moving: Vec<Option<ActiveMove>>,
    pub(crate) sessions: Vec<Option<Session>>,
    end_ns: u64,
    pub(crate) heap: EventHeap,
    pub(crate) sources: Vec<Source<'a>>,
    pub(crate) origins: Vec<(u32, u32)>,
    decisions: Vec<Report>,
    assignments: Vec<AssignmentRecord>,
    options: RunOptions,
    devices_over_time: Vec<DeviceSeries>,
    busy_at_window: Vec<f64>,
    /// Evidence for the remedies, if the caller wants it.
    pub(crate) gathering: Option<Box<EvidenceCollector>>,
}

/// Performs a source's request that does not go directly to one device. Returns the time of the source's next request,
/// or `None` if the source is blocked; the source then returns to the queue when its request is issued.
#[inline(never)]
fn perform_otherwise(
    world: &mut World,
    agenda: &mut Agenda,
    source: &mut Source<'_>,
    (now, id): (u64, u32),
    issue: Issue,
) -> Option<u64> {
    let admitted = world.admit(&issue, now);
    let performed = match admitted {
        None => world.perform(&issue, now, agenda),
        Some(_) => RequestResult::Held,
    };
    // A trace with limited outstanding requests blocks as a whole.
    let waits = source.waits();
    let who = match waits {
        true => Waits::Source(id),
        false => Waits::Nobody,
    };
    match performed {
        RequestResult::Held => {}
        RequestResult::At(done) => {
            world.requests += 1;
            return Some(source.next_after(now, done));
        }
        RequestResult::OnItsWay(answer) => {
            world.requests += 1;
            world.servers_mut().belongs_to(answer, who);
            return source.set_out(now);
        }
    }
    world.hold(HeldRequest { issue, who }, admitted, agenda);
    (!waits).then(|| source.next_after(now, now))
}

/// Runs `model` under `strategy`. Calls `progress` once per measurement window.
pub fn run(
    model: &Model,
    strategy: Box<dyn AnyStrategy>,
    manifest: Manifest,
    options: RunOptions,
    progress: &mut dyn FnMut(RunProgress),
) -> Result<RunResult, RunError> {
    run_while(model, strategy, manifest, options, &mut |p| {
        progress(p);
        ControlFlow::Continue(())
    })
}

/// Runs as [`run`], but stops when `progress` breaks.
///
/// # Errors
/// As [`run`], and [`RunError::Stopped`].
pub fn run_while(
    model: &Model,
    strategy: Box<dyn AnyStrategy>,
    manifest: Manifest,
    options: RunOptions,
    progress: &mut dyn FnMut(RunProgress) -> ControlFlow<()>,
) -> Result<RunResult, RunError> {
    let mut sim = Simulation::new(model, strategy, options);
    sim.go(&mut Callbacks {
        progress,
        requests: &mut |_| (),
    })?;
    Ok(sim.finish(manifest))
}

/// Runs as [`run_while`] and logs every request. At the end of each window, `requests` receives the requests of the
/// window.
///
/// # Errors
/// As [`run_while`].
pub fn run_with_requests(
    model: &Model,
    strategy: Box<dyn AnyStrategy>,
    manifest: Manifest,
    options: RunOptions,
    requests: &mut dyn FnMut(&[ServedRequest]),
    progress: &mut dyn FnMut(RunProgress) -> ControlFlow<()>,
) -> Result<RunResult, RunError> {
    let mut sim = Simulation::new(model, strategy, options);
    sim.world.log_requests();
    sim.go(&mut Callbacks { progress, requests })?;
    Ok(sim.finish(manifest))
}

/// Runs as [`run`] and returns the latencies of every volume by interval.
///
/// # Errors
/// As [`run`].
pub fn run_with_intervals(
    model: &Model,
    strategy: Box<dyn AnyStrategy>,
    manifest: Manifest,
    options: RunOptions,
) -> Result<(RunResult, Intervals), RunError> {
    let mut sim = Simulation::new(model, strategy, options);
    sim.world.stats.keep_intervals();
    sim.go_on()?;
    let intervals = sim.world.stats.take_intervals();
    Ok((sim.finish(manifest), intervals))
}

/// Runs as [`run`] and returns the evidence behind the remedies for SLO violations.
pub fn run_with_evidence(
    model: &Model,
    strategy: Box<dyn AnyStrategy>,
    options: RunOptions,
    kept: EvidenceOptions,
) -> Result<(RunResult, Evidence), RunError> {
    let mut sim = Simulation::new(model, strategy, options);
    sim.gathering = Some(Box::new(EvidenceCollector::new(model, kept)));
    sim.world.log_accesses();
    sim.go_on()?;
    let evidence = sim.take_evidence();
    Ok((sim.finish(Manifest::default()), evidence))
}

impl<'a> Simulation<'a> {
    fn new(model: &'a Model, strategy: Box<dyn AnyStrategy>, options: RunOptions) -> Self {
        let granularity = strategy.granularity();
        let mut controller = Controller::in_process(host_settings(model), strategy);
        if let Some(remedies) = &model.remedies {
            controller.answer_with(HOST, responder(model, remedies));
        }
        let (sources, origins, starts) = sources(model);
        let mut heap = EventHeap::new();
        for (id, start) in starts.iter().enumerate().filter(|(_, s)| **s != NEVER) {
            heap.push(*start, id as u32);
        }
        let devices = &model.topology.devices;
        let world = World::new(model, granularity);
        let mut used = vec![Bytes::ZERO; devices.len()];
        for (v, map) in model.volumes.iter().zip(&world.maps) {
            for (device, _) in map.holders() {
                used[device.index()] += v.size - map.bytes_not_on(Selection::Whole, *device);
            }
        }
        let mut agenda = Agenda::default();
        agenda.at(model.window.0, Event::Window);
        let devices_over_time = devices
            .iter()
            .map(|d| DeviceSeries {
                name: d.name.clone(),
                tier: model.topology.tier(d.tier).name.clone(),
                capacity_bytes: d.spec.capacity.0,
                ..DeviceSeries::default()
            })
            .collect();
        Self {
            model,
            world,
            control: Control::new(model, &mut agenda),
            mirroring: Mirrors::new(model, &mut agenda),
            agenda,
            host: Host::new(controller, model),
            copies: 0,
            used,
            reserved: vec![Bytes::ZERO; devices.len()],
            moving: (0..model.volumes.len()).map(|_| None).collect(),
            sessions: (0..model.volumes.len()).map(|_| None).collect(),
            end_ns: model.duration.0,
            heap,
            sources,
            origins,
            decisions: Vec::new(),
            assignments: Vec::new(),
            options,
            devices_over_time,
            busy_at_window: vec![0.0; devices.len()],
            gathering: None,
        }
    }

    /// Runs the simulation to its end, without callbacks.
    fn go_on(&mut self) -> Result<(), RunError> {
        self.go(&mut Callbacks {
            progress: &mut |_| ControlFlow::Continue(()),
            requests: &mut |_| (),
        })
    }

    /// Runs the simulation from the first event to the last.
    fn go(&mut self, callbacks: &mut Callbacks<'_>) -> Result<(), RunError> {
        self.foresee();
        loop {
            let until = self.agenda.first_time().min(self.end_ns);
            self.run_requests(until);
            let Some((now, event)) = self.agenda.pop().filter(|e| e.0 <= self.end_ns) else {
                if let Some(log) = self.world.request_log() {
                    log.take(callbacks.requests);
                }
                return Ok(());
            };
            self.handle(now, event, callbacks)?;
        }
    }

    /// Runs all requests before `until_ns`, or before the first rare event that they cause. This is the tight loop.
    fn run_requests(&mut self, until_ns: u64) {
        let Self {
            world,
            agenda,
            heap,
            sources,
            origins,
            ..
        } = self;
        let mut until_ns = until_ns;
        while let Some((now, id)) = heap.first() {
            if now >= until_ns {
                break;
            }
            let (source, slot) = origins[id as usize];
            let source = &mut sources[source as usize];
            let next = match source.take(now, slot) {
                Err(later) => later,
                Ok(issue) => match world.perform_plainly(&issue, now) {
                    Some(done) => source.next_after(now, done),
                    None => {
                        let next = perform_otherwise(world, agenda, source, (now, id), issue);
                        // Only requests on this path add rare events.
                        until_ns = until_ns.min(agenda.first_time());
                        let Some(next) = next else {
                            heap.pop();
                            continue;
                        };
                        next
                    }
                },
            };
            if next == NEVER {
                heap.pop();
            } else {
                heap.reschedule_first(next);
            }
        }
    }

    fn handle(
        &mut self,
        now_ns: u64,
        event: Event,
        callbacks: &mut Callbacks<'_>,
    ) -> Result<(), RunError> {
        match event {
            Event::MoveWake(no) => self.wake_move(now_ns, no),
            Event::CopyRead(no) => self.copy_read(now_ns, no),
            Event::CopyWritten(no) => self.copy_written(now_ns, no),
            Event::Complete { volume, entry } => {
                self.world.complete(volume as usize, entry);
                self.after_completion(now_ns, volume as usize);
            }
            Event::Earlier { volume } => {
                self.earlier_complete(now_ns, volume as usize);
            }
            Event::Calibration { volume, session } => {
                self.end_calibration_window(now_ns, volume as usize, session);
            }
            Event::Operator(which) => self.operate(now_ns, which),
            Event::AgentLost => self.agent_lost(),
            Event::AgentBack => self.agent_back(now_ns),
            Event::LateReport(which) => self.late_report(now_ns, which)?,
            Event::Admitted { volume } => self.let_go(now_ns, volume as usize, now_ns),
            Event::LimitOver { volume } => self.limit_over(now_ns, volume as usize),
            Event::Answer(number) => self.answer_due(now_ns, number),
            Event::AtLink(answer) => self.at_link(now_ns, answer),
            Event::LinkSent(server) => self.link_sent(now_ns, server),
            Event::Answered(answer) => self.answered(now_ns, answer),
            Event::WarmUp(run) => self.warm_up(now_ns, run),
            Event::Mirrors => self.choose_mirrors(now_ns),
            Event::MirrorLook => self.look_at_mirrors(now_ns),
            Event::Window => {
                self.end_window(now_ns);
                // A trace may take longer than its recorded span. The run ends when all requests are issued and
                // complete.
                let mut volumes = 0..self.model.volumes.len();
                let more = !self.heap.is_empty() || volumes.any(|v| self.waiting(v) > 0);
                if now_ns >= self.end_ns && more && now_ns < self.model.duration_max.0 {
                    self.end_ns += self.model.window.0;
                }
                self.agenda.at(now_ns + self.model.window.0, Event::Window);
                let (now, duration) = (Nanos(now_ns), Nanos(self.end_ns));
                let reached = RunProgress {
                    now,
                    duration,
                    requests: self.world.requests,
                };
                if let Some(log) = self.world.request_log() {
                    log.take(callbacks.requests);
                }
                if (callbacks.progress)(reached).is_break() {
                    return Err(RunError::Stopped);
                }
                // A decision at the end of the run could not be executed.
                if now_ns < self.end_ns {
                    self.report(now_ns)?;
                }
            }
        }
        self.tell_of_jobs(now_ns);
        Ok(())
    }

    /// Reissues the held requests of a volume in order, up to the first one that the volume core still holds.
    pub(crate) fn retry_held(&mut self, now_ns: u64, volume: usize) {
        while let Some(held) = self.world.held[volume].pop_front() {
            if matches!(held.who, Waits::Cache) {
                if !self
                    .world
                    .retry_destage(&held.issue, now_ns, &mut self.agenda)
                {
                    self.world.held[volume].push_front(held);
                    return;
                }
                continue;
            }
            if let Some(held) = self.issue_late(now_ns, held) {
                self.world.held[volume].push_front(held);
                return;
            }
        }
    }

    /// Issues a held request. Returns it if the volume core holds it again.
    pub(crate) fn issue_late(&mut self, now_ns: u64, held: HeldRequest) -> Option<HeldRequest> {
        let performed = self.world.perform(&held.issue, now_ns, &mut self.agenda);
        let source = match held.who {
            Waits::Source(id) => Some((self.origins[id as usize].0 as usize, id)),
            Waits::Nobody | Waits::Cache => None,
        };
        let source = source.map(|(s, id)| (&mut self.sources[s], id));
        let next = match performed {
            RequestResult::Held => return Some(held),
            RequestResult::At(done) => {
                let (volume, arrival_ns) = (held.issue.volume as usize, held.issue.arrival_ns);
                self.world.stats.was_held(volume, arrival_ns, done);
                source.map(|(s, id)| (s.next_after(now_ns, done), id))
            }
            RequestResult::OnItsWay(answer) => {
                self.world.servers_mut().belongs_to(answer, held.who);
                source.and_then(|(s, id)| Some((s.set_out(now_ns)?, id)))
            }
        };
        self.world.requests += 1;
        if let Some((next, id)) = next.filter(|n| n.0 != NEVER) {
            self.heap.push(next, id);
        }
        None
    }

    /// Number of a volume's requests that were incomplete at the end of the last window, including held requests.
    pub(crate) fn waiting(&self, volume: usize) -> u64 {
        let World {
            stats,
            held,
            limited,
            servers,
            ..
        } = &self.world;
        let held = held[volume].len() + limited[volume].waiting().len();
        let on_their_way = servers.as_ref().map_or(0, |s| s.arrivals(volume).count());
        stats.in_flight(volume) + (held + on_their_way) as u64
    }

    pub(crate) fn tier_of_volume(&self, volume: usize) -> usize {
        self.world.tier_of_device[self.device_of(volume).index()] as usize
    }

    fn end_window(&mut self, now_ns: u64) {
        let World {
            maps,
            tier_of_device,
            stats,
            devices,
            held,
            slack,
            worst,
            cache,
            limited,
            servers,
            ..
        } = &mut self.world;
        let tier_of = |v: usize| tier_of_device[main_device(&maps[v]).index()] as usize;
        let asked = |h: &&HeldRequest| !matches!(h.who, Waits::Cache);
        let arrivals = |v: usize| {
            let held = held[v].iter().filter(asked);
            let held = held.chain(limited[v].waiting()).map(|h| h.issue.arrival_ns);
            held.chain(servers.iter().flat_map(move |s| s.arrivals(v)))
        };
        stats.end_window(now_ns, tier_of, arrivals);
        if let Some(cache) = cache {
            cache.end_window(now_ns, stats.over_target());
            if now_ns == self.model.warmup.0 {
                cache.count_from_now();
            }
        }
        if stats.ends_stretch(now_ns) {
            stats.end_stretch(now_ns, &priorities(self.model, cache.as_deref()));
        }
        for (d, worst) in worst.iter_mut().enumerate() {
            let device = DeviceId::from_index(d);
            let there = |map: &VolumeMap| map.holders().iter().any(|h| h.0 == device);
            let of_device = maps.iter().enumerate().filter(|(_, map)| there(map));
            let (mut first, mut others) = (Slack::Unbound, Slack::Unbound);
            for (v, _) in of_device {
                let of_volume = stats.slack(v);
                if first == Slack::Unbound || first.worse(of_volume) != first {
                    others = others.worse(std::mem::replace(&mut first, of_volume));
                    *worst = v;
                } else {
                    others = others.worse(of_volume);
                }
            }
            slack.say(now_ns, 0, device, first);
            slack.say(now_ns, 1, device, others);
        }
        for (d, series) in self.devices_over_time.iter_mut().enumerate() {
            let busy = devices[d].counters().busy_ns;
            let share = (busy - self.busy_at_window[d]) / self.model.window.as_f64();
            self.busy_at_window[d] = busy;
            series
                .utilization
                .push((share.min(1.0) * 1e4).round() / 1e4);
            series.used_bytes.push(self.used[d].0 + self.reserved[d].0);
        }
        for flash in devices.iter_mut().filter_map(SimDevice::flash) {
            flash.end_window();
            if now_ns == self.model.warmup.0 {
                flash.count_from_now();
            }
        }
    }

    /// Keeps the controller's decisions, if the options require it.
    pub(crate) fn take_decisions(&mut self) {
        for made in self.host.controller.take_made() {
            if self.options.decisions {
                self.decisions.push(made.report);
                let taken = made.assignment.as_ref();
                let exact = self.options.optimum;
                self.assignments
                    .extend(taken.and_then(|a| assignment_record(made.at.0, a, exact)));
            }
        }
    }

    fn finish(mut self, manifest: Manifest) -> RunResult {
        let options = self.options;
        let (moves, move_log) = self.move_results();
        let final_tiers = (0..self.model.volumes.len())
            .map(|v| {
                let tier = self.model.topology.tiers[self.tier_of_volume(v)]
                    .name
                    .clone();
                (self.model.volumes[v].name.clone(), tier)
            })
            .collect();
        let wear = self.wear();
        let response = self.response_summary();
        let mirrors = self.mirror_summary();
        let counted_s = Nanos(self.world.stats.counted_ns).as_secs_f64();
        let unfinished = (0..self.model.volumes.len()).map(|v| self.waiting(v)).sum();
        let priorities = priorities(self.model, self.world.cache.as_deref());
        let stretches = self.world.stats.take_stretches(self.end_ns, &priorities);
        let (groups, series) = self.world.stats.finish(self.model);
        let cache = self.world.cache.take();
        let cache = cache.map(|cache| cache.finish(self.model));
        let (cache, cache_read_hit_ratio) = cache.unzip();
        RunResult {
            schema: RUN_SCHEMA.into(),
            manifest,
            simulated_s: Nanos(self.end_ns).as_secs_f64(),
            traces_ended: self.heap.is_empty() && !self.sources.iter().any(Source::is_waiting),
            unfinished,
            counted_s,
            groups,
            moves,
            move_log,
            wear,
            cache,
            response,
            mirrors,
            stretches,
            events: std::mem::take(&mut self.host.events),
            final_tiers,
            series: options.series.then(|| Series {
                window_s: self.model.window.as_secs_f64(),
                groups: series,
                devices: self.devices_over_time,
                cache_read_hit_ratio: cache_read_hit_ratio.unwrap_or_default(),
            }),
            decisions: options.decisions.then_some(self.decisions),
            assignments: self.assignments,
        }
    }

    /// Returns the device that holds a volume, or most of it.
    pub(crate) fn device_of(&self, volume: usize) -> DeviceId {
        main_device(&self.world.maps[volume])
    }
}

/// Returns the mean cache priority of each class's volumes in percent; `None` if the policy has no priorities.
fn priorities(model: &Model, cache: Option<&CacheStage>) -> Vec<Option<f64>> {
    let mut sums = vec![(0.0, 0u32); model.classes.len()];
    for (v, volume) in model.volumes.iter().enumerate() {
        if let Some(priority) = cache.and_then(|c| c.priority(v)) {
            let (sum, n) = &mut sums[volume.class.index()];
            (*sum, *n) = (*sum + f64::from(priority), *n + 1);
        }
    }
    let mean = |(sum, n): &(f64, u32)| (*n > 0).then(|| sum / f64::from(*n));
    sums.iter().map(mean).collect()
}

/// Returns the record of a decision's placement compared with its alternatives; `None` if the present placement is not
/// admissible.
fn assignment_record(
    now_ns: u64,
    taken: &AssignmentTaken,
    optimum: Option<fn(&Problem) -> Option<i64>>,
) -> Option<AssignmentRecord> {
    let present = taken.problem.present()?;
    let (stay, value) = (present.value, taken.placement.value);
    // The literal form of the paper may return less than the value of staying, and may exceed a hard limit.
    let keeps = value >= stay && taken.problem.admits(&taken.placement.tiers);
    let known = if keeps { &taken.placement } else { &present };
    let bound = assign::bound(&taken.problem, Some(known.value)).value;
    let score = |steps: i64| steps as f64 * assign::SCORE_STEP;
    Some(AssignmentRecord {
        at_s: Nanos(now_ns).as_secs_f64(),
        objective: taken.objective.into(),
        value: score(value),
        stay: score(stay),
        bound: score(bound),
        within_limits: taken.problem.admits(&taken.placement.tiers),
        optimum: optimum
            .and_then(|exact| exact(&taken.problem))
            .or_else(|| assign::optimum(&taken.problem, known).map(|p| p.value))
            .map(score),
    })
}
