//! The event loop of a run.
//!
//! Two queues: the big one holds the next time of every trace and every client slot and is worked off in a tight loop; the
//! small one holds everything that is rare (windows, epochs, calibration steps, copies, completions on volumes that are
//! being moved). Requests run up to the next rare event, then that is handled.

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

use algo::{DeviceModel, EventHeap};
use manager::controller::Controller;
use model::{Op, Report};
use planner::assign::{self, Problem};
use planner::{AnyStrategy, AssignmentTaken, Granularity};
use thiserror::Error;
use units::{Bytes, DeviceId, Nanos, VolumeId};
use volume::{DeviceIo, Request, Slack, SlackBoard, Submission, Ticket, VolumeMap};

use crate::Model;
use crate::cache_model::CachePlace;
use crate::cache_stage::{CacheStage, Destage};
use crate::deferred::Done;
use crate::device::{Io, SimDevice};
use crate::flash_config::FlashModel;
use crate::flash_device::FlashDevice;
use crate::heat::ExtentCounters;
use crate::host::Host;
use crate::moving::{MoveNo, Moving};
use crate::optimum::AssignmentRecord;
use crate::result::{DeviceSeries, Manifest, RUN_SCHEMA, RunResult, Series};
use crate::running::host_settings;
use crate::session::Session;
use crate::slots::{Slots, first_places};
use crate::source::{Issue, NEVER, Source, sources};
use crate::stats::Stats;
use crate::throttling::Limited;

/// A volume that is not simply on one device.
const COMPLEX: u16 = u16::MAX;

/// What was measured in a window is old after so many of them.
const SLACK_OLD_WINDOWS: u64 = 3;

/// What to keep besides the summary.
#[derive(Debug, Clone, Copy)]
pub struct RunOptions {
    /// Results over time.
    pub series: bool,
    /// Reports of all placement decisions.
    pub decisions: bool,
    /// Solves a decision's assignment problem exactly, where that is to be had: value of the optimum, in steps of a
    /// score.
    pub optimum: Option<fn(&Problem) -> Option<i64>>,
}

/// How far a run is.
#[derive(Debug, Clone, Copy)]
pub struct RunProgress {
    /// Simulated time.
    pub now: Nanos,
    /// Of so much.
    pub duration: Nanos,
    /// Requests so far.
    pub requests: u64,
}

/// Why a run ended early.
#[derive(Debug, Error)]
pub enum RunError {
    /// Nothing could be decided: a plan broke a rule, or the strategy failed.
    #[error("{0}")]
    Decision(String),
}

/// Something rare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    /// The time that a move asked for: mostly that of its next piece.
    MoveWake(MoveNo),
    /// A piece was read.
    CopyRead(MoveNo),
    /// A piece was written.
    CopyWritten(MoveNo),
    /// A request on a volume that is being moved is complete.
    Complete { volume: u32, entry: u32 },
    /// Every request that was issued before the relocation of a volume's batch began is complete.
    Earlier { volume: u32 },
    /// A calibration window ends.
    Calibration { volume: u32, session: u64 },
    /// An operator does something.
    Operator(u32),
    /// The agent's process ends.
    AgentLost,
    /// There is an agent again.
    AgentBack,
    /// A report that was late gets to the controller.
    LateReport(u32),
    /// A request of a volume that is limited may go.
    Admitted { volume: u32 },
    /// The limit of a volume ends by itself, unless there is a later one.
    LimitOver { volume: u32 },
    /// A measurement window ends.
    Window,
}

/// A request that the volume core holds back.
pub(crate) struct Held {
    issue: Issue,
    who: Waits,
}

/// Who waits for a request that is held back.
#[derive(Clone, Copy)]
enum Waits {
    /// The event of a source.
    Source(u32),
    /// Nobody: in open replay.
    Nobody,
    /// The cache, which writes a page back.
    Cache,
}

