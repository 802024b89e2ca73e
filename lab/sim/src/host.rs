//! Simulated array as a host of a controller: sends a report per window, and executes the orders of each reply.
//!
//! ```text
//!   end of a window ─▶ report ─▶ manager::Controller: facts, plan, approvals, jobs ─▶ orders ─▶ moves and calibrations start
//!   end of a job ────▶ job report ──────────────▶│
//! ```
//!
//! The controller alone decides, as for a live host. Host and controller share a process, and their messages are not
//! serialized.

use std::collections::BTreeMap;

use executor::OF_NO_PLAN;
use manager::controller::Controller;
use manager::service::Now;
use manager::store::Change;
use manager::view::{EventKind, JobView, OutcomeView};
use manager::wire::{
    CalibrationResult, Detail, DeviceIoCounts, DeviceWindow, ExtentWindow, JobProgress, JobWindow,
    JobsReport, Load, MoveOrder, MovingWindow, Orders, PROTOCOL, Placed, Register, VolumeSample,
    VolumeWindow, WindowReport,
};
use model::{ExtentHeat, ExtentPlaces, ExtentRanges, JobStatus};
use units::{DeviceId, Nanos};
use volume::{Selection, VolumeMap};

use crate::answering::LazyMeasurements;
use crate::engine::{RunError, Simulation};
use crate::faults::Way;
use crate::flash_device::FlashDevice;
use crate::moving::ActiveMove;
use crate::result::{MoveRecord, MoveTotals, RunEvent};
use crate::running::RunningModel;
use crate::world::World;

/// Name of the only host.
pub(crate) const HOST: &str = "array";

/// Counters of a device at the start of the run.
const NOTHING: DeviceIoCounts = DeviceIoCounts {
    reads: 0,
    writes: 0,
    read_bytes: 0,
    write_bytes: 0,
    busy_ns: Some(0),
};

/// State of the array as a host.
pub(crate) struct Host<'a> {
    pub(crate) controller: Controller,
    /// Volumes by name, then devices by name.
    volumes: BTreeMap<String, usize>,
    devices: BTreeMap<String, DeviceId>,
    session: u64,
    registered: bool,
    seq: u64,
    /// Sequence number of the last message with a reply.
    answered: u64,
    /// Ordered jobs: `None` while the job runs, then its result.
    jobs: BTreeMap<u32, Option<JobProgress>>,
    /// Results of finished calibrations that the controller has not received yet.
    pub(crate) results: Vec<CalibrationResult>,
    detail: Detail,
    /// Bytes copied by finished moves, whether or not the end of the move was reported.
    copied: BTreeMap<u32, u64>,
    /// True if a job has ended since the last report.
    news: bool,
    /// Counters of the devices at the start of the window.
    before: Vec<DeviceIoCounts>,
    /// Last known view of every approved job.
    log: BTreeMap<u32, JobView>,
    /// Outcomes of moves of whole volumes, by job.
    outcomes: BTreeMap<u32, OutcomeView>,
    /// Events of the controller, if the scenario keeps them.
    pub(crate) events: Vec<RunEvent>,
    /// Indexes in `events` of events about remedies.
    responses: Vec<usize>,
    /// Settings of the scenario for the operation of the host.
    running: &'a RunningModel,
    /// Connection to the controller.
    pub(crate) way: Way<'a>,
    /// Start of the first complete window of the present agent process.
    whole_from_ns: u64,
}

impl<'a> Host<'a> {
    pub(crate) fn new(controller: Controller, model: &'a crate::Model) -> Self {
        let volumes = model.volumes.iter().enumerate();
        let devices = model.topology.devices.iter().enumerate();
        let mut host = Self {
            controller,
            volumes: volumes.map(|(i, v)| (v.name.clone(), i)).collect(),
            devices: devices
                .map(|(i, d)| (d.name.clone(), DeviceId::from_index(i)))
                .collect(),
            session: 0,
            registered: false,
            seq: 0,
            answered: 0,
            jobs: BTreeMap::new(),
            results: vec![],
            detail: Detail::Volumes,
            copied: BTreeMap::new(),
            news: false,
            before: vec![NOTHING; model.topology.devices.len()],
            log: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            events: vec![],
            responses: vec![],
            running: &model.running,
            way: Way::new(&model.running.faults, model.seed),
            whole_from_ns: 0,
        };
        host.register(0);
        host
    }

