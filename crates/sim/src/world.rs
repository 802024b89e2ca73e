//! The request path: from a request, through the throttle's and the cache's answers, to the devices and into the measurements.

use std::collections::VecDeque;
use std::sync::Arc;

use algo::DeviceModel;
use model::Op;
use planner::Granularity;
use units::{DeviceId, VolumeId};
use volume::{DeviceIo, Request, SlackBoard, Submission, Ticket, VolumeMap};

use crate::Model;
use crate::agenda::{Agenda, Event};
use crate::cache_model::CachePlace;
use crate::cache_stage::{CacheStage, Destage};
use crate::deferred::Done;
use crate::device::{Io, SimDevice};
use crate::flash_config::FlashModel;
use crate::flash_device::FlashDevice;
use crate::heat::ExtentCounters;
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

/// Who waits for a request that is held back.
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
    /// In front of the devices, where the scenario has one.
    pub(crate) cache: Option<Box<CacheStage>>,
    /// By volume.
    pub(crate) limited: Vec<Limited>,
    /// Whether any volume is limited.
    pub(crate) limits: bool,
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

impl World {
    pub(crate) fn new(model: &Model, granularity: Granularity) -> Self {
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
    pub(crate) fn perform(
        &mut self,
        issue: &Issue,
        now_ns: u64,
        agenda: &mut Agenda,
    ) -> Option<u64> {
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

pub(crate) fn main_device(map: &VolumeMap) -> DeviceId {
    map.main_device().expect("simulated volumes have no holes")
}