/// Devices and volumes: everything that the request path touches.
pub(crate) struct World {
    pub(crate) devices: Vec<SimDevice>,
    /// Places of extents, by device.
    pub(crate) slots: Vec<Slots>,
    pub(crate) tier_of_device: Vec<u16>,
    pub(crate) maps: Vec<VolumeMap>,
    /// [`VolumeMap::sole_device`] of every volume, kept in an array; [`COMPLEX`] where there is none, or one whose addresses matter.
    route: Vec<u16>,
    pub(crate) inject_ns: Vec<u64>,
    /// In front of the devices, where the scenario has one.
    pub(crate) cache: Option<Box<CacheStage>>,
    /// By volume.
    pub(crate) limited: Vec<Limited>,
    /// Whether any volume is limited.
    limits: bool,
    /// Only for strategies that place extents.
    pub(crate) heat: Option<ExtentCounters>,
    /// When the last of all requests issued so far completes, by volume.
    pub(crate) last_done_ns: Vec<u64>,
    pub(crate) stats: Stats,
    /// What guests left of their objectives in the last window, for moves to yield to: by device the word of the volume that has least,
    /// then that of all others.
    pub(crate) slack: SlackBoard,
    /// By device the volume that has least.
    pub(crate) worst: Vec<usize>,
    pub(crate) held: Vec<VecDeque<Held>>,
    /// Tickets of requests in flight on volumes that are being moved.
    tickets: Vec<Option<Ticket>>,
    free_tickets: Vec<u32>,
    parts: Vec<DeviceIo>,
    destages: Vec<Destage>,
    pub(crate) requests: u64,
}

impl Event {
    /// Order of events at the same time: a window sees what ended in it.
    fn rank(self) -> u8 {
        match self {
            Event::Window => 1,
            _ => 0,
        }
    }
}

/// The rare events, in order of time and, at the same time, of rank and arrival.
#[derive(Default)]
pub(crate) struct Agenda {
    events: BinaryHeap<Reverse<(u64, u8, u64, Event)>>,
    next: u64,
}

impl Agenda {
    pub(crate) fn at(&mut self, time_ns: u64, event: Event) {
        self.events
            .push(Reverse((time_ns, event.rank(), self.next, event)));
        self.next += 1;
    }

    fn first_time(&self) -> u64 {
        self.events.peek().map_or(NEVER, |e| e.0.0)
    }

    fn pop(&mut self) -> Option<(u64, Event)> {
        self.events
            .pop()
            .map(|Reverse((time, _, _, event))| (time, event))
    }
}

impl World {
    fn new(model: &Model, granularity: Granularity) -> Self {
        let n = model.volumes.len();
        let all = &model.topology.devices;
        let (slots, maps) = first_places(&model.volumes, model.extent, all.len());
        let device = |(d, flash): (usize, &Option<Arc<FlashModel>>)| match flash {
            None => SimDevice::Queue(DeviceModel::new(&model.actual[d])),
            Some(flash) => SimDevice::Flash(Box::new(FlashDevice::new(flash, d, &maps))),
        };
        let devices: Vec<SimDevice> = model.flash.iter().enumerate().map(device).collect();
        let mut world = Self {
            devices,
            slots,
            tier_of_device: model.topology.devices.iter().map(|d| d.tier.0).collect(),
            maps,
            route: vec![COMPLEX; n],
            inject_ns: vec![0; n],
            cache: model.cache.as_ref().map(|cache| {
                let sizes = model.volumes.iter().map(|v| v.size);
                Box::new(CacheStage::new(cache, sizes))
            }),
            limited: (0..n).map(|_| Limited::default()).collect(),
            limits: false,
            heat: match granularity {
                Granularity::Volume => None,
                Granularity::Extent => Some(ExtentCounters::new(model)),
            },
            last_done_ns: vec![0; n],
            stats: Stats::new(model),
            slack: SlackBoard::new(2, SLACK_OLD_WINDOWS * model.window.0),
            worst: vec![usize::MAX; model.flash.len()],
            held: (0..n).map(|_| VecDeque::new()).collect(),
            tickets: Vec::new(),
            free_tickets: Vec::new(),
            parts: Vec::new(),
            destages: Vec::new(),
            requests: 0,
        };
        (0..n).for_each(|v| world.refresh_route(v));
        world
    }

