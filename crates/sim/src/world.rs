//! The request path: from a request, through the throttle's and the cache's answers, to the devices and into the measurements.

use std::collections::VecDeque;

use algo::DeviceModel;
use model::Op;
use planner::Granularity;
use units::{DeviceId, VolumeId};
use volume::{DeviceIo, Request, SlackBoard, Submission, Ticket, VolumeMap};

use crate::Model;
use crate::agenda::{Agenda, Event};
use crate::answering::{Journey, Served, Servers, Watch, Whose};
use crate::cache_model::CachePlace;
use crate::cache_stage::{CacheStage, Destage};
use crate::deferred::Done;
use crate::device::{Io, SimDevice};
use crate::disks::DiskGroup;
use crate::flash_device::FlashDevice;
use crate::heat::ExtentCounters;
use crate::mirroring::MirrorCounts;
use crate::requests::{RequestLog, Stages};
use crate::slots::{Slots, first_places};
use crate::source::Issue;
use crate::stats::Stats;
use crate::throttling::Limited;

/// A volume that is not simply on one device.
const COMPLEX: u16 = u16::MAX;

/// What was measured in a window is old after so many of them.
const SLACK_OLD_WINDOWS: u64 = 3;

/// A request that the volume core holds back.
pub(crate) struct Held {
    pub(crate) issue: Issue,
    pub(crate) who: Waits,
}

/// What became of a request.
#[derive(Clone, Copy)]
pub(crate) enum Performed {
    /// It is answered at that time.
    At(u64),
    /// Its answer is on its way, by its number.
    OnItsWay(u32),
    /// It is held back.
    Held,
}

/// Who waits for a request that is held back, or for an answer.
#[derive(Clone, Copy)]
pub(crate) enum Waits {
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
    /// Before the array, where the scenario has some.
    pub(crate) servers: Option<Box<Servers>>,
    /// In front of the devices, where the scenario has one.
    pub(crate) cache: Option<Box<CacheStage>>,
    /// For answers to broken objectives.
    pub(crate) watch: Option<Box<Watch>>,
    /// Whether there is any of these.
    staged: bool,
    /// Whether more is counted of requests than what their volume and device have.
    always_counts: bool,
    /// Whether there is none of all these, and no limit.
    plain: bool,
    /// By volume.
    pub(crate) limited: Vec<Limited>,
    /// Whether any volume is limited.
    pub(crate) limits: bool,
    /// Where extents may have second copies.
    pub(crate) mirror_counts: Option<Box<MirrorCounts>>,
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
    /// For callers that ask for single requests.
    request_log: Option<Box<RequestLog>>,
}

