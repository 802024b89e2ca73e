//! Request path: from the issue of a request, through throttle and cache, to the devices and the measurements.

use std::collections::VecDeque;

use algo::DeviceModel;
use model::Op;
use planner::Granularity;
use units::{DeviceId, VolumeId};
use volume::{DeviceIo, Request, SlackBoard, Submission, Ticket, VolumeMap};

use crate::Model;
use crate::agenda::{Agenda, Event};
use crate::answering::{Journey, ReplyWaiter, ServedPart, Servers, Watch};
use crate::cache_model::CachePlace;
use crate::cache_stage::{CacheStage, Destage};
use crate::deferred::CompletedRequest;
use crate::device::{Io, SimDevice};
use crate::disks::DiskGroup;
use crate::flash_device::FlashDevice;
use crate::heat::ExtentCounters;
use crate::mirroring::MirrorCounts;
use crate::requests::{RequestLog, Stages};
use crate::slots::{Slots, first_places};
use crate::source::Issue;
use crate::stats::Stats;
use crate::throttling::VolumeThrottle;

/// Route of a volume that is not entirely on one device.
const COMPLEX: u16 = u16::MAX;

/// Age in windows from which a measurement of slack is too old to use.
const SLACK_OLD_WINDOWS: u64 = 3;

/// Request that the volume core holds.
pub(crate) struct HeldRequest {
    pub(crate) issue: Issue,
    pub(crate) who: Waits,
}

/// Result of a request.
#[derive(Clone, Copy)]
pub(crate) enum RequestResult {
    /// Completes at this time.
    At(u64),
    /// Its reply is in transit; the number identifies it.
    OnItsWay(u32),
    /// The request is held.
    Held,
}

/// Waiter for a held request or for a reply.
#[derive(Clone, Copy)]
pub(crate) enum Waits {
    /// Event of a source.
    Source(u32),
    /// No waiter: open replay.
    Nobody,
    /// The cache, which destages a page.
    Cache,
}

/// Devices, volumes, and all other state of the request path.
pub(crate) struct World {
    pub(crate) devices: Vec<SimDevice>,
    /// Slots of extents, by device.
    pub(crate) slots: Vec<Slots>,
    pub(crate) tier_of_device: Vec<u16>,
    pub(crate) maps: Vec<VolumeMap>,
    /// [`VolumeMap::sole_device`] of every volume, cached in an array. [`COMPLEX`] if the volume has no sole device, or
    /// if addresses matter on that device.
    route: Vec<u16>,
    pub(crate) inject_ns: Vec<u64>,
    /// Compute servers in front of the array, if the scenario has any.
    pub(crate) servers: Option<Box<Servers>>,
    /// Cache in front of the devices, if the scenario has one.
    pub(crate) cache: Option<Box<CacheStage>>,
    /// Measurements for remedies.
    pub(crate) watch: Option<Box<Watch>>,
    /// True if servers, cache or watch exist.
    staged: bool,
    /// True if requests are counted in more places than their volume and device.
    always_counts: bool,
    /// True if the run has none of these stages, no limits and no additional counts.
    plain: bool,
    /// Throttles, by volume.
    pub(crate) limited: Vec<VolumeThrottle>,
    /// True if any volume is throttled.
    pub(crate) limits: bool,
    /// Counts of mirrored reads, if extents can be mirrored.
    pub(crate) mirror_counts: Option<Box<MirrorCounts>>,
    /// Access counters of extents, for strategies that place extents.
    pub(crate) heat: Option<ExtentCounters>,
    /// Completion time of the last request issued so far, by volume.
    pub(crate) last_done_ns: Vec<u64>,
    pub(crate) stats: Stats,
    /// Slack of the guests' objectives in the last window, which moves yield to. Each device has two entries: the slack
    /// of the volume with the least, and the least slack of all other volumes.
    pub(crate) slack: SlackBoard,
    /// Volume with the least slack, by device.
    pub(crate) worst: Vec<usize>,
    pub(crate) held: Vec<VecDeque<HeldRequest>>,
    /// Tickets of outstanding requests on moving volumes.
    tickets: Vec<Option<Ticket>>,
    free_tickets: Vec<u32>,
    parts: Vec<DeviceIo>,
    destages: Vec<Destage>,
    pub(crate) requests: u64,
    /// Log of single requests, if the caller wants one.
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
            limited: (0..n).map(|_| VolumeThrottle::default()).collect(),
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

    /// Returns the number of a device whose service time does not depend on the address, else [`COMPLEX`].
    fn anywhere(&self, device: Option<DeviceId>) -> u16 {
        let any = device.filter(|d| !self.devices[d.index()].has_addresses());
        any.map_or(COMPLEX, |d| d.0)
    }