    /// A device by its number, if it serves requests wherever they go on it.
    fn anywhere(&self, device: Option<DeviceId>) -> u16 {
        let any = device.filter(|d| !self.devices[d.index()].is_flash());
        any.map_or(COMPLEX, |d| d.0)
    }

    /// Must follow every change of a volume's map.
    pub(crate) fn refresh_route(&mut self, volume: usize) {
        self.route[volume] = self.anywhere(self.maps[volume].sole_device());
    }

    /// One request at `now_ns`; when it completes, or `None` if it is held.
    #[inline]
    fn perform(&mut self, issue: &Issue, now_ns: u64, agenda: &mut Agenda) -> Option<u64> {
        if self.cache.is_some() {
            return self.perform_cached(issue, now_ns, agenda);
        }
        let served = self.on_devices(issue, now_ns, agenda)?;
        Some(self.answered(issue, served))
    }

    /// The same through the cache.
    fn perform_cached(&mut self, issue: &Issue, now_ns: u64, agenda: &mut Agenda) -> Option<u64> {
        let mut cache = self.cache.take().expect("there is one");
        let done = match cache.place(issue.volume) {
            Some(place) => self.through_cache(&mut cache, place, issue, now_ns, agenda),
            None => self.missed(issue, issue, now_ns, agenda),
        };
        self.cache = Some(cache);
        done
    }

    #[inline]
    fn through_cache(
        &mut self,
        cache: &mut CacheStage,
        place: CachePlace,
        issue: &Issue,
        now_ns: u64,
        agenda: &mut Agenda,
    ) -> Option<u64> {
        match issue.op {
            Op::Read => match cache.missing(place, issue) {
                None => {
                    cache.read(place, issue);
                    Some(self.hit(issue, now_ns + cache.hit_ns))
                }
                Some((offset, length)) => {
                    let part = Issue {
                        offset,
                        length,
                        ..*issue
                    };
                    let done = self.missed(issue, &part, now_ns, agenda)?;
                    cache.read(place, issue);
                    Some(done)
                }
            },
            Op::Write if cache.writes_back => {
                let mut pages = std::mem::take(&mut self.destages);
                cache.write(place, issue, |page| pages.push(page));
                for page in pages.drain(..) {
                    self.destage(cache, issue, page, now_ns, agenda);
                }
                self.destages = pages;
                let done_ns = cache.written_back(now_ns);
                Some(self.hit(issue, done_ns))
            }
            Op::Flush if cache.writes_back => Some(self.hit(issue, now_ns + cache.hit_ns)),
            Op::Write => {
                let done = self.missed(issue, issue, now_ns, agenda)?;
                cache.write(place, issue, |_| unreachable!("nothing is dirty"));
                Some(done)
            }
            Op::Trim => {
                let done = self.missed(issue, issue, now_ns, agenda)?;
                cache.trim(place, issue);
                Some(done)
            }
            Op::Flush => self.missed(issue, issue, now_ns, agenda),
        }
    }

    /// A request that the cache answers.
    #[inline]
    fn hit(&mut self, issue: &Issue, done_ns: u64) -> u64 {
        let served = done(issue, done_ns);
        let v = issue.volume as usize;
        self.stats
            .record(v, self.stats.cache(), direction(issue), served);
        self.last_done_ns[v] = self.last_done_ns[v].max(done_ns);
        done_ns
    }