    /// Registers a new agent process, which knows no earlier orders. The controller rejects it while it still considers
    /// the previous agent alive; the agent then tries again in each window.
    pub(crate) fn register(&mut self, now_ns: u64) {
        self.session += 1;
        (self.seq, self.answered) = (0, 0);
        self.jobs.clear();
        (self.whole_from_ns, self.news) = (now_ns, false);
        let message = Register {
            protocol: PROTOCOL,
            session: self.session,
            version: env!("CARGO_PKG_VERSION").into(),
        };
        let welcome = self.controller.register(self.now(now_ns), HOST, &message);
        self.registered = welcome.is_ok();
        match welcome {
            Ok(welcome) => self.detail = welcome.detail,
            Err(refusal) => self.log_event(
                now_ns,
                format!("the controller rejected the registration: {refusal}"),
            ),
        }
    }

    /// Returns the last known view of all jobs.
    #[cfg(test)]
    pub(crate) fn jobs(&mut self) -> Vec<JobView> {
        self.note();
        self.log.values().cloned().collect()
    }

    /// Takes over events, jobs and outcomes from the controller.
    fn note(&mut self) {
        for change in self.controller.take_seen() {
            match change {
                Change::Job(mut view) => {
                    if let Some(before) = self.log.get(&view.job) {
                        view.planned_ns = before.planned_ns;
                    }
                    self.log.insert(view.job, *view);
                }
                Change::Outcome(outcome) => {
                    self.outcomes.insert(outcome.job, outcome);
                }
                Change::Event(event) if self.running.keeps_events => {
                    if event.kind == EventKind::Response {
                        self.responses.push(self.events.len());
                    }
                    self.events.push(RunEvent {
                        at_ns: event.at_ns,
                        actor: event.actor,
                        volume: event.volume,
                        text: event.text,
                    });
                }
                _ => {}
            }
        }
    }

    /// Takes the recorded events about remedies.
    pub(crate) fn take_responses(&mut self) -> Vec<(Nanos, String)> {
        self.note();
        let of = |i: &usize| {
            let event = &self.events[*i];
            (Nanos(event.at_ns), event.text.clone())
        };
        self.responses.iter().map(of).collect()
    }

    /// Returns the number of the agent's session.
    pub(crate) fn session(&self) -> u64 {
        self.session
    }

    /// Records an event of the agent.
    pub(crate) fn log_event(&mut self, at_ns: u64, text: String) {
        self.tell("agent", at_ns, text);
    }

    /// Records an event that did not go through the controller.
    pub(crate) fn tell(&mut self, actor: &str, at_ns: u64, text: String) {
        self.note();
        if !self.running.keeps_events {
            return;
        }
        self.events.push(RunEvent {
            at_ns,
            actor: actor.into(),
            volume: None,
            text,
        });
    }

    /// Returns the jobs of a volume that have not ended.
    pub(crate) fn open_jobs(&mut self, volume: &str) -> Vec<u32> {
        self.note();
        let open = self.log.values();
        let open = open.filter(|j| j.volume == volume && j.ended_ns.is_none());
        open.map(|j| j.job).collect()
    }

    /// Returns the time in the controller's form.
    pub(crate) fn now(&self, now_ns: u64) -> Now {
        Now {
            at: Nanos(now_ns),
            unix_ms: self.running.begins_unix_ms + now_ns / 1_000_000,
        }
    }
}

/// Returns the places of all extents of a volume.
pub(crate) fn places(map: &VolumeMap) -> ExtentPlaces {
    ExtentPlaces::of((0..map.extents()).map(|e| map.location(e).map(|l| l.device)))
}