impl World {
    pub(crate) fn new(model: &Model, granularity: Granularity) -> Self {
        let n = model.volumes.len();
        let all = &model.topology.devices;
        let (slots, maps) = first_places(&model.volumes, model.extent, all.len());
        let device = |d: usize| match (&model.flash[d], &model.disks[d]) {
            (Some(flash), _) => SimDevice::Flash(Box::new(FlashDevice::new(flash, d, &maps))),
            (None, Some(disks)) => SimDevice::Disks(Box::new(DiskGroup::new(disks))),
            (None, None) => SimDevice::Queue(DeviceModel::new(&model.actual[d])),
        };
        let devices: Vec<SimDevice> = (0..all.len()).map(device).collect();
        let stats = Stats::new(model);
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
            servers: model.servers.as_ref().map(|servers| {
                let by = stats.appliances().expect("it has servers");
                Box::new(Servers::new(servers, by))
            }),
            watch: Watch::new(model).map(Box::new),
            plain: true,
            always_counts: granularity == Granularity::Extent || model.mirrors.is_some(),
            staged: model.cache.is_some() || model.servers.is_some() || model.remedies.is_some(),
            limited: (0..n).map(|_| Limited::default()).collect(),
            limits: false,
            mirror_counts: MirrorCounts::new(model).map(Box::new),
            heat: match granularity {
                Granularity::Volume => None,
                Granularity::Extent => Some(ExtentCounters::new(model)),
            },
            last_done_ns: vec![0; n],
            stats,
            slack: SlackBoard::new(2, SLACK_OLD_WINDOWS * model.window.0),
            worst: vec![usize::MAX; model.flash.len()],
            held: (0..n).map(|_| VecDeque::new()).collect(),
            tickets: Vec::new(),
            free_tickets: Vec::new(),
            parts: Vec::new(),
            destages: Vec::new(),
            requests: 0,
            request_log: None,
        };
        (0..n).for_each(|v| world.refresh_route(v));
        world.refresh_limits();
        world
    }

    /// A device by its number, if it serves requests wherever they go on it.
    fn anywhere(&self, device: Option<DeviceId>) -> u16 {
        let any = device.filter(|d| !self.devices[d.index()].has_addresses());
        any.map_or(COMPLEX, |d| d.0)
    }

    /// Must follow every change of a volume's map.
    pub(crate) fn refresh_route(&mut self, volume: usize) {
        self.route[volume] = self.anywhere(self.maps[volume].sole_device());
    }

    /// One request at `now_ns` that goes to a device as it is, and of which nothing is counted but what its volume and device have: when it
    /// completes; none of any other request, for which nothing is done.
    #[inline(always)]
    pub(crate) fn perform_plainly(&mut self, issue: &Issue, now_ns: u64) -> Option<u64> {
        let device = self.route[issue.volume as usize];
        if !self.plain {
            return None;
        }
        let Some(SimDevice::Queue(queue)) = self.devices.get_mut(usize::from(device)) else {
            return None;
        };
        let done_ns = queue.submit(now_ns, issue.op, issue.length, issue.bits);
        self.requests += 1;
        Some(self.answered(issue, (done_ns, device)))
    }

    /// One request at `now_ns`.
    #[inline]
    pub(crate) fn perform(&mut self, issue: &Issue, now_ns: u64, agenda: &mut Agenda) -> Performed {
        if self.staged {
            return self.perform_staged(issue, now_ns, agenda);
        }
        self.perform_by_extents(issue, now_ns, agenda)
    }

    /// The same without anything before the devices: on a volume that lies on several, or on one whose addresses matter, or of which more is counted.
    #[inline(never)]
    fn perform_by_extents(&mut self, issue: &Issue, now_ns: u64, agenda: &mut Agenda) -> Performed {
        match self.on_devices(issue, now_ns, agenda) {
            Some((done_ns, device)) => {
                let done_ns = self.answered(issue, (done_ns, device));
                let by = self.tier_of_device[usize::from(device)].into();
                self.log_request(issue, Served { done_ns, by });
                Performed::At(done_ns)
            }
            None => Performed::Held,
        }
    }

    /// The same through whatever is before the devices.
    #[inline(never)]
    fn perform_staged(&mut self, issue: &Issue, now_ns: u64, agenda: &mut Agenda) -> Performed {
        let Some(mut servers) = self.servers.take() else {
            return match self.in_array(issue, now_ns, agenda) {
                Some(served) => Performed::At(self.seen(issue, now_ns, served)),
                None => Performed::Held,
            };
        };
        let performed = match self.through_servers(&mut servers, issue, now_ns, agenda) {
            None => Performed::Held,
            Some((journey, by)) if !servers.answer_later() => {
                let done_ns = journey.at_ns;
                Performed::At(self.seen(issue, now_ns, Served { done_ns, by }))
            }
            Some(way) => {
                if let Some(watch) = &mut self.watch {
                    watch.set_out(issue, now_ns);
                }
                // Devices are done with it before it is on its way.
                let last_ns = &mut self.last_done_ns[issue.volume as usize];
                *last_ns = way.0.at_ns.max(*last_ns);
                let nobody_yet = Whose::Guest(Waits::Nobody);
                Performed::OnItsWay(servers.set_out(issue, nobody_yet, way, agenda))
            }
        };
        self.servers = Some(servers);
        performed
    }

    /// A request that its guest sees answered at a time that is known as it is issued.
    #[inline]
    fn seen(&mut self, issue: &Issue, now_ns: u64, served: Served) -> u64 {
        if let Some(watch) = &mut self.watch {
            watch.issued(issue, now_ns, served.done_ns);
        }
        self.record_seen(issue, served);
        served.done_ns
    }

    #[inline]
    fn record_seen(&mut self, issue: &Issue, served: Served) {
        let v = issue.volume as usize;
        let done = done(issue, served.done_ns);
        self.stats.record(v, served.by, direction(issue), done);
        self.last_done_ns[v] = self.last_done_ns[v].max(served.done_ns);
        self.log_request(issue, served);
    }

    #[inline]
    fn log_request(&mut self, issue: &Issue, served: Served) {
        if let Some(log) = &mut self.request_log {
            let cache = self.cache.as_ref();
            let stages = Stages {
                cache: self.stats.cache(),
                appliances: self.stats.appliances(),
                is_cached: cache.is_some_and(|c| c.place(issue.volume).is_some()),
            };
            log.put(issue, served, stages);
        }
    }

    /// Logs requests from now on, in [`World::request_log`].
    pub(crate) fn log_requests(&mut self) {
        self.request_log = Some(Box::default());
        self.refresh_limits();
    }

    /// The log of requests, if they are logged.
    pub(crate) fn request_log(&mut self) -> Option<&mut RequestLog> {
        self.request_log.as_deref_mut()
    }

    /// An answer that was on its way is there.
    pub(crate) fn arrived(&mut self, issue: &Issue, now_ns: u64, by: usize) {
        if let Some(watch) = &mut self.watch {
            watch.arrived(issue.volume, now_ns);
        }
        let done_ns = now_ns;
        self.record_seen(issue, Served { done_ns, by });
        self.stats
            .was_held(issue.volume as usize, issue.arrival_ns, now_ns);
    }

    #[inline]
    fn through_servers(
        &mut self,
        servers: &mut Servers,
        issue: &Issue,
        now_ns: u64,
        agenda: &mut Agenda,
    ) -> Option<(Journey, usize)> {
        if servers.stands_still(issue.volume) {
            return None;
        }
        let part = match servers.wants(issue) {
            None => None,
            Some(part) => Some((part, self.in_array(&part, now_ns, agenda)?)),
        };
        Some(servers.serve(issue, now_ns, part, &mut self.watch))
    }

    /// A request that gets to the array.
    #[inline]
    fn in_array(&mut self, issue: &Issue, now_ns: u64, agenda: &mut Agenda) -> Option<Served> {
        let served = match self.cache.take() {
            None => self.behind_cache(issue, now_ns, agenda),
            Some(mut cache) => {
                let served = match cache.place(issue.volume) {
                    Some(place) => self.through_cache(&mut cache, place, issue, now_ns, agenda),
                    None => self.behind_cache(issue, now_ns, agenda),
                };
                self.cache = Some(cache);
                served
            }
        }?;
        if let Some(watch) = self.watch.as_mut().filter(|_| issue.op == Op::Read) {
            watch.array_read(issue.volume, Some(served.by) == self.stats.cache());
        }
        Some(served)
    }

    #[inline]
    fn through_cache(
        &mut self,
        cache: &mut CacheStage,
        place: CachePlace,
        issue: &Issue,
        now_ns: u64,
        agenda: &mut Agenda,
    ) -> Option<Served> {
        let by = self.stats.cache().expect("there is one");
        let hit = |done_ns| Some(Served { done_ns, by });
        match issue.op {
            Op::Read => match cache.missing(place, issue) {
                None => {
                    cache.read(place, issue);
                    hit(now_ns + cache.hit_ns)
                }
                Some((offset, length)) => {
                    let part = Issue {
                        offset,
                        length,
                        ..*issue
                    };
                    let served = self.behind_cache(&part, now_ns, agenda)?;
                    cache.read(place, issue);
                    Some(served)
                }
            },
            Op::Write if cache.writes_back => {
                let mut pages = std::mem::take(&mut self.destages);
                // Neighbours are written as one.
                cache.write(place, issue, |page| match pages.last_mut() {
                    Some(last) if last.is_before(&page) => last.length += page.length,
                    _ => pages.push(page),
                });
                for page in pages.drain(..) {
                    self.destage(cache, issue, page, now_ns, agenda);
                }
                self.destages = pages;
                hit(cache.written_back(now_ns))
            }
            Op::Flush if cache.writes_back => hit(now_ns + cache.hit_ns),
            Op::Write => {
                let served = self.behind_cache(issue, now_ns, agenda)?;
                cache.write(place, issue, |_| unreachable!("nothing is dirty"));
                Some(served)
            }
            Op::Trim => {
                let served = self.behind_cache(issue, now_ns, agenda)?;
                cache.trim(place, issue);
                Some(served)
            }
            Op::Flush => self.behind_cache(issue, now_ns, agenda),
        }
    }

    /// A request, or what of it no cache has, that a guest waits for: counted as one of devices where that is not the same as what guests
    /// see.
    #[inline]
    fn behind_cache(&mut self, part: &Issue, now_ns: u64, agenda: &mut Agenda) -> Option<Served> {
        let (done_ns, device) = self.on_devices(part, now_ns, agenda)?;
        let (v, dir) = (part.volume as usize, direction(part));
        let injected_ns = self.inject_ns[v];
        if injected_ns > 0 {
            self.stats.record_injected(v, dir, injected_ns);
        }
        if self.stats.tells_devices() {
            let on_devices = done(part, done_ns);
            self.stats
                .record_on_devices(v, dir, on_devices, injected_ns, true);
        }
        Some(Served {
            done_ns: done_ns + injected_ns,
            by: self.tier_of_device[device as usize] as usize,
        })
    }

    /// A read of a warm-up, by its number, for an appliance.
    pub(crate) fn warm_read(
        &mut self,
        (run, appliance): (u32, u32),
        issue: &Issue,
        now_ns: u64,
        agenda: &mut Agenda,
    ) -> Performed {
        let Some((done_ns, device)) = self.on_devices(issue, now_ns, agenda) else {
            return Performed::Held;
        };
        let v = issue.volume as usize;
        let on_devices = done(issue, done_ns);
        self.stats
            .record_on_devices(v, direction(issue), on_devices, 0, false);
        self.last_done_ns[v] = self.last_done_ns[v].max(done_ns);
        let served = Served {
            done_ns,
            by: self.tier_of_device[device as usize] as usize,
        };
        let servers = self.servers.as_mut().expect("an appliance is on one");
        let journey = servers.warmed(appliance, issue, now_ns, served, &mut self.watch);
        if !servers.answer_later() {
            return Performed::At(journey.at_ns);
        }
        let way = (journey, served.by);
        Performed::OnItsWay(servers.set_out(issue, Whose::Warm(run), way, agenda))
    }

    /// From now on accesses are logged, where there is anything to be answered.
    pub(crate) fn log_accesses(&mut self) {
        if let Some(watch) = &mut self.watch {
            watch.log_accesses();
        }
    }

    /// Servers, which there are where there are appliances.
    pub(crate) fn servers_mut(&mut self) -> &mut Servers {
        self.servers.as_mut().expect("an appliance is on one")
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
        cache.destages_until(done_ns, issue.length);
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
            let done_ns = self.submit(usize::from(device), now_ns, &io(issue, None));
            (done_ns, device)
        } else {
            self.perform_complex(issue, now_ns, agenda)?
        };
        if let Some(heat) = &mut self.heat {
            heat.count(issue);
        }
        if let Some(counts) = &mut self.mirror_counts {
            counts.count(issue);
        }
        Some(served)
    }

    /// A request of a volume to a device: when it completes.
    #[inline]
    fn submit(&mut self, device: usize, now_ns: u64, io: &Io) -> u64 {
        let Some(watch) = &mut self.watch else {
            return self.devices[device].submit(now_ns, io);
        };
        let device_model = &mut self.devices[device];
        let before_ns = device_model.counters().busy_ns;
        let done_ns = device_model.submit(now_ns, io);
        let took_ns = device_model.counters().busy_ns - before_ns;
        let dir = usize::from(io.op != Op::Read);
        watch.took(io.volume.0, device, dir, took_ns as u64);
        done_ns
    }

    /// A request that a device answers at that time: when its source has it.
    #[inline(always)]
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
            let io = io(issue, Some(part));
            done = done.max(self.submit(part.device.index(), now_ns, &io));
        }
        // The truth is served by the part that the map routed last: mirrored parts come before it. A flush goes to all.
        let truth = parts.last().filter(|_| issue.op != Op::Flush);
        let device = truth.map_or(main_device(&self.maps[v]), |p| p.device);
        if let Some(counts) = &mut self.mirror_counts
            && issue.op == Op::Read
            && parts.len() == 1
            && counts.has(v)
            && self.maps[v].is_mirrored(issue.offset, issue.length)
        {
            counts.read(v, device, done - now_ns);
        }
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
    pub(crate) fn admit(&mut self, issue: &Issue, now_ns: u64) -> Option<u64> {
        match self.limits {
            true => self.limited[issue.volume as usize].until(now_ns, issue),
            false => None,
        }
    }

    /// Keeps a request that is held back: until its time, or until the volume core lets it go.
    #[cold]
    pub(crate) fn hold(&mut self, held: Held, until_ns: Option<u64>, agenda: &mut Agenda) {
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
        self.plain =
            !self.staged && !self.always_counts && !self.limits && self.request_log.is_none();
    }

    /// Writes a page back that was held; whether it went.
    pub(crate) fn retry_destage(
        &mut self,
        issue: &Issue,
        now_ns: u64,
        agenda: &mut Agenda,
    ) -> bool {
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

    pub(crate) fn complete(&mut self, volume: usize, entry: u32) {
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
        Some(part) => {
            let copy = part.mirror && part.op != Op::Read;
            (part.op, part.at, part.length, copy)
        }
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

pub(crate) fn main_device(map: &VolumeMap) -> DeviceId {
    map.main_device().expect("simulated volumes have no holes")
}