    /// A request behind the cache for which the devices are asked for `part`.
    #[inline]
    fn missed(
        &mut self,
        issue: &Issue,
        part: &Issue,
        now_ns: u64,
        agenda: &mut Agenda,
    ) -> Option<u64> {
        let served = self.on_devices(part, now_ns, agenda)?;
        let v = issue.volume as usize;
        let on_devices = done(part, served.0);
        let injected_ns = self.inject_ns[v];
        self.stats
            .record_on_devices(v, direction(issue), on_devices, injected_ns, true);
        Some(self.answered(issue, served))
    }

    /// A page that the cache gives back, on the way to its devices beside the request that it goes for.
    fn destage(
        &mut self,
        cache: &mut CacheStage,
        issue: &Issue,
        page: Destage,
        now_ns: u64,
        agenda: &mut Agenda,
    ) {
        let issue = Issue {
            volume: page.volume,
            op: Op::Write,
            offset: page.offset,
            length: page.length,
            arrival_ns: now_ns,
            bits: issue.bits,
        };
        match self.destaged(cache, &issue, now_ns, agenda) {
            true => {}
            false => self.held[page.volume as usize].push_back(Held {
                issue,
                who: Waits::Cache,
            }),
        }
    }

    /// Writes a page to the devices, unless the volume core holds it back.
    fn destaged(
        &mut self,
        cache: &mut CacheStage,
        issue: &Issue,
        now_ns: u64,
        agenda: &mut Agenda,
    ) -> bool {
        let Some((done_ns, _)) = self.on_devices(issue, now_ns, agenda) else {
            return false;
        };
        let v = issue.volume as usize;
        self.stats
            .record_on_devices(v, direction(issue), done(issue, done_ns), 0, false);
        self.last_done_ns[v] = self.last_done_ns[v].max(done_ns);
        cache.destages_until(done_ns);
        true
    }

    /// One request to the devices at `now_ns`: when it completes, and the device that serves it; `None` if it is held.
    #[inline]
    fn on_devices(
        &mut self,
        issue: &Issue,
        now_ns: u64,
        agenda: &mut Agenda,
    ) -> Option<(u64, u16)> {
        let v = issue.volume as usize;
        let device = self.route[v];
        let device = if device == COMPLEX && issue.op != Op::Flush {
            let lone = self.maps[v].lone_device(issue.offset, issue.length);
            self.anywhere(lone)
        } else {
            device
        };
        let served = if device != COMPLEX {
            (
                self.devices[device as usize].submit(now_ns, &io(issue, None)),
                device,
            )
        } else {
            self.perform_complex(issue, now_ns, agenda)?
        };
        if let Some(heat) = &mut self.heat {
            heat.count(issue);
        }
        Some(served)
    }

    /// A request that a device answers at that time: when its source has it.
    #[inline]
    fn answered(&mut self, issue: &Issue, (mut at_ns, device): (u64, u16)) -> u64 {
        let v = issue.volume as usize;
        let dir = direction(issue);
        let injected = self.inject_ns[v];
        if injected > 0 {
            at_ns += injected;
            self.stats.record_injected(v, dir, injected);
        }
        let tier = self.tier_of_device[device as usize] as usize;
        self.stats.record(v, tier, dir, done(issue, at_ns));
        self.last_done_ns[v] = self.last_done_ns[v].max(at_ns);
        at_ns
    }