/// Returns the load as a host without latency histograms reports it: counts and sums, but neither percentiles nor outstanding requests.
fn without_percentiles(mut load: Load) -> Load {
    let (reads, writes) = (&mut load.reads, &mut load.writes);
    load.depth_ns = reads.sum_ns.saturating_add(writes.sum_ns);
    reads.buckets.clear();
    writes.buckets.clear();
    load.waiting.clear();
    if let Some(devices) = &mut load.devices {
        devices.reads.buckets.clear();
        devices.writes.buckets.clear();
    }
    load
}

impl Simulation<'_> {
    /// Reports the window that has just ended to the controller, and starts the orders of the reply.
    pub(crate) fn report(&mut self, now_ns: u64) -> Result<(), RunError> {
        let now = self.host.now(now_ns);
        self.host.controller.tick(now);
        let report = self.window_report(now_ns);
        // An agent reports only windows that began after its start.
        let whole = now_ns >= self.host.whole_from_ns + self.model.window.0;
        match (self.host.way.is_open(), self.host.registered) {
            (true, true) if whole => self.send(now_ns, report)?,
            (true, false) => self.host.register(now_ns),
            _ => {}
        }
        Ok(())
    }

    /// Delivers a report to the controller and its reply to the host.
    pub(crate) fn deliver(
        &mut self,
        now_ns: u64,
        sent_ns: u64,
        report: WindowReport,
        answered: bool,
    ) -> Result<(), RunError> {
        let now = self.host.now(now_ns);
        let told = self.before_report(&report);
        let orders = match &self.world.watch {
            Some(watch) => {
                let (devices, maps) = (&self.world.devices[..], &self.world.maps[..]);
                let known = LazyMeasurements {
                    watch,
                    devices,
                    maps,
                };
                let controller = &mut self.host.controller;
                controller.report_knowing(now, HOST, report, &known)
            }
            None => self.host.controller.report(now, HOST, report),
        };
        if let Some(why) = self.host.controller.problem(HOST) {
            return Err(RunError::Decision(why.into()));
        }
        self.take_decisions();
        self.note_rates();
        if let Some(told) = told {
            self.after_report(now_ns, told);
        }
        match orders {
            Ok(orders) if answered => self.obey(now_ns, sent_ns, orders),
            Ok(_) => {}
            Err(refusal) => self.host.log_event(
                now_ns,
                format!("the controller rejected a report: {refusal}"),
            ),
        }
        Ok(())
    }

    /// Reports finished jobs to the controller. Repeats this while the new orders start jobs that finish at once.
    pub(crate) fn tell_of_jobs(&mut self, now_ns: u64) {
        while self.host.registered && self.host.way.is_open() && self.host.news {
            self.host.news = false;
            self.host.seq += 1;
            let message = JobsReport {
                session: self.host.session,
                seq: self.host.seq,
                jobs: self.job_windows(),
            };
            if !self.host.way.arrives() {
                return; // the next window reports the jobs again
            }
            let now = self.host.now(now_ns);
            let orders = self.host.controller.jobs_ended(now, HOST, &message);
            if let Ok(orders) = orders
                && self.host.way.is_answered()
            {
                self.obey(now_ns, now_ns, orders);
            }
        }
    }

    fn window_report(&mut self, now_ns: u64) -> WindowReport {
        self.host.seq += 1;
        let topology = &self.model.topology;
        WindowReport {
            session: self.host.session,
            seq: self.host.seq,
            as_of_ns: now_ns,
            window_ns: self.model.window.0,
            tiers: topology.tiers.iter().map(|t| t.name.clone()).collect(),
            devices: self.device_windows(now_ns),
            volumes: self.volume_windows(now_ns),
            jobs: self.job_windows(),
            calibrations: self.host.results.clone(),
            problem: vec![],
            problems: vec![],
            second_by_hand: false,
            appliances: self.appliance_windows(now_ns),
            lends: None,
            lease: None,
        }
    }

    fn device_windows(&mut self, now_ns: u64) -> Vec<DeviceWindow> {
        let topology = &self.model.topology;
        let epoch_ends = now_ns.is_multiple_of(self.model.policy.epochs.monitor.0);
        let devices = topology.devices.iter().enumerate();
        devices
            .map(|(d, device)| {
                let counters = self.world.devices[d].counters();
                let io = DeviceIoCounts {
                    reads: counters.reads,
                    writes: counters.writes,
                    read_bytes: counters.read_bytes,
                    write_bytes: counters.write_bytes,
                    busy_ns: Some(counters.busy_ns as u64),
                };
                let before = std::mem::replace(&mut self.host.before[d], io);
                let used = self.used[d] + self.mirrored_on(d);
                let flash = self.world.devices[d].flash().filter(|_| epoch_ends);
                DeviceWindow {
                    name: device.name.clone(),
                    tier: topology.tier(device.tier).name.clone(),
                    size_bytes: device.spec.capacity.0,
                    used_bytes: used.0,
                    emulate: Some(device.spec.clone()),
                    connected: true,
                    place: None,
                    io: io.since(&before),
                    errors: vec![],
                    waf: flash.and_then(FlashDevice::epoch_waf),
                    node: None,
                }
            })
            .collect()
    }

    fn volume_windows(&mut self, now_ns: u64) -> Vec<VolumeWindow> {
        let limits = 0..self.model.volumes.len();
        let limits: Vec<_> = limits.map(|v| self.take_limit(now_ns, v)).collect();
        let mut extents = match self.host.detail {
            Detail::Volumes => None,
            Detail::Extents => self.extent_windows(),
        };
        let mut samples = self.volume_samples(now_ns);
        let mut mirrors = self.mirror_windows().into_iter();
        let model = self.model;
        let device = |d: DeviceId| model.topology.device(d).name.clone();
        (0..model.volumes.len())
            .map(|v| {
                let (volume, map) = (&model.volumes[v], &self.world.maps[v]);
                let placed = map.holders().iter().map(|(d, _)| Placed {
                    device: device(*d),
                    bytes: (volume.size - map.bytes_not_on(Selection::Whole, *d)).0,
                });
                let home = model.topology.tier_of(self.device_of(v));
                let moving = self.moving[v].as_ref().filter(|m| !m.is_mirror());
                VolumeWindow {
                    name: volume.name.clone(),
                    vm: Some(model.vms[volume.vm.index()].clone()),
                    class: model.classes[volume.class.index()].name.clone(),
                    size_bytes: volume.size.0,
                    home: model.topology.tier(home).name.clone(),
                    placed: placed.collect(),
                    movable: true,
                    bound: None,
                    by_hand: None,
                    moving: moving.map(|m| MovingWindow {
                        device: device(m.to()),
                        extents: m.extents().cloned(),
                        copied_bytes: m.copied().0,
                        left_bytes: m.reserved.0,
                        rate_bytes_per_s: m.rate().0,
                    }),
                    throttle: limits[v],
                    cache: None,
                    mirror: mirrors.next().flatten(),
                    calibrating: self.sessions[v].is_some(),
                    load: Some(match self.model.running.faults.means_only {
                        true => without_percentiles(self.world.stats.take_load(v)),
                        false => self.world.stats.take_load(v),
                    }),
                    extents: extents.as_mut().and_then(Iterator::next),
                    sample: samples.as_mut().and_then(Iterator::next),
                    node: None,
                }
            })
            .collect()
    }

    /// Returns the samples of volumes for the responder.
    fn volume_samples(
        &mut self,
        now_ns: u64,
    ) -> Option<impl Iterator<Item = VolumeSample> + use<>> {
        let World {
            watch,
            held,
            limited,
            ..
        } = &mut self.world;
        let watch = watch.as_mut()?;
        let sources = &self.sources;
        let sample = |v: usize| {
            let held = held[v].iter().chain(limited[v].waiting());
            let behind = match watch.is_rate_promised(v) {
                true => sources.iter().map(|s| s.behind(now_ns, v as u32)).sum(),
                false => 0,
            };
            watch.take(now_ns, v, held.map(|h| h.issue.arrival_ns), behind)
        };
        let samples: Vec<_> = (0..held.len()).map(sample).collect();
        watch.begin_window(now_ns);
        Some(samples.into_iter())
    }

    /// Returns the place of every extent and its accesses, for strategies that place extents.
    fn extent_windows(&mut self) -> Option<impl Iterator<Item = ExtentWindow> + use<>> {
        let World { maps, heat, .. } = &mut self.world;
        let heat: Vec<ExtentHeat> = heat.as_mut()?.take();
        let windows: Vec<ExtentWindow> = maps
            .iter()
            .zip(heat)
            .map(|(map, heat)| ExtentWindow {
                extent_bytes: map.extent_bytes().0,
                places: places(map),
                heat: Some(heat),
            })
            .collect();
        Some(windows.into_iter())
    }

    fn job_windows(&self) -> Vec<JobWindow> {
        let under_way = |job: u32| {
            let moving = self.moving.iter().flatten().find(|m| m.job == job);
            moving.map(|m| JobProgress::Copying {
                copied_bytes: m.copied().0,
                left_bytes: m.reserved.0,
                rate_bytes_per_s: m.rate().0,
            })
        };
        let jobs = self.host.jobs.iter();
        jobs.filter_map(|(job, ended)| {
            let state = ended.clone().or_else(|| under_way(*job))?;
            Some(JobWindow {
                job: *job,
                state,
                failed_io: None,
                permanent: false,
            })
        })
        .collect()
    }

    /// Starts ordered activities that do not run yet, and ends activities that are no longer ordered.
    fn obey(&mut self, now_ns: u64, sent_ns: u64, orders: Orders) {
        if orders.session != self.host.session || orders.seq <= self.host.answered {
            return; // old reply: a newer one has been executed
        }
        self.host.answered = orders.seq;
        self.host.detail = orders.detail;
        let host = &mut self.host;
        let named = |id: &u32| {
            orders
                .moves
                .iter()
                .chain(&orders.cancels)
                .any(|o| o.job == *id)
        };
        host.jobs.retain(|id, ended| ended.is_none() || named(id));
        host.results
            .retain(|r| !orders.calibrations_taken.contains(&r.id));
        host.note();
        for order in &orders.cancels {
            self.give_up(now_ns, order);
        }
        // Expired orders start nothing new.
        let good = now_ns < sent_ns.saturating_add(orders.lease_ns);
        if good {
            self.limit(now_ns, &orders.throttles);
            self.answer(now_ns, &orders.remedies);
        }
        for order in orders.moves.iter().filter(|_| good) {
            if !self.host.jobs.contains_key(&order.job) {
                self.begin(now_ns, order);
            }
        }
        for v in 0..self.sessions.len() {
            let under_way = self.sessions[v].as_ref().map(|s| s.id());
            let unwanted = |id: &u64| orders.calibrations.iter().all(|o| o.id != *id);
            if under_way.filter(unwanted).is_some() {
                self.end_calibration(v, Some("the controller withdrew the order".into()));
            }
        }
        for order in orders.calibrations.into_iter().filter(|_| good) {
            let Some(v) = self.host.volumes.get(&order.volume).copied() else {
                continue;
            };
            let ended = self.host.results.iter().any(|r| r.id == order.id);
            if !ended && self.sessions[v].is_none() && !order.steps.is_empty() {
                self.start_calibration(now_ns, v, order);
            }
        }
    }

    /// Starts an ordered move. A move that an earlier agent process started may be running or complete already.
    fn begin(&mut self, now_ns: u64, order: &MoveOrder) {
        let known = self.host.volumes.get(&order.volume);
        let to = self.host.devices.get(&order.device);
        let (Some(v), Some(to)) = (known.copied(), to.copied()) else {
            unreachable!("the controller knows what it was sent");
        };
        if self.moving[v].as_ref().is_some_and(|m| m.job == order.job) {
            self.host.jobs.insert(order.job, None);
            return;
        }
        if self.moving[v].as_ref().is_some_and(ActiveMove::is_mirror) {
            self.give_mirror_up(now_ns, v);
            if self.moving[v].is_some() {
                return; // the next orders list it again
            }
        }
        let named = order.extents.as_ref();
        let selected = named.map_or(Selection::Whole, Selection::Extents);
        if self.world.maps[v].bytes_not_on(selected, to).0 == 0 && self.moving[v].is_none() {
            let done = JobProgress::Done { copied_bytes: 0 };
            return self.move_ended(order.job, done);
        }
        self.host.jobs.insert(order.job, None);
        if !self.begin_move(now_ns, v, to, order) {
            let why = match &self.moving[v] {
                Some(_) => "the volume is already moving",
                None => "no space on the target",
            };
            self.move_ended(order.job, failed(why));
        }
    }

    /// Cancels a move that is no longer ordered.
    fn give_up(&mut self, now_ns: u64, order: &MoveOrder) {
        let v = self.host.volumes.get(&order.volume).copied();
        let under_way = v.filter(|v| {
            let moving = self.moving[*v].as_ref();
            moving.is_some_and(|m| m.job == order.job)
        });
        match (under_way, self.host.jobs.get(&order.job)) {
            (Some(v), _) => self.cancel_move(now_ns, v),
            (None, Some(Some(_))) => {} // the move has ended; the end is reported separately
            (None, _) => self.move_ended(order.job, failed("cancelled before it started")),
        }
    }

    pub(crate) fn move_ended(&mut self, job: u32, ended: JobProgress) {
        if let JobProgress::Done { copied_bytes } | JobProgress::Failed { copied_bytes, .. } = ended
        {
            let copied = self.host.copied.entry(job).or_default();
            *copied = copied_bytes.max(*copied);
        }
        self.host.jobs.insert(job, Some(ended));
        self.host.news = true;
    }

    pub(crate) fn move_results(&mut self) -> (MoveTotals, Vec<MoveRecord>) {
        self.host.note();
        let model = self.model;
        let mut totals = MoveTotals::default();
        let (mut volumes, mut vms) = (vec![], vec![]);
        let mut log = Vec::new();
        for (job, view) in std::mem::take(&mut self.host.log) {
            let v = self.host.volumes[&view.volume];
            let volume = &model.volumes[v];
            let ended = view.ended_ns.is_some();
            match view.state {
                JobStatus::Done => totals.done += 1,
                _ if !ended => totals.under_way += 1,
                _ if view.started_ns.is_none() => totals.dropped += 1,
                _ => totals.not_done += 1,
            }
            let moving = self.moving[v].as_ref().filter(|m| m.job == job);
            let under_way = moving.map(|m| m.copied().0);
            let bytes = under_way.or(self.host.copied.get(&job).copied());
            let bytes = bytes.unwrap_or(view.copied_bytes);
            totals.bytes += bytes;
            if bytes > 0 {
                volumes.push(v);
                vms.push(volume.vm);
            }
            let seconds = |ns: u64| Nanos(ns).as_secs_f64();
            let outcome = self.host.outcomes.get(&job);
            log.push(MoveRecord {
                volume: view.volume,
                vm: model.vms[volume.vm.index()].clone(),
                from: view.from_tier,
                to: view.to_tier,
                devices: (view.from, view.to),
                planned_s: seconds(view.planned_ns),
                started_s: view.started_ns.map(seconds),
                ended_s: view.ended_ns.map(seconds),
                state: view.state,
                why_not: view.why,
                reason: view.reason,
                is_remedy: view.generation == OF_NO_PLAN,
                extents: view.extents.as_ref().map(ExtentRanges::count),
                ranges: view.extents.clone(),
                bytes,
                predicted_us: view.after_us,
                before_us: view.before_us,
                range_us: outcome.and_then(|o| o.predicted_range_us),
                observed_us: outcome.and_then(|o| o.observed_us),
            });
        }
        volumes.sort_unstable();
        volumes.dedup();
        vms.sort_unstable();
        vms.dedup();
        totals.volumes = volumes.len() as u64;
        totals.vms = vms.len() as u64;
        (totals, log)
    }
}

fn failed(why: &str) -> JobProgress {
    JobProgress::Failed {
        why: why.into(),
        copied_bytes: 0,
    }
}