    /// Updates the cached route of a volume. Must follow every change of the volume's map.
    pub(crate) fn refresh_route(&mut self, volume: usize) {
        self.route[volume] = self.anywhere(self.maps[volume].sole_device());
    }

    /// Performs a request at `now_ns` that goes directly to one device and is counted only for its volume and device.
    /// Returns its completion time. For any other request, does nothing and returns `None`.
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

    /// Performs one request at `now_ns`.
    #[inline]
    pub(crate) fn perform(
        &mut self,
        issue: &Issue,
        now_ns: u64,
        agenda: &mut Agenda,
    ) -> RequestResult {
        if self.staged {
            return self.perform_staged(issue, now_ns, agenda);
        }
        self.perform_by_extents(issue, now_ns, agenda)
    }

    /// Performs a request without stages in front of the devices: on a volume with several devices, on a device with
    /// addresses, or with additional counts.
    #[inline(never)]
    fn perform_by_extents(
        &mut self,
        issue: &Issue,
        now_ns: u64,
        agenda: &mut Agenda,
    ) -> RequestResult {
        match self.on_devices(issue, now_ns, agenda) {
            Some((done_ns, device)) => {
                let done_ns = self.answered(issue, (done_ns, device));
                let by = self.tier_of_device[usize::from(device)].into();
                self.log_request(issue, ServedPart { done_ns, by });
                RequestResult::At(done_ns)
            }
            None => RequestResult::Held,
        }
    }

    /// Performs a request through all stages in front of the devices.
    #[inline(never)]
    fn perform_staged(&mut self, issue: &Issue, now_ns: u64, agenda: &mut Agenda) -> RequestResult {
        let Some(mut servers) = self.servers.take() else {
            return match self.in_array(issue, now_ns, agenda) {
                Some(served) => RequestResult::At(self.seen(issue, now_ns, served)),
                None => RequestResult::Held,
            };
        };
        let performed = match self.through_servers(&mut servers, issue, now_ns, agenda) {
            None => RequestResult::Held,
            Some((journey, by)) if !servers.answer_later() => {
                let done_ns = journey.at_ns;
                RequestResult::At(self.seen(issue, now_ns, ServedPart { done_ns, by }))
            }
            Some(way) => {
                if let Some(watch) = &mut self.watch {
                    watch.set_out(issue, now_ns);
                }
                // The devices complete the request before its reply is in transit.
                let last_ns = &mut self.last_done_ns[issue.volume as usize];
                *last_ns = way.0.at_ns.max(*last_ns);
                let nobody_yet = ReplyWaiter::Guest(Waits::Nobody);
                RequestResult::OnItsWay(servers.set_out(issue, nobody_yet, way, agenda))
            }
        };
        self.servers = Some(servers);
        performed
    }

    /// Records a request whose completion time is known at its issue. Returns the time at which the guest sees it
    /// complete.
    #[inline]
    fn seen(&mut self, issue: &Issue, now_ns: u64, served: ServedPart) -> u64 {
        if let Some(watch) = &mut self.watch {
            watch.issued(issue, now_ns, served.done_ns);
        }
        self.record_seen(issue, served);
        served.done_ns
    }

    #[inline]
    fn record_seen(&mut self, issue: &Issue, served: ServedPart) {
        let v = issue.volume as usize;
        let done = done(issue, served.done_ns);
        self.stats.record(v, served.by, direction(issue), done);
        self.last_done_ns[v] = self.last_done_ns[v].max(served.done_ns);
        self.log_request(issue, served);
    }