    /// On a volume that is being moved, or lies on several devices.
    #[cold]
    fn perform_complex(
        &mut self,
        issue: &Issue,
        now_ns: u64,
        agenda: &mut Agenda,
    ) -> Option<(u64, u16)> {
        let v = issue.volume as usize;
        let request = Request {
            op: issue.op,
            offset: issue.offset,
            length: issue.length,
        };
        let mut parts = std::mem::take(&mut self.parts);
        let submission = self.maps[v]
            .submit(request, &mut parts)
            .expect("loads were checked against sizes");
        let ticket = match submission {
            Submission::Issued(ticket) => ticket,
            Submission::Held => {
                self.parts = parts;
                return None;
            }
            Submission::NeedsPlace { .. } | Submission::NeedsCopy { .. } => {
                unreachable!("simulated volumes have no holes, and no snapshots")
            }
        };
        let mut done = now_ns;
        for part in &parts {
            let device = &mut self.devices[part.device.index()];
            done = done.max(device.submit(now_ns, &io(issue, Some(part))));
        }
        // The truth is served by the part that the map routed last: mirrored parts come before it. A flush goes to all.
        let truth = parts.last().filter(|_| issue.op != Op::Flush);
        let device = truth.map_or(main_device(&self.maps[v]), |p| p.device);
        self.parts = parts;
        if let Some(ticket) = ticket {
            let entry = self.free_tickets.pop().unwrap_or_else(|| {
                self.tickets.push(None);
                self.tickets.len() as u32 - 1
            });
            self.tickets[entry as usize] = Some(ticket);
            agenda.at(
                done,
                Event::Complete {
                    volume: issue.volume,
                    entry,
                },
            );
        }
        Some((done, device.0))
    }

    /// When a request may go that is asked for now; none if at once.
    #[inline]
    fn admit(&mut self, issue: &Issue, now_ns: u64) -> Option<u64> {
        match self.limits {
            true => self.limited[issue.volume as usize].until(now_ns, issue),
            false => None,
        }
    }

    /// Keeps a request that is held back: until its time, or until the volume core lets it go.
    #[cold]
    fn hold(&mut self, held: Held, until_ns: Option<u64>, agenda: &mut Agenda) {
        let volume = held.issue.volume;
        match until_ns {
            Some(until_ns) => {
                self.limited[volume as usize].wait(until_ns, held);
                agenda.at(until_ns, Event::Admitted { volume });
            }
            None => self.held[volume as usize].push_back(held),
        }
    }

    /// Must follow every change of a volume's limits.
    pub(crate) fn refresh_limits(&mut self) {
        self.limits = self.limited.iter().any(Limited::limits_anything);
    }

    /// Writes a page back that was held; whether it went.
    fn retry_destage(&mut self, issue: &Issue, now_ns: u64, agenda: &mut Agenda) -> bool {
        let mut cache = self.cache.take().expect("it is the cache's");
        let went = self.destaged(&mut cache, issue, now_ns, agenda);
        self.cache = Some(cache);
        went
    }

    /// Places that no request knows any more.
    pub(crate) fn give_back(&mut self, places: &mut Vec<volume::Location>) {
        for place in places.drain(..) {
            let device = place.device.index();
            self.slots[device].give_back(place.slot);
            if let Some(flash) = self.devices[device].flash() {
                flash.vacated(place.slot);
            }
        }
    }

    fn complete(&mut self, volume: usize, entry: u32) {
        let ticket = self.tickets[entry as usize]
            .take()
            .expect("a ticket completes once");
        self.free_tickets.push(entry);
        self.maps[volume].complete(ticket);
    }
}

/// Reads count apart from all that changes data.
#[inline]
fn direction(issue: &Issue) -> usize {
    usize::from(issue.op != Op::Read)
}

/// A request that is answered at that time.
#[inline]
fn done(issue: &Issue, at_ns: u64) -> Done {
    let has_data = issue.op as u8 <= Op::Write as u8;
    Done {
        arrival_ns: issue.arrival_ns,
        at_ns,
        bytes: if has_data { issue.length } else { 0 },
    }
}

/// A request, or a part of it, to a device.
#[inline]
fn io(issue: &Issue, part: Option<&DeviceIo>) -> Io {
    let (op, at, length, copy) = match part {
        None => (issue.op, 0, issue.length, false),
        Some(part) => (part.op, part.at, part.length, part.mirror),
    };
    Io {
        op,
        at,
        length,
        volume: VolumeId(issue.volume),
        copy,
        bits: issue.bits,
    }
}

fn main_device(map: &VolumeMap) -> DeviceId {
    map.main_device().expect("simulated volumes have no holes")
}

/// A run under way.
pub(crate) struct Simulation<'a> {
    pub(crate) model: &'a Model,
    pub(crate) world: World,
    pub(crate) agenda: Agenda,
    pub(crate) host: Host<'a>,
    pub(crate) copies: u64,
    pub(crate) used: Vec<Bytes>,
    pub(crate) reserved: Vec<Bytes>,
    /// By volume.
    pub(crate) moving: Vec<Option<Moving>>,
    pub(crate) sessions: Vec<Option<Session>>,
    end_ns: u64,
    heap: EventHeap,
    sources: Vec<Source<'a>>,
    origins: Vec<(u32, u32)>,
    decisions: Vec<Report>,
    assignments: Vec<AssignmentRecord>,
    options: RunOptions,
    devices_over_time: Vec<DeviceSeries>,
    busy_at_window: Vec<f64>,
}

/// Runs `model` under `strategy`. `progress` is called once per measurement window.
pub fn run(
    model: &Model,
    strategy: Box<dyn AnyStrategy>,
    manifest: Manifest,
    options: RunOptions,
    progress: &mut dyn FnMut(RunProgress),
) -> Result<RunResult, RunError> {
    let mut sim = Simulation::new(model, strategy, options);
    sim.foresee();
    loop {
        let until = sim.agenda.first_time().min(sim.end_ns);
        sim.run_requests(until);
        let Some((now, event)) = sim.agenda.pop().filter(|e| e.0 <= sim.end_ns) else {
            break;
        };
        sim.handle(now, event, progress)?;
    }
    Ok(sim.finish(manifest))
}

impl<'a> Simulation<'a> {
    fn new(model: &'a Model, strategy: Box<dyn AnyStrategy>, options: RunOptions) -> Self {
        let granularity = strategy.granularity();
        let controller = Controller::in_process(host_settings(model), strategy);
        let (sources, origins, starts) = sources(model);
        let mut heap = EventHeap::new();
        for (id, start) in starts.iter().enumerate().filter(|(_, s)| **s != NEVER) {
            heap.push(*start, id as u32);
        }
        let devices = &model.topology.devices;
        let mut used = vec![Bytes::ZERO; devices.len()];
        for v in &model.volumes {
            used[v.device.index()] += v.size;
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
            world: World::new(model, granularity),
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
        }
    }