    #[inline]
    fn log_request(&mut self, issue: &Issue, served: ServedPart) {
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

    /// Starts to log requests in [`World::request_log`].
    pub(crate) fn log_requests(&mut self) {
        self.request_log = Some(Box::default());
        self.refresh_limits();
    }

    /// Returns the log of requests, if requests are logged.
    pub(crate) fn request_log(&mut self) -> Option<&mut RequestLog> {
        self.request_log.as_deref_mut()
    }

    /// Records a reply that was in transit and has reached the guest.
    pub(crate) fn arrived(&mut self, issue: &Issue, now_ns: u64, by: usize) {
        if let Some(watch) = &mut self.watch {
            watch.arrived(issue.volume, now_ns);
        }
        let done_ns = now_ns;
        self.record_seen(issue, ServedPart { done_ns, by });
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

    /// Performs a request at the array, behind servers and links.
    #[inline]
    fn in_array(&mut self, issue: &Issue, now_ns: u64, agenda: &mut Agenda) -> Option<ServedPart> {
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
    ) -> Option<ServedPart> {
        let by = self.stats.cache().expect("there is one");
        let hit = |done_ns| Some(ServedPart { done_ns, by });
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
                // Adjacent pages are written as one.
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

    /// Performs a request, or the part of it that no cache has, that a guest waits for. Counts it for the devices if
    /// these counts differ from those that guests see.
    #[inline]
    fn behind_cache(
        &mut self,
        part: &Issue,
        now_ns: u64,
        agenda: &mut Agenda,
    ) -> Option<ServedPart> {
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
        Some(ServedPart {
            done_ns: done_ns + injected_ns,
            by: self.tier_of_device[device as usize] as usize,
        })
    }

    /// Reads the next part of an appliance's warm-up.
    pub(crate) fn warm_read(
        &mut self,
        (run, appliance): (u32, u32),
        issue: &Issue,
        now_ns: u64,
        agenda: &mut Agenda,
    ) -> RequestResult {
        let Some((done_ns, device)) = self.on_devices(issue, now_ns, agenda) else {
            return RequestResult::Held;
        };
        let v = issue.volume as usize;
        let on_devices = done(issue, done_ns);
        self.stats
            .record_on_devices(v, direction(issue), on_devices, 0, false);
        self.last_done_ns[v] = self.last_done_ns[v].max(done_ns);
        let served = ServedPart {
            done_ns,
            by: self.tier_of_device[device as usize] as usize,
        };
        let servers = self.servers.as_mut().expect("an appliance is on one");
        let journey = servers.warmed(appliance, issue, now_ns, served, &mut self.watch);
        if !servers.answer_later() {
            return RequestResult::At(journey.at_ns);
        }
        let way = (journey, served.by);
        RequestResult::OnItsWay(servers.set_out(issue, ReplyWaiter::Warm(run), way, agenda))
    }

    /// Starts to log accesses, if the scenario has remedies.
    pub(crate) fn log_accesses(&mut self) {
        if let Some(watch) = &mut self.watch {
            watch.log_accesses();
        }
    }

    /// Returns the servers. They exist if appliances do.
    pub(crate) fn servers_mut(&mut self) -> &mut Servers {
        self.servers.as_mut().expect("an appliance is on one")
    }

    /// Destages a page that the cache evicts, in parallel with the request that causes the eviction.
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
            false => self.held[page.volume as usize].push_back(HeldRequest {
                issue,
                who: Waits::Cache,
            }),
        }
    }

    /// Writes a page to the devices, unless the volume core holds it.
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

    /// Performs one request on the devices at `now_ns`. Returns its completion time and the device that serves it;
    /// `None` if it is held.
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

    /// Submits a request of a volume to a device and returns its completion time.
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

    /// Records a request that a device completes at the given time. Returns the time at which its source sees it
    /// complete.
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

    /// Performs a request on a volume that is moving or is on several devices.
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
        // The part that the map routed last serves the authoritative copy; mirrored parts come before it. A flush goes
        // to all devices.
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

    /// Returns the time at which the throttle admits a request that arrives now; `None` if it admits it at once.
    #[inline]
    pub(crate) fn admit(&mut self, issue: &Issue, now_ns: u64) -> Option<u64> {
        match self.limits {
            true => self.limited[issue.volume as usize].until(now_ns, issue),
            false => None,
        }
    }

    /// Stores a held request until its time, or until the volume core releases it.
    #[cold]
    pub(crate) fn hold(&mut self, held: HeldRequest, until_ns: Option<u64>, agenda: &mut Agenda) {
        let volume = held.issue.volume;
        match until_ns {
            Some(until_ns) => {
                self.limited[volume as usize].wait(until_ns, held);
                agenda.at(until_ns, Event::Admitted { volume });
            }
            None => self.held[volume as usize].push_back(held),
        }
    }

    /// Updates the flags for limits. Must follow every change of a volume's limits.
    pub(crate) fn refresh_limits(&mut self) {
        self.limits = self.limited.iter().any(VolumeThrottle::limits_anything);
        self.plain =
            !self.staged && !self.always_counts && !self.limits && self.request_log.is_none();
    }

    /// Destages a page that was held. Returns true if it was written.
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

    /// Frees slots that no outstanding request uses any more.
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

/// Returns the direction for counts: reads, or all operations that change data.
#[inline]
fn direction(issue: &Issue) -> usize {
    usize::from(issue.op != Op::Read)
}

/// Returns the measurement of a request that completes at the given time.
#[inline]
fn done(issue: &Issue, at_ns: u64) -> CompletedRequest {
    let has_data = issue.op as u8 <= Op::Write as u8;
    CompletedRequest {
        arrival_ns: issue.arrival_ns,
        at_ns,
        bytes: if has_data { issue.length } else { 0 },
    }
}

/// Returns a request, or one part of it, for a device.
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