    /// The tight loop: all requests before `until_ns` or the first rare event that they cause.
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
                Ok(issue) => {
                    let admitted = world.admit(&issue, now);
                    let done = match admitted {
                        None => world.perform(&issue, now, agenda),
                        Some(_) => None,
                    };
                    match done {
                        Some(done) => {
                            world.requests += 1;
                            source.next_after(now, done)
                        }
                        None => {
                            // `issue_late` puts the source back. A window-limited trace waits as a whole.
                            let waits = source.waits();
                            let who = match waits {
                                true => Waits::Source(id),
                                false => Waits::Nobody,
                            };
                            world.hold(Held { issue, who }, admitted, agenda);
                            if waits {
                                heap.pop();
                                continue;
                            }
                            source.next_after(now, now)
                        }
                    }
                }
            };
            if next == NEVER {
                heap.pop();
            } else {
                heap.reschedule_first(next);
            }
            // Only requests on volumes that are being moved or limited add rare events.
            until_ns = until_ns.min(agenda.first_time());
        }
    }

    fn handle(
        &mut self,
        now_ns: u64,
        event: Event,
        progress: &mut dyn FnMut(RunProgress),
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
            Event::Window => {
                self.end_window(now_ns);
                // A trace may take longer than its own span: until everything was issued and answered.
                let mut volumes = 0..self.model.volumes.len();
                let more = !self.heap.is_empty() || volumes.any(|v| self.waiting(v) > 0);
                if now_ns >= self.end_ns && more && now_ns < self.model.duration_max.0 {
                    self.end_ns += self.model.window.0;
                }
                self.agenda.at(now_ns + self.model.window.0, Event::Window);
                let (now, duration) = (Nanos(now_ns), Nanos(self.end_ns));
                progress(RunProgress {
                    now,
                    duration,
                    requests: self.world.requests,
                });
                // What is decided at the very end could not be carried out any more.
                if now_ns < self.end_ns {
                    self.report(now_ns)?;
                }
            }
        }
        self.tell_of_jobs(now_ns);
        Ok(())
    }

    /// Issues again what was held on a volume, in order, up to the first request that has to wait on.
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

    /// Issues a request that was held back; it comes back if the volume core holds it.
    pub(crate) fn issue_late(&mut self, now_ns: u64, held: Held) -> Option<Held> {
        let Some(done) = self.world.perform(&held.issue, now_ns, &mut self.agenda) else {
            return Some(held);
        };
        let (volume, arrival_ns) = (held.issue.volume as usize, held.issue.arrival_ns);
        self.world.stats.was_held(volume, arrival_ns, done);
        self.world.requests += 1;
        if let Waits::Source(id) = held.who {
            let (source, _) = self.origins[id as usize];
            let next = self.sources[source as usize].next_after(now_ns, done);
            if next != NEVER {
                self.heap.push(next, id);
            }
        }
        None
    }

    /// Requests of a volume that were issued, or held back, and not answered at the end of the last window.
    pub(crate) fn waiting(&self, volume: usize) -> u64 {
        let World {
            stats,
            held,
            limited,
            ..
        } = &self.world;
        let held = held[volume].len() + limited[volume].waiting().len();
        stats.in_flight(volume) + held as u64
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
            ..
        } = &mut self.world;
        let tier_of = |v: usize| tier_of_device[main_device(&maps[v]).index()] as usize;
        let asked = |h: &&Held| !matches!(h.who, Waits::Cache);
        let arrivals = |v: usize| {
            let held = held[v].iter().filter(asked);
            held.chain(limited[v].waiting()).map(|h| h.issue.arrival_ns)
        };
        stats.end_window(now_ns, tier_of, arrivals);
        if let Some(cache) = cache {
            cache.end_window(now_ns, stats.over_target());
            if now_ns == self.model.warmup.0 {
                cache.count_from_now();
            }
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
        if now_ns == self.model.warmup.0 {
            let flash = devices.iter_mut().filter_map(SimDevice::flash);
            flash.for_each(FlashDevice::count_from_now);
        }
    }

    /// Keeps what the controller has decided, as far as that is asked for.
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
        let counted_s = Nanos(self.world.stats.counted_ns).as_secs_f64();
        let unfinished = (0..self.model.volumes.len()).map(|v| self.waiting(v)).sum();
        let (groups, series) = self.world.stats.finish(self.model);
        let cache = self.world.cache.take().zip(self.model.cache.as_ref());
        let cache = cache.map(|(cache, of)| cache.finish(self.model, of));
        let (cache, cache_read_hit_ratio) = cache.unzip();
        RunResult {
            schema: RUN_SCHEMA.into(),
            manifest,
            simulated_s: Nanos(self.end_ns).as_secs_f64(),
            traces_ended: self.heap.is_empty(),
            unfinished,
            counted_s,
            groups,
            moves,
            move_log,
            wear,
            cache,
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

    /// The device that holds a volume, or most of it.
    pub(crate) fn device_of(&self, volume: usize) -> DeviceId {
        main_device(&self.world.maps[volume])
    }
}

/// A decision's placement beside what could have been; none where not everything may stay.
fn assignment_record(
    now_ns: u64,
    taken: &AssignmentTaken,
    optimum: Option<fn(&Problem) -> Option<i64>>,
) -> Option<AssignmentRecord> {
    let present = taken.problem.present()?;
    let (stay, value) = (present.value, taken.placement.value);
    // The literal form may end below staying, and beyond a limit that is hard.
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
